"""BM25 over one collection, with its own length norm: incremental, in memory, with a packed form to start from.

Owns: postings, document lengths, scores, the packed form's bytes. Does not own: which texts (`textmemory.shelves`,
`recall.library`), fusion (`recall.fusion`), the tokeniser (`tokens`), when a packed form is kept. k1 1.2; b .75 for
topic blocks and .3 for turns, as measured (recall@10 .614 to .625 on turns), where the operator says nothing else.
Both are applied when a question is asked: postings and a packed form hold counts and lengths alone, so that what was
kept under other values serves these.

A document gets a number when it is added; a removed one is dead, and a changed one gets a new number. With numpy (extra
`rlm-memory-host[index]`) scores are sums over arrays; without it the same sums in plain Python, in the same order.

    8 bytes magic | CRC-32 of what follows | length of the header | header, JSON | words and keys, by line | arrays

A packed form is derived: with a wrong CRC, other rules or another tokeniser it is none.

Not thread-safe; its owner holds a lock. Source: design page "Recall", Tokens and ranking.
"""

from __future__ import annotations

import heapq
import json
import math
import struct
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rlm_memory_host.storage.index_file import rules
from rlm_memory_host.storage.index_packed import numpy

K1: Final = 1.2
B_BLOCKS: Final = 0.75
B_TURNS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Strengths:
    """k1, and b for topic blocks and for turns."""

    k1: float = K1
    b_topics: float = B_BLOCKS
    b_turns: float = B_TURNS


MEASURED: Final = Strengths()
WORN_AT: Final = 4_096
"""Dead documents that are tolerated before the collection is worth building anew, beside as many as are alive."""
_FORMAT: Final = 1
_MAGIC: Final = b"rlmwords"
_HEAD: Final = struct.Struct("<8sIQ")


@dataclass(slots=True)
class _Posting:
    """Numbers of the documents with a term, ascending, and how often each has it."""

    numbers: array[int] = field(default_factory=lambda: array("I"))
    counts: array[int] = field(default_factory=lambda: array("I"))


