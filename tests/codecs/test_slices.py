"""Parts of recorded tables equal what pandas cuts from the whole, whichever engine reads them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlm_memory import codecs, errors
from rlm_memory.codecs import parquet_file
from same import assert_same

pytestmark = pytest.mark.compat


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many row groups in small files, so that pruning is at work."""
    monkeypatch.setattr(parquet_file, "group_rows", lambda table: 7)


def table(size: int = 50) -> pd.DataFrame:
    """Every kind that a filter can be about, with its missing values."""
    at = np.arange(size)
    floats = at / 4
    floats[::5] = np.nan
    text = np.array([f"t{i % 9}" for i in at], dtype=object)
    holes = text.copy()
    holes[::4] = None
    days = pd.Series(pd.date_range("2030-01-01", periods=size, freq="h").as_unit("s"))
    return pd.DataFrame(
        {
            "i": at - 20,
            "f": floats,
            "n": pd.array([None if i % 3 == 0 else int(i) for i in at], dtype="Int16"),
            "b": at % 2 == 0,
            "s": pd.array(holes, dtype=pd.StringDtype("pyarrow", na_value=pd.NA)),
            "z": pd.array(holes, dtype=pd.StringDtype("python", na_value=np.nan)),
            "o": pd.Series(holes, dtype=object),
            "c": pd.Categorical(holes, categories=[*sorted(set(text), reverse=True), "unused"], ordered=True),
            "t": days.where(at % 6 != 0),
            "k": days.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"),
            "u": (at.astype("uint64") + 2**63),
            "x": pd.Series([1, "a"] * (size // 2), dtype=object),
        },
        index=pd.RangeIndex(100, 100 - 2 * size, -2, name="row"),
    )


OPS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def by_pandas(frame: pd.DataFrame, filters: list[Any]) -> pd.DataFrame:
    """The rows that pandas' own masks leave."""
    keep = np.zeros(len(frame), dtype=bool)
    for some in filters if isinstance(filters[0], list) else [filters]:
        mask = np.ones(len(frame), dtype=bool)
        for name, op, value in some:
            if op in ("in", "not in"):
                found = frame[name].isin(value)
                found = ~found if op == "not in" else found
            else:
                found = getattr(frame[name], OPS[op])(value)
            mask &= found.fillna(False).to_numpy(dtype=bool)
        keep |= mask
    out = frame[keep]
    return out.set_axis(pd.Index(out.index.to_numpy(), name=out.index.name), axis=0)


VALUES: dict[str, Any] = {
    "i": st.integers(-25, 35) | st.floats(-25, 35),
    "f": st.floats(0, 13) | st.integers(0, 13) | st.just(float("nan")),
    "n": st.integers(-1, 51),
    "b": st.booleans(),
    "s": st.sampled_from(["t0", "t3", "t8", "q", ""]),
    "z": st.sampled_from(["t0", "t3", "t8", "q", ""]),
    "o": st.sampled_from(["t0", "t3", "t8", "q", ""]),
    "c": st.sampled_from(["t0", "t3", "t8", "unused"]),
    "t": st.integers(0, 60).map(lambda n: pd.Timestamp("2030-01-01") + pd.Timedelta(hours=n)),
    "k": st.integers(0, 60).map(lambda n: pd.Timestamp("2030-01-01", tz="UTC") + pd.Timedelta(hours=n)),
    "u": st.integers(2**63 - 3, 2**63 + 55),
    "x": st.sampled_from([1, "a", 2]),
}


@st.composite
def conditions(draw: Any) -> tuple[str, str, Any]:
    """One condition that pandas can answer."""
    name = draw(st.sampled_from(sorted(VALUES)))
    ops = ["==", "!=", "in", "not in"] + (["<", "<=", ">", ">="] if name not in ("o", "x") else [])
    op = draw(st.sampled_from(ops))
    value = draw(st.lists(VALUES[name], max_size=3)) if op in ("in", "not in") else draw(VALUES[name])
    return name, op, value


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=st.lists(st.lists(conditions(), min_size=1, max_size=2), min_size=1, max_size=2))
def test_filters_mean_what_pandas_masks_mean(
    some: list[Any], engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """NaN, NA, missing text, ordered categories, zones and integers beyond the signed range, under pruning."""
    frame = table()
    encoded = codecs.encode(frame, tmp_path_factory.mktemp("file"))
    wanted = some[0] if len(some) == 1 else some
    back = codecs.decode(encoded.path, encoded.media_type, filters=wanted)
    assert_same(by_pandas(frame, wanted), back)


def test_columns_and_filters_together_read_only_what_is_asked(engine: str, tmp_path: Path) -> None:
    """The filter's column need not be among the result's."""
    frame = table()
    encoded = codecs.encode(frame, tmp_path)
    back = codecs.decode(encoded.path, encoded.media_type, columns=["s", "f"], filters=[("i", ">", 20)])
    assert_same(by_pandas(frame, [("i", ">", 20)])[["s", "f"]], back)


@pytest.mark.parametrize(
    "rows", [slice(3, 30), (3, 30), slice(None, None, 3), slice(40, 5, -4), slice(-5, None), (60, 70)]
)
def test_rows_are_cut_as_iloc_cuts_them(rows: Any, there_and_back: Callable[..., Any]) -> None:
    """Positions of the recorded object; a range stays a range."""
    frame = table()
    cut = slice(*rows) if isinstance(rows, tuple) else rows
    assert_same(frame.iloc[cut], there_and_back(frame, rows=rows))


def test_rows_keep_the_frequency_of_a_regular_index(there_and_back: Callable[..., Any]) -> None:
    """As `iloc` does; a filter drops it."""
    frame = pd.DataFrame({"v": range(20)}, index=pd.date_range("2030-01-01", periods=20, freq="D"))
    assert there_and_back(frame, rows=(3, 9)).index.freq == frame.index.freq
    assert there_and_back(frame, filters=[("v", ">", 3)]).index.freq is None


def test_a_sample_is_the_same_for_the_same_seed(there_and_back: Callable[..., Any]) -> None:
    """Rows keep their labels and their order; another seed draws others."""
    frame = table()
    first, again, other = (there_and_back(frame, sample=9, seed=seed) for seed in (0, 0, 1))
    assert_same(first, again)
    assert len(first) == 9
    assert not first.index.equals(other.index)
    assert (np.diff(first.index) < 0).all()
    assert len(there_and_back(frame, sample=0.2)) == 10
    kept = there_and_back(frame, sample=3, filters=[("b", "==", True)])
    assert kept["b"].all()
    assert len(kept) == 3


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ({"columns": ["nowhere"]}, "columns"),
        ({"filters": [("nowhere", "==", 1)]}, "nowhere"),
        ({"filters": [("i", ">", "text")]}, "filters"),
        ({"filters": [("i", "~", 1)]}, "operator"),
        ({"filters": [("i", "in", "text")]}, "list"),
        ({"filters": [("i", "==", [1])]}, "'in'"),
        ({"filters": [("o", "<", "t3")]}, "missing"),
        ({"filters": [("x", "<", 3)]}, "order"),
        ({"filters": []}, "filters"),
        ({"rows": 3}, "rows"),
        ({"sample": -1}, "sample"),
        ({"sample": 1.5}, "sample"),
        ({"as_": "pickle"}, "as_"),
    ],
)
def test_a_wrong_part_is_refused_with_the_argument_named(
    part: Any, word: str, there_and_back: Callable[..., Any]
) -> None:
    """Before anything is read: a pruned row group would hide a type error."""
    with pytest.raises(errors.Invalid, match=word):
        there_and_back(table(), **part)


