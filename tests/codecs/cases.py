"""Frames and arrays after public bug reports, restated with invented data.

`FRAMES` maps a name to a builder, `META` to the report and what is wanted: "exact", or "exact-or-refuse" (one named
error that gives the column, and nothing left behind). `LOADS` holds partial loads with the expected frame.
"""

# ruff: noqa: DTZ001  naive dates are the point

from __future__ import annotations

import datetime as dt
import decimal
import enum
import pathlib
import uuid
import zoneinfo

import numpy as np
import pandas as pd
import pyarrow as pa

FRAMES: dict = {}
META: dict = {}
PD = "https://github.com/pandas-dev/pandas/issues/"
PDP = "https://github.com/pandas-dev/pandas/pull/"
AR = "https://github.com/apache/arrow/issues/"
ARP = "https://github.com/apache/arrow/pull/"


def case(cid, link, problem, want="exact", action=""):
    def deco(fn):
        name = fn.__name__
        assert name not in FRAMES, name
        FRAMES[name] = fn
        META[name] = {"id": cid, "link": link, "problem": problem, "want": want, "action": action}
        return fn

    return deco


def obj(values, **kw):
    """A Series that stays object dtype on pandas 2 and 3."""
    cells = np.empty(len(values), dtype=object)
    for i, v in enumerate(values):
        cells[i] = v
    return pd.Series(cells, dtype=object, **kw)


def obj_index(values, **kw):
    a = np.empty(len(values), dtype=object)
    a[:] = values
    return pd.Index(a, dtype=object, **kw)


@case("G1-01", PD + "34777", "two-level integer/string headers are refused or flattened")
def mi_rows_and_cols():
    cols = pd.MultiIndex.from_tuples([("dose", 1), ("dose", 2), ("", 10)], names=["kind", None])
    rows = pd.MultiIndex.from_product([["lab", "field"], [3, 1]], names=["site", None])
    return pd.DataFrame(np.arange(12).reshape(4, 3), index=rows, columns=cols)


@case(
    "G1-03",
    "https://github.com/dask/fastparquet/issues/241",
    "frames built from an array have integer headers; text headers come back or the write fails",
)
def int_range_columns():
    return pd.DataFrame(np.arange(6.0).reshape(2, 3))


@case("G1-05", PD + "64978", "a pivot by day has a tz-aware DatetimeIndex as its header")
def datetime_tz_columns():
    days = pd.date_range("2031-03-28", periods=4, freq="D", tz=zoneinfo.ZoneInfo("Europe/Berlin"), name="day")
    return pd.DataFrame(np.arange(8).reshape(2, 4), index=obj_index(["a", "b"]), columns=days)


@case("G1-07", AR + "37428", "two columns share a name after a concat; write refuses or read drops one")
def duplicate_columns():
    return pd.DataFrame([[1, "x", 2.5], [2, "y", 3.5]], columns=["v", "v", "w"])


@case(
    "G1-09",
    "https://github.com/dask/fastparquet/issues/341",
    "empty, dotted, blank, newline, accented (both normal forms) and emoji headers",
    action="also load(ref, columns=['a.b', '']) must return exactly those two columns",
)
def odd_string_names():
    names = ["", "a.b", " ", "line\nbreak", "caf\u00e9", "cafe\u0301", "\U0001f9ea", "a", "b"]
    return pd.DataFrame([range(9), range(9, 18)], columns=names)


@case("G1-11", PD + "45881", "a histogram table has an IntervalIndex as its header")
def interval_columns_axis():
    bins = pd.interval_range(0, 3, closed="left", name="bin")
    return pd.DataFrame([[5, 7, 9]], columns=bins)


@case("G1-13", "https://github.com/dask/dask/issues/6235", "RangeIndex with a negative step and a name")
def range_step_negative():
    return pd.DataFrame({"v": [1.0, 2.0, 3.0, 4.0]}, index=pd.RangeIndex(10, -2, -3, name="countdown"))


