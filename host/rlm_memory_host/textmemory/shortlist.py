"""Which memories of a layer a new text is compared with: those that share words with it. Derived, in memory.

Owns: an inverted index of terms by layer, kept up with snapshots. Does not own: ranking for readers (`recall`).

Not thread-safe on its own; `Shortlist` holds its lock. A block that did not change is not read again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rlm_memory_host.contracts.memory import Block, Layer, Snapshot, Status
from rlm_memory_host.storage.tokens import document_terms
from rlm_memory_host.textmemory.judge import Said
from rlm_memory_host.textmemory.notes import DEFAULT_TOPICS
from rlm_memory_host.textmemory.sentences import fold

MOST: Final = 64


def said_of(block: Block) -> Said:
    """A block as the judge compares it."""
    topic = "" if block.topic in DEFAULT_TOPICS.values() else block.topic
    return Said(topic, block.title, block.body, block.id)


@dataclass(slots=True)
class _Words:
    blocks: dict[str, Block] = field(default_factory=dict[str, Block])
    terms: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    bodies: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add(self, block: Block) -> None:
        self.blocks[block.id] = block
        for term in _terms(said_of(block)):
            self.terms.setdefault(term, set()).add(block.id)
        self.bodies.setdefault(fold(block.body), set()).add(block.id)

    def drop(self, block: Block) -> None:
        self.blocks.pop(block.id, None)
        for term in _terms(said_of(block)):
            self.terms.get(term, set()).discard(block.id)
        self.bodies.get(fold(block.body), set()).discard(block.id)


class Shortlist:
    """Features by layer."""

    def __init__(self) -> None:
        self._layers: dict[Layer, _Words] = {}
        self._lock = threading.Lock()

    def near(self, snapshot: Snapshot, new: Said, is_wanted: Callable[[Block], bool]) -> list[Block]:
        """At most 64 blocks that share words with `new`, or say the same, nearest first."""
        with self._lock:
            words = self._kept_up(snapshot)
            shared: Counter[str] = Counter()
            for term in _terms(new):
                shared.update(words.terms.get(term, ()))
            for same in words.bodies.get(fold(new.body), ()):
                shared[same] += 1_000
            ranked = sorted(shared.items(), key=lambda item: (-item[1], item[0]))
            found = (words.blocks[memory_id] for memory_id, _ in ranked)
            return [block for block in found if is_wanted(block)][:MOST]

    def _kept_up(self, snapshot: Snapshot) -> _Words:
        words = self._layers.setdefault(snapshot.layer, _Words())
        present = {block.id: block for block in snapshot.blocks}
        for memory_id in [item for item in words.blocks if item not in present]:
            words.drop(words.blocks[memory_id])
        for memory_id, block in present.items():
            known = words.blocks.get(memory_id)
            if known is block:
                continue
            if known is not None:
                words.drop(known)
            words.add(block)
        return words


def is_comparable(block: Block) -> bool:
    """Whether a block is live enough to be repeated, refined or contradicted."""
    return block.status in (Status.ACTIVE, Status.DORMANT)


def _terms(said: Said) -> frozenset[str]:
    return frozenset(document_terms(f"{said.topic}\n{said.title}\n{said.body}"))
