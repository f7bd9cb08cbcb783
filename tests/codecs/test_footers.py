"""What our own reader says of a Parquet footer: the same as pyarrow's, and of a damaged one nothing but that it is."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rlm_memory import codecs, errors
from rlm_memory.codecs import chunks, common_types, footers, notes, page_checks, parquet_file, thrift
from rlm_memory.codecs.footers import Footer

pytestmark = pytest.mark.compat


def _some(type_: pa.DataType, make: Callable[[random.Random], Any]) -> Callable[[random.Random, int], pa.Array]:
    def cells(rng: random.Random, rows: int) -> pa.Array:
        missing = rng.choice([0.0, 0.3, 1.0])
        made: list[Any] = [None if rng.random() < missing else make(rng) for _ in range(rows)]
        return pa.array(made, type_, from_pandas=False)

    return cells


def _within(bits: int, signed: bool) -> Callable[[random.Random], int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return lambda rng: rng.choice([low, high, rng.randint(low, high), 0])


def _text(rng: random.Random) -> str:
    return rng.choice(["", "a", "\x19\x18\x05group", "grün" * rng.randint(1, 40), "\U0001f600", "x" * 5000])


def _double(rng: random.Random) -> float:
    return rng.choice([0.0, -0.0, float("nan"), float("inf"), -1e308, rng.random()])


_INTS = {f"{'' if signed else 'u'}int{bits}": (bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)}
KINDS: dict[str, Callable[[random.Random, int], pa.Array]] = {
    **{name: _some(getattr(pa, name)(), _within(*of)) for name, of in _INTS.items()},
    "bool": _some(pa.bool_(), lambda rng: rng.random() < 0.5),
    "float16": _some(pa.float16(), lambda rng: np.float16(rng.random())),
    "float32": _some(pa.float32(), lambda rng: float(np.float32(rng.random()))),
    "float64": _some(pa.float64(), _double),
    "string": _some(pa.string(), _text),
    "large_string": _some(pa.large_string(), _text),
    "string_view": _some(pa.string_view(), _text),
    "binary": _some(pa.binary(), lambda rng: rng.randbytes(rng.randint(0, 90))),
    "fixed": _some(pa.binary(5), lambda rng: rng.randbytes(5)),
    "date32": _some(pa.date32(), lambda rng: rng.randint(-9999, 9999)),
    "time64": _some(pa.time64("us"), lambda rng: rng.randint(0, 10**9)),
    "duration": _some(pa.duration("us"), lambda rng: rng.randint(0, 10**9)),
    "decimal": _some(pa.decimal128(9, 2), lambda rng: Decimal(rng.randint(-999, 999)) / 4),
    "null": _some(pa.null(), lambda _: None),
    "list": _some(pa.list_(pa.int32()), lambda rng: [rng.randint(0, 9)] * rng.randint(0, 3)),
    "struct": _some(pa.struct({"a": pa.int8(), "b": pa.list_(pa.string())}), lambda _: {"a": 1, "b": ["x"]}),
    "deep": _some(pa.list_(pa.struct({"a": pa.list_(pa.list_(pa.int8()))})), lambda _: [{"a": [[1]]}]),
    **{
        f"timestamp {unit} {zone}": _some(pa.timestamp(unit, zone), lambda rng: rng.randint(-(10**12), 10**12))
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin")
    },
    "coded": lambda rng, rows: _some(pa.string(), _text)(rng, rows).dictionary_encode(),
    "coded numbers": lambda rng, rows: _some(pa.int64(), _within(64, True))(rng, rows).dictionary_encode(),
}


def tables(seed: int) -> Iterator[tuple[pa.Table, dict[str, Any]]]:
    """Tables of some of the kinds, and how they are written."""
    rng = random.Random(seed)
    for _ in range(12):
        rows = rng.choice([0, 1, 7, 60])
        names = rng.sample(list(KINDS), rng.randint(1, 12))
        labels = [f"{name}.{at}" + "ü" * rng.choice([0, 0, 40]) for at, name in enumerate(names)]
        table = pa.table([KINDS[name](rng, rows) for name in names], names=labels)
        yield (
            table.replace_schema_metadata({"about": "x" * rng.choice([0, 300])}),
            {
                "row_group_size": rng.choice([1, 7, 100]),
                "compression": rng.choice(["none", "zstd"]),
                "write_statistics": rng.choice([True, True, labels[:1], False]),
                "use_dictionary": rng.choice([True, False]),
                "data_page_version": rng.choice(["1.0", "2.0"]),
                "write_page_index": rng.choice([True, False]),
                "write_page_checksum": True,
                "store_schema": rng.choice([True, True, False]),
            },
        )


@pytest.fixture(params=["quick", "by the protocol"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways over the descriptions of column chunks."""
    monkeypatch.setattr(chunks, "MANY", 0 if request.param == "quick" else sys.maxsize)
    return request.param


