"""One session's log, read on from where it was left: header, whole frames, turns, the cursor.

Owns: which logs are read at all, and in which order turns and cursor move. Does not own: what is done with a turn
(given), which logs there are (`logs`).

Left alone, each with a name for the status: a header of an unknown version, a session that is not a root's or of which
that cannot be told, a fork whose inherited part has no known end, a session without a folder, one that lies in another
project's folder than its header says, one outside the folders that the settings name.

A log that shrank, or whose first frame is another, is read from its beginning: what is kept of it is known to capture.

Source: design page "DeepSeek Harness and MCP", Ways in, Rules for capture.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rlm_memory_host.dsh import frames, logs
from rlm_memory_host.dsh.cursors import Cursor, Cursors
from rlm_memory_host.dsh.gathering import Gathering, Turn
from rlm_memory_host.dsh.header import VERSIONS, Header, parse_header

MAX_HEAD: Final = 64 << 10
"""Bytes of a log's first frame, in the file; the harness writes the header alone into it."""
TURNS_EACH: Final = 32
"""Turns after which the cursor is kept, in a log with many."""

Take = Callable[[Header, Turn], None]
"""What is done with a turn of a root session; raises what stops the log from being read on for now."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What reading keeps to: what is done with a turn, which folders count (none named: all), when to stop."""

    take: Take
    cursors: Cursors
    folders: Sequence[Path]
    is_stopped: Callable[[], bool]


@dataclass(slots=True)
class LogReader:
    """The state of one log between two passes. Not thread-safe."""

    path: Path
    project: str
    skipped: str = ""
    """Why it is left alone; "" where it is followed."""
    behind: int = 0
    """Bytes that were not read yet; a frame that is not whole counts until it is."""
    stamp: tuple[int, int, int] | None = None
    """What the file was when it was last read to its end."""
    unread: int = 0
    _header: Header | None = None
    _head: str = ""
    _at: int = 0
    _kept: Cursor = field(default_factory=Cursor)
    _safe: int = 0
    _turn: int = 0
    _gathering: Gathering | None = None
    _lines: frames.Lines = field(default_factory=frames.Lines)

    def read(self, log: logs.Log, terms: Terms) -> None:
        """Read what is new. Raises Stopped, and what `take` raises: then the next pass reads on from the cursor."""
        descriptor = logs.opened(log)
        try:
            size = os.fstat(descriptor).st_size
            if self._begun(descriptor, size, terms):
                self._on(descriptor, size, terms)
        except frames.Unreadable as error:
            self.skipped = error.why
        except BaseException:
            self._head = ""
            raise
        finally:
            os.close(descriptor)
        self.stamp = log.stamp

    def _begun(self, descriptor: int, size: int, terms: Terms) -> bool:
        """Whether the log is to be read; its header is known then."""
        end = frames.end_of_frame(descriptor, 0, size)
        self.behind = size - self._at
        if end is None:
            return False
        head = hashlib.sha256(os.pread(descriptor, min(end, MAX_HEAD), 0)).hexdigest()[:32]
        if head == self._head and size >= self._at:
            return not self.skipped or self._gathering is not None
        header = _header_of(descriptor, end, terms.is_stopped)
        self._head, self._header, self._gathering, self._lines = head, header, None, frames.Lines()
        self.skipped = _reason(header, self.project, terms.folders)
        if header is None or self.skipped:
            self.behind = 0
            return False
        cursor = terms.cursors.load(self.path)
        if cursor.head != head or cursor.offset > size:
            cursor = Cursor(head)
        self._kept, self._at, self._safe, self._turn = cursor, cursor.offset, cursor.offset, cursor.turn
        self._gathering = Gathering(header.session, header.inherited or 0)
        return True

    def _on(self, descriptor: int, size: int, terms: Terms) -> None:
        gathering = self._gathering
        if gathering is None:
            return
        self.skipped, self.behind = "", size - self._at
        turns = 0
        try:
            while (end := frames.end_of_frame(descriptor, self._at, size)) is not None:
                if terms.is_stopped():
                    raise frames.Stopped
                frames.verify(descriptor, self._at, end, terms.is_stopped)
                turns += self._frame(descriptor, end, gathering, terms)
                self.behind = size - self._at
                if turns >= TURNS_EACH:
                    turns = 0
                    self._keep(terms.cursors)
        finally:
            self.unread = gathering.unread
            self._keep(terms.cursors)

    def _frame(self, descriptor: int, end: int, gathering: Gathering, terms: Terms) -> int:
        start, turns = self._at, 0
        for line in self._lines.of(descriptor, start, end, terms.is_stopped):
            was_open = gathering.is_open
            turn = gathering.take(line)
            if turn is not None:
                self._took(turn, terms.take)
                turns += 1
            if gathering.is_open and not was_open:
                self._safe = start
        self._at = end
        if not gathering.is_open and self._lines.is_between:
            self._safe = end
        return turns

    def _took(self, turn: Turn, take: Take) -> None:
        if turn.number <= self._turn or self._header is None:
            return
        take(self._header, turn)
        self._turn = turn.number

    def _keep(self, cursors: Cursors) -> None:
        cursor = Cursor(self._head, self._safe, self._turn)
        if cursor != self._kept:
            cursors.save(self.path, cursor)
            self._kept = cursor


def _header_of(descriptor: int, end: int, is_stopped: Callable[[], bool]) -> Header | None:
    """The header in a log's first frame; None where its first line is none."""
    frames.verify(descriptor, 0, end, is_stopped)
    for line in frames.Lines().of(descriptor, 0, end, is_stopped):
        try:
            value: object = json.loads(line.data) if line.is_whole else None
        except (ValueError, RecursionError):
            return None
        return parse_header(value)
    return None


def _reason(header: Header | None, project: str, folders: Sequence[Path]) -> str:
    """Why a session's log is left alone; "" where it is read."""
    if header is None:
        return "no-header"
    if header.version not in VERSIONS:
        return "unknown-version"
    if header.agent is None:
        return "unknown-origin"
    if header.agent == "child":
        return "child-session"
    if header.inherited is None:
        return "fork"
    if header.cwd is None or not Path(header.cwd).is_absolute() or "\0" in header.cwd:
        return "no-folder"
    if logs.folder_key(header.cwd) != project:
        return "other-folder"
    if folders and not _is_below(header.cwd, folders):
        return "not-named"
    return ""


def _is_below(cwd: str, folders: Sequence[Path]) -> bool:
    """Whether a folder lies in one of these, whatever links and steps back either is written with."""
    real = Path(os.path.realpath(cwd))
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in folders)
