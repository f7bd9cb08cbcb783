"""The searchable form of a store's layers: words, titles, links, what was forgotten. Derived, in memory, kept up.

Owns: one shelf per layer with its words (`storage.postings`), and the file that a large one starts from again,
`derived/<hash of the layer>.words`. Does not own: the store, which hits may show (`recall`), how texts relate.

A shelf follows the store's snapshots; a block that did not change is not read again. The file names each topic file
with its hash and the ids of its blocks: what it says of a file that is another now counts for nothing. It is written
without a flush when a large shelf was built, and after every `SAVE_EVERY` changes; where it cannot be trusted, the
blocks are read.

Thread-safe: one lock. Source: design page "Recall", Tokens and ranking; "Quality", Targets.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rlm_memory_host.contracts.memory import Block, Layer, Sensitivity, Snapshot, Status
from rlm_memory_host.storage.postings import MEASURED, Corpus, Strengths
from rlm_memory_host.storage.tokens import document_terms, query_terms
from rlm_memory_host.textmemory.judge import Said
from rlm_memory_host.textmemory.notes import DEFAULT_TOPICS
from rlm_memory_host.textmemory.sentences import fold
from rlm_memory_host.textmemory.tombstones import is_tombstone

COMPARED: Final = 64
"""Memories that a new text is compared with."""
SAVED_FROM: Final = 1_000
"""Blocks from which a layer's words are kept between starts."""
SAVE_EVERY: Final = 512


class Snapshots(Protocol):
    """Where blocks come from, and where a derived file may lie."""

    def snapshot(self, layer: Layer) -> Snapshot:
        """As `TextStore.snapshot`."""
        ...

    def derived(self, name: str) -> bytes | None:
        """As `TextStore.derived`."""
        ...

    def keep_derived(self, name: str, data: bytes) -> None:
        """As `TextStore.keep_derived`."""
        ...


@dataclass(slots=True)
class Shelf:
    """One layer. All of it changes only under the lock of `Shelves`."""

    corpus: Corpus
    blocks: dict[str, Block] = field(default_factory=dict[str, Block])
    titles: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    linked: set[str] = field(default_factory=set[str])
    gone: dict[str, Block] = field(default_factory=dict[str, Block])
    """Tombstones: what a person forgot or hid."""
    bodies: dict[str, set[str]] | None = None
    revision: str = ""
    unsaved: int = 0

    def put(self, block: Block, *, has_words: bool = False) -> None:
        """Add a block, or replace the one with its id."""
        self.drop(block.id, keeps_words=has_words)
        self.blocks[block.id] = block
        self.titles.setdefault(fold(block.title), set()).add(block.id)
        if block.links:
            self.linked.add(block.id)
        if is_tombstone(block):
            self.gone[block.id] = block
        if self.bodies is not None:
            self.bodies.setdefault(fold(block.body), set()).add(block.id)
        if not has_words:
            self.corpus.add(block.id, document_terms(words_of(block)))
            self.unsaved += 1

    def drop(self, memory_id: str, *, keeps_words: bool = False) -> None:
        """Remove a block; nothing happens when there is none."""
        known = self.blocks.pop(memory_id, None)
        if known is not None:
            self.titles.get(fold(known.title), set()).discard(memory_id)
            self.linked.discard(memory_id)
            self.gone.pop(memory_id, None)
            if self.bodies is not None:
                self.bodies.get(fold(known.body), set()).discard(memory_id)
            if not keeps_words:
                self.corpus.remove(memory_id)

    def saying(self, body: str) -> frozenset[str]:
        """The blocks whose text folds to this one."""
        if self.bodies is None:
            self.bodies = {}
            for block in self.blocks.values():
                self.bodies.setdefault(fold(block.body), set()).add(block.id)
        return frozenset(self.bodies.get(fold(body), ()))


class View:
    """Some layers as they were when it was made. A block that goes away meanwhile is simply not found."""

    def __init__(self, shelves: Mapping[Layer, Shelf], lock: threading.RLock) -> None:
        self._shelves = shelves
        self._by_name = {layer.name: shelf for layer, shelf in shelves.items()}
        self._lock = lock

    def blocks(self) -> Iterator[tuple[Layer, Block]]:
        """Every block, whatever its status."""
        for layer, shelf in self._shelves.items():
            with self._lock:
                blocks = list(shelf.blocks.values())
            yield from ((layer, block) for block in blocks)

    def block(self, layer_name: str, memory_id: str) -> Block | None:
        """One block."""
        return self._by_name[layer_name].blocks.get(memory_id)

    def has(self, layer_name: str) -> bool:
        """Whether a layer of this name is among these."""
        return layer_name in self._by_name

    def gone(self) -> list[Block]:
        """The tombstones."""
        with self._lock:
            return [block for shelf in self._shelves.values() for block in shelf.gone.values()]

    def titled(self, text: str) -> list[tuple[str, str]]:
        """(layer's name, id) of the blocks with exactly this title, or this id."""
        key, name = fold(text), text.strip()
        with self._lock:
            return [
                (layer.name, memory_id)
                for layer, shelf in self._shelves.items()
                for memory_id in sorted(shelf.titles.get(key, set()) | ({name} if name in shelf.blocks else set()))
            ]

    def holding(self, text: str) -> list[tuple[str, str]]:
        """The blocks that hold a text as written (folded): for emoji and stop words alone."""
        key = fold(text) or text.strip()
        return [
            (layer.name, block.id)
            for layer, block in self.blocks()
            if key and (key in fold(f"{block.title}\n{block.body}") or key in block.body)
        ]

    def scores(self, query: str, most: int | None = None) -> dict[tuple[str, str], float]:
        """BM25 scores by (layer's name, id): all, or the `most` best of each layer."""
        terms = query_terms(query)
        with self._lock:
            return {
                (name, memory_id): score
                for name, shelf in self._by_name.items()
                for memory_id, score in shelf.corpus.scores(terms, most).items()
            }

    def links(self) -> dict[str, tuple[str, ...]]:
        """The links of the blocks that have some."""
        with self._lock:
            return {key: shelf.blocks[key].links for shelf in self._shelves.values() for key in shelf.linked}

    def where(self, memory_id: str) -> tuple[str, str] | None:
        """(layer's name, id) of a block."""
        return next(((layer.name, memory_id) for layer, s in self._shelves.items() if memory_id in s.blocks), None)

    def near(self, new: Said, is_wanted: Callable[[Block], bool]) -> list[Block]:
        """At most 64 blocks of the first layer that say the same or share words with `new`, nearest first."""
        shelf = next(iter(self._shelves.values()))
        terms = list(dict.fromkeys(document_terms(f"{new.topic}\n{new.title}\n{new.body}")))
        with self._lock:
            same = sorted(shelf.saying(new.body))
            scores = shelf.corpus.scores(terms, 4 * COMPARED)
            ranked = sorted(scores, key=lambda key: (-scores[key], key))
            found = (shelf.blocks[key] for key in dict.fromkeys((*same, *ranked)) if key in shelf.blocks)
            return [block for block in found if is_wanted(block)][:COMPARED]


