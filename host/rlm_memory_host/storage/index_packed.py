"""Postings packed into arrays: the bulk of a large project's cards, answered by the rules of `ranking`.

Owns: looking up, counting, scoring and choosing over arrays that do not change; which documents are dead. Does not own:
making the arrays (`index_build`), their file (`index_file`). Needs numpy, from the extra `rlm-memory-host[index]`.

Documents are numbered in the order in which equal ranks are listed, the last first: a greater number is newer, or of
the same time and a smaller id. So a number says all about order, and the newest are the last ones.

Not thread-safe; its owner holds a lock. Source: design pages "Exact results", Search; "Quality", Targets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final

from rlm_memory_host.storage.ranking import EXACT, MOST_SIMILAR, SIMILAR, WORDS, Document, Match, Plan
from rlm_memory_host.storage.similar_words import letters, misspelt

FACET: Final = "\x00"
"""Facets stand in the vocabulary with this before them, which no term begins with."""
STATES: Final = ("pending", "queued", "indexed", "failed", "disabled")
_BLOCK: Final = 256
"""Values of which the greatest is looked at first."""
_STEP: Final = 8_192
"""Postings that are added at once: small enough for the processor's cache and the allocator's."""
_FEW: Final = 16
"""Postings fewer than one document in so many are scored by themselves, not over all documents."""
_SIGNPOST: Final = 128
"""Terms of which the first is at hand when a term is looked up."""
_NOTED: Final = 8_192
"""Terms whose place is remembered."""


@cache
def numpy() -> Any:
    """The numpy module, imported when first needed (it takes some 0.1 s and 20 MB); None without one from 2.0 on."""
    try:
        import numpy as module  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        return None
    return module if hasattr(module, "bitwise_count") else None  # pyright: ignore[reportUnknownVariableType]


@cache
def document_type() -> Any:
    """A row of the table of documents."""
    fields = [("key", "S56"), ("updated", "S24"), ("artifact", "S56"), ("digest", "u1", 32), ("size", "<u8")]
    identity = [("inode", "<u8"), ("length", "<u8"), ("mtime", "<i8"), ("ctime", "<i8")]
    return numpy().dtype([*fields, *identity, ("state", "u1"), ("has_digest", "u1")])


@dataclass(frozen=True)
class Arrays:
    """What a packed part consists of. Offsets have one entry more than what they divide.

    `documents` rows in the order of their numbers; `by_key` numbers by ascending key; `blob` the vocabulary's UTF-8,
    ascending, term `i` from `term_offsets[i]`; `numbers` and `weights` of term `i` from `posting_offsets[i]`; `meant`
    the terms that a typo can mean, with the `letters` and `lengths` of each.
    """

    documents: Any
    by_key: Any
    blob: Any
    term_offsets: Any
    posting_offsets: Any
    numbers: Any
    weights: Any
    meant: Any
    letters: Any
    lengths: Any


class PackedPart:
    """Documents by key. `len` counts the living; `size` all."""

    def __init__(self, arrays: Arrays) -> None:
        np = numpy()
        self.arrays = arrays
        self.size = len(arrays.documents)
        self.dead: Any = np.zeros(self.size, bool)
        self._dead_count = 0
        self._scratch: Any = None
        # Views give Python's own numbers and bytes, in a fifth of the time that single elements of arrays take.
        self._blob = memoryview(arrays.blob)
        self._offsets = memoryview(arrays.term_offsets)
        self._starts = memoryview(arrays.posting_offsets)
        self._terms = len(arrays.term_offsets) - 1
        self._signposts = [self._bytes(at) for at in range(0, self._terms, _SIGNPOST)]
        self._places: dict[str, int] = {}
        self._keys: Any = arrays.documents["key"]
        self._updated: Any = arrays.documents["updated"]

    def __len__(self) -> int:
        return self.size - self._dead_count

    # -- documents ---------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Document | None:
        """The living document of a key."""
        number = self._number(key)
        return None if number is None else self.document(number)

    def remove(self, key: str) -> Document | None:
        """Remove a document and give it back; None when there is none."""
        number = self._number(key)
        if number is None:
            return None
        self.dead[number] = True
        self._dead_count += 1
        return self.document(number)

    def copy(self) -> PackedPart:
        """A part over the same arrays whose dead ones stay as they are now."""
        part = copy(self)
        part.dead = self.dead.copy()
        part._scratch, part._places = None, {}
        return part

    def document(self, number: int) -> Document:
        """The document of a number, living or not."""
        row = self.arrays.documents[number]
        return Document(
            row["key"].decode("ascii"),
            row["updated"].decode("ascii"),
            row["artifact"].decode("ascii"),
            int(row["size"]),
            STATES[int(row["state"])],
            (int(row["inode"]), int(row["length"]), int(row["mtime"]), int(row["ctime"])),
            row["digest"].tobytes() if row["has_digest"] else b"",
        )

    def identities(self) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
        """Key and file identity of each living document."""
        rows = self.arrays.documents[~self.dead]
        columns = [rows[name].tolist() for name in ("key", "inode", "length", "mtime", "ctime")]
        for key, *identity in zip(*columns, strict=True):
            yield key.decode("ascii"), (identity[0], identity[1], identity[2], identity[3])

    def in_states(self, states: frozenset[str]) -> Iterable[str]:
        """The keys of the living documents in one of the states."""
        wanted = [number for number, name in enumerate(STATES) if name in states]
        chosen = numpy().isin(self.arrays.documents["state"], wanted) & ~self.dead
        return (key.decode("ascii") for key in self._keys[chosen].tolist())

    def with_facet(self, facet: str) -> Iterable[Document]:
        """The living documents with a facet, the newest first."""
        numbers, _ = self._posting(FACET + facet)
        return (self.document(number) for number in numbers[::-1] if not self.dead[number])

    def _number(self, key: str) -> int | None:
        wanted = key.encode("ascii", "replace")
        at = bisect_left(self.arrays.by_key, wanted, key=self._keys.__getitem__)
        if at == self.size:
            return None
        number = int(self.arrays.by_key[at])
        return number if self._keys[number] == wanted and not self.dead[number] else None

    # -- a part of a search ------------------------------------------------------------------------------------------

    def living(self, seen: int) -> int:
        """As `ranking.Part.living`; all numbers are always seen."""
        del seen
        return len(self)

    def count(self, term: str, seen: int) -> int:
        """As `ranking.Part.count`."""
        del seen
        if not self._dead_count:
            at = self._place(term)
            return 0 if at < 0 else self._starts[at + 1] - self._starts[at]
        numbers, _ = self._posting(term)
        return len(numbers) - int(numpy().count_nonzero(self.dead[numbers]))

    def beginning(self, word: str, seen: int) -> list[str]:
        """As `ranking.Part.beginning`."""
        np = numpy()
        start, end = self._at(word.encode("utf-8")), self._at(word.encode("utf-8") + b"\xff")
        lengths = np.diff(self.arrays.term_offsets[start : end + 1])
        terms = map(self._term, (np.argsort(lengths, kind="stable") + start).tolist())
        return self._first_living((term for term in terms if term != word), seen)

    def misspelt(self, word: str, edits: int, seen: int) -> list[str]:
        """As `ranking.Part.misspelt`."""
        np, arrays = numpy(), self.arrays
        fits = np.bitwise_count(arrays.letters ^ np.uint32(letters(word))) <= 2 * edits
        fits &= np.abs(arrays.lengths.astype(np.int16) - len(word)) <= edits
        return self._first_living(misspelt(word, map(self._term, arrays.meant[fits].tolist()), edits), seen)

    def _first_living(self, terms: Iterable[str], seen: int) -> list[str]:
        return list(islice((term for term in terms if self.count(term, seen)), MOST_SIMILAR))

    def best(self, plan: Plan, wanted: int, seen: int) -> tuple[list[Match], int]:
        """As `ranking.Part.best`."""
        del seen
        np = numpy()
        allowed = self._allowed(plan)
        if plan.is_listing:
            numbers = np.arange(self.size) if allowed is None else np.flatnonzero(allowed)
            newest = numbers[len(numbers) - min(wanted, len(numbers)) :][::-1].tolist()
            return self._matches([(number, 0.0, WORDS) for number in newest], ()), len(numbers)
        facets = [(facet, self._posting(FACET + facet)[0]) for facet in plan.query.exact]
        words = [(*self._posting(term), factor) for term, factor in plan.words]
        similar = [(*self._posting(term), factor) for term, factor in plan.similar]
        found = [numbers for _, numbers in facets] + [numbers for numbers, _, _ in words + similar]
        if sum(map(len, found)) * _FEW < self.size:
            slots = np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint32)
        else:
            slots = None
        if self._scratch is None:
            self._scratch = np.zeros((2, self.size + _BLOCK))
        scoring = _Scoring(self.size, slots, self._scratch)
        scoring.add(words)
        tiers = scoring.tiers([numbers for _, numbers in facets], is_similar=bool(similar))
        scoring.add(similar)
        kept = scoring.kept(allowed, tiers)
        total = int(np.count_nonzero(kept))
        chosen = scoring.choose(kept, tiers, wanted)
        return self._matches(chosen, facets), total

    def _allowed(self, plan: Plan) -> Any:
        """Which documents may be found; None for all."""
        np = numpy()
        query = plan.query
        if not (query.required or query.since is not None or self._dead_count):
            return None
        allowed = ~self.dead
        for facet in query.required:
            having = np.zeros(self.size, bool)
            having[self._posting(FACET + facet)[0]] = True
            allowed &= having
        if query.since is not None:
            allowed[: bisect_left(self._updated, query.since.encode("ascii", "replace"))] = False
        return allowed

    def _matches(self, chosen: list[tuple[int, float, int]], facets: Iterable[tuple[str, Any]]) -> list[Match]:
        numbers = [number for number, _, _ in chosen]
        keys, times = (some[numbers].astype(str).tolist() for some in (self._keys, self._updated))
        return [
            Match(key, updated, score, _holding(facets, number), tier)
            for key, updated, (number, score, tier) in zip(keys, times, chosen, strict=True)
        ]

    # -- vocabulary --------------------------------------------------------------------------------------------------

    def _posting(self, term: str) -> tuple[Any, Any]:
        at = self._place(term)
        if at < 0:
            return self.arrays.numbers[:0], self.arrays.weights[:0]
        start, end = self._starts[at], self._starts[at + 1]
        return self.arrays.numbers[start:end], self.arrays.weights[start:end]

    def _place(self, term: str) -> int:
        """The place of a term in the vocabulary, -1 where it is not in it. A search asks several times for each."""
        at = self._places.get(term)
        if at is None:
            wanted = term.encode("utf-8", "surrogatepass")
            at = self._at(wanted)
            if at == self._terms or self._bytes(at) != wanted:
                at = -1
            self._note(term, at)
        return at

    def _note(self, term: str, at: int) -> None:
        if len(self._places) >= _NOTED:
            self._places.clear()
        self._places[term] = at

    def _at(self, wanted: bytes) -> int:
        """The place of the first term that is not before `wanted`."""
        block = max(0, bisect_left(self._signposts, wanted) - 1) * _SIGNPOST
        return bisect_left(range(self._terms), wanted, block, min(block + _SIGNPOST, self._terms), key=self._bytes)

    def _bytes(self, at: int) -> bytes:
        return bytes(self._blob[self._offsets[at] : self._offsets[at + 1]])

    def _term(self, at: int) -> str:
        term = self._bytes(at).decode("utf-8", "surrogatepass")
        self._note(term, at)
        return term


class _Scoring:
    """The scores of one query: over all documents, or over the few that any of its terms has (`slots`).

    `scratch` is room for two rows of numbers, used again and again: fresh large arrays cost more than the sums in them.
    """

    def __init__(self, size: int, slots: Any, scratch: Any) -> None:
        self._slots = slots
        self._size = size if slots is None else len(slots)
        padded = -(-self._size // _BLOCK) * _BLOCK
        self._scores: Any = scratch[0, :padded]
        self._values: Any = scratch[1, :padded]
        self._scores.fill(0.0)

    def add(self, terms: list[tuple[Any, Any, float]]) -> None:
        np = numpy()
        for numbers, weights, factor in terms:
            for start in range(0, len(numbers), _STEP):
                at = self._place(numbers[start : start + _STEP])
                self._scores[at] += weights[start : start + _STEP].astype(np.float64) * factor

    def tiers(self, facets: list[Any], *, is_similar: bool) -> Any:
        """The tier of each document after the asked words are added; None when there is one tier only."""
        np = numpy()
        if not is_similar and not any(map(len, facets)):
            return None
        tiers = (self._scores[: self._size] > 0).view(np.uint8) * np.uint8(WORDS)
        for numbers in facets:
            tiers[self._at(numbers)] = EXACT
        return tiers

    def kept(self, allowed: Any, tiers: Any) -> Any:
        """Which documents match."""
        kept = self._scores[: self._size] > 0
        if tiers is not None:
            kept |= tiers == EXACT
        if allowed is not None:
            kept &= allowed if self._slots is None else allowed[self._slots]
        return kept

    def choose(self, kept: Any, tiers: Any, wanted: int) -> list[tuple[int, float, int]]:
        """(number, score, tier) of the first `wanted` in order."""
        if tiers is None:
            return self._first(kept, wanted, WORDS)
        chosen: list[tuple[int, float, int]] = []
        for tier in (EXACT, WORDS, SIMILAR):
            if len(chosen) < wanted:
                chosen += self._first(kept & (tiers == tier), wanted - len(chosen), tier)
        return chosen

    def _first(self, kept: Any, count: int, tier: int) -> list[tuple[int, float, int]]:
        np = numpy()
        count = min(count, int(np.count_nonzero(kept)))
        if not count:
            return []
        values = self._values
        values.fill(-1.0)
        np.copyto(values[: self._size], self._scores[: self._size], where=kept)
        floor, above = _floor(values, count)
        at = np.concatenate([above, _last(values, floor, count - len(above))])
        scores = values[at]
        order = np.lexsort((at, scores))[::-1]
        numbers = at[order] if self._slots is None else self._slots[at[order]]
        pairs = zip(numbers.tolist(), scores[order].tolist(), strict=True)
        return [(number, score, tier) for number, score in pairs]

    def _place(self, numbers: Any) -> Any:
        """Where ascending numbers stand; as a slice where none is left out, which is added to several times as fast."""
        first, last = int(numbers[0]), int(numbers[-1])
        if self._slots is None and last - first == len(numbers) - 1:
            return slice(first, last + 1)
        return self._at(numbers)

    def _at(self, numbers: Any) -> Any:
        return numbers if self._slots is None else numpy().searchsorted(self._slots, numbers)


def _floor(values: Any, count: int) -> tuple[float, Any]:
    """The `count`-th greatest value, and where all greater ones are.

    The greatest of each block are values too, so the `count`-th of those is a bound from below, and few are above it.
    """
    np = numpy()
    tops = values.reshape(-1, _BLOCK).max(axis=1)
    bound = np.partition(tops, len(tops) - count)[len(tops) - count] if len(tops) >= count else -1.0
    above = np.flatnonzero(values > bound)
    if len(above) < count:
        return float(bound), above
    found = values[above]
    floor = np.partition(found, len(found) - count)[len(found) - count]
    return float(floor), above[found > floor]


def _last(values: Any, value: float, count: int) -> Any:
    """The last `count` places of a value."""
    np = numpy()
    found: list[Any] = []
    end = len(values)
    while count > 0 and end > 0:
        start = max(0, end - _STEP)
        some = np.flatnonzero(values[start:end] == value)[-count:] + start
        found.insert(0, some)
        count -= len(some)
        end = start
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _holding(facets: Iterable[tuple[str, Any]], number: int) -> tuple[str, ...]:
    """The facets that a document has."""
    found: list[str] = []
    for facet, numbers in facets:
        at = bisect_left(numbers, number)
        if at < len(numbers) and numbers[at] == number:
            found.append(facet)
    return tuple(found)
