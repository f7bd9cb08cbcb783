"""Making packed arrays: from cards one by one, and from what other parts hold.

Owns: collecting documents, numbering them in their order, sorting postings by term. Does not own: what is done with
the arrays (`index_packed`, `index_file`). All sorting is by stable sorts of whole arrays: building costs a few
microseconds a posting, and merging a part that is packed already costs no look at a card or a text.

Not thread-safe. Source: design page "Quality", Targets.
"""

from __future__ import annotations

import gc
from array import array
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, cast

from rlm_memory_host.storage.index_memory import MemoryPart
from rlm_memory_host.storage.index_packed import FACET, STATES, Arrays, PackedPart, document_type, numpy
from rlm_memory_host.storage.ranking import Document, share
from rlm_memory_host.storage.similar_words import letters, may_be_meant
from rlm_memory_host.storage.tokens import document_terms, piece_terms, plain_pieces

_RAW_TERMS: Final = 1 << 21
"""Terms that are collected before they are weighed: some ten thousand cards."""
_REMEMBERED: Final = 1 << 17
"""Pieces of text whose terms are remembered, and the longest of them: a few megabytes."""
_LONGEST_REMEMBERED: Final = 64


@dataclass(slots=True)
class _Raw:
    """Terms by their numbers, as often as they occur; for each text its document, weight and number of terms."""

    terms: array[int] = field(default_factory=lambda: array("I"))
    documents: list[int] = field(default_factory=list[int])
    weights: list[float] = field(default_factory=list[float])
    counts: list[int] = field(default_factory=list[int])


class _Pieces(dict[str, bytes]):
    """The numbers of the terms of a piece of text, as they lie in memory: a text's are put together without a step of
    Python for each term."""

    def __init__(self, terms: Mapping[str, int]) -> None:
        self._number = terms.__getitem__

    def __missing__(self, piece: str) -> bytes:
        numbers = array("I", map(self._number, piece_terms(piece))).tobytes()
        if len(self) < _REMEMBERED and len(piece) <= _LONGEST_REMEMBERED:
            self[piece] = numbers
        return numbers


