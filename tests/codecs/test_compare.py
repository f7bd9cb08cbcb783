"""`compare`: where two results are not exactly the same there is a finding, and none where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from rlm_memory import codecs

pytestmark = pytest.mark.compat

BIG = 2**53
DIFFERENT: dict[str, Callable[[int], Any]] = {
    "big integers beside a null in Arrow": lambda n: pa.table({"a": [BIG + n, None]}),
    "big integers beside a null in polars": lambda n: pl.DataFrame({"a": [BIG + n, None]}),
    "an Arrow type": lambda n: pa.table({"a": pa.array(["x"], pa.large_string() if n else pa.string())}),
    "an Arrow field that is not null": lambda n: pa.table(
        {"a": [1]}, schema=pa.schema([pa.field("a", pa.int64(), nullable=bool(n))])
    ),
    "Arrow metadata": lambda n: pa.table({"a": [1]}).replace_schema_metadata({"k": str(n)}),
    "the second Arrow column of a name": lambda n: pa.table([pa.array([1]), pa.array([n])], names=["a", "a"]),
    "a polars series' name": lambda n: pl.Series(str(n), [1]),
    "the second column of a label": lambda n: pd.DataFrame([[1, n]], columns=["a", "a"]),
    "a header's name": lambda n: pd.DataFrame({"a": [1]}).rename_axis(columns=str(n)),
    "a header's type": lambda n: pd.DataFrame({0.0 if n else 0: [1]}),
    "a label NaN": lambda n: pd.DataFrame([[n]], columns=[float("nan")]),
    "categories": lambda n: pd.DataFrame({"a": pd.Categorical(["x"], ["x", f"y{n}"])}),
    "the sign of a zero": lambda n: pd.DataFrame({"a": [-0.0 if n else 0.0]}),
    "a frequency": lambda n: pd.Series(
        [1, 2], pd.date_range("2020", periods=2) if n else pd.DatetimeIndex(["2020-01-01", "2020-01-02"])
    ),
    "a flag": lambda n: pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=bool(n)),
    "a series' name": lambda n: pd.Series([1], name=0 if n else None),
    "a value of an index": lambda n: pd.Index([1, n]),
    "a name of an index": lambda n: pd.Index([1], name=str(n)),
    "a level of an index": lambda n: pd.MultiIndex.from_tuples([(1, "a"), (1, str(n))]),
    "a reference system": lambda n: gpd.GeoSeries([None], crs=4326 if n else 3857),
    "a mask": lambda n: np.ma.array([1, 2], mask=[0, n]),
    "a value under a mask": lambda n: np.ma.array([1, n], mask=[0, 1]),
    "a fill value": lambda n: np.ma.array([1], mask=[0], fill_value=n),
    "a masked field": lambda n: np.ma.array([(1, n)], dtype="i4,i4", mask=[(False, False)]),
    "a field": lambda n: np.array([(1, [n, 2])], dtype=[("a", "i4"), ("b", "f8", 2)]),
    "an object cell": lambda n: np.array([1, [n]], dtype=object),
    "an array in a dict": lambda n: {"a": np.array([1]), "b": np.array([n])},
    "a time": lambda n: np.array([n, "NaT"], dtype="M8[s]"),
    "a value of a dataset": lambda n: xr.Dataset({"a": ("x", [1, n])}),
    "a coordinate": lambda n: xr.DataArray([1], dims="x", coords={"x": [n]}),
    "an attribute of a variable": lambda n: xr.Dataset({"a": ("x", [1], {"k": n})}),
    "a coordinate or a variable": lambda n: xr.Dataset({"a": 1, "b": 2}).set_coords("b" if n else "a"),
    "a type in JSON": lambda n: {"a": [1, 1.0 if n else 1]},
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_where_two_results_are_not_the_same_there_is_a_finding(name: str) -> None:
    """And none where they are; NaN equals NaN."""
    one, again, other = (DIFFERENT[name](n) for n in (0, 0, 1))
    assert codecs.compare(one, again).differences == []
    found = codecs.compare(one, other)
    assert not found.same
    assert len(found.differences) == 1, found


def test_a_finding_counts_the_cells_that_differ_and_no_others() -> None:
    """NaN is no difference, and the first that is one is shown."""
    found = codecs.compare(np.array([np.nan, 1.0, -0.0]), np.array([np.nan, 2.0, 0.0])).differences
    assert [(one.where, one.before, one.after) for one in found] == [
        ("array: 2 of 3 cells differ, first at [1]", "1.0", "2.0")
    ]
