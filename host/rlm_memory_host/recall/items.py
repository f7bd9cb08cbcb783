"""What recall finds: one shape for memories, evidence, cards and remote texts.

Owns: the shape and its order. Source: design page "Recall", Recall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

    @property
    def order(self) -> tuple[object, ...]:
        """Exact first, then score, authority, newest, id."""
        return (not self.is_exact, -round(self.score, 9), -self.authority.rank, _descending(self.date), self.id)


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(character) for character in text)
