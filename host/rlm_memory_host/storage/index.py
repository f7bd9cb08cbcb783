"""A project's index: packed arrays for the bulk where there are any, the newest cards in memory over them.

Owns: which part holds a card, cursors' horizons, putting a freshly packed part in place of an older state. Does not
own: the rules (`ranking`), the parts (`index_memory`, `index_packed`), their file (`index_file`), the cards. Without
numpy, or for few cards, all documents are in memory; the answers are the same to the last bit.

Not thread-safe; its owner holds a lock. Source: design page "Exact results", Search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from rlm_memory_host.storage import ranking
from rlm_memory_host.storage.index_build import Builder
from rlm_memory_host.storage.index_memory import MemoryPart
from rlm_memory_host.storage.index_packed import PackedPart
from rlm_memory_host.storage.ranking import Document, Found, Part, Query


@dataclass(slots=True)
class Pending:
    """What was handed out to be packed: the parts as they were, and what was removed from them since."""

    packed: PackedPart | None
    memory: MemoryPart
    mark: int
    removed: list[str] = field(default_factory=list[str])


class Index:
    """Documents by key. `len` counts the living."""

    def __init__(self, packed: PackedPart | None = None) -> None:
        self._packed = packed
        self._memory = MemoryPart()
        self._epoch = 0
        self._pending: Pending | None = None

    def __len__(self) -> int:
        return len(self._memory) + (0 if self._packed is None else len(self._packed))

    @property
    def horizon(self) -> tuple[int, int]:
        """(epoch, documents so far): what a cursor needs to see the same collection again."""
        return self._epoch, self._base + self._memory.size

    @property
    def newest(self) -> int:
        """Documents that are not packed, with the dead ones among them."""
        return self._memory.size

    @property
    def packed(self) -> int:
        """Documents that are packed, with the dead ones among them."""
        return self._base

    @property
    def _base(self) -> int:
        return 0 if self._packed is None else self._packed.size

    def has_horizon(self, epoch: int, horizon: int) -> bool:
        """Whether a cursor's collection can still be seen exactly."""
        return epoch == self._epoch and self._base <= horizon <= self.horizon[1]

    def get(self, key: str) -> Document | None:
        """The document of a key."""
        return self._memory.get(key) or (None if self._packed is None else self._packed.get(key))

    def identities(self) -> Iterable[tuple[str, tuple[int, int, int, int]]]:
        """Key and file identity of every document."""
        packed = () if self._packed is None else self._packed.identities()
        return chain(packed, ((item.key, item.identity) for item in self._memory.documents if item is not None))

    def in_states(self, states: frozenset[str]) -> Iterable[str]:
        """The keys of the documents in one of the states of remote indexing."""
        return chain(self._memory.in_states(states), () if self._packed is None else self._packed.in_states(states))

    def restate(self, document: Document) -> Document | None:
        """Change what is known of a card whose terms and facets stay, in its place, so that no page of a search loses
        it; what was known before, None where it is not among the newest and has to be added anew.
        """
        return None if self._pending is not None else self._memory.restate(document)

    def with_facet(self, facet: str) -> Iterable[Document]:
        """The documents with a facet, the newest first."""
        return chain(self._memory.with_facet(facet), () if self._packed is None else self._packed.with_facet(facet))

    def add(self, document: Document, facets: Iterable[str], weights: Mapping[str, float]) -> None:
        """Add a document, or replace the one with its key; see `MemoryPart.add`."""
        self.remove(document.key)
        self._memory.add(document, facets, weights)

    def remove(self, key: str) -> Document | None:
        """Remove a document and give it back; None when there is none."""
        document = self._memory.remove(key)
        if document is not None and self._memory.is_worn and self._pending is None:
            self._memory = self._memory.since(0)
            self._epoch += 1
        if document is None and self._packed is not None:
            document = self._packed.remove(key)
        if document is not None and self._pending is not None:
            self._pending.removed.append(key)
        return document

    def search(self, query: Query, limit: int, offset: int = 0, horizon: int | None = None) -> Found:
        """The matches from `offset` on, as `ranking.search` ranks them, among the first `horizon` documents."""
        seen = self._memory.size if horizon is None else min(horizon - self._base, self._memory.size)
        parts: list[tuple[Part, int]] = [(self._memory, seen)]
        if self._packed is not None:
            parts.insert(0, (self._packed, self._packed.size))
        return ranking.search(parts, query, limit, offset)

    # -- packing -----------------------------------------------------------------------------------------------------

    def pour_into(self, builder: Builder) -> None:
        """Give all documents to a builder."""
        builder.add_memory(self._memory)
        if self._packed is not None:
            builder.add_packed(self._packed.arrays, self._packed.dead)

    def replace(self, packed: PackedPart) -> None:
        """Take a packed part in place of everything."""
        self._packed, self._memory, self._pending = packed, MemoryPart(), None
        self._epoch += 1

    def begin_packing(self) -> Pending:
        """The documents as they are now, in parts that do not change while they are packed elsewhere.

        Until `end_packing`, removals are noted. Beginning again forgets the one before.
        """
        packed = self._packed
        if packed is not None:
            packed = packed.copy()
        self._pending = Pending(packed, self._memory.since(0), self._memory.size)
        return self._pending

    def end_packing(self, pending: Pending, packed: PackedPart) -> bool:
        """Put in what was packed from `pending`; what came or went since is kept. False when it was overtaken."""
        if self._pending is not pending:
            return False
        for key in pending.removed:
            packed.remove(key)
        newest = self._memory.since(pending.mark)
        self._packed, self._memory, self._pending = packed, newest, None
        self._epoch += 1
        return True
