"""Checksums of Parquet pages, verified without decoding, for engines that do not look at them.

Owns: walking the page headers of a column chunk (the few fields of Thrift's compact protocol that a page header has)
and comparing each page's CRC-32. A chunk is verified once per process and file, told by device, inode, size,
mtime and ctime. Does not own: what an engine reads.
"""

from __future__ import annotations

import mmap
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import files

_verified: dict[tuple[int, ...], set[tuple[int, int]]] = {}
_lock = threading.Lock()
_FILES_REMEMBERED = 256


def verify(path: Path, metadata: Any, chunks: Iterable[tuple[int, int]]) -> None:
    """Check (row group, leaf column) chunks. Raises `errors.Integrity` at the first page whose bytes changed."""
    key = files.identity(path)
    with _lock:
        if key not in _verified and len(_verified) >= _FILES_REMEMBERED:
            _verified.clear()
        done = _verified.setdefault(key, set())
        todo = [chunk for chunk in chunks if chunk not in done]
    if not todo:
        return
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as octets:
        for group, column in todo:
            chunk = metadata.row_group(group).column(column)
            start, stop = _bounds(chunk)
            _verify_chunk(octets, chunk, start, stop)
            _forget(octets, start, stop)
    with _lock:
        done.update(todo)


def _bounds(chunk: Any) -> tuple[int, int]:
    """Where the pages of a chunk begin and end in the file."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _forget(octets: mmap.mmap, start: int, stop: int) -> None:
    """Take the pages out of this process' memory again: else a check holds all that it has read."""
    if hasattr(mmap, "MADV_DONTNEED"):
        first = start - start % mmap.PAGESIZE
        octets.madvise(mmap.MADV_DONTNEED, first, min(stop, len(octets)) - first)


def _verify_chunk(octets: mmap.mmap, chunk: Any, at: int, stop: int) -> None:
    view = memoryview(octets)
    try:
        while at < stop:
            size, checksum, body = _page_header(octets, at)
            if size < 0 or body + size > stop:
                raise errors.Integrity(
                    f"The recorded file is damaged: a page header of column {chunk.path_in_schema!r}."
                )
            if checksum is not None and zlib.crc32(view[body : body + size]) != checksum & 0xFFFFFFFF:
                raise errors.Integrity(
                    f"The recorded file is damaged: a page of column {chunk.path_in_schema!r} changed."
                )
            at = body + size
    except IndexError as fault:
        raise errors.Integrity("The recorded file is damaged: it ends inside a page header.") from fault
    finally:
        view.release()


_STRUCT, _LIST, _SET, _MAP = 12, 9, 10, 11


def _page_header(octets: mmap.mmap, at: int) -> tuple[int, int | None, int]:
    """(compressed size, checksum or None, where the page's bytes begin) of the header at an offset."""
    field, size, checksum = 0, -1, None
    while True:
        head = octets[at]
        at += 1
        if head == 0:
            return size, checksum, at
        kind, delta = head & 0x0F, head >> 4
        if delta:
            field += delta
        else:
            field, at = _zigzag(octets, at)
        if field == 3:
            size, at = _zigzag(octets, at)
        elif field == 4:
            checksum, at = _zigzag(octets, at)
        else:
            at = _skip(octets, at, kind)


def _varint(octets: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = octets[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7
        if shift > 70:
            raise IndexError


def _zigzag(octets: mmap.mmap, at: int) -> tuple[int, int]:
    value, at = _varint(octets, at)
    return (value >> 1) ^ -(value & 1), at


def _skip(octets: mmap.mmap, at: int, kind: int) -> int:
    """The offset after one value of a Thrift compact type."""
    if kind in (1, 2):
        return at
    if kind == 3:
        return at + 1
    if kind in (4, 5, 6):
        return _varint(octets, at)[1]
    if kind == 7:
        return at + 8
    if kind == 8:
        length, at = _varint(octets, at)
        return at + length
    if kind in (_LIST, _SET):
        head = octets[at]
        count, at = head >> 4, at + 1
        if count == 15:
            count, at = _varint(octets, at)
        for _ in range(count):
            at = _skip(octets, at, head & 0x0F)
        return at
    if kind == _STRUCT:
        return _skip_struct(octets, at)
    raise errors.Integrity("The recorded file is damaged: a page header is not readable.")


def _skip_struct(octets: mmap.mmap, at: int) -> int:
    while True:
        head = octets[at]
        at += 1
        if head == 0:
            return at
        if not head >> 4:
            at = _zigzag(octets, at)[1]
        at = _skip(octets, at, head & 0x0F)