def test_filters_reach_index_levels_by_name(engine: str, tmp_path: Path) -> None:
    """Where no column has the label."""
    frame = table().set_index(["i", "s"])
    encoded = codecs.encode(frame, tmp_path)
    back = codecs.decode(encoded.path, encoded.media_type, columns=["f"], filters=[("i", ">=", 25)])
    assert back.index.get_level_values("i").tolist() == list(range(25, 30))
    assert back.index.names == ["i", "s"]


def test_forms_of_a_recorded_frame(tmp_path: Path) -> None:
    """Arrow, dataset, path and octets of the same file."""
    frame = table()[["i", "s"]]
    encoded = codecs.encode(frame, tmp_path)
    arrow = codecs.decode(encoded.path, encoded.media_type, as_="arrow", filters=[("i", ">", 27)])
    assert arrow.column("i").to_pylist() == [28, 29]
    lazy = codecs.decode(encoded.path, encoded.media_type, as_="dataset")
    assert lazy.count_rows() == 50
    assert codecs.open_lazy(encoded.path, encoded.media_type).schema.names[:2] == ["i", "s"]
    assert codecs.decode(encoded.path, encoded.media_type, as_="path") == encoded.path
    assert codecs.decode(encoded.path, encoded.media_type, as_="bytes")[:4] == b"PAR1"


