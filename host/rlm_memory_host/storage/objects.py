"""Objects: immutable bytes under their own digest, verified before they are trusted.

Owns: bringing a source's bytes into the project's `tmp/` while hashing them, publishing them, the verification cache.
Does not own: the commit lock and the card (`artifacts.store`), which decide when `publish` happens.

Order of writes: temp (clone, else copy_file_range) -> mode 0400 -> hash what was written while a thread flushes it ->
check that the source did not change -> [commit lock] rename to `objects/<2>/<id>` -> flush the folder. A crash before
the rename leaves a temp file, swept a day later; one after it an object without a card, which nobody is served.

Memory stays flat: one buffer of 1 MiB, whatever the size. Nothing here holds a lock while it streams or hashes.

Source: DeepSeek Honcho specification, sections 27.1, 28.3, 28.4; design page "Quality", Physical limits.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlm_memory.wire import FILE_MUTATED

from rlm_memory_host.errors import UnsafeSource
from rlm_memory_host.storage.files import OBJECT_MODE, FileLayer, writing
from rlm_memory_host.storage.paths import ProjectLayout
from rlm_memory_host.storage.sources import Source

BUFFER_BYTES: Final = 1 << 20
_COARSE_CLOCK: Final = 5
"""Linux's CLOCK_REALTIME_COARSE, which file systems stamp with; the time module does not name it."""
_OVERLAP_BYTES: Final = 1 << 20
"""From this size on, hashing overlaps with flushing; below, the thread costs more than it saves."""

Progress = Callable[[int, int], None]
"""Called with (bytes hashed so far, bytes in all); 0 while the bytes are still being copied."""
Check = Callable[[], None]
"""Called between steps; raises to stop (cancelled, closing)."""

Identity = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime (nanoseconds): what a file was when it was verified."""


def identity_of(state: os.stat_result) -> Identity:
    """The part of a file's state that any change of its bytes alters."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def file_clock_ns() -> int:
    """The clock that the file system stamps with, in nanoseconds: a later change gets a stamp at or after it."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(_COARSE_CLOCK)
    return time.time_ns() - 2_000_000_000


@dataclass(frozen=True, slots=True)
class Staged:
    """Bytes in `tmp/`, hashed and flushed, not yet published."""

    path: Path
    sha256: str
    size: int


def hash_descriptor(descriptor: int, size: int, check: Check, progress: Callable[[int], None] | None = None) -> str:
    """SHA-256 (hexadecimal) of a file from its start to its end, at most `size` + 1 bytes; flat memory."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(BUFFER_BYTES, size + 1)))
    offset = 0
    while offset <= size:
        count = os.preadv(descriptor, [buffer[: min(len(buffer), size + 1 - offset)]], offset)
        if count == 0:
            break
        digest.update(buffer[:count])
        offset += count
        check()
        if progress:
            progress(offset)
    return digest.hexdigest()


class Stager:
    """Brings sources into a project's `tmp/`. Thread-safe; owns the pool that flushes while the caller hashes."""

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        self._flushers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="rlm-memory-flush")
        self._no_clone: set[int] = set()

    def stage(self, layout: ProjectLayout, source: Source, check: Check, progress: Progress | None = None) -> Staged:
        """Copy and hash. Raises Unwritable, UnsafeSource (FILE_MUTATED), or whatever `check` raises; leaves no temp."""
        path = layout.new_temporary("object")
        with writing():
            descriptor = self._files.create(path)
        try:
            try:
                sha256 = self._fill(descriptor, source, check, progress)
            finally:
                os.close(descriptor)
            source.verify_unchanged()
        except Exception:
            discard(self._files, path)
            raise
        return Staged(path, sha256, source.size)

    def flush_folder(self, path: Path) -> Future[None]:
        """Flush a folder in the pool."""
        return self._flushers.submit(self._files.fsync_folder, path)

    def close(self) -> None:
        """End the pool after what it is doing."""
        self._flushers.shutdown(wait=True)

    def _fill(self, descriptor: int, source: Source, check: Check, progress: Progress | None) -> str:
        size = source.size
        with writing():
            if not self._clone(descriptor, source):
                self._copy(descriptor, source, check, progress)
            self._files.set_mode(descriptor, OBJECT_MODE)
        report = reporter(progress, size)
        if size < _OVERLAP_BYTES:
            sha256 = hash_descriptor(descriptor, size, check, report)
            with writing():
                self._files.fsync(descriptor)
            return sha256
        flushing = self._flushers.submit(self._files.fsync, descriptor)
        try:
            sha256 = hash_descriptor(descriptor, size, check, report)
        finally:
            failure = flushing.exception()
        if failure is not None:
            with writing():
                raise failure
        return sha256

    def _clone(self, descriptor: int, source: Source) -> bool:
        device = source.state.st_dev
        if source.size < _OVERLAP_BYTES or device in self._no_clone:
            return False
        if not self._files.clone(source.descriptor, descriptor):
            self._no_clone.add(device)
            return False
        if os.fstat(descriptor).st_size != source.size:
            raise UnsafeSource("the file changed while it was read; record it again", FILE_MUTATED)
        return True

    def _copy(self, descriptor: int, source: Source, check: Check, progress: Progress | None) -> None:
        offset = 0
        while offset < source.size:
            count = self._files.copy(source.descriptor, descriptor, offset, source.size - offset)
            if count == 0:
                raise UnsafeSource("the file became shorter while it was read; record it again", FILE_MUTATED)
            offset += count
            check()
            if progress:
                progress(0, source.size)


