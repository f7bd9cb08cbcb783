"""Postings in memory, in plain Python: the whole index where nothing else is there, and the newest cards beside one.

Owns: adding, removing, and answering by the rules of `ranking`. A document gets a number when it is added; a changed
one gets a new number and its old one is dead. Numbers only grow, so postings are append-only arrays, and a search that
is told how many numbers it sees is not shifted by what is added meanwhile. No query looks at every document's text.

Not thread-safe; its owner holds a lock. Source: design page "Exact results", Search.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from rlm_memory_host.storage.ranking import EXACT, MOST_SIMILAR, SIMILAR, WORDS, Document, Match, Plan, Query
from rlm_memory_host.storage.similar_words import letters, may_be_meant, misspelt

COMPACT_AT: Final = 4_096
"""Dead documents that are tolerated before postings are rebuilt, beside as many as are alive."""

_REVERSED: Final = {code: 126 - code for code in range(127)}
"""Turns the order of ids round, so that one descending order has the newest first and equal times by ascending id."""


@dataclass(slots=True)
class Posting:
    """Numbers of the documents with a term, ascending, and the weight of each."""

    numbers: array[int] = field(default_factory=lambda: array("I"))
    weights: array[float] = field(default_factory=lambda: array("f"))


class MemoryPart:
    """Documents by key. `len` counts the living; `size` the numbers given so far."""

    def __init__(self) -> None:
        self.postings: dict[str, Posting] = {}
        self.facets: dict[str, array[int]] = {}
        self.documents: list[Document | None] = []
        self._numbers: dict[str, int] = {}
        self._dead: set[int] = set()
        self._order: list[tuple[str, str]] = []
        self._by_time: list[tuple[str, str, int]] = []
        self._letters: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def size(self) -> int:
        """Numbers given so far, the dead ones' too."""
        return len(self.documents)

    @property
    def is_worn(self) -> bool:
        """Whether so many are dead that the postings are worth building anew."""
        return len(self._dead) > len(self._numbers) + COMPACT_AT

    def get(self, key: str) -> Document | None:
        """The living document of a key."""
        number = self._numbers.get(key)
        return None if number is None else self.documents[number]

    def add(self, document: Document, facets: Iterable[str], weights: Mapping[str, float]) -> None:
        """Add a document, or replace the one with its key.

        `facets` are exact values that it is found or filtered by, such as `tag:cohort`; `weights` those of its terms.
        """
        self.remove(document.key)
        number = len(self.documents)
        self.documents.append(document)
        self._numbers[document.key] = number
        order = (document.updated_at, document.key.translate(_REVERSED))
        self._order.append(order)
        insort(self._by_time, (*order, number))
        for facet in dict.fromkeys(facets):
            self.facets.setdefault(facet, array("I")).append(number)
        for term, weight in weights.items():
            posting = self.postings.get(term)
            if posting is None:
                posting = self.postings[term] = Posting()
                if may_be_meant(term):
                    self._letters[term] = letters(term)
            posting.numbers.append(number)
            posting.weights.append(weight)

    def remove(self, key: str) -> Document | None:
        """Remove a document and give it back; None when there is none."""
        number = self._numbers.pop(key, None)
        if number is None:
            return None
        document = self.documents[number]
        self.documents[number] = None
        self._dead.add(number)
        return document

    def restate(self, document: Document) -> Document | None:
        """Put in what is known of a card beside its terms; what was known before, None where the key is not here."""
        number = self._numbers.get(document.key)
        if number is None:
            return None
        before, self.documents[number] = self.documents[number], document
        return before

    def in_states(self, states: frozenset[str]) -> Iterable[str]:
        """The keys of the living documents in one of the states."""
        return (item.key for item in self.documents if item is not None and item.state in states)

    def identities(self) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
        """Key and file identity of each living document."""
        return ((item.key, item.identity) for item in self.documents if item is not None)

    def with_facet(self, facet: str) -> Iterable[Document]:
        """The living documents with a facet, the last added first."""
        for number in reversed(self.facets.get(facet, ())):
            document = self.documents[number]
            if document is not None:
                yield document

    def compacted(self) -> MemoryPart:
        """A part of its own with the living documents, numbered anew in their order."""
        kept = [number for number in range(self.size) if number not in self._dead]
        moved = {number: at for at, number in enumerate(kept)}
        part = MemoryPart()
        part.documents = [self.documents[number] for number in kept]
        part._numbers = {document.key: at for at, document in enumerate(part.documents) if document}
        part._order = [self._order[number] for number in kept]
        part._by_time = [(time, key, moved[number]) for time, key, number in self._by_time if number in moved]
        for facet, numbers in self.facets.items():
            some = [moved[n] for n in numbers if n in moved]
            if some:
                part.facets[facet] = array("I", some)
        for term, posting in self.postings.items():
            pairs = zip(posting.numbers, posting.weights, strict=True)
            some = [(moved[number], weight) for number, weight in pairs if number in moved]
            if some:
                part.postings[term] = Posting(array("I", (n for n, _ in some)), array("f", (w for _, w in some)))
                if term in self._letters:
                    part._letters[term] = self._letters[term]
        return part

    # -- a part of a search ------------------------------------------------------------------------------------------

    def living(self, seen: int) -> int:
        """As `ranking.Part.living`."""
        return seen - sum(number < seen for number in self._dead)

    def count(self, term: str, seen: int) -> int:
        """As `ranking.Part.count`."""
        posting = self.postings.get(term)
        if posting is None:
            return 0
        numbers = posting.numbers
        stop = _stop(numbers, seen)
        if not self._dead:
            return stop
        return stop - sum(number in self._dead for number in numbers[:stop])

    def beginning(self, word: str, seen: int) -> list[str]:
        """As `ranking.Part.beginning`."""
        found = (term for term in self.postings if term.startswith(word) and term != word)
        if self._dead or seen < self.size:
            found = (term for term in found if self.count(term, seen))
        return heapq.nsmallest(MOST_SIMILAR, found, key=lambda term: (len(term.encode()), term))

    def misspelt(self, word: str, edits: int, seen: int) -> list[str]:
        """As `ranking.Part.misspelt`."""
        bits, length = letters(word), len(word)
        sieved = [
            term
            for term, others in self._letters.items()
            if (others ^ bits).bit_count() <= 2 * edits and -edits <= len(term) - length <= edits
        ]
        return self._first_living(misspelt(word, sieved, edits), seen)

    def _first_living(self, terms: Iterable[str], seen: int) -> list[str]:
        return list(islice((term for term in terms if self.count(term, seen)), MOST_SIMILAR))

    def best(self, plan: Plan, wanted: int, seen: int) -> tuple[list[Match], int]:
        """As `ranking.Part.best`."""
        allowed = self._allowed(plan.query, seen)
        if plan.is_listing:
            return self._newest(allowed, wanted, seen)
        exact: dict[int, list[str]] = {}
        for facet in plan.query.exact:
            for number in self._seen(self.facets.get(facet, ()), seen):
                exact.setdefault(number, []).append(facet)
        scores: dict[int, float] = dict.fromkeys(exact, 0.0)
        worded: set[int] | None = set() if plan.similar else None
        self._add(scores, plan.words, seen, worded)
        self._add(scores, plan.similar, seen)
        if self._dead and not self._dead.isdisjoint(scores):
            scores = {number: score for number, score in scores.items() if number not in self._dead}
        if allowed is not None:
            scores = {number: score for number, score in scores.items() if number in allowed}
        return self._best(scores, exact, worded, wanted), len(scores)

    def _allowed(self, query: Query, seen: int) -> set[int] | None:
        allowed: set[int] | None = None
        for facet in query.required:
            found = set(self._seen(self.facets.get(facet, ()), seen))
            allowed = found if allowed is None else allowed & found
        if query.since is not None:
            first = bisect_left(self._by_time, (query.since,))
            found = set(self._seen((number for _, _, number in self._by_time[first:]), seen))
            allowed = found if allowed is None else allowed & found
        return allowed

    def _seen(self, numbers: Iterable[int], seen: int) -> Iterable[int]:
        return (number for number in numbers if number < seen and number not in self._dead)

    def _newest(self, allowed: set[int] | None, wanted: int, seen: int) -> tuple[list[Match], int]:
        total = self.living(seen) if allowed is None else len(allowed)
        numbers = (number for _, _, number in reversed(self._by_time))
        found = numbers if allowed is None else (number for number in numbers if number in allowed)
        return [self._match(number, 0.0, (), WORDS) for number in islice(self._seen(found, seen), wanted)], total

    def _add(
        self, scores: dict[int, float], terms: Iterable[tuple[str, float]], seen: int, found: set[int] | None = None
    ) -> None:
        """Add the share of each term; the numbers of the documents that have one go into `found`."""
        known = scores.get
        for term, factor in terms:
            posting = self.postings.get(term)
            if posting is None:
                continue
            stop = _stop(posting.numbers, seen)
            numbers, shares = posting.numbers, posting.weights
            if stop != len(numbers):
                numbers, shares = numbers[:stop], shares[:stop]
            if found is not None:
                found.update(numbers)
            if scores:
                for number, weight in zip(numbers, shares, strict=True):
                    scores[number] = known(number, 0.0) + factor * weight
            else:
                scores.update(zip(numbers, [factor * weight for weight in shares], strict=True))

    def _best(
        self, scores: dict[int, float], exact: Mapping[int, list[str]], worded: set[int] | None, wanted: int
    ) -> list[Match]:
        """The first `wanted` in order: tier by tier, and only those that can be among them are sorted."""
        tiers: dict[int, dict[int, float]] = {EXACT: {}, WORDS: scores, SIMILAR: {}}
        if exact or worded is not None:
            tiers[WORDS] = {}
            for number, score in scores.items():
                tier = EXACT if number in exact else WORDS if worded is None or number in worded else SIMILAR
                tiers[tier][number] = score
        chosen: list[Match] = []
        for tier, group in tiers.items():
            numbers = self._first(group, wanted - len(chosen))
            chosen += [self._match(number, group[number], exact.get(number, ()), tier) for number in numbers]
        return chosen

    def _first(self, scores: dict[int, float], count: int) -> list[int]:
        if count <= 0 or not scores:
            return []
        if len(scores) <= count:
            return self._sorted(list(scores), scores)
        floor = heapq.nlargest(count, scores.values())[-1]
        above = [number for number, score in scores.items() if score > floor]
        level = [number for number, score in scores.items() if score == floor]
        return self._sorted(above, scores) + self._latest(level, count - len(above))

    def _latest(self, numbers: list[int], count: int) -> list[int]:
        """The first `count` of documents with one score."""
        if len(numbers) * count < len(self._by_time):
            return self._sorted(numbers, {})[:count]
        level = set(numbers)
        return list(islice((number for _, _, number in reversed(self._by_time) if number in level), count))

    def _sorted(self, numbers: list[int], scores: Mapping[int, float]) -> list[int]:
        numbers.sort(key=self._order.__getitem__, reverse=True)
        if scores:
            numbers.sort(key=scores.__getitem__, reverse=True)
        return numbers

    def _match(self, number: int, score: float, exact: Iterable[str], tier: int) -> Match:
        document = self.documents[number]
        assert document is not None
        return Match(document.key, document.updated_at, score, tuple(exact), tier)


def _stop(numbers: array[int], seen: int) -> int:
    """How many of ascending numbers are seen."""
    return len(numbers) if not numbers or numbers[-1] < seen else bisect_left(numbers, seen)
