"""The commit lock of a project: one writer at a time among threads, stores and hosts that share an artifact root.

Owns: `<project>/locks/commit`, an advisory lock (flock) and 24 bytes of bookkeeping in it: how many commits there were
and how many bytes of objects the project holds. It is held for the few flushes of a commit, never while bytes are
streamed or hashed. Does not own: what is committed. The system releases the lock when its process ends, however it
ends. Bytes are counted before an object is published, so that a crash leaves them too high and never too low; a count
that reaches the bound is checked against the disk before anybody is refused.

Source: DeepSeek Honcho specification, sections 28.3, 28.5; design page "Exact results", Search.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlm_memory_host.errors import LockTimeout
from rlm_memory_host.storage.files import FileLayer, writing

LOCK_SECONDS: Final = 30.0
"""How long a commit waits for the others before it gives up."""

_BOOK: Final = struct.Struct("<8sQQ")
_MAGIC: Final = b"rlmlock1"


class CommitLock:
    """The lock of one project, thread-safe. `commits` and `set_bytes` are about the bookkeeping in the lock's file."""

    def __init__(self, files: FileLayer, path: Path, *, seconds: float = LOCK_SECONDS) -> None:
        self._files = files
        self._path = path
        self._seconds = seconds
        self._threads = threading.Lock()
        self._descriptor = -1

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the lock. Raises LockTimeout, or Unwritable where the store cannot be written."""
        deadline = time.monotonic() + self._seconds
        if not self._threads.acquire(timeout=self._seconds):
            raise LockTimeout(f"another record kept this project's lock for {self._seconds:.0f} s; try again")
        try:
            self._descriptor = self._acquire(deadline)
            try:
                yield
            finally:
                os.close(self._descriptor)
                self._descriptor = -1
        finally:
            self._threads.release()

    def book(self) -> tuple[int, int | None]:
        """(commits so far, bytes of objects or None when nobody counted yet); needs no lock."""
        try:
            data = self._files.read_all(self._path, _BOOK.size)
        except OSError:
            return 0, None
        return _parse(data)

    def read(self) -> tuple[int, int | None]:
        """As `book`, through the held lock."""
        return _parse(os.pread(self._descriptor, _BOOK.size, 0))

    def write(self, commits: int, held_bytes: int) -> None:
        """Store the bookkeeping; only while the lock is held. Not flushed: it can be counted again."""
        with writing():
            self._files.write_at(self._descriptor, _BOOK.pack(_MAGIC, commits, max(0, held_bytes)), 0)

    def _acquire(self, deadline: float) -> int:
        pause = 0.0005
        while True:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(descriptor):
                    return descriptor
            except BlockingIOError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if time.monotonic() >= deadline:
                raise LockTimeout(f"another host kept this project's lock for {self._seconds:.0f} s; try again")
            time.sleep(pause)
            pause = min(pause * 2, 0.01)

    def _open(self) -> int:
        with writing():
            try:
                return self._files.open_lock(self._path)
            except FileNotFoundError:
                pass
            try:
                descriptor = self._files.create(self._path)
            except FileExistsError:
                return self._files.open_lock(self._path)
            return descriptor

    def _is_current(self, descriptor: int) -> bool:
        """Whether the locked file still has the name: one that was removed meanwhile protects nothing."""
        try:
            named = self._files.stat(self._path)
        except FileNotFoundError:
            return False
        mine = os.fstat(descriptor)
        return (named.st_ino, named.st_dev) == (mine.st_ino, mine.st_dev)


def _parse(data: bytes) -> tuple[int, int | None]:
    if len(data) != _BOOK.size:
        return 0, None
    magic, commits, held_bytes = _BOOK.unpack(data)
    return (commits, held_bytes) if magic == _MAGIC else (0, None)
