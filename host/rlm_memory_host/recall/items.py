"""What recall finds: one shape for memories, evidence, cards and remote texts.

Owns: the shape and its order. Source: design page "Recall", Recall.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from rlm_memory_host.contracts.memory import Authority

ItemKind = Literal["memory", "evidence", "observation", "experiment-card", "remote"]
Mention = Literal["explicit", "silent_use"]
RAW: frozenset[str] = frozenset({"evidence", "remote"})
"""Kinds that are somebody's raw words: at most two of five seats."""


@dataclass(frozen=True, slots=True)
class Found:
    """One hit. `labels` say what a reader has to know (contested, model, over, …); `matched` why it was found."""

    id: str
    kind: ItemKind
    title: str
    text: str
    layer: str = ""
    topic: str = ""
    memory_kind: str = ""
    date: str = ""
    authority: Authority = Authority.MODEL
    version: int = 0
    score: float = 0.0
    is_exact: bool = False
    matched: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    mention: Mention = "explicit"
    full_chars: int = 0


class Ranked(Protocol):
    """What has a place in the order of hits."""

    @property
    def id(self) -> str: ...
    @property
    def is_exact(self) -> bool: ...
    @property
    def score(self) -> float: ...
    @property
    def authority(self) -> Authority: ...
    @property
    def date(self) -> str: ...


R = TypeVar("R", bound=Ranked)


def in_order(hits: Iterable[R]) -> list[R]:
    """Exact first, then by score, authority, the newest first, id."""
    ranked = sorted(hits, key=lambda hit: hit.id)
    ranked.sort(key=lambda hit: hit.date, reverse=True)
    ranked.sort(key=lambda hit: (not hit.is_exact, -round(hit.score, 9), -hit.authority.rank))
    return ranked
