"""An inverted index in memory with BM25 over weighted fields: incremental, no query looks at every document's text.

Owns: postings, scores, filters, order. Does not own: tokens (`tokens`), where documents come from (`cards`). A
document gets a number when it is added; a changed one gets a new number and its old one is dead. Numbers only grow, so
postings are append-only arrays, and a search that is told the number of the newest document at its first page counts
and ranks exactly the same on its later pages, whatever was added meanwhile.

Scores: BM25 with k1 1.2, b 0.75 and a fixed pivot length, so that a posting's weight is known when it is written.
`Index` is the seam for a derived index on disk: the same four calls (`add`, `remove`, `search`, `horizon`).

Not thread-safe; its owner holds a lock. Source: design page "Recall", Tokens and ranking; "Quality", Targets.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

K1: Final = 1.2
B: Final = 0.75
PIVOT_LENGTH: Final = 48.0
"""Weighted terms of a usual card; a constant, so weights never have to be computed again."""
COMPACT_AT: Final = 4_096
"""Dead documents that are tolerated before postings are rebuilt, beside as many as are alive."""


@dataclass(frozen=True, slots=True)
class Document:
    """What the index knows of one card, beside its terms."""

    key: str
    updated_at: str
    """ISO 8601 in UTC: sorts by time."""


_GONE: Final = Document("", "")
_REVERSED: Final = {code: 126 - code for code in range(127)}
"""Turns the order of ids round, so that one descending order has the newest first and equal times by ascending id."""


@dataclass(frozen=True, slots=True)
class Query:
    """Terms are OR-ed; `exact` facets rank first; documents lack no facet of `required` and are not older."""

    terms: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    since: str | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """One document of an answer. `exact` holds the facets that matched exactly."""

    key: str
    updated_at: str
    score: float
    exact: tuple[str, ...]


@dataclass(slots=True)
class _Posting:
    numbers: array[int] = field(default_factory=lambda: array("I"))
    weights: array[float] = field(default_factory=lambda: array("f"))
    top: float = 0.0

    def upto(self, stop: int) -> array[int]:
        return self.numbers if stop == len(self.numbers) else self.numbers[:stop]


class Index:
    """Documents by key. `len` counts the living."""

    def __init__(self) -> None:
        self._postings: dict[str, _Posting] = {}
        self._facets: dict[str, array[int]] = {}
        self._documents: list[Document | None] = []
        self._numbers: dict[str, int] = {}
        self._dead: set[int] = set()
        self._order: list[tuple[str, str]] = []
        self._by_time: list[tuple[str, str, int]] = []
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def horizon(self) -> tuple[int, int]:
        """(epoch, documents so far): what a cursor needs to see the same collection again."""
        return self._epoch, len(self._documents)

    def has_horizon(self, epoch: int, horizon: int) -> bool:
        """Whether a cursor's collection can still be seen exactly."""
        return epoch == self._epoch and horizon <= len(self._documents)

    def add(self, document: Document, facets: Iterable[str], fields: Iterable[tuple[float, Iterable[str]]]) -> None:
        """Add a document, or replace the one with its key.

        `facets` are exact values that it is found or filtered by, such as `tag:cohort`; `fields` are (weight, terms).
        """
        self.remove(document.key)
        number = len(self._documents)
        self._documents.append(document)
        self._numbers[document.key] = number
        order = (document.updated_at, document.key.translate(_REVERSED))
        self._order.append(order)
        insort(self._by_time, (*order, number))
        for facet in dict.fromkeys(facets):
            self._facets.setdefault(facet, array("I")).append(number)
        for term, weight in _weights(fields).items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = _Posting()
            posting.numbers.append(number)
            posting.weights.append(weight)
            posting.top = max(posting.top, weight)

    def remove(self, key: str) -> None:
        """Remove a document; nothing happens when there is none."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._documents[number] = None
            self._dead.add(number)
            if len(self._dead) > len(self._numbers) + COMPACT_AT:
                self._compact()

    def search(self, query: Query, limit: int, offset: int = 0, horizon: int | None = None) -> tuple[list[Match], int]:
        """(matches in order from `offset`, count of all). Exact ones first, then by score, update time and id."""
        end = len(self._documents) if horizon is None else horizon
        allowed = self._allowed(query, end)
        if not query.terms and not query.exact:
            return self._newest(allowed, limit, offset, end)
        exact: dict[int, list[str]] = {}
        for facet in query.exact:
            for number in self._living(self._facets.get(facet, ()), end):
                if allowed is None or number in allowed:
                    exact.setdefault(number, []).append(facet)
        lists = self._lists(query.terms, end)
        matching = set(exact).union(*(posting.upto(stop) for posting, _, stop in lists))
        is_whole = allowed is None and (not self._dead or matching.isdisjoint(self._dead))
        if not is_whole:
            matching -= self._dead
            matching = matching if allowed is None else matching & allowed
        scores = self._scores(lists, None if is_whole else matching, exact, limit + offset)
        chosen = self._best(scores, exact, limit + offset)[offset:]
        return [self._match(number, scores[number], exact.get(number, ())) for number in chosen], len(matching)

    # -- which documents ---------------------------------------------------------------------------------------------

    def _allowed(self, query: Query, end: int) -> set[int] | None:
        allowed: set[int] | None = None
        for facet in query.required:
            found = set(self._living(self._facets.get(facet, ()), end))
            allowed = found if allowed is None else allowed & found
        if query.since is not None:
            first = bisect_left(self._by_time, (query.since,))
            found = set(self._living((number for _, _, number in self._by_time[first:]), end))
            allowed = found if allowed is None else allowed & found
        return allowed

    def _living(self, numbers: Iterable[int], end: int) -> Iterable[int]:
        return (number for number in numbers if number < end and number not in self._dead)

    def _newest(self, allowed: set[int] | None, limit: int, offset: int, end: int) -> tuple[list[Match], int]:
        if allowed is not None:
            total = len(allowed)
        else:
            total = end - sum(number < end for number in self._dead)
        numbers = (number for _, _, number in reversed(self._by_time))
        found = numbers if allowed is None else (number for number in numbers if number in allowed)
        page = islice(self._living(found, end), offset, offset + limit)
        return [self._match(number, 0.0, ()) for number in page], total

    # -- ranking -----------------------------------------------------------------------------------------------------

    def _lists(self, terms: Iterable[str], end: int) -> list[tuple[_Posting, float, int]]:
        """(posting, inverse document frequency, how much of it to read), those that can add most first."""
        lists: list[tuple[_Posting, float, int]] = []
        for term in dict.fromkeys(terms):
            posting = self._postings.get(term)
            if posting is None:
                continue
            numbers = posting.numbers
            stop = len(numbers) if numbers[-1] < end else bisect_left(numbers, end)
            if stop:
                lists.append((posting, math.log(1 + (end - stop + 0.5) / (stop + 0.5)), stop))
        lists.sort(key=lambda item: -item[1] * item[0].top)
        return lists

    @staticmethod
    def _scores(
        lists: list[tuple[_Posting, float, int]], matching: set[int] | None, exact: Collection[int], wanted: int
    ) -> dict[int, float]:
        """Scores of at least the best `wanted` documents, and of the exact ones.

        Once the best `wanted` are further ahead than all remaining lists can lift a newcomer, those lists only add to
        documents that are known already. `matching` None: every document of every list counts.
        """
        scores = dict.fromkeys(exact, 0.0)
        rest = sum(idf * posting.top for posting, idf, _ in lists)
        for posting, idf, stop in lists:
            leading = wanted + len(exact)
            settled = len(scores) >= leading and heapq.nlargest(leading, scores.values())[-1] > rest
            _accumulate(scores, posting, idf, stop, scores.keys() if settled else matching)
            rest -= idf * posting.top
        return scores

    def _best(self, scores: dict[int, float], exact: Collection[int], wanted: int) -> list[int]:
        """The first `wanted` documents in order. Only those that can be among them are sorted."""
        first = self._sorted(list(exact), scores)
        rest = scores if not exact else {number: score for number, score in scores.items() if number not in exact}
        count = wanted - len(first)
        if count <= 0 or not rest:
            return first[:wanted]
        floor = heapq.nlargest(count, rest.values())[-1]
        top = [number for number, score in rest.items() if score >= floor]
        above = [number for number in top if rest[number] > floor] if len(top) > count else top
        level = [number for number in top if rest[number] == floor] if len(top) > count else []
        return first + self._sorted(above, scores) + self._latest(level, count - len(above))

    def _latest(self, numbers: list[int], count: int) -> list[int]:
        """The first `count` of documents with one score."""
        if len(numbers) * count < len(self._by_time):
            return self._sorted(numbers, {})[:count]
        level = set(numbers)
        return list(islice((number for _, _, number in reversed(self._by_time) if number in level), count))

    def _sorted(self, numbers: list[int], scores: dict[int, float]) -> list[int]:
        numbers.sort(key=self._order.__getitem__, reverse=True)
        if scores:
            numbers.sort(key=scores.__getitem__, reverse=True)
        return numbers

    def _match(self, number: int, score: float, exact: Iterable[str]) -> Match:
        document = self._documents[number] or _GONE
        return Match(document.key, document.updated_at, score, tuple(exact))

    def _compact(self) -> None:
        """Renumber the living, in their order. Cursors given out before see a fresh collection."""
        kept = [document for document in self._documents if document is not None]
        moved = {self._numbers[document.key]: number for number, document in enumerate(kept)}
        self._facets = {facet: array("I", new) for facet, old in self._facets.items() if (new := _moved(old, moved))}
        for term, posting in list(self._postings.items()):
            pairs = [(moved[n], w) for n, w in zip(posting.numbers, posting.weights, strict=True) if n in moved]
            if not pairs:
                del self._postings[term]
                continue
            posting.numbers = array("I", (number for number, _ in pairs))
            posting.weights = array("f", (weight for _, weight in pairs))
            posting.top = max(posting.weights)
        self._by_time = [(time, key, moved[number]) for time, key, number in self._by_time if number in moved]
        self._order = [self._order[number] for number in moved]
        self._documents = list(kept)
        self._numbers = {document.key: number for number, document in enumerate(kept)}
        self._dead = set()
        self._epoch += 1


def _moved(numbers: Iterable[int], moved: dict[int, int]) -> list[int]:
    return [moved[number] for number in numbers if number in moved]


def _accumulate(
    scores: dict[int, float], posting: _Posting, idf: float, stop: int, among: Collection[int] | None
) -> None:
    """Add one list's share to the scores of the documents in `among` (None: all)."""
    numbers, weights = posting.numbers, posting.weights
    if among is None:
        shares = [idf * weight for weight in (weights if stop == len(weights) else weights[:stop])]
        if not scores:
            scores.update(zip(numbers, shares, strict=False))
            return
        known = scores.get
        for number, share in zip(numbers, shares, strict=False):
            scores[number] = known(number, 0.0) + share
        return
    if len(among) * 8 < stop:
        for number in list(among):
            at = bisect_left(numbers, number, 0, stop)
            if at < stop and numbers[at] == number:
                scores[number] = scores.get(number, 0.0) + idf * weights[at]
        return
    whole = stop == len(numbers)
    pairs = zip(numbers, weights, strict=True) if whole else zip(numbers[:stop], weights[:stop], strict=True)
    for number, weight in pairs:
        if number in among:
            scores[number] = scores.get(number, 0.0) + idf * weight


def _weights(fields: Iterable[tuple[float, Iterable[str]]]) -> dict[str, float]:
    """The share of each term, before its rarity: saturated frequency, normalised by length."""
    counts: dict[str, float] = {}
    length = 0.0
    for weight, terms in fields:
        for term in terms:
            counts[term] = counts.get(term, 0.0) + weight
            length += weight
    norm = K1 * (1 - B + B * length / PIVOT_LENGTH)
    return {term: count * (K1 + 1) / (count + norm) for term, count in counts.items()}
