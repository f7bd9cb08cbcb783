"""The notes of a frame: one JSON text under one key of the Parquet footer.

Owns: the key, the version, a checksum (older files lack it), run-length encoding of like columns, and parsing with
refusal of newer versions. The usual `pandas` key is deliberately absent: it is what breaks on read.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any, cast

from rlm_memory import errors

KEY = b"rlm_memory.frame"
VERSION = 1


def dumps(notes: dict[str, Any]) -> bytes:
    """The JSON that goes into the footer; its last entry is a checksum, as Parquet has none for footers."""
    text = json.dumps({"version": VERSION, **notes}, ensure_ascii=True, separators=(",", ":")).encode()
    return b'%b,"check":"%08x"}' % (text[:-1], zlib.crc32(text))


_CHECK_OCTETS = len(b',"check":"01234567"}')
_CHECK = re.compile(rb',"check":"([0-9a-f]{8})"\}$')


def loads(metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    """The notes of a file. Raises `errors.Integrity` where there are none, `errors.Unsupported` for a newer version."""
    text = (metadata or {}).get(KEY)
    if text is None:
        raise errors.Integrity(
            "The Parquet file holds no notes of this library; load it with as_='arrow' or as_='polars'."
        )
    written = _CHECK.search(text, len(text) - _CHECK_OCTETS)
    if written is not None and zlib.crc32(text[: written.start()] + b"}") != int(written[1], 16):
        raise errors.Integrity("The recorded file is damaged: its notes changed.")
    try:
        notes = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise errors.Integrity("The recorded file is damaged: its notes are not readable.") from fault
    if not isinstance(notes, dict):
        raise errors.Integrity("The recorded file is damaged: its notes are not readable.")
    notes = cast("dict[str, Any]", notes)
    if notes.get("version") != VERSION:
        raise errors.Unsupported("The recorded frame was written by a newer version of rlm-memory; update to read it.")
    return notes


def squeeze(items: list[Any]) -> list[list[Any]]:
    """Run-length encode: 20,000 like columns cost one entry."""
    runs: list[list[Any]] = []
    for item in items:
        if runs and runs[-1][1] == item:
            runs[-1][0] += 1
        else:
            runs.append([1, item])
    return runs


def stretch(runs: list[list[Any]]) -> list[Any]:
    """The inverse of `squeeze`; like columns share one note."""
    return [item for count, item in runs for _ in range(count)]
