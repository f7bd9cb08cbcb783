"""The outbox on disk: three folders, how a document gets into one and from one into another.

Owns: `<state root>/outbox/pending`, `dead-letter` and `quarantine`, the single writes, reading what lies there. Does
not own: the order of writes of an admission or a delivery (`outbox`), what a document looks like
(`contracts.delivery`).

A document is written to a temp file in its own folder, flushed, renamed, and the folder flushed: the rename is the
commit point. A file that is no delivery is moved to `quarantine/` as it is, its reason published first.

Source: DeepSeek Honcho specification, section 12.1.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlm_memory_host.contracts.delivery import MAX_DOCUMENT_BYTES, DeliveryDocument, Glance, glance, iso, parse_document
from rlm_memory_host.contracts.delivery_ids import is_delivery_id
from rlm_memory_host.contracts.ids import canonical_json
from rlm_memory_host.errors import Integrity, NotFound, StoreError, Unwritable
from rlm_memory_host.storage.files import FileLayer, writing

FOLDER: Final = "outbox"
PENDING: Final = "pending"
DEAD_LETTER: Final = "dead-letter"
QUARANTINE: Final = "quarantine"
REASON: Final = ".reason.json"
MAX_REASON_BYTES: Final = 4_096


class OutboxFolders:
    """The folders of a state root. Thread-safe: every write has a temp file of its own."""

    def __init__(self, state_root: Path, files: FileLayer, now: Callable[[], float]) -> None:
        self.root = state_root / FOLDER
        self.pending = self.root / PENDING
        self.dead = self.root / DEAD_LETTER
        self.quarantine = self.root / QUARANTINE
        self.files = files
        self._now = now
        self._life = os.urandom(6).hex()
        self._temps = itertools.count()

    def make(self) -> None:
        """Make what is missing. Raises Unwritable, also where something else than a folder is in the place of one."""
        with writing():
            for folder in (self.root, self.pending, self.dead, self.quarantine):
                self.files.make_folder(folder)
                if not stat.S_ISDIR(self.files.stat(folder).st_mode):
                    raise Unwritable(f"'{folder.name}' in the outbox is not a real folder; remove it")

    # -- reading -----------------------------------------------------------------------------------------------------
    def glance(self, folder: Path, name: str) -> Glance:
        """The queueing fields of a file. Raises FormatVersion, Integrity for no delivery, OSError."""
        delivery_id = name.removesuffix(".json")
        if name.endswith(".tmp"):
            raise Integrity("left over from a write that was interrupted", "VALIDATION")
        if not name.endswith(".json") or not is_delivery_id(delivery_id):
            raise Integrity("not the name of a delivery", "VALIDATION")
        try:
            data = self.files.read_all(folder / name, MAX_DOCUMENT_BYTES)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
                raise Integrity("not a regular file", "VALIDATION") from None
            raise
        return glance(data, delivery_id)

    def document(self, folder: Path, delivery_id: str) -> DeliveryDocument:
        """A whole document. Raises NotFound, FormatVersion, Integrity, StoreError."""
        if not is_delivery_id(delivery_id):
            raise NotFound("not the id of a delivery", "DELIVERY_NOT_FOUND")
        try:
            data = self.files.read_all(folder / file_name(delivery_id), MAX_DOCUMENT_BYTES)
        except FileNotFoundError:
            raise NotFound("no delivery with that id", "DELIVERY_NOT_FOUND") from None
        except OSError as error:
            raise StoreError(f"a delivery cannot be read ({errno.errorcode.get(error.errno or 0, '?')})") from error
        return parse_document(data, delivery_id)

    def holding(self, needle: bytes, folder: Path, names: Iterable[str]) -> list[str]:
        """The deliveries among `names` whose file holds these bytes; one that cannot be read is none of them."""
        found: list[str] = []
        for name in names:
            with suppress(OSError, StoreError):
                if needle in self.files.read_all(folder / file_name(name), MAX_DOCUMENT_BYTES):
                    found.append(name)
        return found

    def quarantined(self) -> int:
        """How many files lie in quarantine."""
        return sum(not entry.name.endswith(REASON) for entry in self.files.scan(self.quarantine))

    # -- writing -----------------------------------------------------------------------------------------------------
    def publish(self, folder: Path, name: str, data: bytes) -> None:
        """Put a file in place, durably, over what was there. Raises Unwritable."""
        temp = folder / f".{name}.{self._life}-{next(self._temps)}.tmp"
        with writing():
            descriptor = self.files.create(temp)
            try:
                try:
                    self.files.write(descriptor, data)
                    self.files.fsync(descriptor)
                finally:
                    os.close(descriptor)
                self.files.rename(temp, folder / name)
            except OSError:
                with suppress(OSError):
                    self.files.unlink(temp)
                raise
            self.files.fsync_folder(folder)

    def move(self, source: Path, target: Path) -> None:
        """From one folder to another, durably. Raises Unwritable."""
        with writing():
            self.files.rename(source, target)
            self.files.fsync_folder(target.parent)
            self.files.fsync_folder(source.parent)

    def remove(self, path: Path, *, durably: bool = False) -> None:
        """Remove a file; twice is once. Raises Unwritable."""
        with writing():
            with suppress(FileNotFoundError):
                self.files.unlink(path)
            if durably:
                self.files.fsync_folder(path.parent)

    def set_aside(self, path: Path, reason: str) -> None:
        """Move what is no delivery to quarantine, byte for byte, with the reason beside it. Raises Unwritable."""
        name = path.name.lstrip(".")
        taken = {entry.name for entry in self.files.scan(self.quarantine)}
        target = next(free for free in _numbered(name) if free not in taken)
        note = canonical_json({"at": iso(self._now()), "name": _shown(path.name), "reason": reason})
        self.publish(self.quarantine, target + REASON, note)
        self.move(path, self.quarantine / target)

    def sweep(self) -> None:
        """Remove temp files of a process that is gone from where they are copies of what is kept, or no reason yet."""
        for folder in (self.dead, self.quarantine):
            for entry in self.files.scan(folder):
                if entry.name.startswith(".") and entry.name.endswith(".tmp") and entry.is_file(follow_symlinks=False):
                    self.remove(folder / entry.name)


def file_name(delivery_id: str) -> str:
    """The name of a delivery's document."""
    return f"{delivery_id}.json"


def printable(text: str) -> str:
    """A text for a terminal: what is no printable sign as its escape."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def _shown(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()[:255]


def _numbered(name: str) -> Iterable[str]:
    base = printable(_shown(name).encode("ascii", "backslashreplace").decode())[:200]
    yield base
    for number in itertools.count(2):
        yield f"{base}.{number}"
