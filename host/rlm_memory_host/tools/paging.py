"""Answers that are larger than one answer may be: pages of values, and cursors that lead on. Pure functions.

Owns: what of a list fits into 64,000 bytes of JSON, how one text or one history that does not is cut and said to be,
and the form of cursors. Does not own: which values there are and whether they are still the same (`reading`,
`searching`).

A value that does not fit beside others begins the next page. One that fills a page by itself is cut there: a part of
its text has `text_from` and `full_chars` (in characters), a part of its history `history_from` and `history_total` (in
states). All parts together are the whole, in order, without an overlap.

Source: design pages "The memory model", Storage (tool output), and "Recall, resident text, guard, audit, health,
tools", Tools.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from rlm_memory import wire

from rlm_memory_host.contracts.memory import MAX_OUTPUT_BYTES
from rlm_memory_host.errors import ToolInput

PREFIX: Final = "m."
"""What cursors of memories begin with; those of experiment cards have no dot."""
CHANGED: Final = "what is listed changed since the page before; a part may repeat or be missing"
_CURSOR_BYTES: Final = 256
_LEAST_ROOM: Final = MAX_OUTPUT_BYTES // 2
_SMALL: Final = 64
"""Bytes of a separator, and of the marks of a part."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: the value, its text (0) or the n-th state of its history (n), and a character of that."""

    item: int = 0
    state: int = 0
    char: int = 0


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in one answer; `seen` tells whether the answer is still the same, `end` where it ends."""

    place: Place
    seen: str
    end: int = 0


def room(frame: Mapping[str, Any]) -> int:
    """Bytes that the values of an answer may have beside its other fields."""
    return max(_LEAST_ROOM, MAX_OUTPUT_BYTES - wire.encoded_size(frame) - _CURSOR_BYTES)


def page(values: Sequence[Mapping[str, Any]], start: Place, space: int) -> tuple[list[dict[str, Any]], Place | None]:
    """The values from `start` on that fit into `space` bytes, and where the next page begins; None at the end.

    A value without a text that is too large by itself is given whole and alone.
    """
    kept: list[dict[str, Any]] = []
    place = start
    while place.item < len(values):
        value = values[place.item]
        is_whole = place == Place(place.item)
        size = wire.encoded_size(value) + _SMALL
        if is_whole and size <= space:
            kept.append(dict(value))
            space -= size
            place = Place(place.item + 1)
            continue
        if kept:
            return kept, place
        if "text" not in value:
            return [dict(value)], _from(Place(place.item + 1), values)
        part, following = _part(value, place, space)
        if following is not None:
            return [part], following
        kept.append(part)
        space -= wire.encoded_size(part) + _SMALL
        place = Place(place.item + 1)
    return kept, None


def _from(place: Place, values: Sequence[object]) -> Place | None:
    return place if place.item < len(values) else None


def _part(value: Mapping[str, Any], place: Place, space: int) -> tuple[dict[str, Any], Place | None]:
    """As much of one value as fits, from a place in it on."""
    history = cast("Sequence[Mapping[str, Any]]", value.get("history", ()))
    part: dict[str, Any] = {**value, "text": ""}
    if history:
        part |= {"history": [], "history_from": max(0, place.state - 1), "history_total": len(history)}
    left = space - wire.encoded_size(part) - _SMALL
    state = place.state
    if state == 0:
        end = _cut(part, str(value["text"]), place.char, left)
        if end is not None:
            return part, Place(place.item, 0, end)
        left -= wire.encoded_size(part["text"])
        state = 1
    while state <= len(history):
        entry = dict(history[state - 1])
        begins = place.char if state == place.state else 0
        size = wire.encoded_size(entry) + _SMALL
        if begins == 0 and size <= left:
            part["history"].append(entry)
            left -= size
            state += 1
            continue
        if part["history"] or part["text"]:
            return part, Place(place.item, state)
        text = str(entry["text"])
        entry["text"] = ""
        left -= wire.encoded_size(entry) + _SMALL
        end = _cut(entry, text, begins, left)
        part["history"].append(entry)
        if end is not None:
            return part, Place(place.item, state, end)
        left -= wire.encoded_size(entry["text"])
        state += 1
    return part, None


def _cut(part: dict[str, Any], text: str, begin: int, space: int) -> int | None:
    """Put as much of a text into a part as fits; where the rest begins, None when all of it is there."""
    low, high = min(begin + 1, len(text)), len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if wire.encoded_size(text[begin:middle]) <= space:
            low = middle
        else:
            high = middle - 1
    part["text"] = text[begin:low]
    if begin or low < len(text):
        part |= {"text_from": begin, "full_chars": len(text)}
    return low if low < len(text) else None


# -- cursors -----------------------------------------------------------------------------------------------------------
def digest(*told: object) -> str:
    """A short digest of what a cursor belongs to, or of what was seen."""
    return hashlib.sha256(json.dumps(told, ensure_ascii=False, default=str).encode()).hexdigest()[:16]


def encode(cursor: Cursor, request: str) -> str:
    """A cursor as text; it holds no text of a question or of a memory. `request` is a `digest`."""
    place = cursor.place
    data = [1, request, cursor.seen, cursor.end, place.item, place.state, place.char]
    return PREFIX + base64.urlsafe_b64encode(json.dumps(data, separators=(",", ":")).encode()).decode().rstrip("=")


def decode(text: str, request: str) -> Cursor:
    """A cursor that was given out for the same request. Raises ToolInput for any other text."""
    try:
        told = text.removeprefix(PREFIX)
        data: Any = json.loads(base64.b64decode(told + "=" * (-len(told) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        data = None
    fields = cast("list[Any]", data) if isinstance(data, list) else []
    is_ours = len(fields) == 7 and fields[0] == 1 and isinstance(fields[2], str) and all(map(_is_count, fields[3:]))
    if not text.startswith(PREFIX) or not is_ours:
        raise ToolInput("cursor: it is not one that this tool gave out; leave it out to start again")
    if fields[1] != request:
        raise ToolInput("cursor: it belongs to another call; pass the same arguments, or leave it out to start again")
    return Cursor(Place(*fields[4:]), fields[2], fields[3])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
