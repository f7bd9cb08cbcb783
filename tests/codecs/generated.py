"""Hypothesis strategies for frames: dtypes x index kinds x label kinds x missing values x attrs x flags."""

# ruff: noqa: DTZ001  naive dates are the point

from __future__ import annotations

import datetime as dt
import decimal
import uuid
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

ZONES = st.sampled_from(
    [
        dt.UTC,
        dt.timezone(dt.timedelta(hours=5, minutes=30)),
        dt.timezone(dt.timedelta(hours=-3), "BRT"),
        zoneinfo.ZoneInfo("Europe/Berlin"),
        zoneinfo.ZoneInfo("UTC"),
        zoneinfo.ZoneInfo("America/St_Johns"),
    ]
)
UNITS = st.sampled_from(["s", "ms", "us", "ns"])
TEXT = st.text(max_size=6)
ANY_TEXT = st.text(st.characters(), max_size=5)  # lone surrogates and NUL among them
FLOATS = st.floats(width=64)


def cells(values: list[Any]) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        out[at] = value
    return out


def _list(draw: Any, values: Any, size: int) -> list[Any]:
    return draw(st.lists(values, min_size=size, max_size=size))


@st.composite
def numbers(draw: Any, size: int) -> Any:
    code = draw(st.sampled_from("?bhilBHILefd"))
    dtype = np.dtype(code)
    octets = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    raw = (
        np.frombuffer(octets, np.uint8).reshape(size, dtype.itemsize)
        if size
        else np.empty((0, dtype.itemsize), np.uint8)
    )
    values = (raw[:, 0] & 1).astype(bool) if code == "?" else np.ascontiguousarray(raw).view(dtype).reshape(size)
    if draw(st.booleans()) and dtype.itemsize > 1:
        values = values.astype(dtype.newbyteorder(">"))
    return pd.Series(values)


@st.composite
def masked(draw: Any, size: int) -> Any:
    data = draw(numbers(size)).to_numpy()
    data = data.astype(data.dtype.newbyteorder("="))
    if data.dtype.char == "e":
        data = data.astype("float32")
    mask = np.array(_list(draw, st.booleans(), size), dtype=bool)
    kinds = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
    return pd.Series(kinds.get(data.dtype.kind, pd.arrays.IntegerArray)(data, mask))


@st.composite
def complexes(draw: Any, size: int) -> Any:
    dtype, width = draw(st.sampled_from([("complex64", 64), ("complex128", 128)]))
    return pd.Series(np.array(_list(draw, st.complex_numbers(width=width), size), dtype=dtype))


@st.composite
def datetimes(draw: Any, size: int) -> Any:
    unit = draw(UNITS)
    bound = {"s": 2**50, "ms": 2**57, "us": 2**62, "ns": 2**63 - 1}[unit]
    if draw(st.booleans()):
        bound = {"s": 4 * 10**9, "ms": 4 * 10**12, "us": 4 * 10**15, "ns": 4 * 10**18}[unit]
    values = np.array(_list(draw, st.integers(-bound, bound) | st.just(-(2**63)), size), dtype="i8")
    series = pd.Series(values.view(f"M8[{unit}]"))
    if draw(st.booleans()):
        small = pd.Series(
            (values % (4 * 10**9 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit])).view(f"M8[{unit}]")
        )
        return small.dt.tz_localize("UTC").dt.tz_convert(draw(ZONES))
    return series


@st.composite
def timedeltas(draw: Any, size: int) -> Any:
    unit = draw(UNITS)
    bound = {"s": 2**53, "ms": 2**60, "us": 2**62, "ns": 2**63 - 1}[unit]
    values = np.array(_list(draw, st.integers(-bound, bound) | st.just(-(2**63)), size), dtype="i8")
    return pd.Series(values.view(f"m8[{unit}]"))


@st.composite
def periods(draw: Any, size: int) -> Any:
    freq = draw(
        st.sampled_from(["D", "M", "Q-DEC", "Q-JAN", "Y-DEC", "W-SUN", "W-WED", "h", "min", "s", "3M", "2D", "ns"])
    )
    ordinals = np.array(_list(draw, st.integers(-20000, 20000) | st.just(-(2**63)), size), dtype="i8")
    return pd.Series(pd.arrays.PeriodArray(ordinals, dtype=pd.PeriodDtype(freq)))