@case("G1-15", PD + "37897", "a frame with rows but no columns loses its rows")
def no_columns_range_index():
    return pd.DataFrame(index=pd.RangeIndex(3, 17, 2))


@case("G1-17", "https://github.com/dask/fastparquet/issues/339", "zero rows: every dtype must still come back")
def zero_rows_typed():
    return pd.DataFrame(
        {
            "i8": pd.Series([], dtype="int8"),
            "Int": pd.Series([], dtype="Int32"),
            "tz": pd.Series([], dtype="datetime64[us, UTC]"),
            "o": pd.Series([], dtype=object),
            "c": pd.Series([], dtype=pd.CategoricalDtype([3, 1, 2], ordered=True)),
            "s": pd.Series([], dtype="string[python]"),
            "td": pd.Series([], dtype="timedelta64[ms]"),
        },
        index=pd.Index([], dtype="int64", name="k"),
    )


@case("G1-19", PD + "41543", "regular time index loses its freq")
def datetime_index_freq():
    i = pd.date_range("2030-01-01", periods=5, freq="15min", name="t")
    return pd.DataFrame({"v": range(5)}, index=i)


@case("G1-21", AR + "35855", "PeriodIndex and period column return as integers or plain Index")
def period_index_and_column():
    p = pd.period_range("2030-01", periods=3, freq="M", name="month")
    return pd.DataFrame({"p": pd.period_range("2030-05-01", periods=3, freq="D")}, index=p)


@case("G1-23", PD + "45881", "left-closed integer intervals")
def interval_int_closed_left():
    a = pd.arrays.IntervalArray.from_tuples([(0, 2), (2, 5), None], closed="left", dtype="interval[float64, left]")
    b = pd.arrays.IntervalArray.from_arrays([0, 2, 5], [2, 5, 9], closed="both")
    return pd.DataFrame({"a": a, "b": b})


@case("G1-25", ARP + "8162", "row MultiIndex holding a tz level, an ordered category level and a missing date")
def mi_rows_tz_cat_nat():
    z = zoneinfo.ZoneInfo("Asia/Kolkata")
    t = pd.DatetimeIndex(["2030-01-01 00:00:01", None, "2030-01-03"], tz=z)
    c = pd.CategoricalIndex(["lo", "hi", "lo"], categories=["lo", "mid", "hi"], ordered=True)
    n = pd.Index([1, 2, 3], dtype="int16")
    return pd.DataFrame({"v": [1, 2, 3]}, index=pd.MultiIndex.from_arrays([t, c, n], names=["t", "level", "n"]))


@case("G1-27", PD + "54000", "narrow index dtypes widen")
def index_small_int():
    return pd.DataFrame({"v": [1, 2]}, index=pd.Index([7, 250], dtype="uint8", name="code"))


@case("G1-29", PD + "60491", "integer categories come back as plain integers")
def cat_int():
    return pd.DataFrame({"grade": pd.Categorical([3, 1, 3, 2], categories=[3, 1, 2, 9])})


@case("G1-31", PDP + "28018", "ordered, non-alphabetic, unused and missing categories")
def cat_ordered_unused_nan():
    c = pd.Categorical(["lo", None, "hi", "lo"], categories=["lo", "mid", "hi", "max"], ordered=True)
    return pd.DataFrame({"size": c})


@case("G1-33", PD + "61165", "second-resolution timestamps return in milliseconds")
def dt_seconds_unit():
    return pd.DataFrame({"t": pd.Series(["2030-01-01", None, "2031-02-03 04:05:06"], dtype="datetime64[s]")})


@case("G1-35", PD + "35997", "index with a bare offset cannot be read back")
def tz_fixed_offset_index():
    z = dt.timezone(dt.timedelta(hours=-3, minutes=-30))
    i = pd.DatetimeIndex(["2030-01-01 10:00", "2030-01-02 11:00"]).tz_localize(z)
    i.name = "t"
    return pd.DataFrame({"v": [1, 2]}, index=i)


