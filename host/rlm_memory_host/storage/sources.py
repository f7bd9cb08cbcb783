"""Opening the file that a record reads: below the caller's own `exports/`, and nothing else (section 28.2).

Owns: the walk from the session folder down, component by component, each opened without following links relative to
the folder before it, so that nothing can be swapped in between check and use; the check of type and link count before
a byte is read, and of identity, size and time after the last. Does not own: what is done with the bytes.

The session folder itself is the host's own word and may be reached through links; everything below it belongs to the
kernel and is not trusted. Opening never blocks and never touches a device: the type is checked before.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlm_memory.wire import FILE_MUTATED, INVALID_PATH, INVALID_SCOPE, NOT_REGULAR_FILE, UNSAFE_FILESYSTEM_ENTRY

from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import StoreError, TooLarge, UnsafeSource
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.paths import components_below, parse_absolute

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINKED: Final = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}


@dataclass(frozen=True, slots=True)
class Source:
    """An open source: `descriptor` to read from, its size in bytes, and what it was when it was opened."""

    descriptor: int
    folder: int
    name: str
    state: os.stat_result

    @property
    def size(self) -> int:
        """Bytes when it was opened."""
        return self.state.st_size

    def verify_unchanged(self) -> None:
        """Raises UnsafeSource (FILE_MUTATED) when the file was changed, replaced or removed since it was opened."""
        try:
            named = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            raise _mutated("removed") from None
        if _identity(named) != _identity(self.state):
            raise _mutated("replaced")
        now = os.fstat(self.descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.state.st_size, self.state.st_mtime_ns):
            raise _mutated("changed")
        if now.st_nlink != 1:
            raise _mutated("linked")

    def close(self) -> None:
        """Release both descriptors."""
        os.close(self.descriptor)
        os.close(self.folder)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_source(files: FileLayer, scope: Scope, source_path: str | Path, max_bytes: int) -> Source:
    """Open `source_path` for a record of `scope`'s caller. Nothing of the file is read.

    Raises StoreError INVALID_SCOPE when the caller has no session folder, UnsafeSource with INVALID_PATH,
    UNSAFE_FILESYSTEM_ENTRY or NOT_REGULAR_FILE, TooLarge over `max_bytes`.
    """
    if scope.session_dir is None:
        raise StoreError("this caller has no session folder, so it cannot record files", INVALID_SCOPE)
    parts = _below_exports(scope.session_dir, str(source_path))
    folder = _open_folders(files, scope.session_dir, ("exports", *parts[:-1]))
    try:
        descriptor, state = _open_file(folder, parts[-1])
    except BaseException:
        os.close(folder)
        raise
    source = Source(descriptor, folder, parts[-1], state)
    if state.st_size > max_bytes:
        source.close()
        raise TooLarge(f"the file has {state.st_size:,} bytes; one artifact may have {max_bytes:,}")
    return source


def _below_exports(session_dir: Path, text: str) -> tuple[str, ...]:
    path = parse_absolute(text)
    for folder in (session_dir, session_dir.resolve()):
        below = components_below(path, (*parse_absolute(str(folder)), "exports"))
        if below is not None:
            return below
    raise UnsafeSource(
        "source_path is refused: it is not inside this session's exports folder; write the file there first",
        INVALID_PATH,
    )


def _open_folders(files: FileLayer, session_dir: Path, parts: tuple[str, ...]) -> int:
    files.look("open", session_dir)
    try:
        descriptor = os.open(session_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise StoreError("this caller's session folder is not there", INVALID_SCOPE) from None
    walked = session_dir
    for part in parts:
        walked = walked / part
        files.look("open", walked)
        try:
            inner = os.open(part, _FOLDER_FLAGS, dir_fd=descriptor)
        except OSError as error:
            raise _unopenable(error, "a folder on the way") from None
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _open_file(folder: int, name: str) -> tuple[int, os.stat_result]:
    try:
        before = os.stat(name, dir_fd=folder, follow_symlinks=False)
        _check_kind(before)
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        raise _unopenable(error, "the file") from None
    try:
        state = os.fstat(descriptor)
        _check_kind(state)
        if _identity(state) != _identity(before):
            raise _mutated("replaced")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, state


def _check_kind(state: os.stat_result) -> None:
    if stat.S_ISLNK(state.st_mode):
        raise UnsafeSource("source_path is refused: it is a symbolic link", UNSAFE_FILESYSTEM_ENTRY)
    if not stat.S_ISREG(state.st_mode):
        kind = "a folder" if stat.S_ISDIR(state.st_mode) else "no regular file"
        raise UnsafeSource(f"source_path is refused: it is {kind}", NOT_REGULAR_FILE)
    if state.st_nlink != 1:
        raise UnsafeSource(
            f"source_path is refused: it has {state.st_nlink} hard links; copy the file instead of linking it",
            UNSAFE_FILESYSTEM_ENTRY,
        )


def _unopenable(error: OSError, what: str) -> UnsafeSource:
    if error.errno in _LINKED:
        return UnsafeSource(f"source_path is refused: {what} is a link or no folder", UNSAFE_FILESYSTEM_ENTRY)
    if error.errno == errno.ENOENT:
        return UnsafeSource(f"source_path is refused: {what} does not exist", INVALID_PATH)
    name = errno.errorcode.get(error.errno or 0, "unknown")
    return UnsafeSource(f"source_path is refused: {what} cannot be opened ({name})", INVALID_PATH)


def _mutated(how: str) -> UnsafeSource:
    return UnsafeSource(f"the file was {how} while it was read; finish writing it, then record it again", FILE_MUTATED)


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino
