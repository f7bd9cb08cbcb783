"""The file layer: every operation by which the host changes or reads a store on disk goes through it.

Owns: the operations themselves, their modes (folders 0700, files 0600, whatever the umask), durable flushing, retry
after EINTR. Does not own: the order of operations (`objects`, `cards`, `artifacts.store`) or which path is allowed
(`paths`, `sources`). Each operation announces itself first through `change` or `look`, which do nothing here;
`storage.faults` has the layers that record, fail and crash there, so that a test can stop a record at every single
write, flush, rename and unlink.

Source: design pages "Overview" (crash tests) and "Quality" (Faults); DeepSeek Honcho specification, section 28.3.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from rlm_memory.wire import STORE_FULL, STORE_READ_ONLY

from rlm_memory_host.errors import Unwritable

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OBJECT_MODE: Final = 0o400

_T = TypeVar("_T")

_FICLONE: Final = 0x40049409
_COPY_STEP: Final = 8 << 20
"""Bytes of one copy step: how often a copy can be cancelled and reports progress."""
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_CLONE: Final = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
_NO_RANGE: Final = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY: Final = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def writing(what: str = "the store") -> Generator[None]:
    """Translate what the system says about writing to `what` into the one named error for it.

    Raises Unwritable with STORE_FULL, STORE_READ_ONLY or STORE_UNAVAILABLE. No path is part of the message, nor what
    was or was not done: that is the caller's to say, who may be recording, removing or sweeping.
    """
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        if error.errno in _FULL:
            message = f"{what} is full ({name}); free space on its disk, then try again"
            raise Unwritable(message, STORE_FULL) from error
        if error.errno in _READ_ONLY:
            message = f"{what} is read-only for this host ({name}); make it writable, then try again"
            raise Unwritable(message, STORE_READ_ONLY) from error
        raise Unwritable(f"{what} cannot be written now ({name}); try again") from error


class FileLayer:
    """Operations on the real file system. Thread-safe: it has no state. Raises OSError as the system does."""

    def change(self, operation: str, target: str | Path | int, source: str | Path | None = None) -> None:
        """Called before every operation that changes the store: a path, or a descriptor of `create`.

        `source` is where a rename comes from.
        """

    def look(self, operation: str, target: str | Path) -> None:
        """Called before every operation that reads by path."""

    # -- changes -----------------------------------------------------------------------------------------------------

    def create(self, path: Path) -> int:
        """A new file of mode 0600 for reading and writing; FileExistsError when the name is taken."""

        def call() -> int:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            return os.open(path, flags, FILE_MODE)

        descriptor = self._changed("create", path, call)
        os.fchmod(descriptor, FILE_MODE)
        return descriptor

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of `data` at the descriptor's position."""

        def call() -> None:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]

        self._changed("write", descriptor, call)

    def write_at(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write `data` (few bytes) at `offset`."""
        self._changed("write_at", descriptor, lambda: os.pwrite(descriptor, data, offset))

    def clone(self, source: int, descriptor: int) -> bool:
        """Share the source's blocks where the file system can (FICLONE); False where it cannot."""

        def call() -> bool:
            if sys.platform != "linux":
                return False
            try:
                fcntl.ioctl(descriptor, _FICLONE, source)
            except OSError as error:
                if error.errno in _NO_CLONE:
                    return False
                raise
            return True

        return self._changed("clone", descriptor, call)

    def copy(self, source: int, descriptor: int, offset: int, count: int) -> int:
        """Copy up to `count` bytes at `offset` of both files; returns how many (0 at the source's end)."""
        wanted = min(count, _COPY_STEP)
        return self._changed("copy", descriptor, lambda: _copy(source, descriptor, offset, wanted))

    def set_mode(self, descriptor: int, mode: int) -> None:
        """Set a file's mode."""
        self._changed("mode", descriptor, lambda: os.fchmod(descriptor, mode))

    def fsync(self, descriptor: int) -> None:
        """Flush a file to the disk itself (F_FULLFSYNC where the platform has it)."""
        self._changed("fsync", descriptor, lambda: _flush(descriptor))

    def fsync_folder(self, path: Path) -> None:
        """Flush a folder, so that names made or replaced in it outlive a power cut."""

        def call() -> None:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _flush(descriptor)
            finally:
                os.close(descriptor)

        self._changed("fsync_folder", path, call)

    def rename(self, source: Path, target: Path) -> None:
        """Move within the store, replacing the target in one step."""
        self._changed("rename", target, lambda: source.replace(target), source)

    def unlink(self, path: Path) -> None:
        """Remove a file. FileNotFoundError when it is not there."""
        self._changed("unlink", path, path.unlink)

    def make_folder(self, path: Path) -> bool:
        """Make a folder of mode 0700 below an existing one; False when it was there."""
        if path.exists():
            return False

        def call() -> bool:
            try:
                path.mkdir(mode=FOLDER_MODE)
            except FileExistsError:
                return False
            path.chmod(FOLDER_MODE)
            return True

        return self._changed("mkdir", path, call)

    def open_lock(self, path: Path) -> int:
        """Open a lock file for reading and writing; FileNotFoundError when there is none yet."""
        self.look("open", path)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    # -- reads -------------------------------------------------------------------------------------------------------

    def open_read(self, path: Path) -> int:
        """Open a regular file for reading, never through a link. FileNotFoundError, or OSError ELOOP or EINVAL."""
        self.look("open", path)
        descriptor = os.open(path, _READ_FLAGS)
        try:
            _regular(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def read_whole(self, path: Path, limit: int) -> tuple[bytes, os.stat_result]:
        """As `read_all`, with the state of the very file that was read, as it was before."""
        self.look("open", path)
        descriptor = os.open(path, _READ_FLAGS)
        try:
            state = _regular(descriptor)
            # One more than there is: getting what there is tells that it was the end, and saves asking again.
            data = os.read(descriptor, min(state.st_size, limit) + 1)
            if len(data) != state.st_size:
                data += read_up_to(descriptor, limit + 1 - len(data))
            return data, state
        finally:
            os.close(descriptor)

    def read_all(self, path: Path, limit: int) -> bytes:
        """The file's bytes, at most `limit` + 1 of them (more means it is too long)."""
        descriptor = self.open_read(path)
        try:
            return read_up_to(descriptor, limit + 1)
        finally:
            os.close(descriptor)

    def stat(self, path: str | Path) -> os.stat_result:
        """The file's own state, not that of a link's target."""
        self.look("stat", path)
        return os.stat(path, follow_symlinks=False)  # noqa: PTH116 - the hot path of resolve and search

    def scan(self, path: Path) -> list[os.DirEntry[str]]:
        """What a folder holds, in no order; empty when it is not there."""
        self.look("scan", path)
        try:
            with os.scandir(path) as entries:
                return list(entries)
        except FileNotFoundError:
            return []

    def _changed(
        self, operation: str, target: str | Path | int, call: Callable[[], _T], source: Path | None = None
    ) -> _T:
        while True:
            try:
                self.change(operation, target, source)
                return call()
            except InterruptedError:
                continue


def _regular(descriptor: int) -> os.stat_result:
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return state


def read_up_to(descriptor: int, limit: int) -> bytes:
    """The next bytes of a file until its end or `limit`."""
    parts: list[bytes] = []
    left = limit
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _copy(source: int, descriptor: int, offset: int, count: int) -> int:
    if sys.platform == "linux":
        try:
            return os.copy_file_range(source, descriptor, count, offset, offset)
        except OSError as error:
            if error.errno not in _NO_RANGE:
                raise
    data = os.pread(source, min(count, 1 << 20), offset)
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)
    return written


def _flush(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)