@case("G1-37", PD + "64978", "both sides of the autumn clock change, zoneinfo zone")
def tz_zoneinfo_fold():
    u = pd.DatetimeIndex(["2030-10-27 00:30", "2030-10-27 01:30", None], tz="UTC")
    s = pd.Series(u.tz_convert(zoneinfo.ZoneInfo("Europe/Berlin")))
    return pd.DataFrame({"t": s, "m": s.dt.as_unit("ms")})


@case("G1-39", PD + "20089", "python date, time and timedelta objects in object columns")
def date_time_objects():
    return pd.DataFrame(
        {
            "d": obj([dt.date(2030, 1, 1), None, dt.date(2031, 12, 31)]),
            "t": obj([dt.time(1, 2, 3, 4), dt.time(0), None]),
            "td": obj([dt.timedelta(days=1, microseconds=1), None, dt.timedelta(0)]),
        }
    )


@case(
    "G1-41",
    AR + "1413",
    "uint64 above the signed range",
    action="also load(ref, filters=[('h', '==', 2**64-1)]) returns row 0 only",
)
def uint64_max():
    return pd.DataFrame({"h": np.array([2**64 - 1, 2**63, 0], dtype="uint64")})


@case("G1-43", PD + "44846", "half-precision floats are refused or widened")
def float16_column():
    return pd.DataFrame({"h": np.array([0.1, -0.0, 65504, np.inf, np.nan], dtype="float16")})


@case("G1-45", "https://github.com/pandas-dev/pandas/issues/26378", "sparse integers with fill value 0")
def sparse_int_fill0():
    return pd.DataFrame({"s": pd.arrays.SparseArray([0, 0, 7, 0], fill_value=0), "d": [1, 2, 3, 4]})


@case("G1-47", AR + "35535", "signed zero, infinities, subnormals and NaN in one column")
def negzero_inf_subnormal():
    return pd.DataFrame(
        {
            "x": np.array([-0.0, 0.0, np.inf, -np.inf, 5e-324, np.nan, 1 / 3]),
            "y": np.array([-0.0, 1e-45, 3.4e38, 0, 0, np.nan, 1 / 3], dtype="float32"),
        }
    )


@case("G1-49", PD + "55668", "nullable Float64 holding both NaN and NA")
def float64_nan_and_na():
    data = np.array([1.5, np.nan, 0.0, 2.5])
    mask = np.array([False, False, True, False])
    return pd.DataFrame({"f": pd.arrays.FloatingArray(data, mask)})


@case("G1-51", PD + "55721", "None, nan, NA and NaT side by side in an object column")
def object_none_nan_na_nat():
    return pd.DataFrame(
        {"m": obj(["x", None, float("nan"), pd.NA, pd.NaT]), "n": obj([1.5, None, float("nan"), None, 2.5])}
    )


@case("G1-53", PD + "21228", "numbers and text in one object column")
def object_int_and_str():
    return pd.DataFrame({"code": obj(["A1", 46, None, 46.0, "46"])})


@case("G1-55", PD + "26121", "lists and tuples in cells come back as arrays")
def lists_tuples_arrays():
    return pd.DataFrame(
        {
            "l": obj([["a", "b"], [], None]),
            "t": obj([(1, 2), (), (3,)]),
            "a": obj([np.array([1, 2], dtype="int16"), np.array([], dtype="int16"), None]),
            "n": obj([[[1, None], []], [[2]], []]),
        }
    )


@case("G1-57", AR + "34533", "decimals whose written scale differs row by row")
def decimal_mixed_scale():
    D = decimal.Decimal
    return pd.DataFrame({"price": obj([D("1.10"), D("1.1"), D("-0"), D("1E+3"), None])})


@case("G1-59", "https://github.com/dask/fastparquet/issues/192", "empty bytes, bytes that are not UTF-8, bytearray")
def bytes_and_bytearray():
    return pd.DataFrame(
        {"b": obj([b"", b"\xff\x00\xfe", None]), "ba": obj([bytearray(b"\x00"), bytearray(), bytearray(b"z")])}
    )


