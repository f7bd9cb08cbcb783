"""From a search request to an answer: which exact values a query names, pages, why a card matched.

Owns: the reading of a query, cursors, hits. Does not own: tokens and ranking (`storage.tokens`, `storage.ranking`).

A cursor names the collection that its first page saw: cards recorded since do not shift later pages, and changed or
removed ones drop out. Cursors are opaque, hold no text of a query, and are good for the same query and filters in one
project while the host runs; after a restart they go on at the same position and the page says so.

Source: DeepSeek Honcho specification, sections 30.1, 31.4; design page "Exact results", Search.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from rlm_memory.wire import INVALID_ARGUMENT

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import ExperimentCardV1, SearchHit, SearchPage, SearchRequest
from rlm_memory_host.errors import StoreError
from rlm_memory_host.storage.catalogue import Catalogue
from rlm_memory_host.storage.index_cards import card_texts
from rlm_memory_host.storage.ranking import Match, Query, Taken
from rlm_memory_host.storage.tokens import (
    document_terms,
    has_term,
    normalise,
    query_terms,
    query_words,
    word_line,
)

CARD_KIND: Final = "experiment-card"
_MAX_TERMS: Final = 64
_MAX_SIMILAR: Final = 8
"""Words of a query that similar ones may stand in for."""
_PROCESS: Final = os.urandom(6).hex()
"""Tells cursors of this process from those of an earlier one, whose collection is gone."""


@dataclass(frozen=True, slots=True)
class _Cursor:
    process: str
    epoch: int
    horizon: int
    offset: int


ReadHit = Callable[[str], tuple[ExperimentCardV1, bool] | None]
"""The card of an id and whether its bytes are here; None when it vanished meanwhile."""


def read_query(request: SearchRequest) -> Query:
    """Terms, and the exact values that a query may name: ids and digests anywhere in it, tag and version as a whole."""
    text = request.query.strip()
    exact: list[str] = []
    for word in text.split():
        if ids.is_experiment_id(word):
            exact.append(f"experiment_id:{word}")
        elif ids.is_artifact_id(word):
            exact.append(f"artifact_id:{word}")
        elif ids.is_sha256(word):
            exact += [f"query_fingerprint:{word}", f"artifact_id:{ids.artifact_id(word)}"]
    if text:
        exact += [f"tag:{normalise(text)}", f"source_version:{text}"]
    required: list[str] = []
    if request.tag is not None:
        required.append(f"tag:{normalise(request.tag.strip())}")
    if request.source is not None:
        required.append(f"source:{normalise(request.source)}")
    if request.session is not None:
        required.append(f"session:{request.session}")
    terms, words = tuple(query_terms(text)[:_MAX_TERMS]), tuple(query_words(text)[:_MAX_SIMILAR])
    return Query(terms, tuple(exact), tuple(required), request.since, words)


def search(catalogue: Catalogue, project_key: str, request: SearchRequest, read: ReadHit) -> SearchPage:
    """One page of an answer. `request` is checked already. Raises StoreError (INVALID_ARGUMENT) for a bad cursor."""
    if request.kind not in (None, CARD_KIND):
        return SearchPage((), 0)
    query = read_query(request)
    digest = _digest(project_key, request)
    cursor = None if request.cursor is None else _decode(request.cursor, digest)
    catalogue.refresh()
    warnings: list[str] = []
    offset = 0 if cursor is None else cursor.offset
    # A cursor of another process names a collection that nobody has any more: no epoch is -1.
    of = None if cursor is None else (cursor.epoch if cursor.process == _PROCESS else -1, cursor.horizon)
    view = catalogue.search(query, request.limit, offset, of)
    if not view.is_same:
        warnings.append("the collection was rebuilt since the page before; a result may repeat or be missing")
    matches, total, taken = view.found.matches, view.found.total, view.found.taken
    warnings += _replacements(taken)
    hits: list[SearchHit] = []
    asked = _asked(query, taken)
    for match in matches:
        found = read(match.key)
        if found is not None:
            hits.append(hit_of(*found, _reasons(found[0], match, asked), match.score))
    if len(hits) < len(matches):
        warnings.append("a card vanished or became unreadable while it was searched")
    after = offset + len(matches)
    more = _encode(_Cursor(_PROCESS, view.epoch, view.horizon, after), digest) if matches and after < total else None
    return SearchPage(tuple(hits), total, more, tuple(warnings))


def hit_of(card: ExperimentCardV1, is_available: bool, matched: tuple[str, ...], score: float) -> SearchHit:
    """A card as a hit."""
    return SearchHit(
        experiment_id=card.experiment_id,
        artifact_id=card.artifact.artifact_id,
        title=card.title,
        summary=card.summary,
        source=card.source,
        source_version=card.source_version,
        query_fingerprint=card.query_fingerprint,
        shape=card.shape,
        columns=card.columns,
        tags=card.tags or (),
        media_type=card.artifact.media_type,
        bytes=card.artifact.bytes,
        created_at=card.created_at,
        updated_at=card.updated_at,
        session_id=card.origin_session_id,
        index_state=card.index.state,
        local_available=is_available,
        matched=matched,
        score=round(score, 6),
    )


def _asked(query: Query, taken: tuple[Taken, ...]) -> list[tuple[str, frozenset[str]]]:
    """The terms that were looked for, by the mark of a reason: those of the query, and those that stand in for an
    unknown word, marked `prefix:` (it begins with the word) or `typo:` (one or two slips away).
    """
    marks = [("", frozenset(query.terms))]
    for kind in ("prefix", "typo"):
        marks.append((f"{kind}:", frozenset(item.term for item in taken if kind in item.similarity)))
    return [(mark, terms) for mark, terms in marks if terms]


def _reasons(card: ExperimentCardV1, match: Match, asked: list[tuple[str, frozenset[str]]]) -> tuple[str, ...]:
    """What matched: exact values first, then the fields that hold a term that was looked for."""
    reasons = [f"exact:{facet.partition(':')[0]}" for facet in match.exact]
    if asked:
        texts = [(name, text) for name, text in card_texts(card).items() if text]
        reasons += [mark + name for mark, terms in asked for name, text in texts if _has(text, terms)]
    return tuple(dict.fromkeys(reasons))


def _has(text: str, terms: frozenset[str]) -> bool:
    """Whether one of the terms is among the `document_terms` of a text, without finding all of those."""
    line = _line(text)
    return has_term(line, terms) if line != " " else not terms.isdisjoint(document_terms(text))


_line = lru_cache(maxsize=2_048)(word_line)


def _replacements(taken: tuple[Taken, ...]) -> list[str]:
    """A line for each word of the query that no card has."""
    words: dict[str, list[str]] = {}
    for item in taken:
        words.setdefault(item.word, []).append(item.term)
    return [
        f"no result has the word {word!r}; taken for {', '.join(map(repr, terms))}" for word, terms in words.items()
    ]


def _digest(project_key: str, request: SearchRequest) -> str:
    asked = [project_key, request.query, request.tag, request.source, request.since, request.session, request.kind]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _encode(cursor: _Cursor, digest: str) -> str:
    data = [1, cursor.process, cursor.epoch, cursor.horizon, cursor.offset, digest]
    return base64.urlsafe_b64encode(json.dumps(data, separators=(",", ":")).encode()).decode().rstrip("=")


def _decode(text: str, digest: str) -> _Cursor:
    try:
        data: Any = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        data = None
    fields = cast("list[Any]", data) if isinstance(data, list) else []
    if len(fields) != 6 or fields[0] != 1 or not isinstance(fields[1], str) or not all(map(_is_count, fields[2:5])):
        raise StoreError("cursor is not one that a search gave out; leave it out to start again", INVALID_ARGUMENT)
    if fields[5] != digest:
        raise StoreError(
            "cursor belongs to another query or other filters; leave it out to start again", INVALID_ARGUMENT
        )
    return _Cursor(fields[1], fields[2], fields[3], fields[4])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