class Corpus:
    """Documents by key. `b` is the strength of the length norm."""

    def __init__(self, b: float, k1: float = K1) -> None:
        self._b = b
        self._k1 = k1
        self._postings: dict[str, _Posting] = {}
        self._packed: tuple[dict[str, int], array[int], array[int], array[int]] | None = None
        self._keys: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lengths: array[int] = array("I")
        self._dead = bytearray()
        self._total = 0
        self._norms: tuple[Any, Any] | None = None
        """(length norm, dead) of every document as arrays, until one is added or removed."""

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    @property
    def is_worn(self) -> bool:
        """Whether so many documents are dead that building it anew pays."""
        return len(self._keys) - len(self._numbers) > len(self._numbers) + WORN_AT

    def add(self, key: str, terms: Sequence[str]) -> None:
        """Add a document, or replace the one with its key."""
        self.remove(key)
        number = len(self._keys)
        for term, count in Counter(terms).items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = _Posting()
            posting.numbers.append(number)
            posting.counts.append(count)
        self._keys.append(key)
        self._numbers[key] = number
        self._lengths.append(len(terms))
        self._dead.append(0)
        self._total += len(terms)
        self._norms = None

    def remove(self, key: str) -> None:
        """Remove a document; nothing happens when there is none."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._dead[number] = 1
            self._total -= self._lengths[number]
            self._norms = None

    def scores(self, terms: Iterable[str], most: int | None = None) -> dict[str, float]:
        """The scores of the documents that have one of the terms (OR-ed): all, or the `most` best, ties by key."""
        if not self._numbers:
            return {}
        found = list(self._found(terms))
        if not found:
            return {}
        np = numpy()
        return self._plain_scores(found, most) if np is None else self._array_scores(np, found, most)

    def _found(self, terms: Iterable[str]) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """(numbers, counts) of each term that is there, each once; a term of both forms gives two in one."""
        for term in dict.fromkeys(terms):
            posting = self._postings.get(term)
            packed = self._slice(term)
            if posting is not None and packed is not None:
                yield packed[0] + posting.numbers, packed[1] + posting.counts
            elif posting is not None:
                yield posting.numbers, posting.counts
            elif packed is not None:
                yield packed

    def _slice(self, term: str) -> tuple[array[int], array[int]] | None:
        if self._packed is None:
            return None
        index, offsets, numbers, counts = self._packed
        at = index.get(term)
        if at is None:
            return None
        return numbers[offsets[at] : offsets[at + 1]], counts[offsets[at] : offsets[at + 1]]

    def _array_scores(
        self, np: Any, found: Sequence[tuple[Sequence[int], Sequence[int]]], most: int | None
    ) -> dict[str, float]:
        living = len(self._numbers)
        if self._norms is None:
            lengths = np.array(self._lengths, "u4")
            norm = self._k1 * (1 - self._b + self._b * lengths / (self._total / living or 1.0))
            self._norms = norm, np.frombuffer(bytes(self._dead), "u1")
        norm, dead = self._norms
        is_clean = living == len(self._keys)
        sums = np.zeros(len(self._keys))
        for numbers, counts in found:
            at, frequency = np.array(numbers, "u4"), np.array(counts, "f8")
            held = len(at) if is_clean else len(at) - int(dead[at].sum())
            if held:
                sums[at] += self._rarity(held, living) * frequency * (self._k1 + 1) / (frequency + norm[at])
        if not is_clean:
            sums[dead == 1] = 0.0
        hits = np.flatnonzero(sums)
        values = sums[hits]
        if most is not None and len(hits) > most:
            floor = np.partition(values, len(values) - most)[len(values) - most]
            keep = values >= floor
            hits, values = hits[keep], values[keep]
        numbered: Iterable[tuple[int, float]] = zip(hits.tolist(), values.tolist(), strict=True)
        return _best({self._keys[number]: value for number, value in numbered}, most)

    def _plain_scores(self, found: Sequence[tuple[Sequence[int], Sequence[int]]], most: int | None) -> dict[str, float]:
        living = len(self._numbers)
        mean = self._total / living or 1.0
        dead, lengths, k1, b = self._dead, self._lengths, self._k1, self._b
        sums: dict[int, float] = {}
        for numbers, counts in found:
            pairs = [pair for pair in zip(numbers, counts, strict=True) if not dead[pair[0]]]
            rarity = self._rarity(len(pairs), living)
            for number, frequency in pairs:
                norm = k1 * (1 - b + b * lengths[number] / mean)
                sums[number] = sums.get(number, 0.0) + rarity * frequency * (k1 + 1) / (frequency + norm)
        return _best({self._keys[number]: value for number, value in sums.items()}, most)

    @staticmethod
    def _rarity(held: int, living: int) -> float:
        return math.log(1 + (living - held + 0.5) / (held + 0.5))

    # -- the packed form -----------------------------------------------------------------------------------------------
    def pack(self, facts: Mapping[str, Any]) -> bytes:
        """The living documents as bytes, with `facts` in JSON types beside them; no word of a dead one is in it."""
        numbers, counts, offsets, words = array("I"), array("I"), array("I", [0]), list[str]()
        moved, lengths, keys = array("I", bytes(4 * len(self._keys))), array("I"), list[str]()
        for number, key in enumerate(self._keys):
            if not self._dead[number]:
                moved[number] = len(keys)
                keys.append(key)
                lengths.append(self._lengths[number])
        for term in {**(self._packed[0] if self._packed else {}), **self._postings}:
            for at, many in self._found((term,)):
                for number, count in zip(at, many, strict=True):
                    if not self._dead[number]:
                        numbers.append(moved[number])
                        counts.append(count)
            if len(numbers) > offsets[-1]:
                offsets.append(len(numbers))
                words.append(term)
        text = "\n".join((*words, *keys)).encode("utf-8", "surrogatepass")
        arrays = b"".join(part.tobytes() for part in (offsets, numbers, counts, lengths))
        sizes = [len(words), len(keys), len(numbers), len(text)]
        header = json.dumps({"format": _FORMAT, "rules": rules(), "sizes": sizes, "facts": facts}).encode()
        check = zlib.crc32(arrays, zlib.crc32(text, zlib.crc32(header)))
        return b"".join((_HEAD.pack(_MAGIC, check, len(header)), header, text, arrays))

    @classmethod
    def unpack(cls, data: bytes, b: float, k1: float = K1) -> tuple[Corpus, dict[str, Any]] | None:
        """(the documents, the facts) of a packed form; None for anything else."""
        try:
            return cls._unpacked(data, b, k1)
        except (ValueError, KeyError, TypeError, IndexError, struct.error, RecursionError):
            return None

    @classmethod
    def _unpacked(cls, data: bytes, b: float, k1: float) -> tuple[Corpus, dict[str, Any]] | None:
        magic, check, length = _HEAD.unpack_from(data)
        if magic != _MAGIC or zlib.crc32(memoryview(data)[_HEAD.size :]) != check:
            return None
        start = _HEAD.size + length
        header = cast("dict[str, Any]", json.loads(data[_HEAD.size : start]))
        if header["format"] != _FORMAT or header["rules"] != rules():
            return None
        words, keys, postings, size = header["sizes"]
        lines = data[start : start + size].decode("utf-8", "surrogatepass").split("\n") if size else []
        arrays = array("I", data[start + size :])
        if len(lines) != words + keys or len(arrays) != words + 1 + 2 * postings + keys:
            return None
        corpus = cls(b, k1)
        offsets, rest = arrays[: words + 1], arrays[words + 1 :]
        index = dict(zip(lines[:words], range(words), strict=True))
        corpus._packed = index, offsets, rest[:postings], rest[postings : 2 * postings]
        corpus._keys = lines[words:]
        corpus._numbers = dict(zip(corpus._keys, range(keys), strict=True))
        corpus._lengths = rest[2 * postings :]
        corpus._dead = bytearray(keys)
        corpus._total = sum(corpus._lengths)
        return corpus, header["facts"]


def _best(scored: dict[str, float], most: int | None) -> dict[str, float]:
    if most is None or len(scored) <= most:
        return scored
    by_rank = [(-score, key) for key, score in scored.items()]
    # After a cut by score little more than `most` is left, and then sorting is cheaper than a heap.
    best = sorted(by_rank)[:most] if len(by_rank) < 4 * most else heapq.nsmallest(most, by_rank)
    return {key: -score for score, key in best}
