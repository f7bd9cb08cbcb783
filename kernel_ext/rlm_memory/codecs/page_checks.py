"""Checksums of Parquet pages, verified without decoding, for engines that do not look at them.

Owns: walking the page headers of a column chunk and comparing each page's CRC-32. A chunk is verified once per process
and file, told by device, inode, size, mtime and ctime. Does not own: what an engine reads.
"""

from __future__ import annotations

import mmap
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path

from rlm_memory import errors
from rlm_memory.codecs import files, thrift
from rlm_memory.codecs.chunks import Chunk
from rlm_memory.codecs.footers import Footer

_verified: dict[tuple[int, ...], set[tuple[int, int]]] = {}
_lock = threading.Lock()
_FILES_REMEMBERED = 256

_SIZE, _CHECKSUM = 3, 4
"""Fields of a page header."""
_FACTS: thrift.Wanted = {_SIZE: None, _CHECKSUM: None}


def verify(path: Path, footer: Footer, names: Iterable[str], groups: Iterable[int]) -> None:
    """Check these columns in these row groups. Raises `errors.Integrity` at the first page whose bytes changed."""
    leaves = [(name, leaf) for name in names for leaf in footer.leaves[name]]
    key = files.identity(path)
    with _lock:
        if key not in _verified and len(_verified) >= _FILES_REMEMBERED:
            _verified.clear()
        done = _verified.setdefault(key, set())
        wanted = [(group, leaf, name) for group in groups for name, leaf in leaves]
        todo = [one for one in wanted if one[:2] not in done]
    if not todo:
        return
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as octets:
        for group, leaf, name in todo:
            chunk = footer.chunk(group, leaf)
            _verify_chunk(octets, chunk, name)
            _forget(octets, chunk.start, min(chunk.stop, len(octets)))
    with _lock:
        done.update(one[:2] for one in todo)


def _forget(octets: mmap.mmap, start: int, stop: int) -> None:
    """Take the pages out of this process' memory again: else a check holds all that it has read."""
    if hasattr(mmap, "MADV_DONTNEED"):
        first = start - start % mmap.PAGESIZE
        octets.madvise(mmap.MADV_DONTNEED, first, stop - first)


def _verify_chunk(octets: mmap.mmap, chunk: Chunk, name: str) -> None:
    view, at = memoryview(octets), chunk.start
    try:
        while at < chunk.stop:
            header, body = thrift.record(octets, at, _FACTS)
            size = header.get(_SIZE, -1)
            if size < 0 or body + size > chunk.stop:
                raise errors.Integrity(f"The recorded file is damaged: a page header of column {name!r}.")
            checksum = header.get(_CHECKSUM)
            if checksum is not None and zlib.crc32(view[body : body + size]) != checksum & 0xFFFFFFFF:
                raise errors.Integrity(f"The recorded file is damaged: a page of column {name!r} changed.")
            at = body + size
    except (LookupError, TypeError) as fault:
        raise errors.Integrity(f"The recorded file is damaged: a page header of column {name!r}.") from fault
    finally:
        view.release()
