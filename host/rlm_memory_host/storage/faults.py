"""File layers for tests and drills: record every operation, fail the nth, or end right before or within it.

Owns: nothing on disk of its own; each layer does the real operation unless it is told not to. Public and documented so
that an operator's drill and another project's test can use them. One counter counts the operations of `FileLayer` that
change the store, from 1, in the order in which they are announced; it is safe to share between threads.

Source: design page "Quality", Faults.
"""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rlm_memory_host.storage.files import FileLayer


class Crashed(BaseException):
    """The process ended here. Not an Exception: nothing in the product may catch it and go on."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One announced operation; `target` is the path it works on, `source` where a rename comes from."""

    name: str
    target: str
    source: str = ""


class RecordingLayer(FileLayer):
    """Does everything and remembers it: `changes` in order, `looks` (every path opened, statted or scanned)."""

    def __init__(self) -> None:
        self.changes: list[Operation] = []
        self.looks: list[Operation] = []
        self._names: dict[int, str] = {}
        self._lock = threading.Lock()

    def create(self, path: Path) -> int:
        """As `FileLayer.create`; later operations on the descriptor are recorded under this path."""
        descriptor = super().create(path)
        self._names[descriptor] = str(path)
        return descriptor

    def open_lock(self, path: Path) -> int:
        """As `FileLayer.open_lock`; writes to it are recorded under this path."""
        descriptor = super().open_lock(path)
        self._names[descriptor] = str(path)
        return descriptor

    def change(self, operation: str, target: str | Path | int, source: str | Path | None = None) -> None:
        """Record, then let the operation happen."""
        with self._lock:
            name = self._names.get(target, "?") if isinstance(target, int) else str(target)
            self.changes.append(Operation(operation, name, str(source or "")))

    def look(self, operation: str, target: str | Path) -> None:
        """Record a read."""
        with self._lock:
            self.looks.append(Operation(operation, str(target)))


class CrashingLayer(RecordingLayer):
    """Ends at operation number `at`: before it, or for a write with `torn`, after half of its bytes.

    `exit_code` None raises `Crashed`, and every later change raises it again, so that no clean-up of the dead process
    happens; a number ends the real process on the spot (`os._exit`).
    """

    def __init__(self, at: int, *, torn: bool = False, exit_code: int | None = None) -> None:
        super().__init__()
        self.at = at
        self.torn = torn
        self.exit_code = exit_code
        self.crashed = False

    def change(self, operation: str, target: str | Path | int, source: str | Path | None = None) -> None:
        """Record, and end when it is time."""
        super().change(operation, target, source)
        if self.crashed or (len(self.changes) >= self.at and not (self.torn and operation in ("write", "copy"))):
            self._end()

    def write(self, descriptor: int, data: bytes) -> None:
        """As `FileLayer.write`, torn in the middle when it is time."""
        if not self.torn or len(self.changes) + 1 < self.at:
            super().write(descriptor, data)
            return
        super().write(descriptor, data[: len(data) // 2])
        self._end()

    def copy(self, source: int, descriptor: int, offset: int, count: int) -> int:
        """As `FileLayer.copy`, torn in the middle when it is time."""
        if not self.torn or len(self.changes) + 1 < self.at:
            return super().copy(source, descriptor, offset, count)
        super().copy(source, descriptor, offset, max(1, count // 2))
        return self._end()

    def _end(self) -> NoReturn:
        self.crashed = True
        if self.exit_code is not None:
            os._exit(self.exit_code)
        raise Crashed


class FaultyLayer(RecordingLayer):
    """Fails operation number `at` (and `times` - 1 more) with `error`, an errno such as ENOSPC, EIO, EINTR, EROFS."""

    def __init__(self, at: int, error: int, *, times: int = 1) -> None:
        super().__init__()
        self.at = at
        self.error = error
        self.times = times
        self.failed = 0

    def change(self, operation: str, target: str | Path | int, source: str | Path | None = None) -> None:
        """Record, and fail when it is time."""
        super().change(operation, target, source)
        if len(self.changes) >= self.at and self.failed < self.times:
            self.failed += 1
            raise OSError(self.error, errno.errorcode.get(self.error, "injected"))
