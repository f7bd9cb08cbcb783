"""Synthetic logs of both lines of DeepSeek Harness: headers, records of a turn, and files of concatenated frames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard
from rlm_memory_host.dsh.logs import folder_key

Record = dict[str, Any]
NAMES = {0: "session.jsonl.zstd", 4: "session.v4.jsonl.zstd"}


def header(version: int, session: str, cwd: Path, **more: Any) -> Record:
    """A header line of that version; `more` overrides."""
    own: Record = {"isSeeded": False} if version == 4 else {}
    made = {"type": "session", "version": version, "id": session, "createdAt": 1000, "cwd": str(cwd)}
    return {**made, **own, "delegationDepth": 0, **more}


def turn(number: int, words: str, answer: str = "Noted.", *, reason: str = "completed", **source: Any) -> list[Record]:
    """The records of one turn, as the harness writes them; ten sequence numbers for each."""
    seq, time = 10 * number, 1_700_000_000_000 + 10 * number
    text = [{"type": "text", "text": answer}]
    rows = [
        ("turn/start", {"turn": number}, None),
        ("step/start", {"turn": number, "step": 1}, None),
        ("user/message", _said(words, source or {"kind": "user"}), "append"),
        ("user/message", _said("The secret colour is vermilion.", {"kind": "plugin", "plugin": "companion"}), "append"),
        ("assistant/chunk", {"turn": number, "step": 1, "chunk": {"type": "text-delta", "text": answer}}, None),
        ("assistant/message", {"turn": number, "message": {"role": "assistant", "content": text}}, "append"),
        ("turn/end", {"turn": number, "reason": {"kind": reason}}, None),
    ]
    return [
        {"type": kind, "seq": seq + at, "time": time + at, "data": data, **({"surfaceOp": op} if op else {})}
        for at, (kind, data, op) in enumerate(rows)
    ]


def _said(text: str, source: Record) -> Record:
    return {"role": "user", "id": "m", "source": source, "content": [{"type": "text", "text": text}]}


def frame(*records: Record | bytes) -> bytes:
    """One frame with these lines."""
    lines = b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in records)
    parameters = zstandard.ZstdCompressionParameters(compression_level=3, write_checksum=True, write_content_size=False)
    made = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return made.compress(lines) + made.flush()


def split(records: Sequence[Record], *sizes: int) -> Iterator[bytes]:
    """Frames of so many records each, the rest in the last."""
    at = 0
    for size in sizes:
        yield frame(*records[at : at + size])
        at += size
    if records[at:]:
        yield frame(*records[at:])


def path_of(home: Path, cwd: Path, session: str, version: int) -> Path:
    """Where the log of a session lies; its folder is made."""
    folder = home / "sessions" / folder_key(str(cwd)) / session
    folder.mkdir(parents=True, exist_ok=True)
    return folder / NAMES.get(version, f"session.v{version}.jsonl.zstd")


def written(home: Path, head: Record, frames: Iterable[bytes] = ()) -> Path:
    """The log of a session with its header in the first frame."""
    path = path_of(home, Path(head["cwd"]), head["id"], head["version"])
    path.write_bytes(b"".join((frame(head), *frames)))
    return path


def added(path: Path, *frames: bytes) -> None:
    """Append to a log."""
    with path.open("ab") as file:
        file.write(b"".join(frames))