@case("G1-61", PD + "42664", "every string dtype in one frame")
def string_dtype_zoo():
    v = ["a", None, "\u00df"]
    d = {
        "object": obj(v),
        "py": pd.Series(v, dtype=pd.StringDtype("python")),
        "pa": pd.Series(v, dtype=pd.StringDtype("pyarrow")),
        "arrow": pd.Series(v, dtype=pd.ArrowDtype(pa.string())),
        "large": pd.Series(v, dtype=pd.ArrowDtype(pa.large_string())),
    }
    try:
        d["nan_py"] = pd.Series(v, dtype=pd.StringDtype("python", na_value=np.nan))
        d["nan_pa"] = pd.Series(v, dtype=pd.StringDtype("pyarrow", na_value=np.nan))
    except TypeError:
        pass
    return pd.DataFrame(d)


@case("G1-63", PD + "53011", "Arrow-backed list, struct and decimal columns cannot be read back")
def arrow_list_struct():
    return pd.DataFrame(
        {
            "l": pd.Series([["a"], None, []], dtype=pd.ArrowDtype(pa.list_(pa.string()))),
            "s": pd.Series(
                [{"x": 1, "y": None}, None, {"x": 2, "y": "q"}],
                dtype=pd.ArrowDtype(pa.struct([("x", pa.int8()), ("y", pa.string())])),
            ),
            "d": pd.Series(
                [decimal.Decimal("1.50"), None, decimal.Decimal("2.25")], dtype=pd.ArrowDtype(pa.decimal128(9, 2))
            ),
        }
    )


@case("G1-65", PDP + "54346", "attrs must survive, key types included")
def attrs_json():
    df = pd.DataFrame({"v": [1]})
    df.attrs = {"unit": "mg", "nested": {"a": [1, 2.5, None, True]}, "text": "\u6e2c\u5b9a"}
    return df


@case("G1-67", PD + "61602", "UUID, Path and Enum objects in cells", want="exact-or-refuse")
def uuid_path_enum():
    return pd.DataFrame(
        {
            "u": obj([uuid.UUID(int=1), uuid.UUID(int=2)]),
            "p": obj([pathlib.PurePosixPath("a/b"), pathlib.PurePosixPath("c d")]),
            "e": obj([Colour.RED, Colour.BLUE]),
        }
    )


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@case(
    "G1-69",
    "https://github.com/geopandas/geopandas/issues/3320",
    "GeoDataFrame must return as one, with crs, active geometry, null and empty shapes, attrs",
    want="exact-or-refuse",
    action="needs geopandas; skip when it is not installed",
)
def geodataframe_two_geometries():
    import geopandas
    import shapely

    g = geopandas.GeoDataFrame(
        {"n": [1, 2, 3], "other": geopandas.GeoSeries([shapely.Point(9, 9)] * 3, crs=3857)},
        geometry=[shapely.Point(1, 2), None, shapely.Polygon()],
        crs=4326,
    )
    g = g.rename_geometry("where")
    g.attrs["survey"] = "s1"
    return g


@case("G1-71", AR + "38552", "wide and short: twenty thousand numeric columns, within 60 s and 2 GiB")
def wide_20k():
    return pd.DataFrame(np.arange(40_000.0).reshape(2, 20_000))


@case("G1-73", PD + "54638", "unnamed Series with a named index")
def series_unnamed():
    return pd.Series([1.5, 2.5], index=pd.Index([10, 20], name="k"))


@case(
    "G1-75",
    "https://github.com/numpy/numpy/issues/8100",
    "structured numpy array: aligned padding, nested and fixed-width fields",
)
def np_structured():
    t = np.dtype([("id", "<u2"), ("xy", "<f4", (2,)), ("tag", "S4"), ("u", "<U3")], align=True)
    return np.array([(1, [0.5, -0.0], b"ab", "\u00e9"), (2, [1, 2], b"", "")], dtype=t)


