"""The journal beside a project's cards: what its hosts committed, so that nobody has to look at every card again.

Owns: `<project>/journal`, fixed records with a checksum each: which card a commit wrote, its SHA-256, and what the
folder of cards looked like right before and right after. Does not own: the cards, which are the truth, nor what is made
of the records (`catalogue`). No text of a card is in it.

A reader that knows the folder as it was follows the records from there: each one that begins where the last ended leads
it on, and when the chain ends at what the folder looks like now, nobody else touched it meanwhile and only the named
cards are read. Where the chain breaks (a person or another tool changed the folder, a record is missing, torn or of
another generation) the folder is scanned: the journal saves work and is believed in nothing else, except that it says
which bytes of a card a host wrote.

Order of writes: appended under the commit lock after the card's folder was flushed, not flushed itself; an error is
ignored. A crash or a full disk loses records at its end, or leaves half a one, which the next append overwrites.
A journal that has grown far beyond its cards is written anew: temp, renamed; readers see the new generation.

Source: design page "Exact results", Search; DeepSeek Honcho specification, section 28.3.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rlm_memory_host.storage.files import FileLayer, read_up_to

Signature = tuple[int, int, int, int]
"""Inode, mtime and ctime (nanoseconds) of the folder of cards, commits so far."""
CardIdentity = tuple[int, int, int, int]
"""Inode, size, mtime, ctime (nanoseconds) of a card's file."""
Kind = Literal["card", "sidecar", "removed"]

REWRITE_FROM: Final = 4_096
"""Records below which a journal is never written anew."""
BLOCK: Final = 4_096
"""Records that are read at once when one is looked for."""
_FEW: Final = 16
"""Cards that are looked for by their names alone, block by block."""
_MAGIC: Final = b"rlmcards"
_HEADER: Final = 16
_RECORD: Final = struct.Struct("<56s32sQQqqQqqQQqqQB")
_KINDS: Final[tuple[Kind, ...]] = ("card", "sidecar", "removed")
_SIZE: Final = 4 + _RECORD.size


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit. `digest` and `identity` are those of the card's file, of no meaning for other kinds."""

    kind: Kind
    experiment: str
    before: Signature
    after: Signature
    digest: bytes = bytes(32)
    identity: CardIdentity = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader is: the journal's generation and a byte in it."""

    generation: str = ""
    offset: int = 0


class CardJournal:
    """The journal of one project. Thread-safe for reading; append only under the commit lock."""

    def __init__(self, files: FileLayer, path: Path) -> None:
        self._files = files
        self._path = path

    def append(self, entry: Entry, cards: int) -> None:
        """Add an entry; `cards` is about how many there are. Errors of the disk are ignored: readers then scan."""
        with contextlib.suppress(OSError):
            descriptor = self._open()
            try:
                size = os.fstat(descriptor).st_size
                records = max(0, size - _HEADER) // _SIZE
                if records >= REWRITE_FROM and records > 4 * cards:
                    self._write_anew(entry)
                    return
                self._files.write_at(descriptor, _pack(entry), _HEADER + records * _SIZE)
            finally:
                os.close(descriptor)

    def read(self, since: Position | None = None) -> tuple[list[Entry], Position]:
        """The entries after a position (all of them when the generation is another one) and the position now."""
        try:
            descriptor = self._files.open_read(self._path)
        except OSError:
            return [], Position()
        try:
            head = os.pread(descriptor, _HEADER, 0)
            if len(head) != _HEADER or not head.startswith(_MAGIC):
                return [], Position()
            generation = head[len(_MAGIC) :].hex()
            start = since.offset if since is not None and since.generation == generation else _HEADER
            os.lseek(descriptor, start, os.SEEK_SET)
            entries = _parse(read_up_to(descriptor, os.fstat(descriptor).st_size - start))
            return entries, Position(generation, start + len(entries) * _SIZE)
        except OSError:
            return [], Position()
        finally:
            os.close(descriptor)

    def end(self) -> Position:
        """The position after the last whole record."""
        try:
            descriptor = self._files.open_read(self._path)
        except OSError:
            return Position()
        try:
            head = os.pread(descriptor, _HEADER, 0)
            if len(head) != _HEADER or not head.startswith(_MAGIC):
                return Position()
            records = (os.fstat(descriptor).st_size - _HEADER) // _SIZE
            return Position(head[len(_MAGIC) :].hex(), _HEADER + records * _SIZE)
        finally:
            os.close(descriptor)

    def written(self, experiments: Collection[str]) -> dict[str, Entry]:
        """What a host last wrote of each of some experiments, for those where one did."""
        wanted = {experiment.encode("ascii") for experiment in experiments}
        found: dict[str, Entry] = {}
        with contextlib.suppress(OSError):
            for block in self._from_the_end():
                if len(wanted) <= _FEW and all(name not in block for name in wanted):
                    continue
                for start in range(len(block) - _SIZE, -1, -_SIZE):
                    if block[start + 4 : start + 60] not in wanted:
                        continue
                    for entry in _parse(block[start : start + _SIZE]):
                        if entry.kind != "sidecar":
                            found[entry.experiment] = entry
                            wanted.discard(entry.experiment.encode("ascii"))
                if not wanted:
                    break
        return {experiment: entry for experiment, entry in found.items() if entry.kind == "card"}

    def _from_the_end(self) -> Iterator[bytes]:
        """Blocks of whole records, the last first: memory stays flat, and what was written lately is found soon."""
        descriptor = self._files.open_read(self._path)
        try:
            end = (os.fstat(descriptor).st_size - _HEADER) // _SIZE
            while end > 0:
                start = max(0, end - BLOCK)
                block = os.pread(descriptor, (end - start) * _SIZE, _HEADER + start * _SIZE)
                yield block[: len(block) // _SIZE * _SIZE]
                end = start
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            descriptor = self._files.open_lock(self._path)
        except FileNotFoundError:
            descriptor = self._files.create(self._path)
        try:
            head = os.pread(descriptor, _HEADER, 0)
            if len(head) != _HEADER or not head.startswith(_MAGIC):
                os.ftruncate(descriptor, 0)
                self._files.write_at(descriptor, _new_header(), 0)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _write_anew(self, newest: Entry) -> None:
        """Keep what was last written of each card."""
        entries, _ = self.read()
        last = {entry.experiment: entry for entry in entries if entry.kind == "card"}
        for entry in entries:
            if entry.kind == "removed":
                last.pop(entry.experiment, None)
        kept = [*(entry for entry in last.values() if entry.experiment != newest.experiment), newest]
        temporary = self._path.with_name(self._path.name + ".new")
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(temporary)
        descriptor = self._files.create(temporary)
        try:
            self._files.write(descriptor, _new_header() + b"".join(map(_pack, kept)))
        finally:
            os.close(descriptor)
        self._files.rename(temporary, self._path)


def follow(entries: Iterable[Entry], since: Signature, until: Signature) -> list[Entry] | None:
    """The entries that lead from one look of the folder to another; None when they do not."""
    led: list[Entry] = []
    at = since
    for entry in entries:
        if entry.before == at:
            led.append(entry)
            at = entry.after
        elif led:
            return None
    return led if at == until else None


def _new_header() -> bytes:
    return _MAGIC + os.urandom(_HEADER - len(_MAGIC))


def _pack(entry: Entry) -> bytes:
    body = _RECORD.pack(
        entry.experiment.encode("ascii"),
        entry.digest,
        *entry.identity,
        *entry.before,
        *entry.after,
        _KINDS.index(entry.kind),
    )
    return struct.pack("<I", zlib.crc32(body)) + body


def _parse(data: bytes) -> list[Entry]:
    """The whole records at the beginning of `data`, up to the first that is not right."""
    entries: list[Entry] = []
    for start in range(0, len(data) - _SIZE + 1, _SIZE):
        body = data[start + 4 : start + _SIZE]
        if int.from_bytes(data[start : start + 4], "little") != zlib.crc32(body):
            break
        fields: tuple[Any, ...] = _RECORD.unpack(body)
        name, digest, *rest, kind = fields
        one, two, three = rest[:4], rest[4:8], rest[8:]
        entries.append(
            Entry(
                _KINDS[int(kind)],
                name.decode("ascii"),
                (two[0], two[1], two[2], two[3]),
                (three[0], three[1], three[2], three[3]),
                digest,
                (one[0], one[1], one[2], one[3]),
            )
        )
    return entries