def test_a_changed_page_is_never_served(engine: str, tmp_path: Path) -> None:
    """One flipped bit in a page that is read: a named error, from either engine and from a whole load."""
    frame = pd.DataFrame({"v": np.random.default_rng(0).random(2000), "g": np.arange(2000)})
    encoded = codecs.encode(frame, tmp_path)
    chunk = pq.ParquetFile(encoded.path).metadata.row_group(3).column(0)
    octets = bytearray(encoded.path.read_bytes())
    octets[chunk.data_page_offset + chunk.total_compressed_size - 5] ^= 1
    encoded.path.chmod(0o600)
    encoded.path.write_bytes(octets)
    for part in ({}, {"filters": [("g", "<", 40)]}, {"rows": (20, 28)}):
        with pytest.raises(errors.Integrity, match="damaged"):
            codecs.decode(encoded.path, encoded.media_type, **part)
    assert len(codecs.decode(encoded.path, encoded.media_type, filters=[("g", ">", 1000)])) == 999


def test_a_slice_of_an_arrow_table_is_an_arrow_table(engine: str, tmp_path: Path) -> None:
    """Schema, metadata and dictionary order stay."""
    original = pa.table(
        {"k": pa.array(range(30), pa.int16()), "d": pa.array(["b", "a", None] * 10).dictionary_encode()}
    )
    encoded = codecs.encode(original, tmp_path)
    back = codecs.decode(encoded.path, encoded.media_type, filters=[("k", "<", 3)])
    assert back.schema.equals(original.schema, check_metadata=True)
    assert back.to_pylist() == original.slice(0, 3).to_pylist()


def test_a_slice_may_be_written_to_and_the_next_one_is_as_recorded(engine: str, tmp_path: Path) -> None:
    """Numbers come without a copy too many, and in memory of their own."""
    frame = table()
    encoded = codecs.encode(frame, tmp_path)
    wanted = [("i", ">=", 0)]
    first = codecs.decode(encoded.path, encoded.media_type, filters=wanted, columns=["i", "f", "b", "s"])
    for name in ("i", "f", "b"):
        assert first[name].array.to_numpy().flags.writeable
        first.loc[first.index[0], name] = first[name].dtype.type(1)
        first[name].array[1] = first[name].array[2]
    again = codecs.decode(encoded.path, encoded.media_type, filters=wanted, columns=["i", "f", "b", "s"])
    assert_same(by_pandas(frame, wanted)[["i", "f", "b", "s"]], again)


def test_a_slice_as_polars_is_what_polars_reads_of_the_file(engine: str, tmp_path: Path) -> None:
    """Types and values, for text, coded text, missing values and times; in the order that was asked for."""
    pl = pytest.importorskip("polars")
    frame = table().reset_index(drop=True)
    encoded = codecs.encode(frame, tmp_path)
    names = ["t", "i", "s", "n", "c", "f", "b", "k"]
    for filters, wanted in (
        ([("i", ">", 3)], pl.col("i") > 3),
        ([("s", "in", ["t1", "t2"])], pl.col("s").is_in(["t1", "t2"])),
    ):
        back = codecs.decode(encoded.path, encoded.media_type, columns=names, filters=filters, as_="polars")
        whole = pl.from_arrow(pq.read_table(encoded.path)).filter(wanted).select(names)
        assert back.columns == names
        assert back.schema == whole.schema
        assert repr(back.rows()) == repr(whole.rows())


def test_other_forms_of_a_slice_need_no_pandas(tmp_path: Path) -> None:
    """Where labels are text and filters compare numbers or text: a fresh process never imports it."""
    pytest.importorskip("polars")
    frame = table()[["i", "f", "s"]].reset_index(drop=True)
    encoded = codecs.encode(frame, tmp_path)
    program = """
import sys
from pathlib import Path
from rlm_memory import codecs
part = {"columns": ["s", "i"], "filters": [("i", ">", 3), ("s", "!=", "t1")]}
found = [codecs.decode(Path(sys.argv[1]), sys.argv[2], as_=form, **part) for form in ("polars", "arrow")]
print([one.shape for one in found], "pandas" in sys.modules)
"""
    said = subprocess.check_output([sys.executable, "-c", program, str(encoded.path), encoded.media_type], text=True)
    rows = len(by_pandas(frame, [("i", ">", 3), ("s", "!=", "t1")]))
    assert said.strip() == f"[({rows}, 2), ({rows}, 2)] False"
