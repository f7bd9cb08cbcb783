"""`record(..., secrets="refuse")`: what the host sees of a result, and that nothing is recorded that holds a secret."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import lzma
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rlm_memory import codecs, errors, recording, secretscan, wire
from rlm_memory.codecs import libraries
from rlm_memory.finding import Host
from rlm_memory.steps import Ask, Meet, Steps, Work
from rlm_memory_host.assembly.guarded import scanning
from rlm_memory_host.guard import Guard

KEY = "sk-ant-api03-" + "Ab1" * 30
SCAN = scanning(Guard())


def looked(path: Path, host: Host | None = None) -> list[dict[str, str]]:
    """Drive a look at a file against the real guard; what was asked. Each question fits one message."""
    steps, asked, sent = secretscan.refuse(path, host or Host(True)), list[dict[str, str]](), None
    while True:
        try:
            step: Any = steps.send(sent)
        except StopIteration:
            return asked
        if isinstance(step, Work):
            sent = step.run()
            continue
        assert step.kind == wire.SCAN
        assert wire.encoded_size(step.payload) < wire.MAX_INLINE_BYTES
        wire.parse_request({"type": step.kind, **step.payload})
        asked.append(dict(step.payload["texts"]))
        sent = {"findings": SCAN(step.payload["texts"])}


def refused(path: Path) -> str:
    with pytest.raises(errors.Denied) as told:
        looked(path)
    assert told.value.code == wire.GUARD_SECRET
    assert KEY[13:] not in str(told.value)
    return str(told.value)


FRAME = pd.DataFrame({"n": range(20_000), "word": [f"word {n}" for n in range(20_000)]})
OBJECTS: dict[str, tuple[Callable[[str], object], str]] = {
    "a cell": (lambda key: FRAME.assign(word=[*FRAME["word"][:-1], key]), "column 2"),
    "a column's name": (lambda key: FRAME.rename(columns={"n": key}), "column names"),
    "the frame's attrs": (lambda key: _with_attrs(FRAME, key), "notes of the frame"),
    "a nested cell": (lambda key: pd.DataFrame({"a": [[{"deep": key}]]}), "column 1"),
    "a category": (lambda key: pd.DataFrame({"a": pd.Categorical(["x", key])}), "column 1"),
    "a value": (lambda key: {"deep": [1, {"er": key}]}, "the file"),
    "a key": (lambda key: {key: 1}, "the file"),
    "a text": (lambda key: "long " * 100_000 + key, "the file"),
    "bytes": (lambda key: b"\x00\xff" * 200_000 + key.encode(), "the file"),
    "an array of texts": (lambda key: np.array(["x", key]), "the file"),
    "arrays by name": (lambda key: {"a": np.arange(3), "b": np.array([key])}, "part "),
}


def _with_attrs(frame: pd.DataFrame, key: str) -> pd.DataFrame:
    found = frame.copy()
    found.attrs["note"] = key
    return found


@pytest.mark.parametrize("name", OBJECTS)
def test_a_secret_is_found_wherever_it_is_and_never_repeated(tmp_path: Path, name: str) -> None:
    """And the same object without one passes."""
    make, place = OBJECTS[name]
    assert place in refused(codecs.encode(make(KEY), tmp_path).path)
    assert looked(codecs.encode(make("harmless"), tmp_path).path)


def test_a_secret_across_the_edge_of_two_pieces_is_found(tmp_path: Path) -> None:
    """Of what is read at once from a file, and of what is asked at once of one cell: cut after its first letters."""

    def text(at: int) -> str:
        return "x " * ((at - 4) // 2) + KEY + " y" * 50_000

    path = tmp_path / "text.txt"
    path.write_text(text(secretscan._READ))  # pyright: ignore[reportPrivateUsage]
    refused(path)
    refused(codecs.encode(pd.DataFrame({"a": [text(secretscan.PIECE)]}), tmp_path).path)


def test_every_text_is_asked_about_and_two_cells_do_not_look_like_one(tmp_path: Path) -> None:
    """A key word in one cell and a value in the next are no assignment."""
    frame = pd.DataFrame({"a": ["password:", "x7Kq9ZpLw2"], "b": ["one", "two"]})
    asked = looked(codecs.encode(frame, tmp_path).path)
    told = json.dumps(asked)
    assert all(word in told for word in ("password:", "x7Kq9ZpLw2", "one", "two"))


def test_files_are_looked_into_where_they_can_be(tmp_path: Path) -> None:
    """A zip by its members; wide letters; what is compressed otherwise is refused, as is a damaged or nested one."""
    packed = tmp_path / "a.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", f"the key is {KEY}")
    refused(packed)
    wide = tmp_path / "wide.txt"
    wide.write_text(f"the key is {KEY}", "utf-16")
    refused(wide)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("inner.zip", packed.read_bytes())
    closed = {"a.gz": gzip.compress(KEY.encode()), "b.zip": packed.read_bytes()[:40], "c.zip": inner.getvalue()}
    for name, data in closed.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(errors.NotExact, match="cannot look into it, so nothing was recorded"):
            looked(tmp_path / name)
    plain = tmp_path / "plain.txt"
    plain.write_text("%PDF and BZh are how such files begin.")
    assert looked(plain)


def test_a_host_that_cannot_look_records_nothing(tmp_path: Path) -> None:
    """A foreign one, and one that says nothing."""
    path = tmp_path / "a.txt"
    path.write_text("x")
    with pytest.raises(errors.Unsupported, match="nothing was recorded"):
        looked(path, Host(False))
    steps = secretscan.refuse(path, Host(True))
    work: Any = next(steps)
    steps.send(work.run())
    with pytest.raises(errors.Unsupported, match="nothing was recorded"):
        steps.send({})


def test_another_word_is_refused_before_anything_is_done() -> None:
    """By name."""
    with pytest.raises(errors.Invalid, match='secrets must be "keep"'):
        next(recording.record({"a": 1}, title="t", secrets="maybe"))  # type: ignore[arg-type]


def _steps(steps: Steps[Any], exports: Path) -> Iterator[Ask]:
    sent: Any = None
    while True:
        step = steps.send(sent)
        if isinstance(step, Meet):
            sent = Host(True, session_dir=exports.parent)
        elif isinstance(step, Work):
            sent = step.run()
        else:
            yield step
            sent = {"findings": SCAN(step.payload["texts"])} if step.kind == wire.SCAN else {}


def test_a_refused_record_leaves_no_file_and_asks_for_no_commit(tmp_path: Path) -> None:
    """Only the look happened."""
    exports = tmp_path / "exports"
    exports.mkdir()
    asked = _steps(recording.record({"a": KEY}, title="t", secrets="refuse"), exports)
    assert next(asked).kind == wire.SCAN
    with pytest.raises(errors.Denied):
        next(asked)
    assert list(exports.iterdir()) == []


@pytest.mark.kernel
def test_a_real_host_looks_and_the_same_result_is_recorded_without_the_word(start_kernel: Callable[..., Any]) -> None:
    """By default the bytes are exact and not looked at."""
    kernel = start_kernel()
    code = (
        "%load_ext rlm_memory\nimport pandas as pd\ne = memory.experiments\n"
        "frame = pd.DataFrame({'a': ['x', 'sk-ant-api03-' + 'Ab1' * 30]})\n"
        "try:\n    e.record(frame, title='one', secrets='refuse')\n"
        "except memory.errors.Denied as error:\n    print(error.code, 'Ab1' in str(error), 'column 1' in str(error))\n"
        "print(len(e.search('')))\n"
        "print(len(e.load(e.record(frame[:1], title='two', secrets='refuse'))))\n"
        "print(len(e.load(e.record(frame, title='three'))))"
    )
    assert kernel.run(code).ok().splitlines()[-4:] == ["GUARD_SECRET False True", "0", "1", "2"]


def _zip(comment: str = "", note: str = "", text: str = "harmless") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        member = zipfile.ZipInfo("notes.txt")
        member.comment, archive.comment = note.encode(), comment.encode()
        archive.writestr(member, text)
    return packed.getvalue()


def _rows(key: str) -> bytes:
    """Rows of two fields, whose texts stand one right behind the other."""
    told = io.BytesIO()
    np.save(told, np.array([("abc", key)], dtype=[("a", "S3"), ("b", "S200")]))
    return told.getvalue()


def _parquet(name: str, key: str) -> bytes:
    """No row, so that only the schema says anything; Parquet keeps a field's notes in Arrow's copy of the schema."""
    pa = libraries.pyarrow()
    inner = pa.field(key if name else "x", pa.int64(), metadata={} if name else {"note": key})
    told = io.BytesIO()
    libraries.parquet().write_table(pa.schema([pa.field("deep", pa.list_(pa.struct([inner])))]).empty_table(), told)
    return told.getvalue()


FILES: dict[str, Callable[[str], bytes]] = {
    "a zip's comment": lambda key: _zip(comment=key),
    "a member's comment": lambda key: _zip(note=key),
    "a zip with something before it": lambda key: b"#!/bin/sh\n" + _zip(text=key),
    "before a zip": lambda key: key.encode() + b"\n" + _zip(),
    "behind a zip": lambda key: _zip() + b"\n" + key.encode(),
    "behind an empty zip": lambda key: b"PK\x05\x06" + b"\x00" * 18 + key.encode(),
    "rows of an array": _rows,
    "wide texts with room behind them": lambda key: ("abc".ljust(9, "\x00") + key).encode("utf-32-le"),
    "the notes of a field": lambda key: _parquet("", key),
    "the name of a field inside another": lambda key: _parquet("name", key),
}


@pytest.mark.parametrize("name", FILES)
def test_a_secret_is_found_in_the_corners_of_a_file(tmp_path: Path, name: str) -> None:
    """Beside what a reader of the file looks at first; the same file without one passes."""
    path = tmp_path / "a.bin"
    path.write_bytes(FILES[name](KEY))
    refused(path)
    path.write_bytes(FILES[name]("harmless"))
    looked(path)


@pytest.mark.parametrize("level", [1, 5, 6, 9])
def test_a_file_that_hides_its_texts_is_not_recorded(tmp_path: Path, level: int) -> None:
    """zlib at every level, LZMA without a container, a database of SQLite, whose texts stand one behind the other."""
    database = tmp_path / "a.db"
    with contextlib.closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("create table notes (a, b)")
        opened.execute("insert into notes values ('abc', ?)", (KEY,))
    path = tmp_path / "a.bin"
    alone = lzma.compress(KEY.encode(), format=lzma.FORMAT_ALONE)
    for data in (zlib.compress(KEY.encode(), level), alone, database.read_bytes()):
        path.write_bytes(data)
        with pytest.raises(errors.NotExact, match="cannot look into it, so nothing was recorded"):
            looked(path)
