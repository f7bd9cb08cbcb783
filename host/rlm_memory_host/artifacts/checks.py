"""What a request may say: the one place where a caller's texts are checked. Pure functions, no I/O.

Owns: bounds on texts, refusal of control characters, the normal form of titles, summaries and tags (NFC). Identity
fields (`query_fingerprint`, `source_version`) and `source` are kept character by character: two that look alike stay
apart. Every refusal names the argument, what is wrong and the bound, and repeats no content.

Source: DeepSeek Honcho specification, sections 27.2, 28.5, 31.2.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from rlm_memory.wire import INVALID_ARGUMENT, VALIDATION

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import (
    MAX_MEDIA_TYPE,
    MAX_SHAPE,
    MAX_SOURCE,
    MAX_SOURCE_VERSION,
    Bounds,
    RecordRequest,
    SearchRequest,
)
from rlm_memory_host.errors import StoreError

MAX_QUERY: Final = 2_000
"""Characters of a search query."""
MAX_PAGE: Final = 50
"""Largest `limit` of a search."""
_MAX_DIMENSION: Final = (1 << 53) - 1


def check_record(request: RecordRequest, bounds: Bounds) -> RecordRequest:
    """The request in its normal form. Raises StoreError (VALIDATION)."""
    if not ids.is_sha256(request.query_fingerprint):
        raise _refused("query_fingerprint must be a SHA-256 digest: 64 lower-case hexadecimal digits")
    return replace(
        request,
        title=_line("title", request.title, bounds.title),
        summary=_text("summary", request.summary, bounds.summary),
        source=_exact("source", request.source, MAX_SOURCE),
        source_version=_exact("source_version", request.source_version, MAX_SOURCE_VERSION),
        media_type=_media_type(request.media_type),
        tags=None if request.tags is None else _tags(request.tags, bounds),
        shape=None if request.shape is None else _shape(request.shape),
        columns=None if request.columns is None else _columns(request.columns, bounds),
    )


def check_version(value: object) -> str | None:
    """A `current_source_version`: text (the empty text makes freshness unverifiable) or None (no comparison).

    Raises StoreError (VALIDATION) for anything else: 1 and "1" are never taken for each other.
    """
    if value is None or value == "":
        return cast("str | None", value)
    return _exact("current_source_version", value, MAX_SOURCE_VERSION)


def check_search(request: SearchRequest, bounds: Bounds) -> SearchRequest:
    """The request with `limit` cut to a page and `since` in UTC. Raises StoreError (INVALID_ARGUMENT)."""
    query: Any = request.query
    if not isinstance(query, str) or len(query) > MAX_QUERY:
        raise _invalid(f"query must be text of at most {MAX_QUERY:,} characters")
    limit: Any = request.limit
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_PAGE:
        raise _invalid(f"limit must be a whole number from 1 to {MAX_PAGE}")
    for name in ("tag", "source", "session", "since", "cursor", "kind"):
        value = getattr(request, name)
        if value is not None and (not isinstance(value, str) or len(value) > MAX_QUERY):
            raise _invalid(f"{name} must be text of at most {MAX_QUERY:,} characters")
    since = None if request.since is None else _since(request.since)
    return replace(request, limit=min(limit, bounds.search_results), since=since)


def _since(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise _invalid("since must be an ISO 8601 date or datetime, such as 2026-08-21 or 2026-08-21T12:00Z") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        raise _invalid("since is out of the range of dates") from None


def _line(name: str, value: object, limit: int) -> str:
    """A title or tag: one line, NFC, not blank."""
    text = unicodedata.normalize("NFC", _bounded(name, value, limit)).strip()
    if not text:
        raise _refused(f"{name} is empty")
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise _refused(f"{name} holds a control character or a line break")
    if len(text) > limit:
        raise _refused(f"{name} has {len(text):,} characters, the limit is {limit:,}")
    return text


def _text(name: str, value: object, limit: int) -> str:
    """A summary: lines and tabs are fine, other control characters are not."""
    text = unicodedata.normalize("NFC", _bounded(name, value, limit))
    if any(character not in "\n\t\r" and unicodedata.category(character) == "Cc" for character in text):
        raise _refused(f"{name} holds a control character")
    if len(text) > limit:
        raise _refused(f"{name} has {len(text):,} characters, the limit is {limit:,}")
    return text


def _exact(name: str, value: object, limit: int) -> str:
    """A source or version: kept as it is."""
    text = _bounded(name, value, limit)
    if not text:
        raise _refused(f"{name} is empty; give 'unknown' where there is none")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise _refused(f"{name} holds a control character")
    return text


def _bounded(name: str, value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise _refused(f"{name} must be text, not {type(value).__name__}")
    if len(value) > limit:
        raise _refused(f"{name} has {len(value):,} characters, the limit is {limit:,}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise _refused(f"{name} holds half of a surrogate pair, which is no character") from None
    return value


def _media_type(value: str | None) -> str | None:
    if value is None:
        return None
    text = _exact("media_type", value, MAX_MEDIA_TYPE)
    kind, slash, rest = text.partition("/")
    if not (slash and kind.strip() and rest.strip()) or not text.isascii():
        raise _refused("media_type must have the form type/subtype")
    return text


def _tags(values: Sequence[object], bounds: Bounds) -> tuple[str, ...]:
    _counted("tags", values, bounds.tags)
    return tuple(dict.fromkeys(_line("a tag", value, bounds.tag) for value in values))


def _columns(values: Sequence[object], bounds: Bounds) -> tuple[str, ...]:
    _counted("columns", values, bounds.columns)
    return tuple(_bounded("a column", value, bounds.column) for value in values)


def _shape(values: Sequence[object]) -> tuple[int, ...]:
    _counted("shape", values, MAX_SHAPE)
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_DIMENSION:
            raise _refused("shape must be a list of whole numbers from 0 upwards")
    return tuple(cast("Sequence[int]", values))


def _counted(name: str, values: object, limit: int) -> None:
    if not isinstance(values, (tuple, list)):
        raise _refused(f"{name} must be a list")
    count = len(cast("Sequence[object]", values))
    if count > limit:
        raise _refused(f"{name} has {count:,} entries, the limit is {limit:,}")


def _refused(message: str) -> StoreError:
    return StoreError(message, VALIDATION)


def _invalid(message: str) -> StoreError:
    return StoreError(message, INVALID_ARGUMENT)
