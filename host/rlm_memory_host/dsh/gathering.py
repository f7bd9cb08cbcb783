"""Whole turns out of a session's log: what of a file's records belongs together, within the bounds of the bridge.

Owns: where a turn begins and ends, what of it is kept meanwhile, which records a fork inherited. Does not own: what a
record means (`events`), what of a turn is captured (`capture`).

A turn whose beginning was not seen gives nothing, so reading may go on in the middle of a file. A turn over the
bridge's bounds, or one of which a record could not be read, ends as one without words, as it does there.

Source: design page "DeepSeek Harness and MCP", Rules for capture.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from rlm_memory_host.contracts.capture import SessionEvent
from rlm_memory_host.dsh.events import USED, Reader, text_length
from rlm_memory_host.dsh.frames import Line

MAX_TURN_RECORDS: Final = 256
MAX_TURN_TEXT: Final = 512 << 10
"""Characters of a turn's messages. Both bounds are the bridge's own."""
_TYPE: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([^"\\]{1,64})"')


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that ended: its messages and its end. `is_whole` is False where it went over the bounds."""

    number: int
    events: tuple[SessionEvent, ...]
    is_whole: bool = True


@dataclass(slots=True)
class Gathering:
    """The records of one session in order, gathered into turns. `inherited`: so many first records are a parent's."""

    session: str
    inherited: int = 0
    unread: int = 0
    """Lines that were no record, or too long to be read."""
    _reader: Reader = field(init=False)
    _events: list[SessionEvent] = field(default_factory=list[SessionEvent])
    _records: int = 0
    _text: int = 0
    _is_whole: bool = True
    is_open: bool = False
    """A turn began and did not end yet."""

    def __post_init__(self) -> None:
        self._reader = Reader(self.session)

    def take(self, line: Line) -> Turn | None:
        """The turn that ends with a line, if one does."""
        kind = _type_of(line.data)
        if kind is not None and kind not in USED:
            return None
        record = _record(line)
        if record is None:
            # It may have been one of the turn's own messages: then the turn is not known as a whole.
            self.unread += 1
            self._is_whole = False
            return None
        seq = record.get("seq")
        if record.get("type") not in USED or type(seq) is not int or seq < self.inherited:
            return None
        if record["type"] == "turn/start":
            self._begin()
        return self._gathered(record)

    def _begin(self) -> None:
        self._events, self._records, self._text = [], 0, 0
        self._is_whole = self.is_open = True

    def _gathered(self, record: Mapping[str, object]) -> Turn | None:
        self._records += 1
        self._text += text_length(record)
        if self._records > MAX_TURN_RECORDS or self._text > MAX_TURN_TEXT:
            self._is_whole = False
            self._events.clear()
        events = list(self._reader.read(record))
        if not self.is_open:
            return None
        if record["type"] != "turn/end":
            if self._is_whole:
                self._events += [event for event in events if event.kind == "user"]
            return None
        self.is_open = False
        told = (*self._events, *events) if self._is_whole else tuple(e for e in events if e.kind == "turn_end")
        is_whole, self._events = self._is_whole, []
        return Turn(told[-1].turn, told, is_whole) if told else None


def _type_of(data: bytes) -> str | None:
    """The type of a record whose line begins with it, as the harness writes all of them; None where it does not."""
    found = _TYPE.match(data)
    return None if found is None else found[1].decode("utf-8", "replace")


def _record(line: Line) -> Mapping[str, object] | None:
    if not line.is_whole:
        return None
    try:
        value: object = json.loads(line.data)
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None