class Builder:
    """Collects documents; `arrays` packs them. A key may come once only."""

    def __init__(self) -> None:
        self._documents: list[Document] = []
        # A term that is asked for the first time gets the next number, without a line of Python for each.
        self._terms: defaultdict[str, int] = defaultdict()
        self._terms.default_factory = self._terms.__len__
        self._pieces = _Pieces(self._terms)
        self._of_term = array("I")
        self._of_document = array("I")
        self._weights = array("f")
        self._chunks: list[_Chunk] = []
        self._raw = _Raw()

    def add(self, document: Document, facets: Iterable[str], weights: Mapping[str, float]) -> None:
        """As `MemoryPart.add`."""
        number = len(self._documents)
        self._documents.append(document)
        names = [FACET + facet for facet in dict.fromkeys(facets)]
        self._of_term.extend(map(self._terms.__getitem__, names))
        self._of_term.extend(map(self._terms.__getitem__, weights))
        self._weights.extend(array("f", (0.0,)) * len(names))
        self._weights.extend(weights.values())
        self._of_document.extend(array("I", (number,)) * (len(names) + len(weights)))

    def add_texts(self, document: Document, facets: Iterable[str], texts: Iterable[tuple[float, str]]) -> None:
        """As `add`, with texts and the weight of the terms in each, as `ranking.weights` takes them: what they weigh is
        computed for many documents at once, to the same last bit, since weights of fields are multiples of a half.
        """
        self.add(document, facets, {})
        raw, number = self._raw, len(self._documents) - 1
        for weight, text in texts:
            terms = b"".join(map(self._pieces.__getitem__, plain_pieces(text)))
            if not terms:
                terms = array("I", map(self._terms.__getitem__, document_terms(text))).tobytes()
            raw.terms.frombytes(terms)
            raw.documents.append(number)
            raw.weights.append(weight)
            raw.counts.append(len(terms) // raw.terms.itemsize)
        if len(raw.terms) >= _RAW_TERMS:
            self._weigh()

    def _weigh(self) -> None:
        """Turn the terms that were collected into postings with weights."""
        np, raw, self._raw = numpy(), self._raw, _Raw()
        if not raw.terms:
            return
        documents = np.repeat(np.array(raw.documents, np.uint64), raw.counts)
        weights = np.repeat(np.array(raw.weights, np.float64), raw.counts)
        first = int(documents[0])
        lengths = np.bincount((documents - np.uint64(first)).astype(np.int64), weights)
        keys = documents << np.uint64(32) | np.array(raw.terms, np.uint64)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.concatenate([np.ones(1, bool), keys[1:] != keys[:-1]]))
        of_document = (keys[starts] >> np.uint64(32)).astype(np.uint32)
        shares = share(np.add.reduceat(weights[order], starts), lengths[of_document - np.uint32(first)])
        self._of_term.frombytes((keys[starts] & np.uint64(0xFFFFFFFF)).astype(np.uint32).tobytes())
        self._of_document.frombytes(of_document.tobytes())
        self._weights.frombytes(shares.astype(np.float32).tobytes())

    def add_part(self, part: PackedPart | MemoryPart) -> None:
        """Take in the living documents of a part."""
        if isinstance(part, PackedPart):
            self._chunks.append(_Chunk.of_arrays(part.arrays, part.dead))
        else:
            self._add_memory(part)

    def _add_memory(self, part: MemoryPart) -> None:
        # A copy: the index may remove documents from the part meanwhile, and does so again in what is packed.
        documents = list(part.documents)
        moved = {number: at for at, number in enumerate(n for n, document in enumerate(documents) if document)}
        base = len(self._documents)
        self._documents += [document for document in documents if document is not None]
        lists = [(FACET + facet, numbers, None) for facet, numbers in part.facets.items()]
        lists += [(term, posting.numbers, posting.weights) for term, posting in part.postings.items()]
        for name, numbers, weights in lists:
            kept = [at for at, number in enumerate(numbers) if number in moved]
            if not kept:
                continue
            self._of_term.extend([self._terms[name]] * len(kept))
            self._of_document.extend([base + moved[numbers[at]] for at in kept])
            self._weights.extend([0.0] * len(kept) if weights is None else [weights[at] for at in kept])

    def arrays(self) -> Arrays:
        """All of it, packed. The builder is empty afterwards."""
        np = numpy()
        chunks = [*self._chunks, self._own()]
        self.__init__()
        documents = np.concatenate([chunk.documents for chunk in chunks])
        order = _listing_order(documents)
        moved = np.empty(len(documents), np.uint32)
        moved[order] = np.arange(len(documents), dtype=np.uint32)
        names = sorted({name for chunk in chunks for name in chunk.names})
        place = {name: at for at, name in enumerate(names)}
        terms = np.concatenate([chunk.renamed(place) for chunk in chunks])
        starts = np.cumsum([0, *(len(chunk.documents) for chunk in chunks)])
        numbers = np.concatenate([moved[c.of_document + start] for c, start in zip(chunks, starts[:-1], strict=True)])
        weights = np.concatenate([chunk.weights for chunk in chunks])
        del chunks
        sorting = np.lexsort((numbers, terms))
        documents = documents[order]
        held = np.bincount(terms, minlength=len(names))
        kept = np.flatnonzero(held)
        names = [names[at] for at in cast("list[int]", kept.tolist())]
        meant = [(at, text) for at, name in enumerate(names) if may_be_meant(text := name.decode("utf-8", "replace"))]
        return Arrays(
            documents=documents,
            by_key=np.argsort(documents["key"], kind="stable").astype(np.uint32),
            blob=np.frombuffer(b"".join(names), np.uint8),
            term_offsets=_offsets([len(name) for name in names]),
            posting_offsets=_offsets(held[kept]),
            numbers=numbers[sorting].astype(np.uint32),
            weights=weights[sorting],
            meant=np.array([at for at, _ in meant], np.uint32),
            letters=np.array([letters(text) for _, text in meant], np.uint32),
            lengths=np.array([len(text) for _, text in meant], np.uint8),
        )

    def _own(self) -> _Chunk:
        np = numpy()
        self._weigh()
        rows = _rows(self._documents)
        names = [name.encode("utf-8", "surrogatepass") for name in self._terms]
        packed = (np.array(self._of_term, np.uint32), np.array(self._of_document, np.uint32))
        return _Chunk(rows, names, *packed, np.array(self._weights, np.float32))