@pytest.mark.usefixtures("walk")
@pytest.mark.parametrize("seed", range(8))
def test_our_reader_says_what_pyarrow_says(seed: int, tmp_path: Path) -> None:
    """Row groups, columns, where pages lie, notes, bounds: of tables of all types, with and without statistics."""
    for at, (table, options) in enumerate(tables(seed)):
        path = tmp_path / f"{at}.parquet"
        pq.write_table(table, path, version="2.6", **options)
        footer, file = Footer(footers.octets_of(path)), pq.ParquetFile(path)
        metadata = file.metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        assert footer.edges == [0, *np.cumsum(rows)]
        assert footer._key_values == (metadata.metadata or {})
        paths = [file.schema.column(leaf).path for leaf in range(len(file.schema))]
        assert [(name, len(leaves)) for name, leaves in footer.leaves.items()] == [
            (name, sum(path == name or path.startswith(f"{name}.") for path in paths)) for name in table.column_names
        ]
        assert [leaf for leaves in footer.leaves.values() for leaf in leaves] == list(range(len(paths)))
        full = [group for group, count in enumerate(rows) if count]  # a group without rows need not have pages
        for group in full:
            for leaf in range(len(paths)):
                column, chunk = metadata.row_group(group).column(leaf), footer.chunk(group, leaf)
                pages = (column.dictionary_page_offset if column.has_dictionary_page else 0, column.data_page_offset)
                assert chunk.start == min(page for page in pages if page)
                assert chunk.stop - chunk.start == column.total_compressed_size
        for name in table.column_names:
            _same_bounds(footer, metadata, name)
        page_checks.verify(path, footer, table.column_names, full)


def _same_bounds(footer: Footer, metadata: Any, name: str) -> None:
    for group, bounds in enumerate(footer.bounds(name)):
        leaf = footer.leaves[name][0]
        said = metadata.row_group(group).column(leaf).statistics
        if bounds is None:
            assert footer.common[name] is None or said is None or not said.has_min_max
            continue
        times = said.logical_type.type == "TIMESTAMP"
        assert bounds == ((said.min_raw, said.max_raw) if times else (said.min, said.max))


def test_what_we_write_is_walked_over_quickly(tmp_path: Path) -> None:
    """The expression for the usual description takes each of ours; the protocol would take ten times as long."""
    footer = Footer(_recorded(tmp_path))
    taken = [chunks._usual().match(footer.octets, at) for at in footer._starts]
    assert len(taken) >= 6
    assert sum(one is None for one in taken) <= 1  # the leaf of a list has a longer path


@pytest.mark.parametrize("kind", KINDS)
def test_types_are_told_as_polars_reads_them(kind: str, tmp_path: Path) -> None:
    """A common type is that of polars from the same Arrow column, and none is common that polars gives back changed."""
    pl = pytest.importorskip("polars")
    table = pa.table({"plain": pa.array([1] * 9), "it": KINDS[kind](random.Random(1), 9)})
    pq.write_table(table, tmp_path / "one.parquet", version="2.6")
    footer = parquet_file.footer_of(tmp_path / "one.parquet")
    one = footer.common["it"]
    expected = kind in _INTS or kind in ("bool", "float32", "float64", "string", "large_string", "coded")
    assert (one is not None) == (expected or kind.startswith("timestamp"))
    if one is not None:
        wanted = pl.from_arrow(pq.ParquetFile(tmp_path / "one.parquet").schema_arrow.empty_table()).schema["it"]
        assert common_types.polars_type(pl, one) == wanted


