"""The notes of a frame: one JSON text under one key of the Parquet footer.

Owns: the key, the version, run-length encoding of like columns, and parsing with refusal of newer versions. The usual
`pandas` key is deliberately absent: it is what breaks on read.
"""

from __future__ import annotations

import json
from typing import Any

from rlm_memory import errors

KEY = b"rlm_memory.frame"
VERSION = 1


def dumps(notes: dict[str, Any]) -> bytes:
    """The JSON that goes into the footer."""
    return json.dumps({"version": VERSION, **notes}, ensure_ascii=True, separators=(",", ":")).encode()


def loads(metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    """The notes of a file. Raises `errors.Integrity` where there are none, `errors.Unsupported` for a newer version."""
    text = (metadata or {}).get(KEY)
    if text is None:
        raise errors.Integrity(
            "The Parquet file holds no notes of this library; load it with as_='arrow' or as_='polars'."
        )
    notes = json.loads(text)
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
