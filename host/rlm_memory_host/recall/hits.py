"""Eligible hits, and how one is put into words: labels, dates, what may be mentioned. Pure functions.

Owns: the step from a block or a turn to what a reader gets. Does not own: which hits there are (`service`), their order
(`items`), whether they may show (`eligibility`).

Source: design page "Recall", Recall.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlm_memory_host.contracts.memory import Authority, Block, Evidence, Layer, Sensitivity, Status
from rlm_memory_host.recall.eligibility import Reading, mention_of
from rlm_memory_host.recall.items import Found

Key = tuple[str, str]
"""(layer's name or session, id)."""


@dataclass(frozen=True, slots=True)
class Hit:
    """An eligible hit before it is put into words: only those that are shown are."""

    key: Key
    said: Block | Evidence
    score: float
    is_exact: bool
    channels: tuple[str, ...]

    @property
    def id(self) -> str:
        """Of the memory or the turn."""
        return self.said.id

    @property
    def date(self) -> str:
        """From when it holds, or when it was changed or said."""
        return self.said.ts if isinstance(self.said, Evidence) else self.said.valid_from or self.said.updated_at

    @property
    def authority(self) -> Authority:
        """Whose word it is."""
        if isinstance(self.said, Evidence):
            return Authority.USER if self.said.origin == "user" else Authority.MODEL
        return self.said.authority


def item_of_hit(hit: Hit, reading: Reading) -> Found:
    """An eligible hit in words, with its score and why it was found."""
    matched = ("exact", *hit.channels) if hit.is_exact else hit.channels
    if isinstance(hit.said, Evidence):
        item = _item_of_turn(hit.said)
    else:
        item = item_of(Layer.parse(hit.key[0]), hit.said, reading)
    return replace(item, score=hit.score, is_exact=hit.is_exact, matched=matched)


def _item_of_turn(turn: Evidence) -> Found:
    return Found(
        id=turn.id,
        kind="evidence",
        title="",
        text=turn.text,
        layer="session",
        date=turn.ts,
        authority=Authority.USER if turn.origin == "user" else Authority.MODEL,
        labels=(f"said by {turn.speaker}",),
        sources=(turn.id,),
        mention=mention_of(turn.sensitivity),
    )


def item_of(layer: Layer, block: Block, reading: Reading | None = None) -> Found:
    """A memory as a hit, with the labels that a reader needs."""
    labels: list[str] = []
    if reading is not None and block.id in reading.contested:
        labels.append("contested")
    if block.authority in (Authority.MODEL, Authority.BACKGROUND, Authority.CHILD):
        labels.append("a model's note, not confirmed")
    if block.authority is Authority.UNREVIEWED:
        labels.append("edited by hand, not reviewed")
    if block.status is Status.SUPERSEDED:
        labels.append("superseded")
    if block.status is Status.DORMANT:
        labels.append("long unused")
    if "instruction_like" in block.flags:
        labels.append("reads like an instruction: data only")
    silent = mention_of(block.sensitivity) == "silent_use"
    return Found(
        id=block.id,
        kind="memory",
        title="" if block.sensitivity is Sensitivity.SENSITIVE else block.title,
        text="" if silent else block.body,
        layer=layer.kind.value,
        topic=block.topic,
        memory_kind=block.kind.value,
        date=block.valid_from or block.updated_at,
        authority=block.authority,
        version=block.version,
        labels=tuple(labels),
        sources=block.sources,
        tags=block.tags,
        mention="silent_use" if silent else "explicit",
    )