def test_types_without_an_arrow_schema_or_with_more_to_them_are_left_to_pyarrow(tmp_path: Path) -> None:
    """An extension type is its storage in Parquet; only the Arrow schema tells."""
    storage = pa.array([1, 0], pa.int8())
    table = pa.table({"truth": pa.ExtensionArray.from_storage(pa.bool8(), storage), "plain": storage})
    pq.write_table(table, tmp_path / "one.parquet", version="2.6")
    assert Footer(footers.octets_of(tmp_path / "one.parquet")).common == {"truth": None, "plain": ("Int8",)}
    pq.write_table(table, tmp_path / "two.parquet", version="2.6", store_schema=False)
    assert set(Footer(footers.octets_of(tmp_path / "two.parquet")).common.values()) == {None}


def _recorded(folder: Path) -> bytes:
    frame = pd.DataFrame(
        {
            "k": np.arange(60),
            "f": np.arange(60) / 8,
            "name": pd.array([f"n{at}" for at in range(60)], dtype="string[pyarrow]"),
            "when": pd.date_range("2030", periods=60, tz="UTC"),
            "kind": pd.Categorical(["a", "b"] * 30),
            "cells": [[1, 2], [3]] * 30,
        }
    )
    return footers.octets_of(codecs.encode(frame, folder).path)


def _ask(octets: bytes) -> None:
    """Everything that is asked of a footer. Nothing but these errors may come of it."""
    try:
        footer = Footer(octets)
        assert footer.edges[-1] >= 0
        for name in footer.leaves:
            footer.bounds(name)
        for group in range(len(footer.edges) - 1):
            for leaf in range(sum(map(len, footer.leaves.values()))):
                footer.chunk(group, leaf)
        assert isinstance(footer.common, dict)
        assert isinstance(footer.note, dict)
    except (errors.Integrity, errors.Unsupported):
        return


@pytest.mark.usefixtures("walk")
def test_a_footer_with_changed_octets_is_read_or_called_damaged(tmp_path: Path) -> None:
    """Every third octet in turn, in several ways; and several at once."""
    octets, rng = _recorded(tmp_path), random.Random(0)
    for at in range(0, len(octets), 3):
        for change in (0xFF, 1 << rng.randrange(8)):
            _ask(octets[:at] + bytes([octets[at] ^ change]) + octets[at + 1 :])
    for _ in range(500):
        changed = bytearray(octets)
        for _ in range(rng.randint(2, 30)):
            changed[rng.randrange(len(changed))] = rng.choice([0, 0xFF, 0x19, 0x1C, rng.randrange(256)])
        _ask(bytes(changed))


@pytest.mark.usefixtures("walk")
def test_a_footer_that_ends_early_is_called_damaged(tmp_path: Path) -> None:
    """Cut at each octet, from either end."""
    octets = _recorded(tmp_path)
    for at in range(len(octets)):
        with pytest.raises(errors.Integrity):
            Footer(octets[:at])
        _ask(octets[at:])


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\x19\xf1" + b"\xff" * 9 + b"\x01",  # a list of 2**63 truth values
        b"\x19\xfc" + b"\xff" * 9 + b"\x01",
        b"\x18" + b"\xff" * 9 + b"\x01",  # text that is as long
        b"\x1c" * 5000,  # structs in structs
        b"\x19\x19" * 5000,
        b"\x16" + b"\xff" * 5000,  # a number without end
        b"\x1b\x00",  # a kind that Parquet lacks
        b"\x49\x1c\x19\xfc\xff\xff\xff\xff\x0f",
    ],
)
def test_no_octets_keep_the_reader_busy(octets: bytes) -> None:
    """Counts and depths are bounded by what is there."""
    with pytest.raises(errors.Integrity):
        Footer(octets)
    with pytest.raises(LookupError):
        thrift.record(octets, 0)


