"""Each row of the manual's table of refusals: refused by name with nothing left behind, and what lossy=True makes."""

from __future__ import annotations

import datetime as dt
import enum
import importlib.util
import json
import math
import re
import zoneinfo
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from rlm_memory import codecs, errors
from rlm_memory.codecs import zones
from same import assert_same

pytestmark = pytest.mark.compat
MANUAL = Path(__file__).parents[2] / "docs" / "codecs.md"


class Colour(enum.Enum):
    RED = 1


class Small(int):
    __slots__ = ()


class Own:
    def __str__(self) -> str:
        return "own"


Pair = namedtuple("Pair", "x y")


class MyFrame(pd.DataFrame):
    @property
    def _constructor(self) -> Any:
        return MyFrame


class MySeries(pd.Series):
    @property
    def _constructor(self) -> Any:
        return MySeries


def MyIndex(values: Any) -> Any:
    """An index of a class of one's own, made as pandas makes its own."""
    made = pd.Index(values)
    made.__class__ = type("MyIndex", (pd.Index,), {"__module__": __name__})
    return made


class MyArray(np.ndarray[Any, Any]):
    pass


class Shifted(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=3)

    def dst(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(0)

    def tzname(self, when: dt.datetime | None) -> str:
        return "mine"


def objects(*values: Any) -> pd.Series:
    return pd.Series(list(values), dtype=object)


def foreign() -> pd.Series:
    """A column of an extension dtype that pandas ships for its own tests alone."""
    import decimal

    kind = pytest.importorskip("pandas.tests.extension.decimal").DecimalArray
    return pd.Series(kind([decimal.Decimal("1.5"), decimal.Decimal(2)]))


def in_zone(zone: dt.tzinfo) -> pd.Series:
    return pd.Series(pd.DatetimeIndex(["2030-01-01 12:00"]).tz_localize("UTC").tz_convert(zone))


def holidays() -> pd.DataFrame:
    day = pd.offsets.CustomBusinessDay(holidays=["2030-01-02"])
    return pd.DataFrame({"v": [1, 2]}, index=pd.date_range("2030-01-01", periods=2, freq=day))


def union() -> pa.Table:
    made = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    return pa.table({"u": made})


def polars() -> Any:
    return pytest.importorskip("polars")


def stacked() -> Any:
    xr = pytest.importorskip("xarray")
    made = xr.Dataset({"t": (("x", "y"), np.ones((2, 2)))}, coords={"x": [1, 2], "y": [3, 4]})
    return made.stack(z=("x", "y"))


def custom_index() -> Any:
    xr = pytest.importorskip("xarray")
    kind = type("Own", (xr.indexes.PandasIndex,), {"__module__": __name__})
    made = xr.Dataset({"t": ("x", [1.0, 2.0])}, coords={"x": [10, 20]})
    return made.drop_indexes("x").set_xindex("x", kind)


def knot() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def deep() -> Any:
    made: Any = 1
    for _ in range(300):
        made = [made]
    return made


def text_of(back: Any) -> Any:
    return back.tolist()


Case = tuple[Callable[[], Any], Callable[[Any], bool] | None]
"""What is refused, and whether its lossy form is as the manual says; None where lossy=True is refused as well."""

ROWS: dict[str, list[Case]] = {
    "cells of a class outside the tagged list": [
        (lambda: objects(Colour.RED, 1), lambda back: back[0] == "Colour.RED"),
        (lambda: objects(Pair(1, 2), None), lambda back: back[0] == "Pair(x=1, y=2)"),
        (lambda: objects(Small(3), "a"), lambda back: type(back[0]) in (int, str) and str(back[0]) == "3"),
        (lambda: objects(Own()), lambda back: text_of(back) == ["own"]),
    ],
    "a frame, series, index or array of a subclass": [
        (lambda: MyFrame({"a": [1]}), lambda back: type(back) is pd.DataFrame),
        (lambda: MySeries([1]), lambda back: type(back) is pd.Series),
        (lambda: np.arange(3).view(MyArray), lambda back: type(back) is np.ndarray),
        (lambda: MyIndex([1, 2]), lambda back: type(back) is pd.Index),
        (lambda: pd.DataFrame({"a": [1, 2]}, index=MyIndex([3, 4])), lambda back: type(back.index) is pd.Index),
        (lambda: pd.DataFrame([[1, 2]], columns=MyIndex(["a", "b"])), lambda back: type(back.columns) is pd.Index),
    ],
    "an extension dtype that is not pandas' own or geopandas'": [(foreign, lambda back: back.dtype == object)],
    "a time zone that no name brings back": [
        (lambda: in_zone(Shifted()), lambda back: back[0] == pd.Timestamp("2030-01-01 12:00", tz="UTC")),
        (
            lambda: in_zone(__import__("dateutil.tz").tz.tzlocal()),
            lambda back: str(back.dt.tz) == "UTC" and back[0] == pd.Timestamp("2030-01-01 12:00", tz="UTC"),
        ),
    ],
    "`freq` whose text does not lead back to it": [(holidays, lambda back: back.index.freq is None)],
    "Arrow unions, empty structs, month-day intervals": [
        (union, lambda back: back["u"].type == pa.string()),
        (
            lambda: pa.table({"e": pa.array([{}, None], pa.struct([]))}),
            lambda back: back["e"].to_pylist() == ["{}", None],
        ),
        (
            lambda: pa.table({"m": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}),
            lambda back: back["m"].type == pa.string(),
        ),
    ],
    "long double outside the range of two doubles": [
        (
            lambda: pd.Series(np.array(["1e4000", "2"], dtype="longdouble")),
            lambda back: back.dtype == "float64" and back[1] == 2,
        ),
        (lambda: pd.Series(np.array([1 + 2j], dtype="clongdouble")), lambda back: back.dtype == "complex128"),
    ],
    "`attrs`, names, fill values outside the tagged list": [
        (lambda: with_attrs({"f": print, "kept": 1}), lambda back: back.attrs == {"kept": 1}),
        (lambda: pd.Series([1], name=print), lambda back: back.name == str(print)),
    ],
    "polars `Object`, extension types, named categories": [
        (
            lambda: polars().DataFrame({"l": [[], None]}, schema={"l": polars().Array(polars().Int8, 0)}),
            lambda back: back["l"].to_list() == ["[]", None],
        ),
        (lambda: polars().DataFrame({"o": [Own()]}, schema={"o": polars().Object}), lambda back: back["o"][0] == "own"),
        (
            lambda: polars().DataFrame({"l": [["a"]]}, schema={"l": polars().List(polars().Categorical)}),
            lambda back: back["l"].dtype == polars().String,
        ),
        (
            lambda: polars().DataFrame({"l": [[1]]}, schema={"l": polars().List(polars().Int128)}),
            lambda back: back["l"].dtype == polars().String,
        ),
    ],
    "xarray MultiIndexes and custom indexes": [
        (stacked, lambda back: "z" not in back.xindexes),
        (custom_index, lambda back: "x" in back.coords),
    ],
    "JSON: NaN and infinities": [
        (lambda: {"a": math.nan, "b": [math.inf]}, lambda back: back == {"a": None, "b": [None]}),
        (lambda: {"a": (1, 2)}, lambda back: back == {"a": [1, 2]}),
        (lambda: {1: "x", None: "y"}, lambda back: back == {"1": "x", "None": "y"}),
        (lambda: OrderedDict(a=Small(1)), lambda back: back == {"a": 1}),
        (lambda: [b"x"], lambda back: back == ["b'x'"]),
    ],
    "text with half a surrogate pair": [(lambda: "half \ud800", lambda back: back == "half \ufffd")],
    "values that hold themselves": [
        (knot, None),
        (deep, None),
        (lambda: np.array([(1, "a")], dtype=[("n", "i4"), ("o", object)]), None),
        (lambda: np.array(["a", "b"], dtype=np.dtypes.StringDType()), None),
    ],
}


def with_attrs(attrs: dict[Any, Any]) -> pd.DataFrame:
    made = pd.DataFrame({"a": [1]})
    made.attrs = attrs
    return made


def rows_of_the_manual() -> list[str]:
    """The first cells of the table below "Refused"."""
    part = MANUAL.read_text(encoding="utf-8").split("## Refused\n")[1].split("\n## ")[0]
    return [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("|")][2:]


def test_every_refusal_of_the_manual_is_tried_here() -> None:
    """A row without a case fails, and so does a case that the manual does not tell."""
    rows = rows_of_the_manual()
    assert len(rows) == len(ROWS)
    for row, start in zip(rows, ROWS, strict=True):
        assert row.startswith(start)


@pytest.mark.parametrize(
    ("build", "lossy"),
    [pytest.param(*case, id=f"{row[:30]}-{at}") for row in ROWS for at, case in enumerate(ROWS[row])],
)
def test_what_cannot_be_kept_is_refused_and_lossy_does_what_the_manual_says(
    build: Callable[[], Any], lossy: Callable[[Any], bool] | None, tmp_path: Path
) -> None:
    """By place, with what would change; nothing stays in the folder."""
    obj = build()
    with pytest.raises(errors.NotExact) as caught:
        codecs.encode(obj, tmp_path)
    assert caught.value.where
    assert list(tmp_path.iterdir()) == []
    if lossy is None:
        with pytest.raises(errors.NotExact):
            codecs.encode(obj, tmp_path, lossy=True)
        assert list(tmp_path.iterdir()) == []
        return
    encoded = codecs.encode(obj, tmp_path, lossy=True)
    assert "; ".join(encoded.changes) == caught.value.changes
    assert lossy(codecs.decode(encoded.path, encoded.media_type))


# -- zones of other libraries, long double -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["Europe/Berlin", "America/St_Johns", "UTC"])
def test_dateutil_zones_come_back_as_dateutil_zones(key: str, there_and_back: Callable[..., Any]) -> None:
    """By key, by offset, and UTC; in a column, in an index and in cells."""
    tz = pytest.importorskip("dateutil.tz")
    for zone in (tz.gettz(key), tz.tzutc(), tz.tzoffset("mine", 5400)):
        named = type(zone) is type(tz.gettz("Europe/Berlin")) and key != "UTC"
        if pd.__version__.startswith("2.") and named and not hasattr(zone, "_trans_list_utc"):
            continue  # pandas 2 reads names inside dateutil that newer ones lack, and cannot even show such times
        column = pd.Series(pd.DatetimeIndex(["2030-07-01 12:00", "2030-12-01"]).tz_localize("UTC").tz_convert(zone))
        back = there_and_back(pd.DataFrame({"t": column}, index=pd.DatetimeIndex(column)))
        assert type(back["t"].dt.tz) is type(zone)
        assert back["t"].dt.tz == zone
        assert_same(pd.DataFrame({"t": column}, index=pd.DatetimeIndex(column)), back)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_zones_that_pandas_cannot_read_are_kept_or_refused_by_name(there_and_back: Callable[..., Any]) -> None:
    """pandas 2 fails on single times in a zone of dateutil 4: values are kept, and shown as what fails."""
    zone = pytest.importorskip("dateutil.tz").gettz("Europe/Berlin")
    times = pd.DatetimeIndex(["2030-07-01 12:00"]).tz_localize("UTC").tz_convert(zone)
    back = there_and_back(pd.DataFrame({"t": times}))
    assert back["t"].dt.tz == zone
    assert back["t"].array.asi8.tolist() == times.asi8.tolist()
    try:
        list(times)
    except AttributeError:
        with pytest.raises(errors.NotExact, match="convert them to one of zoneinfo"):
            there_and_back(pd.DataFrame([[1]], columns=times))
    else:
        assert_same(pd.DataFrame([[1]], columns=times), there_and_back(pd.DataFrame([[1]], columns=times)))


def test_pytz_zones_come_back_where_pytz_is_and_else_by_their_key(there_and_back: Callable[..., Any]) -> None:
    """A zone of the same key and a warning where the library is not installed."""
    notes: list[dict[str, Any]] = [{"class": "pytz", "key": "Europe/Berlin"}, {"class": "pytz-fixed", "minutes": 90}]
    if importlib.util.find_spec("pytz") is None:
        with pytest.warns(UserWarning, match="pytz, which is not installed"):
            named, fixed = (zones.from_note(note) for note in notes)
        assert named == zoneinfo.ZoneInfo("Europe/Berlin")
        assert fixed == dt.timezone(dt.timedelta(minutes=90))
        return
    import pytz

    for zone in (pytz.timezone("Europe/Berlin"), pytz.UTC, pytz.FixedOffset(90)):
        column = pd.Series(pd.DatetimeIndex(["2030-07-01 12:00"]).tz_localize("UTC").tz_convert(zone))
        back = there_and_back(column)
        assert type(back.dt.tz).__module__.partition(".")[0] == "pytz"
        assert back.dt.tz == column.dt.tz


def test_a_zone_key_from_a_file_opens_no_path() -> None:
    """A key is checked against the machine's list before any library sees it."""
    for kind in ("dateutil", "pytz", "zoneinfo"):
        with pytest.raises(errors.Unsupported, match="does not know"):
            zones.from_note({"class": kind, "key": "../../etc/passwd"})


def test_long_double_columns_come_back_to_the_last_bit(there_and_back: Callable[..., Any]) -> None:
    """Two doubles hold a sum of theirs, signed zeros, infinities and NaN."""
    third = np.longdouble(1) / 3
    values = np.array([third, -third, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e300], dtype="longdouble")
    back = there_and_back(pd.DataFrame({"v": values}))["v"].to_numpy()
    assert back.dtype == values.dtype
    assert np.array_equal(back, values, equal_nan=True)
    assert (np.signbit(back) == np.signbit(values)).all()


def test_the_refusal_of_a_record_is_one_json_line(tmp_path: Path) -> None:
    """Its places and changes are plain text, fit for a message."""
    with pytest.raises(errors.NotExact) as caught:
        codecs.encode(objects(Own()), tmp_path)
    assert re.search("lossy=True", str(caught.value))
    json.dumps([str(caught.value), caught.value.where, caught.value.changes])


SPARSE = {
    "int": pd.arrays.SparseArray([7, 7, 1], fill_value=7),
    "float": pd.arrays.SparseArray([np.nan, -0.0, 0.0, 2.5], fill_value=-0.0),
    "not nan": pd.arrays.SparseArray([np.nan, 1.0], fill_value=1.0),
    "bool": pd.arrays.SparseArray([True, False, True], fill_value=True),
    "time": pd.arrays.SparseArray(
        np.array(["2030-01-01", "NaT"], dtype="M8[ns]"), fill_value=np.datetime64("2030-01-01", "ns")
    ),
}


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_columns_keep_a_fill_value_of_ones_own(kind: str, there_and_back: Callable[..., Any]) -> None:
    """Its type, its sign, and whether it is missing."""
    frame = pd.DataFrame({"s": SPARSE[kind]})
    back = there_and_back(frame)
    assert_same(frame, back)
    assert type(back["s"].dtype.fill_value) is type(frame["s"].dtype.fill_value)
    assert repr(back["s"].dtype.fill_value) == repr(frame["s"].dtype.fill_value)


ITERATORS: dict[str, Callable[[], Any]] = {
    "generator": lambda: (n for n in range(3)),
    "iterator": lambda: iter([1, 2]),
    "map": lambda: map(str, [1]),
    "chunks": lambda: iter([pd.DataFrame({"a": [1]})]),
    "range": lambda: range(3),
    "set": lambda: {1, 2},
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_what_comes_one_by_one_is_refused_by_name_and_not_consumed(kind: str, tmp_path: Path) -> None:
    """With the way to record a stream; lossy=True changes nothing about it."""
    obj = ITERATORS[kind]()
    for lossy in (False, True):
        with pytest.raises(errors.Invalid, match=r"no codec for a builtins\..*RecordBatchReader\.from_batches"):
            codecs.encode(obj, tmp_path, lossy=lossy)
    assert list(tmp_path.iterdir()) == []
    assert len(list(obj)) > 0
