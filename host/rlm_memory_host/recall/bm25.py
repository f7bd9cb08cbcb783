"""BM25 over one collection, with its own length norm: incremental, in memory.

Owns: postings, document lengths, scores. Does not own: which texts (`library`), fusion (`fusion`), the tokeniser
(`storage.tokens`). k1 1.2; b .75 for topic blocks and .3 for turns, as measured (recall@10 .614 to .625 on turns).

Not thread-safe; its owner holds a lock. Source: design page "Recall", Tokens and ranking.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

K1: Final = 1.2
B_BLOCKS: Final = 0.75
B_TURNS: Final = 0.3


class Corpus:
    """Documents by key. `b` is the strength of the length norm."""

    def __init__(self, b: float, k1: float = K1) -> None:
        self._b = b
        self._k1 = k1
        self._postings: dict[str, dict[str, int]] = {}
        self._terms: dict[str, tuple[str, ...]] = {}
        self._lengths: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def __contains__(self, key: object) -> bool:
        return key in self._lengths

    def add(self, key: str, terms: Sequence[str]) -> None:
        """Add a document, or replace the one with its key."""
        self.remove(key)
        counts = Counter(terms)
        for term, count in counts.items():
            self._postings.setdefault(term, {})[key] = count
        self._terms[key] = tuple(counts)
        self._lengths[key] = len(terms)
        self._total += len(terms)

    def remove(self, key: str) -> None:
        """Remove a document; nothing happens when there is none."""
        terms = self._terms.pop(key, None)
        if terms is None:
            return
        for term in terms:
            posting = self._postings[term]
            del posting[key]
            if not posting:
                del self._postings[term]
        self._total -= self._lengths.pop(key)

    def scores(self, terms: Iterable[str]) -> dict[str, float]:
        """The scores of all documents that have one of the terms; terms are OR-ed."""
        found: dict[str, float] = {}
        count = len(self._lengths)
        mean = (self._total / count) if count else 1.0
        for term in dict.fromkeys(terms):
            posting = self._postings.get(term)
            if not posting:
                continue
            idf = math.log(1 + (count - len(posting) + 0.5) / (len(posting) + 0.5))
            for key, frequency in posting.items():
                norm = self._k1 * (1 - self._b + self._b * self._lengths[key] / mean)
                found[key] = found.get(key, 0.0) + idf * frequency * (self._k1 + 1) / (frequency + norm)
        return found


NEIGHBOUR_SHARE: Final = 0.2
"""A fifth of a hit's score is lent to the turns before and after it."""


def lend_to_neighbours(scores: dict[str, float], order: Sequence[str]) -> dict[str, float]:
    """The scores of turns with a fifth of each hit's own score added to its neighbours. `order` is the conversation."""
    lent = dict(scores)
    for index, key in enumerate(order):
        score = scores.get(key, 0.0)
        if not score:
            continue
        for near in (index - 1, index + 1):
            if 0 <= near < len(order):
                lent[order[near]] = lent.get(order[near], 0.0) + NEIGHBOUR_SHARE * score
    return lent