class Shelves:
    """The shelves of one store."""

    def __init__(self, store: Snapshots, strengths: Strengths = MEASURED) -> None:
        self._store = store
        self._strengths = strengths
        self._shelves: dict[Layer, Shelf] = {}
        self._lock = threading.RLock()

    def view(self, layers: Iterable[Layer]) -> View:
        """The layers as they are now; each is looked at once."""
        return View({layer: self.follow(self._store.snapshot(layer)) for layer in dict.fromkeys(layers)}, self._lock)

    def view_of(self, snapshot: Snapshot) -> View:
        """One layer as a snapshot has it."""
        return View({snapshot.layer: self.follow(snapshot)}, self._lock)

    def follow(self, snapshot: Snapshot) -> Shelf:
        """The shelf of a layer, brought up to a snapshot of it."""
        with self._lock:
            shelf = self._shelves.get(snapshot.layer)
            if shelf is None or shelf.corpus.is_worn:
                shelf = self._shelves[snapshot.layer] = self._started(snapshot)
            if snapshot.revision != shelf.revision:
                self._catch_up(shelf, snapshot.blocks)
                shelf.revision = snapshot.revision
                if shelf.unsaved >= SAVE_EVERY and len(shelf.blocks) >= SAVED_FROM:
                    self._save(shelf, snapshot)
            return shelf

    @staticmethod
    def _catch_up(shelf: Shelf, blocks: Sequence[Block]) -> None:
        known = shelf.blocks
        changed = [block for block in blocks if known.get(block.id) is not block]
        for block in changed:
            shelf.put(block)
        if len(known) > len(blocks):
            present = {block.id for block in blocks}
            for memory_id in [item for item in known if item not in present]:
                shelf.drop(memory_id)

    def _started(self, snapshot: Snapshot) -> Shelf:
        """A shelf with the blocks whose words are on file; the others are still to be read."""
        b, k1 = self._strengths.b_topics, self._strengths.k1
        if len(snapshot.blocks) < SAVED_FROM or not snapshot.files:
            return Shelf(Corpus(b, k1))
        data = self._store.derived(_file_name(snapshot.layer))
        loaded = Corpus.unpack(data, b, k1) if data is not None else None
        if loaded is None:
            return Shelf(Corpus(b, k1))
        corpus, facts = loaded
        shelf = Shelf(corpus)
        known = {str(name): (str(sha256), list(ids)) for name, sha256, ids in facts.get("files", ())}
        start = 0
        kept: set[str] = set()
        for name, sha256, count in snapshot.files:
            blocks = snapshot.blocks[start : start + count]
            start += count
            if known.get(name) == (sha256, [block.id for block in blocks]):
                for block in blocks:
                    shelf.put(block, has_words=True)
                    kept.add(block.id)
        for _sha256, ids in known.values():
            for memory_id in ids:
                if memory_id not in kept:
                    corpus.remove(memory_id)
        return shelf

    def _save(self, shelf: Shelf, snapshot: Snapshot) -> None:
        shelf.unsaved = 0
        if not snapshot.files:
            return
        files: list[list[object]] = []
        start = 0
        for name, sha256, count in snapshot.files:
            files.append([name, sha256, [block.id for block in snapshot.blocks[start : start + count]]])
            start += count
        self._store.keep_derived(_file_name(snapshot.layer), shelf.corpus.pack({"files": files}))


def said_of(block: Block) -> Said:
    """A block as the judge compares it."""
    topic = "" if block.topic in DEFAULT_TOPICS.values() else block.topic
    return Said(topic, block.title, block.body, block.id, block.sensitivity is not Sensitivity.NORMAL)


def is_comparable(block: Block) -> bool:
    """Whether a block is live enough to be repeated, refined or contradicted."""
    return block.status in (Status.ACTIVE, Status.DORMANT)


def words_of(block: Block) -> str:
    """What of a block is found by words."""
    tags = " ".join(block.tags)
    return f"{block.topic}\n{block.title}\n{tags}\n{block.body}"


def _file_name(layer: Layer) -> str:
    return hashlib.sha256(layer.name.encode()).hexdigest()[:40] + ".words"
