"""The file of a packed index: a derived copy under the state root, trusted only when every byte of it is right.

Owns: the format, the checks on reading. Does not own: what the arrays mean (`index_packed`), when they are saved and
whether they still say what the cards say (`catalogue`).

    8 bytes magic | CRC-32 of all that follows | length of the header | header, JSON | arrays, each on 64 bytes

Order of writes: a temporary file beside it, renamed. No flush: a file that a power cut left torn has a wrong CRC and
is no index. The header names the version of the format and of the rules, those of the tokeniser's tables and the
project: a file that another release, another Python or another project wrote is no index either. It is read as a
whole, so what was checked is what is used, whatever happens to the file later.

Source: design page "Exact results", Search.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import unicodedata
import zlib
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.index_packed import Arrays, document_type, numpy

FORMAT: Final = 1
"""To be raised with every change of the format, the tokeniser or the weights."""
_MAGIC: Final = b"rlmindex"
_HEAD: Final = struct.Struct("<8sIQ")
_ALIGN: Final = 64


def index_name(project_key: str, folder: Path) -> str:
    """The file's name for a project in an artifact root: two roots may hold the same project."""
    return f"{project_key}-{zlib.crc32(os.fsencode(folder)):08x}.index"


def rules() -> dict[str, Any]:
    """What must be the same for an index to be of use."""
    return {
        "format": FORMAT,
        "byteorder": "little",
        "unicode": unicodedata.unidata_version,
        "stemmer": metadata.version("snowballstemmer"),
    }


def save(files: FileLayer, path: Path, arrays: Arrays, facts: dict[str, Any]) -> None:
    """Write the index of a project; `facts` are JSON that `load` gives back. Raises OSError and leaves nothing."""
    np = numpy()
    sections: dict[str, Any] = {}
    blocks: list[Any] = []
    offset = 0
    for field in fields(Arrays):
        array = np.ascontiguousarray(getattr(arrays, field.name))
        kind = "documents" if field.name == "documents" else array.dtype.str
        sections[field.name] = [kind, len(array), offset]
        padding = -array.nbytes % _ALIGN
        blocks += [array.view(np.uint8).reshape(-1), bytes(padding)]
        offset += array.nbytes + padding
    header = json.dumps({"rules": rules(), "facts": facts, "sections": sections}).encode()
    header += b" " * (-(_HEAD.size + len(header)) % _ALIGN)
    checksum = zlib.crc32(header)
    for block in blocks:
        checksum = zlib.crc32(block, checksum)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        files.unlink(temporary)
    descriptor = files.create(temporary)
    try:
        try:
            for block in (_HEAD.pack(_MAGIC, checksum, len(header)), header, *blocks):
                files.write(descriptor, block)
        finally:
            os.close(descriptor)
        files.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise


def load(files: FileLayer, path: Path) -> tuple[Arrays, dict[str, Any]] | None:
    """The arrays and facts of an index; None when there is none, or none that can be trusted."""
    try:
        descriptor = files.open_read(path)
    except OSError:
        return None
    try:
        data = _read(descriptor)
        return None if data is None else _parse(data)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> memoryview | None:
    size = os.fstat(descriptor).st_size
    data: memoryview = memoryview(numpy().empty(size, "u1")).cast("B")
    at = 0
    while at < size:
        count = os.preadv(descriptor, [data[at : at + (1 << 30)]], at)
        if count == 0:
            return None
        at += count
    return data


def _parse(data: memoryview) -> tuple[Arrays, dict[str, Any]] | None:
    if len(data) < _HEAD.size:
        return None
    magic, checksum, length = _HEAD.unpack_from(data)
    if magic != _MAGIC or zlib.crc32(data[_HEAD.size :]) != checksum:
        return None
    start = _HEAD.size + length
    header = cast("dict[str, Any]", json.loads(bytes(data[_HEAD.size : start])))
    if header["rules"] != rules():
        return None
    np = numpy()
    found = {
        name: np.frombuffer(data, document_type() if kind == "documents" else kind, count, start + offset)
        for name, (kind, count, offset) in header["sections"].items()
    }
    return Arrays(**found), header["facts"]