@st.composite
def strings(draw: Any, size: int) -> Any:
    storage = draw(st.sampled_from(["python", "pyarrow"]))
    text = TEXT if storage == "pyarrow" else draw(st.sampled_from([TEXT, ANY_TEXT]))
    values = _list(draw, text | st.none(), size)
    return pd.Series(values, dtype=pd.StringDtype(storage, na_value=draw(st.sampled_from([pd.NA, np.nan]))))


_D = decimal.Decimal
CELLS: dict[str, Any] = {
    "text": ANY_TEXT,
    "int": st.integers(-(2**70), 2**70),
    "small": st.integers(-100, 100),
    "float": FLOATS,
    "bool": st.booleans(),
    "bytes": st.binary(max_size=4),
    "bytearray": st.binary(max_size=4).map(bytearray),
    "date": st.dates(),
    "datetime": st.datetimes(),
    "aware": st.datetimes(min_value=dt.datetime(1800, 1, 1), max_value=dt.datetime(2200, 1, 1), timezones=ZONES),
    "fold": st.datetimes().map(lambda value: value.replace(fold=1)),
    "time": st.times(),
    "timedelta": st.timedeltas(),
    "decimal": st.decimals(allow_nan=False, places=2, min_value=-1000, max_value=1000),
    # pandas 2 cannot even look for missing values among signalling ones.
    "any decimal": st.decimals().filter(lambda value: not (value.is_snan() and pd.__version__ < "3")),
    "uuid": st.uuids().map(lambda value: uuid.UUID(int=value.int)),
    "list": st.lists(st.integers(-5, 5) | st.none(), max_size=3),
    "texts": st.lists(TEXT, max_size=3),
    "tuple": st.tuples(st.integers(0, 9), TEXT),
    "pair": st.tuples(st.integers(0, 9), st.integers(0, 9)),
    "dict": st.fixed_dictionaries({"a": st.integers(0, 9), "b": TEXT}),
    "odd dict": st.dictionaries(st.integers(0, 9) | TEXT, TEXT, max_size=2),
    "array": st.lists(st.integers(0, 9), max_size=3).map(lambda values: np.array(values, dtype="int16")),
    "set": st.frozensets(st.integers(0, 9), max_size=3),
    "scalar": st.sampled_from([np.int8(3), np.float32(0.1), np.datetime64("2020-01-01"), np.str_("x"), np.bool_(True)]),
    "stamp": st.sampled_from(
        [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01", tz="UTC"), pd.Timedelta(5, unit="s")]
    ),
    "interval": st.sampled_from(
        [pd.Interval(0, 1), pd.Interval(0.5, 1.5, closed="both"), pd.Period("2020-01", freq="M")]
    ),
    "nested": st.recursive(
        st.none() | st.integers(-9, 9) | TEXT, lambda inner: st.lists(inner, max_size=2), max_leaves=4
    ),
}
MISSING = st.sampled_from([None, float("nan"), pd.NA, pd.NaT])


@st.composite
def objects(draw: Any, size: int) -> Any:
    kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 3]))))
    values = st.one_of([CELLS[kind] for kind in kinds])
    missing = draw(st.sampled_from(["none", "one", "any"]))
    if missing == "one":
        values = values | st.just(draw(MISSING))
    elif missing == "any":
        values = values | MISSING
    return pd.Series(cells(_list(draw, values, size)), dtype=object)


