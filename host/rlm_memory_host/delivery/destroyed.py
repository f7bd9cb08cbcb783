"""What a person destroyed here and what the memory service may still hold: ids that never come back as a remote hit.

Owns: `<state root>/outbox/destroyed`, one line each: `memory <id>`, or `session <SHA-256 of the exact id>`. No text and
no title. Does not own: destroying (`textmemory.purging`), forgetting (that leaves a tombstone in the memory itself).

Order of writes: the lines are appended and flushed before anything is destroyed, and taken back where that fails. Each
note begins a line of its own, since the one before may have been cut off. Killed between: a memory that is still here
is hidden among remote hits only. The service deletes no message, so nothing is ever removed from the list. Thread-safe;
read again when the file changed.

Source: DeepSeek Honcho specification, section 17; design page "The memory model", Lifecycle and gates (Purge).
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rlm_memory_host.delivery.folders import FOLDER
from rlm_memory_host.storage.files import FileLayer, writing

NAME: Final = "destroyed"
MAX_BYTES: Final = 64 << 20


class Destroyed:
    """The list of a state root."""

    def __init__(self, state_root: Path, files: FileLayer | None = None) -> None:
        self._path = state_root / FOLDER / NAME
        self._files = files or FileLayer()
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._lines: frozenset[str] = frozenset()

    @contextmanager
    def noting(self, memory_ids: Collection[str], session: str = "") -> Generator[None]:
        """Note what the body destroys; where it fails, take the note back. Raises Unwritable.

        A state root that never had an outbox never sent anything: then there is nothing to note.
        """
        lines = [f"memory {name}" for name in sorted(memory_ids)]
        if session:
            lines.append(f"session {_digest(session)}")
        if not lines or not self._path.parent.is_dir():
            yield
            return
        before = self._append(("\n" + "".join(f"{line}\n" for line in lines)).encode())
        try:
            yield
        except BaseException:
            with suppress(OSError):
                os.truncate(self._path, before)
            raise

    def holds(self, memory_id: str, session: str = "") -> bool:
        """Whether a memory, or everything of a session, was destroyed here."""
        lines = self._read()
        return bool(lines) and (f"memory {memory_id}" in lines or f"session {_digest(session)}" in lines)

    def _append(self, data: bytes) -> int:
        with writing():
            try:
                descriptor = self._files.create(self._path)
            except FileExistsError:
                descriptor = self._files.open_lock(self._path)
            try:
                size = os.fstat(descriptor).st_size
                self._files.write_at(descriptor, data, size)
                self._files.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._files.fsync_folder(self._path.parent)
        return size

    def _read(self) -> frozenset[str]:
        try:
            state = self._files.stat(self._path)
        except OSError:
            return frozenset()
        seen = (state.st_ino, state.st_size, state.st_mtime_ns)
        with self._lock:
            if seen != self._seen:
                self._lines = frozenset(
                    self._files.read_all(self._path, MAX_BYTES).decode("ascii", "replace").split("\n")
                )
                self._seen = seen
            return self._lines


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()
