"""Where an export is written: a new folder, or a new zip file; complete under its name, or not there at all.

Owns: writing beside the target under a name of its own (`.<name>.<ULID>.part`), flushing, and the rename that makes it
visible. Does not own: what is written. Order of writes: files flushed -> folders flushed -> rename -> the target's
folder flushed. A crash before the rename leaves the `.part` thing, which may be deleted; an error removes it.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

from rlm_memory.wire import INVALID_PATH

from rlm_memory_host.contracts import ids
from rlm_memory_host.errors import StoreError
from rlm_memory_host.storage.files import FILE_MODE, FileLayer, writing
from rlm_memory_host.storage.objects import discard

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The same results give the same zip."""


class Sink(Protocol):
    """Takes files one after the other, then shows them all, or none."""

    def add(self, name: str, parts: Iterable[bytes]) -> None:
        """Write one file; `name` has / between the parts."""
        ...

    def finish(self) -> None:
        """Make everything visible under the target's name, durably."""
        ...

    def abandon(self) -> None:
        """Leave nothing."""
        ...


@contextlib.contextmanager
def _writing() -> Generator[None]:
    """As `storage.files.writing`, of the place that an export goes to: the store is only read."""
    with writing("the target of the export"):
        yield


def _part_of(target: Path) -> Path:
    if target.exists() or target.is_symlink():
        raise StoreError("the target exists already; name a new one", INVALID_PATH)
    if not target.parent.is_dir():
        raise StoreError("the folder of the target does not exist", INVALID_PATH)
    return target.parent / f".{target.name}.{ids.new_ulid()}.part"


class FolderSink:
    """A folder of plain files."""

    def __init__(self, files: FileLayer, target: Path) -> None:
        self._files = files
        self._target = target
        self._part = _part_of(target)
        self._folders: dict[Path, None] = {}
        self._written: list[Path] = []
        with _writing():
            self._folder(self._part)

    def add(self, name: str, parts: Iterable[bytes]) -> None:
        """As `Sink.add`."""
        path = self._part.joinpath(*name.split("/"))
        with _writing():
            for folder in reversed([parent for parent in path.parents if parent.is_relative_to(self._part)]):
                self._folder(folder)
            descriptor = self._files.create(path)
        self._written.append(path)
        try:
            for data in parts:
                with _writing():
                    self._files.write(descriptor, data)
            with _writing():
                self._files.fsync(descriptor)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """As `Sink.finish`."""
        with _writing():
            for folder in reversed(self._folders):
                self._files.fsync_folder(folder)
            if self._target.exists():
                raise StoreError("the target was made by somebody else meanwhile; name a new one", INVALID_PATH)
            self._files.rename(self._part, self._target)
            self._files.fsync_folder(self._target.parent)

    def abandon(self) -> None:
        """As `Sink.abandon`."""
        with contextlib.suppress(OSError):
            for path in self._written:
                discard(self._files, path)
            for folder in reversed(self._folders):
                folder.rmdir()

    def _folder(self, path: Path) -> None:
        if path not in self._folders:
            self._files.make_folder(path)
            self._folders[path] = None


class _Stream:
    """A descriptor as the file that a zip is written to; it cannot seek, so members carry their sizes behind them."""

    def __init__(self, files: FileLayer, descriptor: int) -> None:
        self._files = files
        self._descriptor = descriptor

    def write(self, data: bytes) -> int:
        self._files.write(self._descriptor, bytes(data))
        return len(data)

    def flush(self) -> None:
        pass


class ZipSink:
    """One zip file, not compressed: results mostly are already, and any tool can mend or read it."""

    def __init__(self, files: FileLayer, target: Path) -> None:
        self._files = files
        self._target = target
        self._part = _part_of(target)
        with _writing():
            self._descriptor = files.create(self._part)
        stream = cast("IO[bytes]", cast("Any", _Stream(files, self._descriptor)))
        self._archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True)

    def add(self, name: str, parts: Iterable[bytes]) -> None:
        """As `Sink.add`."""
        info = zipfile.ZipInfo(name, _EPOCH)
        info.external_attr = FILE_MODE << 16
        with writing(), self._archive.open(info, "w", force_zip64=True) as member:
            for data in parts:
                member.write(data)

    def finish(self) -> None:
        """As `Sink.finish`."""
        with _writing():
            self._archive.close()
            self._files.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            if self._target.exists():
                raise StoreError("the target was made by somebody else meanwhile; name a new one", INVALID_PATH)
            self._files.rename(self._part, self._target)
            self._files.fsync_folder(self._target.parent)

    def abandon(self) -> None:
        """As `Sink.abandon`."""
        # Closing would write the directory of a file that is about to go.
        self._archive.fp = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        discard(self._files, self._part)
