"""The searchable form of what the stores hold: kept up with them, derived, in memory.

Owns: one corpus of memories per layer, one of turns per session, folded titles and aliases. Does not own: the stores,
eligibility, fusion. Memories are indexed by topic, title, tags and body; turns with speaker and date.

A block that did not change is not read again. Thread-safe: one lock.

Source: design page "Recall", Tokens and ranking.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rlm_memory_host.contracts.memory import Block, Evidence, Layer, TextStore
from rlm_memory_host.recall.bm25 import B_BLOCKS, B_TURNS, Corpus, lend_to_neighbours
from rlm_memory_host.storage.tokens import document_terms, query_terms
from rlm_memory_host.textmemory.sentences import fold


@dataclass(slots=True)
class _Shelf:
    corpus: Corpus = field(default_factory=lambda: Corpus(B_BLOCKS))
    blocks: dict[str, Block] = field(default_factory=dict[str, Block])
    titles: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    linked: set[str] = field(default_factory=set[str])
    revision: str = ""


@dataclass(slots=True)
class _Turns:
    corpus: Corpus = field(default_factory=lambda: Corpus(B_TURNS))
    turns: dict[str, Evidence] = field(default_factory=dict[str, Evidence])
    order: list[str] = field(default_factory=list[str])
    seq: int = -1


class Library:
    """Corpora over one store."""

    def __init__(self, store: TextStore) -> None:
        self._store = store
        self._shelves: dict[Layer, _Shelf] = {}
        self._sessions: dict[str, _Turns] = {}
        self._lock = threading.RLock()

    def blocks(self, layer: Layer) -> dict[str, Block]:
        """The blocks of a layer by id, whatever their status."""
        with self._lock:
            return dict(self._shelf(layer).blocks)

    def block(self, layer: Layer, memory_id: str) -> Block:
        """One block of a layer that was searched. Raises KeyError."""
        with self._lock:
            return self._shelves[layer].blocks[memory_id]

    def links(self, layers: Sequence[Layer]) -> dict[str, tuple[str, ...]]:
        """The links of the blocks that have some."""
        with self._lock:
            return {
                memory_id: shelf.blocks[memory_id].links
                for shelf in (self._shelf(layer) for layer in layers)
                for memory_id in shelf.linked
            }

    def where(self, layers: Sequence[Layer], memory_id: str) -> tuple[str, str] | None:
        """(layer's name, id) of a block."""
        with self._lock:
            return next(((layer.name, memory_id) for layer in layers if memory_id in self._shelf(layer).blocks), None)

    def block_scores(self, layers: Sequence[Layer], query: str) -> dict[tuple[Layer, str], float]:
        """BM25 scores by (layer, id)."""
        terms = query_terms(query)
        with self._lock:
            return {
                (layer, memory_id): score
                for layer in layers
                for memory_id, score in self._shelf(layer).corpus.scores(terms).items()
            }

    def titled(self, layers: Sequence[Layer], query: str) -> list[tuple[Layer, str]]:
        """The blocks with exactly this title, or this id."""
        key = fold(query)
        with self._lock:
            return [
                (layer, memory_id)
                for layer in layers
                for memory_id in sorted(
                    self._shelf(layer).titles.get(key, set())
                    | ({query.strip()} if query.strip() in self._shelf(layer).blocks else set())
                )
            ]

    def holding(self, layers: Sequence[Layer], text: str) -> list[tuple[Layer, str]]:
        """The blocks that hold a text as written (folded): for emoji and stop words alone."""
        key = fold(text) or text.strip()
        with self._lock:
            return [
                (layer, memory_id)
                for layer in layers
                for memory_id, block in self._shelf(layer).blocks.items()
                if key and (key in fold(f"{block.title}\n{block.body}") or key in block.body)
            ]

    def turn(self, key: str) -> Evidence:
        """A captured turn that a search gave."""
        with self._lock:
            return next(turns.turns[key] for turns in self._sessions.values() if key in turns.turns)

    def turn_scores(self, sessions: Iterable[str], query: str) -> dict[str, float]:
        """Scores of captured turns, with a fifth lent to their neighbours."""
        terms = query_terms(query)
        found: dict[str, float] = {}
        with self._lock:
            for session in sessions:
                turns = self._turns(session)
                found |= lend_to_neighbours(turns.corpus.scores(terms), turns.order)
        return found

    def _shelf(self, layer: Layer) -> _Shelf:
        shelf = self._shelves.setdefault(layer, _Shelf())
        snapshot = self._store.snapshot(layer)
        if snapshot.revision == shelf.revision:
            return shelf
        present = {block.id: block for block in snapshot.blocks}
        for memory_id in [item for item in shelf.blocks if item not in present]:
            self._drop(shelf, memory_id)
        for memory_id, block in present.items():
            if shelf.blocks.get(memory_id) is not block:
                self._drop(shelf, memory_id)
                shelf.blocks[memory_id] = block
                shelf.titles.setdefault(fold(block.title), set()).add(memory_id)
                if block.links:
                    shelf.linked.add(memory_id)
                tags = " ".join(block.tags)
                shelf.corpus.add(memory_id, document_terms(f"{block.topic}\n{block.title}\n{tags}\n{block.body}"))
        shelf.revision = snapshot.revision
        return shelf

    def _drop(self, shelf: _Shelf, memory_id: str) -> None:
        known = shelf.blocks.pop(memory_id, None)
        if known is not None:
            shelf.titles.get(fold(known.title), set()).discard(memory_id)
            shelf.linked.discard(memory_id)
            shelf.corpus.remove(memory_id)

    def _turns(self, session: str) -> _Turns:
        turns = self._sessions.setdefault(session, _Turns())
        for item in self._store.evidence(session, turns.seq):
            turns.turns[item.id] = item
            turns.order.append(item.id)
            turns.corpus.add(item.id, document_terms(f"{item.speaker} {item.ts[:10]} {item.text}"))
            turns.seq = max(turns.seq, item.seq)
        return turns