@st.composite
def categories(draw: Any, size: int) -> Any:
    kind = draw(st.sampled_from(["text", "int", "float", "date", "object", "interval", "bool", "string"]))
    pool: Any = {
        "text": lambda: cells(draw(st.lists(TEXT, unique=True, max_size=5))),
        "int": lambda: np.array(draw(st.lists(st.integers(-9, 9), unique=True, max_size=5)), dtype="int64"),
        "float": lambda: np.array(draw(st.lists(st.floats(-9, 9), unique=True, max_size=5)), dtype="float64"),
        "date": lambda: pd.to_datetime(
            draw(st.lists(st.dates(dt.date(1950, 1, 1), dt.date(2050, 1, 1)), unique=True, max_size=4))
        ),
        "object": lambda: cells(draw(st.lists(st.integers(2, 9) | TEXT, unique=True, max_size=5))),
        "interval": lambda: pd.interval_range(0, draw(st.integers(1, 4))),
        "bool": lambda: np.array([True, False]),
        "string": lambda: pd.array(draw(st.lists(TEXT, unique=True, max_size=5)), dtype="string"),
    }[kind]()
    index = pd.Index(pool, dtype=getattr(pool, "dtype", None), name=draw(st.none() | st.just("levels")))
    codes = _list(draw, st.integers(-1, len(index) - 1), size)
    return pd.Series(pd.Categorical.from_codes(codes, categories=index, ordered=draw(st.booleans())))


@st.composite
def intervals(draw: Any, size: int) -> Any:
    closed = draw(st.sampled_from(["left", "right", "both", "neither"]))
    left = np.array(_list(draw, st.integers(-99, 99), size), dtype="int64")
    form = draw(st.sampled_from(["int", "float", "date", "missing"]))
    if form == "int":
        return pd.Series(pd.arrays.IntervalArray.from_arrays(left, left + 2, closed=closed))
    if form == "date":
        days = pd.DatetimeIndex(left.astype("M8[D]").astype("M8[ns]"))
        return pd.Series(pd.arrays.IntervalArray.from_arrays(days, days + pd.Timedelta(days=1), closed=closed))
    low = left.astype("float64")
    if form == "missing":
        low[np.array(_list(draw, st.booleans(), size), dtype=bool)] = np.nan
    return pd.Series(pd.arrays.IntervalArray.from_arrays(low, low + 0.5, closed=closed))


@st.composite
def sparse(draw: Any, size: int) -> Any:
    kind = draw(st.sampled_from(["int64", "float64", "bool", "float32"]))
    values = np.array(_list(draw, st.sampled_from([0, 0, 1]), size), dtype=kind)
    fill = draw(st.sampled_from([values.dtype.type(0), values.dtype.type(1)]))
    if kind.startswith("float") and draw(st.booleans()):
        fill = np.nan
    return pd.Series(pd.arrays.SparseArray(values, fill_value=fill, kind=draw(st.sampled_from(["integer", "block"]))))


ARROW: list[tuple[Any, Any]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.string(), TEXT),
    (pa.large_binary(), st.binary(max_size=3)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (
        pa.timestamp("s"),
        st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)).map(lambda value: value.replace(microsecond=0)),
    ),
    (pa.timestamp("us", tz="+01:30"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
    (pa.duration("ms"), st.integers(-(10**9), 10**9).map(lambda n: dt.timedelta(milliseconds=n))),
    (pa.time32("s"), st.times().map(lambda value: value.replace(microsecond=0))),
    (pa.time64("us"), st.times()),
    (pa.decimal128(9, 2), st.decimals(allow_nan=False, places=2, min_value=-999, max_value=999)),
    (pa.list_(pa.string()), st.lists(TEXT | st.none(), max_size=2)),
    (pa.large_list(pa.int8()), st.lists(st.integers(-9, 9), max_size=2)),
    (pa.list_(pa.int16(), 2), st.lists(st.integers(-9, 9), min_size=2, max_size=2)),
    (
        pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))]),
        st.fixed_dictionaries({"x": st.integers(-9, 9) | st.none(), "y": st.none()}),
    ),
    (
        pa.map_(pa.string(), pa.int32()),
        st.lists(st.tuples(TEXT, st.integers(0, 9)), max_size=2, unique_by=lambda pair: pair[0]),
    ),
    (pa.null(), st.none()),
    (pa.string_view(), TEXT),
    (pa.list_view(pa.int8()), st.lists(st.integers(-9, 9), max_size=2)),
]


def arrow_array(draw: Any, size: int) -> Any:
    type_, values = draw(st.sampled_from(ARROW))
    array = pa.array(_list(draw, values | st.none(), size), type_)
    wrap = draw(st.sampled_from(["", "", "", "dictionary", "run"]))
    if wrap == "dictionary" and type_ in (pa.string(), pa.int8(), pa.date32()):
        return array.dictionary_encode()
    return array