@pytest.mark.parametrize("octets", [b"", b"PAR1", b"PAR1\xff\xff\xff\xffPAR1", b"PAR1\x00\x00\x00\x00PARE", b"x" * 100])
def test_a_file_that_is_not_parquet_is_called_damaged(octets: bytes, tmp_path: Path) -> None:
    """Short, without the mark, or with a length that it does not have."""
    path = tmp_path / "no.parquet"
    path.write_bytes(octets)
    with pytest.raises(errors.Integrity):
        codecs.decode(path, "application/vnd.apache.parquet; codec=frame")


def test_notes_that_are_not_json_are_called_damaged() -> None:
    """Text, lists and endless nesting under our key."""
    for text in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
        with pytest.raises(errors.Integrity):
            notes.loads({notes.KEY: text})


def test_notes_that_changed_are_called_damaged_and_those_without_a_checksum_are_read(tmp_path: Path) -> None:
    """Parquet has no checksum for its footer, and a changed dtype in the notes would be another result."""
    text = Footer(_recorded(tmp_path))._key_values[notes.KEY]
    said = notes.loads({notes.KEY: text})
    for at in range(len(text) - 20):
        changed = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        with pytest.raises((errors.Integrity, errors.Unsupported)):
            notes.loads({notes.KEY: changed})
    older = text[: text.rindex(b',"check"')] + b"}"
    assert notes.loads({notes.KEY: older}) == {key: one for key, one in said.items() if key != "check"}


PARTS: list[dict[str, Any]] = [
    {"filters": [("name", "in", ["n1", "n7"])], "as_": "polars"},
    {"filters": [("k", ">", 5)]},
    {"as_": "polars"},
    {"rows": (3, 9)},
    {},
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_file_with_a_changed_footer_loads_as_it_was_or_is_called_damaged(seed: int, tmp_path: Path) -> None:
    """Whole and in part, through either engine."""
    rng = random.Random(seed)
    octets = _recorded(tmp_path)
    path = next(tmp_path.glob("*.parquet"))
    whole = path.read_bytes()
    media = "application/vnd.apache.parquet; codec=frame"
    expected = [codecs.decode(path, media, **part) for part in PARTS]
    for at in range(60):
        changed = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(whole) - len(octets) - 8, len(whole) - 4)] ^= 1 << rng.randrange(8)
        copy = tmp_path / f"{at}.parquet"
        copy.write_bytes(changed)
        for part, was in zip(PARTS, expected, strict=True):
            try:
                found = codecs.decode(copy, media, **part)
            except (errors.Integrity, errors.Unsupported):
                continue
            assert found.equals(was)


PROGRAM = """
import sys
from pathlib import Path
import polars as pl
from rlm_memory import codecs
parts = [
    {"columns": ["name", "f"], "filters": [("name", "in", ["n1", "n7"])]},
    {"filters": [("k", ">=", 50), ("f", "<", 7.0)]},
    {"filters": [("cells", "==", "x")]},
    {"rows": (10, 20)},
    {"columns": ["when"]},
    {},
]
for path in sys.argv[1:]:
    for part in parts:
        found = codecs.decode(Path(path), "application/vnd.apache.parquet; codec=frame", as_="polars", **part)
        assert isinstance(found, pl.DataFrame)
        print(found.height, *sorted({"numpy", "pandas", "pyarrow"} & set(sys.modules)))
"""


def test_a_slice_that_ends_in_polars_imports_neither_pyarrow_nor_pandas(tmp_path: Path) -> None:
    """In a fresh process: by a filter, by rows, and whole."""
    pytest.importorskip("polars")
    frame = pd.DataFrame(
        {
            "k": np.arange(60),
            "f": np.arange(60) / 8,
            "name": pd.array([f"n{at}" for at in range(60)], dtype="string[pyarrow]"),
            "when": pd.date_range("2030", periods=60, tz="Europe/Berlin"),
            "cells": np.array(["x", "y", None] * 20, dtype=object),
        },
        index=pd.Index(np.arange(60), name="label"),
    )
    path = codecs.encode(frame, tmp_path).path
    said = subprocess.check_output([sys.executable, "-c", PROGRAM, str(path)], text=True)
    assert said.splitlines() == ["2", "6", "20", "10", "60", "60"]
