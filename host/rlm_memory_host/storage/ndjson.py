"""Append-only logs of one JSON object a line: reading what is whole, appending durably, setting a torn tail aside.

Owns: the bytes of such a file. Does not own: what rows mean, or the lock under which a writer appends.

Order of writes: one positioned write at the end, then a flush. A crash in the write leaves a last line without its line
end; the next append moves those bytes to `<name>.torn` and goes on after the last whole line. A line that is no JSON
object is skipped and counted.

Source: design page "The memory model", Storage; "Recall, resident text, guard, audit, health, tools", Audit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory_host.contracts import ids
from rlm_memory_host.storage.files import FileLayer, read_up_to, writing

MAX_LOG_BYTES: Final = 1 << 30
TORN_SUFFIX: Final = ".torn"


@dataclass(frozen=True, slots=True)
class Lines:
    """The rows of a log in order, how many lines were no rows, and the bytes of an unfinished last line."""

    rows: tuple[Mapping[str, Any], ...]
    bad: int = 0
    torn: bytes = b""


def encode(row: Mapping[str, Any]) -> bytes:
    """One line: sorted keys, no blanks, its line end included."""
    return json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8") + b"\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None for anything else."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", row) if isinstance(row, dict) else None


def parse(data: bytes) -> Lines:
    """The rows of a log's bytes."""
    *whole, torn = data.split(b"\n")
    rows = [decode(line) for line in whole if line]
    good = tuple(row for row in rows if row is not None)
    return Lines(good, len(rows) - len(good), torn)


def read(files: FileLayer, path: Path) -> Lines:
    """The rows of a log; empty when there is none. Raises OSError."""
    try:
        return parse(files.read_all(path, MAX_LOG_BYTES))
    except FileNotFoundError:
        return Lines(())


def append(files: FileLayer, path: Path, lines: Iterable[bytes], *, durable: bool = True) -> bytes:
    """Append whole lines in one write. Returns the torn tail that was set aside, or b"". Raises Unwritable."""
    data = b"".join(lines)
    if not data:
        return b""
    with writing():
        torn = _set_torn_aside(files, path)
        descriptor, is_new = _open(files, path)
        try:
            files.write_at(descriptor, data, os.fstat(descriptor).st_size)
            if durable:
                files.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new and durable:
            files.fsync_folder(path.parent)
    return torn


def replace(files: FileLayer, path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put a whole file in the place of another: temp, flush, rename, flush the folder. Raises Unwritable."""
    temporary = path.with_name(f".{ids.new_ulid()}.tmp")
    with writing():
        descriptor = files.create(temporary)
        try:
            try:
                files.write(descriptor, data)
                if durable:
                    files.fsync(descriptor)
            finally:
                os.close(descriptor)
            files.rename(temporary, path)
        except OSError:
            discard(files, temporary)
            raise
        if durable:
            files.fsync_folder(path.parent)


def discard(files: FileLayer, path: Path) -> None:
    """Remove a file that nobody needs; a failure leaves it for the next sweep."""
    try:
        files.unlink(path)
    except OSError:
        pass


def _open(files: FileLayer, path: Path) -> tuple[int, bool]:
    try:
        return files.open_lock(path), False
    except FileNotFoundError:
        return files.create(path), True


def _set_torn_aside(files: FileLayer, path: Path) -> bytes:
    try:
        descriptor = files.open_read(path)
    except FileNotFoundError:
        return b""
    try:
        size = os.fstat(descriptor).st_size
        if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
            return b""
        data = read_up_to(descriptor, MAX_LOG_BYTES)
    finally:
        os.close(descriptor)
    whole, _, torn = data.rpartition(b"\n")
    append(files, path.with_name(path.name + TORN_SUFFIX), [torn + b"\n"])
    replace(files, path, whole + b"\n" if whole else b"")
    return torn