@case(
    "G1-77",
    "https://github.com/apache/iceberg-python/issues/716",
    "pyarrow Table: schema and field metadata, non-null field, ordered dictionary, large types",
)
def table_metadata_nonnull_dict():
    f = [
        pa.field("k", pa.int32(), nullable=False, metadata={b"unit": b"mm"}),
        pa.field("d", pa.dictionary(pa.int8(), pa.string(), ordered=True)),
        pa.field("l", pa.large_list(pa.large_string())),
        pa.field("t", pa.timestamp("s", tz="+02:00")),
    ]
    d = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), pa.array(["z", "a", "unused"]), ordered=True)
    return pa.table(
        [
            pa.array([1, 2, 3], pa.int32()),
            d,
            pa.array([["x"], [], None], pa.large_list(pa.large_string())),
            pa.array([0, 1, None], pa.timestamp("s", tz="+02:00")),
        ],
        schema=pa.schema(f, metadata={b"owner": b"qa", b"bin": b"\x00\xff"}),
    )


@case("G1-79", ARP + "554", "all-missing columns keep their own dtype")
def all_null_columns():
    return pd.DataFrame(
        {
            "o": obj([None, None]),
            "on": obj([float("nan")] * 2),
            "f": [np.nan, np.nan],
            "I": pd.array([None, None], dtype="Int8"),
            "t": pd.Series([None, None], dtype="datetime64[us]"),
            "c": pd.Categorical([None, None], categories=["a"]),
            "n": pd.Series([None, None], dtype=pd.ArrowDtype(pa.null())),
        }
    )


@case(
    "G1-81", PD + "26121", "sets, two-dimensional arrays and arrays of different types in cells", want="exact-or-refuse"
)
def sets_and_2d_arrays():
    return pd.DataFrame(
        {
            "s": obj([{1, 2}, frozenset({3}), set()]),
            "a": obj([np.array([1, 2], dtype="int16"), np.array([0.5], dtype="float32"), np.array([[1, 2], [3, 4]])]),
        }
    )


@case(
    "G1-83",
    "https://github.com/mlrun/storey/pull/390",
    "naive and aware datetimes in one object column: the zone is dropped in silence",
)
def naive_and_aware_datetimes():
    z = dt.timezone(dt.timedelta(hours=5))
    return pd.DataFrame({"t": obj([dt.datetime(2030, 1, 1, 2, 3), None, dt.datetime(2030, 1, 1, 2, 3, tzinfo=z)])})


# --------------------------------------------------------------------------
# partial loads: load(ref, columns=..., filters=...)
# --------------------------------------------------------------------------
LOADS: dict = {}


def load_case(cid, link, problem, **kwargs):
    """fn() -> (frame, expected frame). Action: load(record(frame), **kwargs)."""

    def deco(fn):
        LOADS[fn.__name__] = {"id": cid, "link": link, "problem": problem, "kwargs": kwargs, "fn": fn}
        return fn

    return deco


@load_case(
    "G1-L1",
    "https://github.com/NVIDIA/cudf/issues/12837",
    "a column subset must keep the stepped, named RangeIndex",
    columns=["v"],
)
def load_columns_keep_range_index():
    df = pd.DataFrame({"u": [1, 2, 3], "v": [4.0, 5.0, 6.0]}, index=pd.RangeIndex(10, 1, -3, name="r"))
    return df, df[["v"]]


@load_case(
    "G1-L3",
    "https://github.com/dask/fastparquet/issues/162",
    "filtered rows must keep their own labels, not be renumbered",
    filters=[("v", ">", 4.5)],
)
def load_filter_keeps_labels():
    df = pd.DataFrame(
        {"v": [4.0, 5.0, 6.0], "c": pd.Categorical(["a", "b", "a"], categories=["b", "a", "z"])},
        index=pd.RangeIndex(10, 1, -3, name="r"),
    )
    out = df[df.v > 4.5]
    return df, out.set_axis(pd.Index(out.index.to_numpy(), name="r"), axis=0)


@load_case("G1-L5", PD + "34777", "selecting from a two-level header", columns=[("dose", 2)])
def load_columns_two_level_header():
    df = mi_rows_and_cols()
    return df, df.loc[:, [("dose", 2)]]