@st.composite
def arrow(draw: Any, size: int) -> Any:
    array = arrow_array(draw, size)
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array], array.type)))


KINDS = [
    numbers,
    masked,
    complexes,
    datetimes,
    timedeltas,
    periods,
    strings,
    objects,
    objects,
    categories,
    intervals,
    sparse,
    arrow,
]


@st.composite
def columns(draw: Any, size: int) -> Any:
    """One Series of any kind."""
    return draw(draw(st.sampled_from(KINDS))(size))


LABELS = st.one_of(
    ANY_TEXT,
    st.integers(-5, 5),
    st.none(),
    st.tuples(TEXT, st.integers(0, 2)),
    st.booleans(),
    st.dates(),
    st.floats(allow_nan=False),
)
NAMES = st.none() | TEXT | st.integers(0, 5) | st.tuples(TEXT, st.integers(0, 2))


@st.composite
def indexes(draw: Any, size: int) -> Any:
    """An Index of any kind and this length."""
    kind = draw(st.sampled_from(["range", "column", "column", "multi", "regular"]))
    if kind == "range":
        step = draw(st.sampled_from([1, 2, -3]))
        start = draw(st.integers(-9, 9))
        return pd.RangeIndex(start, start + step * size, step, name=draw(NAMES))
    if kind == "regular" and size:
        freq = draw(st.sampled_from(["D", "15min", "MS", "W-SUN"]))
        zone = draw(st.none() | st.just("UTC"))
        return pd.date_range("2030-01-01", periods=size, freq=freq, name=draw(NAMES), tz=zone)
    if kind == "multi":
        count = draw(st.integers(1, 3))
        levels = [_index_of(draw(columns(size))) for _ in range(count)]
        try:
            return pd.MultiIndex.from_arrays(levels, names=_list(draw, NAMES, count))
        except (TypeError, ValueError, NotImplementedError, AttributeError):
            return pd.RangeIndex(size)
    return _index_of(draw(columns(size)), draw(NAMES))


def _index_of(series: pd.Series, name: Any = None) -> pd.Index:
    try:
        index = pd.Index(series.array, dtype=series.dtype, name=name, tupleize_cols=False)
        hash(index[0]) if len(index) else None
        index.unique()
        return index
    except (TypeError, ValueError, NotImplementedError, AttributeError, pa.ArrowException):
        return pd.Index(range(len(series)), dtype="int64", name=name)


ATTRS = st.dictionaries(TEXT | st.integers(0, 3), st.none() | FLOATS | TEXT | st.tuples(st.integers(0, 2)), max_size=2)


@st.composite
def headers(draw: Any, width: int) -> Any:
    """Column labels."""
    kind = draw(st.sampled_from(["text", "text", "mixed", "index"]))
    if kind == "text":
        return pd.Index(_list(draw, ANY_TEXT if draw(st.booleans()) else TEXT, width), dtype=object)
    if kind == "mixed":
        return pd.Index(cells(_list(draw, LABELS, width)), dtype=object, tupleize_cols=False, name=draw(NAMES))
    return draw(indexes(width))


@st.composite
def frames(draw: Any, max_rows: int = 6, max_columns: int = 5) -> Any:
    """A DataFrame."""
    size, width = draw(st.integers(0, max_rows)), draw(st.integers(0, max_columns))
    parts = [draw(columns(size)) for _ in range(width)]
    index = draw(indexes(size))
    frame = pd.DataFrame(
        {at: pd.Series(part.array, index=index, dtype=part.dtype) for at, part in enumerate(parts)}, index=index
    )
    frame.columns = draw(headers(width))
    frame.attrs = draw(ATTRS)
    if frame.index.is_unique and frame.columns.is_unique and draw(st.booleans()):
        frame = frame.set_flags(allows_duplicate_labels=False)
    return frame


@st.composite
def series(draw: Any, max_rows: int = 6) -> Any:
    """A Series with an index and a name."""
    size = draw(st.integers(0, max_rows))
    part = draw(columns(size))
    made = pd.Series(part.array, index=draw(indexes(size)), dtype=part.dtype, name=draw(NAMES))
    made.attrs = draw(ATTRS)
    return made
