"""A project's index: packed arrays for the bulk where there are any, the newest cards in memory over them.

Owns: which part holds a card, cursors' horizons, putting a freshly packed part in place of an older state. Does not
own: the rules (`ranking`), the parts (`index_memory`, `index_packed`), their file (`index_file`), the cards. Without
numpy, or for few cards, all documents are in memory; the answers are the same to the last bit.

While documents are packed elsewhere, they go on being searched in a part that is only read and removed from; what is
added meanwhile goes into a new one over it. So beginning and ending to pack copies nothing and holds nobody up.

Not thread-safe; its owner holds a lock. Source: design page "Exact results", Search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from rlm_memory_host.storage import ranking
from rlm_memory_host.storage.index_build import Builder
from rlm_memory_host.storage.index_memory import MemoryPart
from rlm_memory_host.storage.index_packed import PackedPart
from rlm_memory_host.storage.ranking import Document, Found, Part, Query


@dataclass(slots=True)
class Pending:
    """What was handed out to be packed, and what was removed from it since."""

    packed: PackedPart | None
    memory: tuple[MemoryPart, ...]
    removed: list[str] = field(default_factory=list[str])

    @property
    def parts(self) -> list[PackedPart | MemoryPart]:
        """All of it."""
        return [*(() if self.packed is None else (self.packed,)), *self.memory]


class Index:
    """Documents by key. `len` counts the living."""

    def __init__(self, packed: PackedPart | None = None) -> None:
        self._packed = packed
        self._frozen: tuple[MemoryPart, ...] = ()
        self._memory = MemoryPart()
        self._epoch = 0
        self._pending: Pending | None = None

    def __len__(self) -> int:
        return sum(len(part) for part in self._newest_first())

    @property
    def horizon(self) -> tuple[int, int]:
        """(epoch, documents so far): what a cursor needs to see the same collection again."""
        return self._epoch, self._base + self.newest

    @property
    def newest(self) -> int:
        """Documents that are not packed, with the dead ones among them."""
        return self._memory.size + sum(part.size for part in self._frozen)

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
        return next((found for part in self._newest_first() if (found := part.get(key)) is not None), None)

    def _newest_first(self) -> Iterator[PackedPart | MemoryPart]:
        yield self._memory
        yield from reversed(self._frozen)
        if self._packed is not None:
            yield self._packed

    def identities(self) -> Iterable[tuple[str, tuple[int, int, int, int]]]:
        """Key and file identity of every document."""
        return chain.from_iterable(part.identities() for part in self._newest_first())

    def in_states(self, states: frozenset[str]) -> Iterable[str]:
        """The keys of the documents in one of the states of remote indexing."""
        return chain.from_iterable(part.in_states(states) for part in self._newest_first())

    def restate(self, document: Document) -> Document | None:
        """Change what is known of a card whose terms and facets stay, in its place, so that no page of a search loses
        it; what was known before, None where it is not among the newest and has to be added anew.
        """
        return self._memory.restate(document)

    def with_facet(self, facet: str) -> Iterable[Document]:
        """The documents with a facet, the newest first."""
        return chain.from_iterable(part.with_facet(facet) for part in self._newest_first())

    def add(self, document: Document, facets: Iterable[str], weights: Mapping[str, float]) -> None:
        """Add a document, or replace the one with its key; see `MemoryPart.add`."""
        self.remove(document.key)
        self._memory.add(document, facets, weights)

    def remove(self, key: str) -> Document | None:
        """Remove a document and give it back; None when there is none."""
        document = self._memory.remove(key)
        if document is not None:
            if self._memory.is_worn:
                self._memory = self._memory.compacted()
                self._epoch += 1
            return document
        for part in self._newest_first():
            document = part.remove(key)
            if document is not None:
                if self._pending is not None:
                    self._pending.removed.append(key)
                return document
        return None

    def search(self, query: Query, limit: int, offset: int = 0, horizon: int | None = None) -> Found:
        """The matches from `offset` on, as `ranking.search` ranks them, among the first `horizon` documents."""
        left = self.newest if horizon is None else horizon - self._base
        parts: list[tuple[Part, int]] = [] if self._packed is None else [(self._packed, self._base)]
        for part in (*self._frozen, self._memory):
            seen = max(0, min(left, part.size))
            if seen:
                parts.append((part, seen))
            left -= part.size
        return ranking.search(parts, query, limit, offset)

    # -- packing -----------------------------------------------------------------------------------------------------

    def pour_into(self, builder: Builder) -> None:
        """Give all documents to a builder."""
        for part in self._newest_first():
            builder.add_part(part)

    def replace(self, packed: PackedPart) -> None:
        """Take a packed part in place of everything."""
        self._packed, self._frozen, self._memory, self._pending = packed, (), MemoryPart(), None
        self._epoch += 1

    def begin_packing(self) -> Pending:
        """The documents as they are now, to be packed elsewhere by one thread: nothing is added to them any more.

        What is removed from them until `end_packing` is noted; the packing may or may not see it. Beginning again
        forgets the one before.
        """
        if self._memory.size:
            self._frozen, self._memory = (*self._frozen, self._memory), MemoryPart()
        self._pending = Pending(None if self._packed is None else self._packed.copy(), self._frozen)
        return self._pending

    def end_packing(self, pending: Pending, packed: PackedPart) -> bool:
        """Put in what was packed from `pending`; what came or went since is kept. False when it was overtaken."""
        if self._pending is not pending:
            return False
        for key in pending.removed:
            packed.remove(key)
        self._packed, self._frozen, self._pending = packed, (), None
        self._epoch += 1
        return True