class _Chunk:
    """Documents and the flat postings of them: for each posting its term (by its place in `names`) and document."""

    def __init__(self, documents: Any, names: list[bytes], of_term: Any, of_document: Any, weights: Any) -> None:
        self.documents = documents
        self.names = names
        self.of_term = of_term
        self.of_document = of_document
        self.weights = weights

    @classmethod
    def of_arrays(cls, arrays: Arrays, dead: Any) -> _Chunk:
        np = numpy()
        blob, offsets = arrays.blob.tobytes(), arrays.term_offsets.tolist()
        names = [blob[start:end] for start, end in pairwise(offsets)]
        of_term = np.repeat(np.arange(len(names), dtype=np.uint32), np.diff(arrays.posting_offsets))
        if not dead.any():
            return cls(arrays.documents, names, of_term, arrays.numbers, arrays.weights)
        lives = ~dead
        moved = np.cumsum(lives, dtype=np.uint32) - np.uint32(1)
        kept = lives[arrays.numbers]
        return cls(arrays.documents[lives], names, of_term[kept], moved[arrays.numbers[kept]], arrays.weights[kept])

    def renamed(self, place: Mapping[bytes, int]) -> Any:
        """The terms of the postings by their place in a common vocabulary."""
        np = numpy()
        return np.array([place[name] for name in self.names] or [0], np.uint32)[self.of_term]


@contextmanager
def without_collector() -> Generator[None]:
    """Make many things that stay without looking through them for garbage again and again: a third of a start's time.

    What is in no cycle is freed as ever. Others may do the same at the same time: whoever found the collector running
    starts it again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def build(*parts: PackedPart | MemoryPart) -> PackedPart:
    """One packed part of the living documents of others."""
    builder = Builder()
    for part in parts:
        builder.add_part(part)
    return PackedPart(builder.arrays())


def _listing_order(documents: Any) -> Any:
    """Old before new, and of one time the greater id first: the reverse of the order of equal ranks."""
    np = numpy()
    by_key = np.argsort(documents["key"], kind="stable")[::-1]
    return by_key[np.argsort(documents["updated"][by_key], kind="stable")]


def _offsets(lengths: Any) -> Any:
    np = numpy()
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _rows(documents: Sequence[Document]) -> Any:
    """The table of documents, filled column by column: row by row takes several times as long."""
    np = numpy()
    rows = np.zeros(len(documents), document_type())
    if not documents:
        return rows
    rows["key"] = [document.key.encode("ascii") for document in documents]
    rows["updated"] = [document.updated_at.encode("ascii") for document in documents]
    rows["artifact"] = [document.artifact.encode("ascii") for document in documents]
    digests = b"".join([document.digest or bytes(32) for document in documents])
    rows["digest"] = np.frombuffer(digests, np.uint8).reshape(-1, 32)
    rows["size"] = [document.size for document in documents]
    for at, name in enumerate(("inode", "length", "mtime", "ctime")):
        rows[name] = [document.identity[at] for document in documents]
    rows["state"] = [STATES.index(document.state) for document in documents]
    rows["has_digest"] = [bool(document.digest) for document in documents]
    return rows
