"""What we write, other tools open: plain pandas, pyarrow, polars and DuckDB see sensible columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cases
import pandas as pd
import pyarrow.parquet as pq
import pytest
from rlm_memory import codecs, errors

FRAMES = [name for name in cases.FRAMES if name not in ("np_structured", "geodataframe_two_geometries")]


@pytest.mark.parametrize("name", FRAMES)
def test_every_recorded_case_opens_in_other_tools(name: str, tmp_path: Path) -> None:
    """No reader fails, none loses a row, and no column holds a serialised frame or a pickle."""
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    original = cases.FRAMES[name]()
    try:
        encoded = codecs.encode(original, tmp_path)
    except errors.NotExact:
        pytest.skip("refused by name")
    table = pq.read_table(encoded.path)
    assert table.num_rows == len(original)
    assert len(pd.read_parquet(encoded.path)) == len(original)
    assert pl.read_parquet(encoded.path).height == len(original)
    if table.num_columns < 1000:
        counted = duckdb.sql(f"select count(*) from read_parquet('{encoded.path}')").limit(1).fetchall()
        assert counted == [(len(original),)]
    assert b"\x80\x04\x95" not in encoded.path.read_bytes()


def test_columns_have_the_types_that_a_reader_expects(tmp_path: Path) -> None:
    """Dates are dates, text is text, categories are their labels, periods are their starts."""
    frame = pd.DataFrame(
        {
            "day": pd.to_datetime(["2030-01-01", "2030-01-02"]).as_unit("s"),
            "grade": pd.Categorical([3, 1], categories=[3, 1, 9]),
            "size": pd.Categorical(["lo", "hi"], categories=["hi", "lo"], ordered=True),
            "month": pd.PeriodIndex(["2030-01", "2030-02"], freq="M"),
            "n": pd.array([1, None], dtype="Int8"),
            "bin": pd.IntervalIndex.from_breaks([0.0, 1.0, 2.0]),
        }
    )
    encoded = codecs.encode(frame, tmp_path)
    rows = pq.read_table(encoded.path).to_pylist()
    assert rows[0]["day"].year == 2030
    assert [row["grade"] for row in rows] == [3, 1]
    assert [row["size"] for row in rows] == ["lo", "hi"]
    assert [row["month"].month for row in rows] == [1, 2]
    assert [row["n"] for row in rows] == [1, None]
    assert rows[1]["bin"] == {"left": 1.0, "right": 2.0}


def test_geometry_opens_as_geoparquet(tmp_path: Path) -> None:
    """geopandas itself reads the file, with the active geometry and its reference system."""
    geopandas = pytest.importorskip("geopandas")
    original = cases.geodataframe_two_geometries()
    encoded = codecs.encode(original, tmp_path)
    plain = geopandas.read_parquet(encoded.path)
    assert plain.geometry.name == "where"
    assert plain.crs == original.crs
    part = codecs.decode(encoded.path, encoded.media_type, columns=["n", "where"])
    assert type(part) is geopandas.GeoDataFrame


def test_a_recorded_dataset_opens_in_xarray(tmp_path: Path) -> None:
    """As plain Zarr."""
    xr, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    encoded = codecs.encode(xr.Dataset({"t": ("x", [1.0, 2.0], {"unit": "K"})}), tmp_path)
    with zarr.storage.ZipStore(encoded.path, mode="r") as store:
        plain: Any = xr.open_zarr(store, consolidated=False, zarr_format=2).load()
    assert plain["t"].values.tolist() == [1.0, 2.0]
    assert plain["t"].attrs["unit"] == "K"


def test_the_footer_stays_small(tmp_path: Path) -> None:
    """Twenty thousand like columns share one note; a hundred thousand categories are not in the footer."""
    encoded = codecs.encode(cases.wide_20k(), tmp_path)
    notes = pq.read_metadata(encoded.path).metadata[b"rlm_memory.frame"]
    assert len(json.loads(notes)["columns"]) == 1
    labels = pd.Index([f"label {at:07d}" for at in range(100_000)])
    many = pd.DataFrame({"c": pd.Categorical.from_codes([5, 99_999, -1], labels)})
    encoded = codecs.encode(many, tmp_path)
    assert len(pq.read_metadata(encoded.path).metadata[b"rlm_memory.frame"]) < 20_000
    back = codecs.decode(encoded.path, encoded.media_type, filters=[("c", "==", "label 0000005")])
    assert back["c"].cat.categories.equals(labels)
