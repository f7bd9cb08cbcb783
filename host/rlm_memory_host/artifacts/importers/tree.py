"""A folder that another tool wrote, read and never written: no link is followed, nothing outside it is opened.

Owns: the walk, opening a file component by component from the folder's descriptor (O_NOFOLLOW), so that nothing can be
swapped in between look and use, and noticing a file that changes while it is read. Does not own: what the files mean.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rlm_memory.wire import FILE_MUTATED, INVALID_PATH, NOT_REGULAR_FILE, UNSAFE_FILESYSTEM_ENTRY

from rlm_memory_host.errors import UnsafeSource
from rlm_memory_host.storage.objects import BUFFER_BYTES, Check

MAX_ENTRIES: Final = 4_000_000
MAX_DEPTH: Final = 64

Sort = Literal["file", "link", "other"]
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or what is none, by its name below the folder (with / between the parts)."""

    name: str
    sort: Sort
    size: int

    @property
    def parts(self) -> tuple[str, ...]:
        """The name's parts."""
        return tuple(self.name.split("/"))


class Tree:
    """Use as a context manager. `root` itself may be reached through links: it is the operator's own word."""

    def __init__(self, root: Path) -> None:
        try:
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UnsafeSource(f"the folder cannot be opened ({error.strerror})", INVALID_PATH) from None

    def close(self) -> None:
        """Release the folder."""
        os.close(self._root)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def walk(self, *below: str) -> list[Entry]:
        """Every entry that is no folder, by name; `below` names a folder to start from. An absent one is empty."""
        found: list[Entry] = []
        try:
            folder = self._folder(below)
        except UnsafeSource:
            return []
        try:
            self._walk(folder, below, found)
        finally:
            os.close(folder)
        return sorted(found, key=lambda entry: entry.name)

    def read(self, name: str, limit: int) -> bytes | None:
        """A small file whole; None where there is no such regular file or it has more than `limit` bytes."""
        try:
            descriptor = self._open(name)
        except UnsafeSource:
            return None
        try:
            if os.fstat(descriptor).st_size > limit:
                return None
            parts: list[bytes] = []
            while data := os.read(descriptor, BUFFER_BYTES):
                parts.append(data)
                if sum(map(len, parts)) > limit:
                    return None
            return b"".join(parts)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def chunks(self, name: str, check: Check) -> Iterator[bytes]:
        """A file's bytes. Raises UnsafeSource: not a regular file below the folder, or changed while it was read."""
        descriptor = self._open(name)
        try:
            before = _state(descriptor)
            while data := os.read(descriptor, BUFFER_BYTES):
                yield data
                check()
            if _state(descriptor) != before:
                raise UnsafeSource(f"{shown(name)}: the file changed while it was read", FILE_MUTATED)
        except OSError as error:
            raise UnsafeSource(f"{shown(name)}: it cannot be read ({error.strerror})", INVALID_PATH) from None
        finally:
            os.close(descriptor)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _walk(self, folder: int, parts: tuple[str, ...], found: list[Entry]) -> None:
        if len(parts) > MAX_DEPTH:
            raise UnsafeSource(f"{shown('/'.join(parts))}: folders lie too deep", UNSAFE_FILESYSTEM_ENTRY)
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError as error:
            raise UnsafeSource(
                f"{shown('/'.join(parts) or '.')}: the folder cannot be read ({error.strerror})", INVALID_PATH
            ) from None
        for item in listed:
            inner = (*parts, item.name)
            try:
                state = item.stat(follow_symlinks=False)
                is_folder = stat.S_ISDIR(state.st_mode)
                descriptor = os.open(item.name, _FOLDER, dir_fd=folder) if is_folder else -1
            except FileNotFoundError:
                continue
            except OSError as error:
                # Refused as a whole: what lies in there is not known, so nobody could be told what is left out.
                raise UnsafeSource(
                    f"{shown('/'.join(inner))}: it cannot be read ({error.strerror})", INVALID_PATH
                ) from None
            if is_folder:
                try:
                    self._walk(descriptor, inner, found)
                finally:
                    os.close(descriptor)
                continue
            link, file = stat.S_ISLNK(state.st_mode), stat.S_ISREG(state.st_mode)
            found.append(Entry("/".join(inner), "link" if link else "file" if file else "other", state.st_size))
            if len(found) > MAX_ENTRIES:
                raise UnsafeSource(f"the folder holds more than {MAX_ENTRIES:,} files", UNSAFE_FILESYSTEM_ENTRY)

    def _folder(self, parts: tuple[str, ...]) -> int:
        descriptor = os.dup(self._root)
        for part in parts:
            _check_part(part, "/".join(parts))
            try:
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
            except OSError as error:
                reason = f"{shown('/'.join(parts))}: a folder on the way is a link, no folder, or not there"
                raise UnsafeSource(f"{reason} ({error.strerror})", UNSAFE_FILESYSTEM_ENTRY) from None
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor

    def _open(self, name: str) -> int:
        parts = tuple(name.split("/"))
        _check_part(parts[-1], name)
        folder = self._folder(parts[:-1])
        try:
            descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
        except OSError as error:
            reason = f"{shown(name)}: it is a link, not there, or cannot be opened ({error.strerror})"
            raise UnsafeSource(reason, UNSAFE_FILESYSTEM_ENTRY) from None
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UnsafeSource(f"{shown(name)}: it is no regular file", NOT_REGULAR_FILE)
        return descriptor


def is_plain(name: str) -> bool:
    """Whether a name that a source gives stays below its folder: relative, without `.`, `..`, NUL or empty parts."""
    return all(part not in ("", ".", "..") and "\x00" not in part for part in name.split("/"))


def shown(name: str) -> str:
    """A name for a message: one line of printable characters, not long."""
    plain = "".join(each if each.isprintable() else "?" for each in name)
    return plain if len(plain) <= 160 else plain[:159] + "…"


def _check_part(part: str, name: str) -> None:
    if not is_plain(part):
        raise UnsafeSource(f"{shown(name)}: the name leads out of the folder", INVALID_PATH)


def _state(descriptor: int) -> tuple[int, int, int]:
    state = os.fstat(descriptor)
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns
