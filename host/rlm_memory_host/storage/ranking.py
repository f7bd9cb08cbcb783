"""The rules by which cards are ranked, whoever holds the postings. Pure: no I/O, no state but what parts are given.

Owns: weights, scores, tiers, order, which similar words a query is taken for, and the merge of several parts. Does not
own: tokens (`tokens`), similarity of words (`similar_words`), postings (`index_memory`, `index_packed`).

The rules:

1. Documents with an exact facet of the query (an id, a tag, ...) come first, then those with a word of it, then those
   that are found only by a similar word. Within each: by score, the last updated first, then by id.
2. A score is BM25 (k1 1.2, b 0.75, over weighted fields, a fixed pivot length) summed over the query's terms in their
   order. Rarity counts the living documents that the search sees, so a score depends on what there is and not on how
   it came to be there.
3. A word that no document has, in itself or by its stem, is taken for the words that begin with it or that one slip of
   the pen (two, from eight letters on) turns it into: at most `MOST_SIMILAR`, nearest first, at a part of their weight.
   A word that occurs is never taken for another.

Every part computes in the same order with the same 32-bit weights and 64-bit sums: parts that hold the same documents
give the same scores to the last bit. Source: design pages "Recall", Tokens and ranking; "Exact results", Search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rlm_memory_host.storage.similar_words import SHORTEST_PREFIX, Similarity, typos_allowed

K1: Final = 1.2
B: Final = 0.75
PIVOT_LENGTH: Final = 48.0
"""Weighted terms of a usual card; a constant, so weights never have to be computed again."""
MOST_SIMILAR: Final = 8
"""Words that one unknown word of a query is taken for."""
FACTORS: Final[dict[Similarity, float]] = {"prefix": 0.5, "typo": 0.5, "two typos": 0.25}
"""How much of its weight a similar word brings."""
EXACT, WORDS, SIMILAR = 2, 1, 0
"""Tiers, the highest first."""


@dataclass(frozen=True, slots=True)
class Document:
    """What an index knows of one card, beside its terms. `artifact` and what follows is for the catalogue."""

    key: str
    updated_at: str
    """ISO 8601 in UTC: sorts by time."""
    artifact: str = ""
    size: int = 0
    state: str = "disabled"
    identity: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Inode, size, mtime and ctime of the card's file."""
    digest: bytes = b""
    """SHA-256 of the card's file as a host wrote it; empty where no host said so."""


@dataclass(frozen=True, slots=True)
class Query:
    """Terms are OR-ed; `exact` facets rank first; documents lack no facet of `required` and are not older.

    `words` are the plain words among the terms, each with its terms, that similar words may stand in for.
    """

    terms: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    since: str | None = None
    words: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """A word of a query that nothing has, and the term that was searched in its place."""

    word: str
    term: str
    similarity: Similarity


@dataclass(frozen=True, slots=True)
class Match:
    """One document of an answer. `exact` holds the facets that matched exactly."""

    key: str
    updated_at: str
    score: float
    exact: tuple[str, ...]
    tier: int = WORDS


@dataclass(frozen=True, slots=True)
class Found:
    """An answer: `matches` in order, `total` of all, and what unknown words were taken for."""

    matches: list[Match]
    total: int
    taken: tuple[Taken, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A query with the factor of each of its terms: `words` as they were asked, `similar` in place of unknown ones."""

    query: Query
    words: tuple[tuple[str, float], ...]
    similar: tuple[tuple[str, float], ...]
    taken: tuple[Taken, ...]

    @property
    def is_listing(self) -> bool:
        """Nothing is asked for: the newest are listed."""
        return not self.query.terms and not self.query.exact


class Part(Protocol):
    """Some of the documents, with their postings. `seen` is how many of its numbers a search sees."""

    def living(self, seen: int) -> int:
        """Documents that are there."""
        ...

    def count(self, term: str, seen: int) -> int:
        """How many of them have a term."""
        ...

    def beginning(self, word: str, seen: int) -> list[str]:
        """The terms of living documents that begin with a word: the `MOST_SIMILAR` shortest in UTF-8, then by name."""
        ...

    def misspelt(self, word: str, edits: int, seen: int) -> list[str]:
        """The terms of living documents that so many slips turn a word into, as `similar_words.misspelt`."""
        ...

    def best(self, plan: Plan, wanted: int, seen: int) -> tuple[list[Match], int]:
        """The first `wanted` matches in order, and how many there are."""
        ...


def search(parts: Sequence[tuple[Part, int]], query: Query, limit: int, offset: int = 0) -> Found:
    """The matches from `offset` on among all parts, each given with how many of its numbers are seen."""
    plan = plan_of(parts, query)
    ranked: list[Match] = []
    total = 0
    for part, seen in parts:
        some, count = part.best(plan, limit + offset, seen)
        ranked += some
        total += count
    if len(parts) > 1:
        ranked = in_order(ranked)
    return Found(ranked[offset : offset + limit], total, plan.taken)


def plan_of(parts: Sequence[tuple[Part, int]], query: Query) -> Plan:
    """Which terms to look up, and what each is worth."""
    living = sum(part.living(seen) for part, seen in parts)
    counts = {term: _count(parts, term) for term in dict.fromkeys(query.terms)}
    words = tuple((term, _rarity(count, living)) for term, count in counts.items() if count)
    similar: list[tuple[str, float]] = []
    taken: list[Taken] = []
    for terms in query.words:
        if any(counts[term] if term in counts else _count(parts, term) for term in terms):
            continue
        for term, similarity, count in _similar(parts, terms[0]):
            if term not in counts:
                counts[term] = count
                similar.append((term, FACTORS[similarity] * _rarity(count, living)))
                taken.append(Taken(terms[0], term, similarity))
    return Plan(query, words, tuple(similar), tuple(taken))


def in_order(matches: list[Match]) -> list[Match]:
    """Matches by tier, score, time of update and id."""
    ranked = sorted(matches, key=lambda match: match.key)
    ranked.sort(key=lambda match: match.updated_at, reverse=True)
    ranked.sort(key=lambda match: (match.tier, match.score), reverse=True)
    return ranked


def weights(fields: Iterable[tuple[float, Iterable[str]]]) -> dict[str, float]:
    """The share of each term of a document, before its rarity: saturated frequency, normalised by length."""
    counts: dict[str, float] = {}
    known = counts.get
    length = 0.0
    for weight, terms in fields:
        for term in terms:
            counts[term] = known(term, 0.0) + weight
            length += weight
    norm = length_norm(length)
    return {term: count * (K1 + 1) / (count + norm) for term, count in counts.items()}


def share(count: Any, length: Any) -> Any:
    """As `weights`, for arrays: the weighted frequencies of terms, each with the weighted length of its document."""
    return count * (K1 + 1) / (count + length_norm(length))


def length_norm(length: Any) -> Any:
    """What a term's frequency is held against in a document of a length."""
    return K1 * (1 - B + B * length / PIVOT_LENGTH)


def _similar(parts: Sequence[tuple[Part, int]], word: str) -> Iterator[tuple[str, Similarity, int]]:
    """The living terms that an unknown word is taken for, nearest first; two typos only where nothing is nearer.

    A term that lives anywhere lives in a part, and a part leaves out none but those that it has nearer ones for.
    """
    found: list[tuple[str, Similarity]] = []
    if len(word) >= SHORTEST_PREFIX:
        terms = {term for part, seen in parts for term in part.beginning(word, seen)}
        shortest = sorted(terms, key=lambda term: (len(term.encode()), term))
        found = [(term, "prefix") for term in shortest]
    for edits in range(1, typos_allowed(word) + 1):
        if len(found) < MOST_SIMILAR and (edits == 1 or not found):
            terms = {term for part, seen in parts for term in part.misspelt(word, edits, seen)}
            similarity: Similarity = "typo" if edits == 1 else "two typos"
            near = sorted(terms, key=lambda term: (abs(len(term) - len(word)), term))
            found.extend((term, similarity) for term in near)
    for term, similarity in found[:MOST_SIMILAR]:
        yield term, similarity, _count(parts, term)


def _count(parts: Sequence[tuple[Part, int]], term: str) -> int:
    return sum(part.count(term, seen) for part, seen in parts)


def _rarity(count: int, living: int) -> float:
    return math.log(1 + (living - count + 0.5) / (count + 0.5))