def reporter(progress: Progress | None, size: int) -> Callable[[int], None] | None:
    """`progress` for a known size."""
    return None if progress is None else lambda done: progress(done, size)


def discard(files: FileLayer, path: Path) -> None:
    """Remove a file of ours if it can be; a temp file that stays is swept later."""
    try:
        files.unlink(path)
    except OSError:
        pass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What hashing an object found. `identity` is None when there is no such file."""

    identity: Identity | None
    sound: bool
    actual: str = "unreadable"
    """The digest that was found."""
    at: float = 0.0
    """Seconds since 1970 when it was hashed."""
    resolved: bool = False


UNREADABLE: Final[Identity] = (0, 0, 0, 0, 0)
"""Stands for a file that cannot be read or does not hold still: whatever it is, it is not sound."""
_UNREADABLE: Final = Verdict(UNREADABLE, False)
_ATTEMPTS: Final = 10


class Verifier:
    """Says whether an object's bytes are the recorded ones; remembers it until the file's identity changes.

    Thread-safe. An answer is remembered only when every later change must give the file another ctime: a file that
    changed within the tick of the clock in which it was hashed is hashed again. A process hashes each object that it
    resolves at least once (section 28.4), even one that it recorded itself.
    """

    def __init__(self, files: FileLayer, *, always: bool) -> None:
        self._files = files
        self._always = always
        self._known: dict[Path, Verdict] = {}
        self._lock = threading.Lock()

    def is_damaged(self, path: Path, state: os.stat_result) -> bool:
        """Whether this very file was hashed before and was wrong. Reads nothing."""
        with self._lock:
            known = self._known.get(path)
        return known is not None and not known.sound and known.identity == identity_of(state)

    def remember(self, path: Path, sha256: str) -> None:
        """Note that the file now at `path` was hashed as it was written; call it when its record is complete."""
        try:
            state = self._files.stat(path)
        except OSError:
            return
        if file_clock_ns() > state.st_ctime_ns:
            with self._lock:
                self._known[path] = Verdict(identity_of(state), True, sha256, time.time())

    def verify(self, path: Path, sha256: str, size: int, check: Check, *, for_resolve: bool) -> Verdict:
        """Hash the object, or recall that this very file was hashed. Raises only what `check` raises.

        A file that was replaced or touched while it was hashed says nothing: it is looked at again.
        """
        for _ in range(_ATTEMPTS):
            verdict = self._look(path, sha256, size, check, for_resolve)
            if verdict is not None:
                return verdict
        return _UNREADABLE

    def _look(self, path: Path, sha256: str, size: int, check: Check, for_resolve: bool) -> Verdict | None:
        try:
            descriptor = self._files.open_read(path)
        except FileNotFoundError:
            return Verdict(None, False)
        except OSError:
            return _UNREADABLE
        try:
            state = os.fstat(descriptor)
            known = self._recall(path, identity_of(state), for_resolve)
            return known or self._hash(path, descriptor, state, sha256, size, check, for_resolve)
        except OSError:
            return _UNREADABLE
        finally:
            os.close(descriptor)

    def _hash(
        self, path: Path, descriptor: int, state: os.stat_result, sha256: str, size: int, check: Check, resolved: bool
    ) -> Verdict | None:
        identity = identity_of(state)
        started, at = file_clock_ns(), time.time()
        actual = hash_descriptor(descriptor, max(size, state.st_size), check)
        if identity_of(os.fstat(descriptor)) != identity:
            return None
        sound = state.st_size == size and actual == sha256
        verdict = Verdict(identity, sound, actual, at, resolved)
        if started > state.st_ctime_ns or not sound:
            with self._lock:
                self._known[path] = verdict
        return verdict

    def _recall(self, path: Path, identity: Identity, for_resolve: bool) -> Verdict | None:
        if self._always:
            return None
        with self._lock:
            known = self._known.get(path)
        if known is None or known.identity != identity or not known.sound:
            return None
        return None if for_resolve and not known.resolved else known
