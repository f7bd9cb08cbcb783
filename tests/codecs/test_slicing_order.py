"""Rows, samples and filters together give the rows that pandas gives, each beside its own label."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlm_memory import codecs, errors
from rlm_memory.codecs import parquet_file
from same import assert_same

pytestmark = pytest.mark.compat

SIZE = 23
STR = pd.StringDtype("pyarrow", na_value=np.nan)
"""What pandas 3 calls str, named so that both pandas lines make it."""


@pytest.fixture(autouse=True)
def tiny_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several row groups in a file of a few rows."""
    monkeypatch.setattr(parquet_file, "group_rows", lambda table: 4)


def table(index: str) -> pd.DataFrame:
    """Each row holds its own position, under one of three sorts of labels."""
    at = np.arange(SIZE)
    labels = {
        "range": pd.RangeIndex(100, 100 + 3 * SIZE, 3, name="row"),
        "labels": pd.Index([f"row {i}" for i in at], dtype=STR),
        "days": pd.DatetimeIndex(pd.date_range("2030-01-01", periods=SIZE, freq="D").to_numpy()),
    }[index]
    text = pd.array([None if i % 5 == 0 else f"t{i % 4}" for i in at], dtype=STR)
    return pd.DataFrame({"at": at, "s": text, "f": at / 2}, index=labels)


ENDS = st.none() | st.integers(-SIZE - 3, SIZE + 3)
SLICES = st.builds(slice, ENDS, ENDS, st.none() | st.integers(-5, 5).filter(bool))
RANGES = st.builds(range, st.integers(0, SIZE - 1), st.integers(-1, SIZE), st.integers(-5, 5).filter(bool))
FILTERS: list[tuple[str, str, Any]] = [
    ("at", ">", 4),
    ("at", "in", [0, 3, 4, 11, 22]),
    ("s", "!=", "t1"),
    ("s", "==", "t2"),
    ("f", "<=", 8.0),
]


def kept(frame: pd.DataFrame, condition: tuple[str, str, Any] | None) -> pd.DataFrame:
    """The rows that pandas' mask leaves."""
    if condition is None:
        return frame
    name, op, value = condition
    masks: dict[str, Callable[[], Any]] = {
        ">": lambda: frame[name] > value,
        "<=": lambda: frame[name] <= value,
        "==": lambda: frame[name] == value,
        "!=": lambda: frame[name] != value,
        "in": lambda: frame[name].isin(value),
    }
    return frame[masks[op]()]


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    index=st.sampled_from(["range", "labels", "days"]),
    rows=st.none() | SLICES | RANGES,
    sample=st.none() | st.integers(0, SIZE + 2) | st.floats(0, 1),
    seed=st.integers(0, 3),
    condition=st.none() | st.sampled_from(FILTERS),
    columns=st.none() | st.lists(st.sampled_from(["at", "s", "f"]), min_size=1, unique=True),
)
def test_parts_are_what_pandas_cuts(
    index: str,
    rows: Any,
    sample: Any,
    seed: int,
    condition: Any,
    columns: Any,
    engine: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Values, labels and order, for any step, over several row groups; a sample is drawn in the order of the rows."""
    frame = table(index)
    cut = frame if rows is None else frame.iloc[list(rows) if isinstance(rows, range) else rows]
    wanted = kept(cut, condition)
    if sample is not None:
        count = min(sample, len(wanted)) if isinstance(sample, int) else round(sample * len(wanted))
        drawn = np.random.default_rng(seed).choice(len(wanted), size=count, replace=False)
        wanted = wanted.iloc[np.sort(drawn)]
    wanted = wanted if columns is None else wanted[columns]
    encoded = codecs.encode(frame, tmp_path_factory.mktemp("file"))
    back = codecs.decode(
        encoded.path,
        encoded.media_type,
        rows=rows,
        sample=sample,
        seed=seed,
        filters=None if condition is None else [condition],
        columns=columns,
    )
    pd.testing.assert_frame_equal(back, wanted, check_index_type=False, check_freq=False)


def test_a_sample_of_rows_read_backwards_keeps_each_row_beside_its_label(there_and_back: Callable[..., Any]) -> None:
    """The rows come from several row groups in descending order."""
    back = there_and_back(table("range"), rows=slice(None, None, -1), sample=9)
    assert back.index.tolist() == [100 + 3 * at for at in back["at"]]
    assert back["at"].is_monotonic_decreasing
    assert len(back) == 9


@pytest.mark.parametrize("rows", [range(5, -1, -1), range(3, 9), range(0, 23, 7), range(4, 4), range(9, 2)])
@pytest.mark.parametrize("kind", ["frame", "array", "series"])
def test_a_range_is_exactly_its_positions(rows: range, kind: str, there_and_back: Callable[..., Any]) -> None:
    """One that ends before the first row reaches it, in tables and arrays alike."""
    frame = table("range")
    obj = {"frame": frame, "array": frame["at"].to_numpy(), "series": frame["f"]}[kind]
    back = there_and_back(obj, rows=rows)
    if kind == "array":
        assert_same(np.ascontiguousarray(obj[list(rows)]), back)
    else:
        assert back.index.tolist() == obj.index[list(rows)].tolist()
        assert back.to_numpy().tolist() == obj.iloc[list(rows)].to_numpy().tolist()


@pytest.mark.parametrize("rows", [range(-2, 2), range(20, 24), range(3, -2, -1), range(10**30, 10**31)])
@pytest.mark.parametrize("sample", [None, 2])
@pytest.mark.parametrize("kind", ["frame", "array"])
def test_a_range_with_positions_outside_is_refused(
    rows: range, sample: int | None, kind: str, there_and_back: Callable[..., Any]
) -> None:
    """It neither counts from the end nor loses rows silently."""
    obj = table("range") if kind == "frame" else np.arange(SIZE)
    with pytest.raises(errors.Invalid, match="rows: range"):
        there_and_back(obj, rows=rows, sample=sample)


@pytest.mark.parametrize("sample", [float("nan"), float("inf"), -0.5, np.float64("nan")])
@pytest.mark.parametrize("kind", ["frame", "array", "filtered"])
def test_a_sample_that_is_no_number_of_rows_is_refused(
    sample: float, kind: str, there_and_back: Callable[..., Any]
) -> None:
    """By name, from tables and arrays."""
    obj = np.arange(SIZE) if kind == "array" else table("range")
    part = {"filters": [("at", ">", 3)]} if kind == "filtered" else {}
    with pytest.raises(errors.Invalid, match="sample"):
        there_and_back(obj, sample=sample, **part)


@pytest.mark.parametrize("seed", [-1, "x", 1.5])
def test_a_seed_that_draws_nothing_is_refused(seed: Any, there_and_back: Callable[..., Any]) -> None:
    """By name."""
    with pytest.raises(errors.Invalid, match="seed"):
        there_and_back(table("range"), sample=3, seed=seed)


TEXT: dict[str, Any] = {
    "str": pd.Series(["5", None, "a"], dtype=STR),
    "string": pd.Series(["5", None, "a"], dtype="string"),
    "python": pd.Series(["5", None, "a"], dtype="string[python]"),
    "object": pd.Series(["5", None, "a"], dtype=object),
    "category": pd.Series(["5", None, "a"], dtype="category"),
    "arrow": pd.Series(["5", None, "a"], dtype=pd.ArrowDtype(pa.string())),
    "dictionary": pd.Series(["5", None, "a"], dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
}
OCTETS: dict[str, Any] = {
    "object": pd.Series([b"5", None, b"a"], dtype=object),
    "arrow": pd.Series([b"5", None, b"a"], dtype=pd.ArrowDtype(pa.binary())),
    "fixed": pd.Series([b"5", None, b"a"], dtype=pd.ArrowDtype(pa.binary(1))),
}
CASES = [pytest.param(s, b"5", id=f"bytes-{k}") for k, s in TEXT.items()]
CASES += [pytest.param(s, bytearray(b"5"), id=f"bytearray-{k}") for k, s in TEXT.items()]
CASES += [pytest.param(s, "5", id=f"text-{k}") for k, s in OCTETS.items()]


@pytest.mark.parametrize("op", ["==", "!=", "<", "in", "not in"])
@pytest.mark.parametrize(("column", "value"), CASES)
def test_bytes_and_text_are_never_cast_into_one_another(
    column: Any, value: Any, op: str, engine: str, there_and_back: Callable[..., Any]
) -> None:
    """Whatever dtype holds the column: refused, with the column and the value's type named."""
    with pytest.raises(errors.Invalid, match=r"'s'.*(str|bytes)"):
        there_and_back(column.to_frame("s"), filters=[("s", op, [value] if "in" in op else value)])


@pytest.mark.parametrize("column", [pytest.param(s, id=k) for k, s in OCTETS.items()])
@pytest.mark.parametrize("value", [b"5", bytearray(b"5")])
def test_bytes_match_bytes(column: Any, value: Any, there_and_back: Callable[..., Any]) -> None:
    """A bytearray as its bytes."""
    frame = column.to_frame("s")
    assert len(there_and_back(frame, filters=[("s", "==", value)])) == 1
    assert len(there_and_back(frame, filters=[("s", "in", [value])])) == 1


@pytest.mark.parametrize("value", ["5", b"5", "true", "2030-01-01"])
@pytest.mark.parametrize(
    "column",
    [
        pd.Series([5, 6], dtype=pd.ArrowDtype(pa.int64())),
        pd.Series([5.0, None], dtype=pd.ArrowDtype(pa.float64())),
        pd.Series([True, False], dtype=pd.ArrowDtype(pa.bool_())),
        pd.Series(pd.to_datetime(["2030-01-01", "2030-01-02"]), dtype=pd.ArrowDtype(pa.timestamp("us"))),
        pd.Series([5, 6], dtype="Int64"),
        pd.Series([5, 6]),
    ],
    ids=["int64", "float64", "bool", "timestamp", "Int64", "numpy"],
)
def test_membership_does_not_parse_text(column: Any, value: Any, there_and_back: Callable[..., Any]) -> None:
    """No row of numbers or times is among texts, as no row equals one."""
    frame = column.to_frame("s")
    assert len(there_and_back(frame, filters=[("s", "in", [value])])) == 0
    assert len(there_and_back(frame, filters=[("s", "not in", [value])])) == 2


def test_text_filters_of_arrow_tables_are_not_cast_either(tmp_path: Path) -> None:
    """Recorded Arrow tables answer as frames do."""
    encoded = codecs.encode(pa.table({"s": ["5", "a"], "b": [b"5", b"a"]}), tmp_path)
    for condition in (("s", "==", b"5"), ("b", "==", "5"), ("s", "in", [b"5"])):
        with pytest.raises(errors.Invalid, match="filters"):
            codecs.decode(encoded.path, encoded.media_type, filters=[condition])
    assert codecs.decode(encoded.path, encoded.media_type, filters=[("b", "==", b"5")]).num_rows == 1
