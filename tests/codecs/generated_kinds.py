"""Hypothesis strategies for everything that is not a pandas object: arrays, Arrow, polars, xarray, geopandas, JSON."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from generated import ANY_TEXT, ARROW, TEXT
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# -- numpy -------------------------------------------------------------------------------------------------------------

_PLAIN = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(sizes=(64, 128)),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
    hnp.byte_string_dtypes(max_len=5),
    hnp.unicode_string_dtypes(max_len=5),
    st.sampled_from([np.dtype(name) for name in ("longdouble", "clongdouble", "V3", "M8[25us]", ">M8[D]", "m8[7s]")]),
)
_SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@st.composite
def dtypes(draw: Any) -> np.dtype[Any]:
    """Plain, or structured: nested, with subarrays, aligned, in any byte order."""
    dtype = draw(_PLAIN | hnp.nested_dtypes(subtype_strategy=_PLAIN, max_leaves=5, max_itemsize=200))
    dtype = dtype.base
    if dtype.names and draw(st.booleans()):
        fields = [(name, dtype.fields[name][0]) for name in dtype.names]
        dtype = np.dtype(fields, align=True)
    return dtype


@st.composite
def arrays(draw: Any) -> np.ndarray[Any, Any]:
    """An array of any dtype and memory order, a view with steps among them."""
    dtype, shape = draw(dtypes()), draw(_SHAPES)
    octets = draw(st.binary(min_size=1, max_size=40))
    # Bits of all kinds, NaN payloads and NaT among them; text only of code points that exist.
    made = np.frombuffer((octets * (int(np.prod(shape)) * dtype.itemsize + 1)), "u1")
    array = made[: int(np.prod(shape)) * dtype.itemsize].copy()
    array = _legal(np.ndarray(shape, dtype, array.tobytes()).copy())
    order = draw(st.sampled_from(["C", "F", "T", "step"]))
    if order == "F":
        return np.asfortranarray(array) if array.ndim else array
    if order == "T":
        return array.T
    return array[::-1] if order == "step" and array.ndim else array


def _legal(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with text of existing code points, booleans of 0 and 1, and long doubles that are numbers."""
    if array.dtype.names:
        for name in array.dtype.names:
            array[name] = _legal(array[name].copy())
        return array
    if array.dtype.kind == "U":
        codes = array.size * array.dtype.itemsize // 4
        return (
            np.array(["aé🧪\x00"[at % 4] * (at % 4) for at in range(array.size)], array.dtype).reshape(array.shape)
            if codes
            else array
        )
    if array.dtype.kind == "b":
        return np.asarray((array.view("u1") & 1).astype(bool))
    if array.dtype.char in "gG":
        return np.linspace(-1, 1, array.size or 1)[: array.size].reshape(array.shape).astype(array.dtype)
    return array


@st.composite
def masked(draw: Any) -> Any:
    """A masked array: no mask or one for each value (or field), a fill value or none, soft or hard."""
    data = draw(arrays())
    if not data.ndim:
        data = data.reshape(1)
    mask: Any = np.ma.nomask
    if draw(st.booleans()):
        mask = np.zeros(data.shape, np.ma.make_mask_descr(data.dtype))
        if data.size:
            mask.reshape(-1)[draw(st.integers(0, data.size - 1))] = (
                True if not mask.dtype.names else tuple_of(mask.dtype)
            )
    try:
        made = np.ma.MaskedArray(data, mask=mask, hard_mask=draw(st.booleans()))
    except ValueError:  # numpy itself makes none of some structured dtypes with times
        reject()
    if draw(st.booleans()) and data.dtype.kind in "iuf":
        made.fill_value = 7
    return made


def tuple_of(dtype: np.dtype[Any]) -> Any:
    """A mask entry of a structured dtype with its first field set."""
    return np.ones((), dtype)[()]


def array_dicts() -> Any:
    return st.dictionaries(ANY_TEXT, arrays(), min_size=1, max_size=3)


# -- Arrow -------------------------------------------------------------------------------------------------------------

_INTEGERS = st.integers(-(10**9), 10**9)
_LEAVES: list[tuple[pa.DataType, Any]] = [
    *ARROW,
    (pa.float16(), st.floats(width=16).map(np.float16)),
    (pa.float64(), st.floats()),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.decimal32(5, 2), st.decimals(allow_nan=False, places=2, min_value=-99, max_value=99)),
    (pa.decimal64(12, 0), st.integers(-9, 9)),
    (pa.decimal256(50, 3), st.decimals(allow_nan=False, places=3, min_value=-999, max_value=999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    (pa.date64(), st.dates()),
    (pa.timestamp("ns", "Europe/Berlin"), _INTEGERS),
    (pa.timestamp("ms", "UTC"), _INTEGERS),
    (pa.duration("s"), _INTEGERS),
    (pa.duration("ns"), _INTEGERS),
    (pa.binary_view(), st.binary(max_size=20)),
    (pa.large_binary(), st.binary(max_size=3)),
    (pa.large_string(), TEXT),
    (pa.uuid(), st.uuids().map(lambda one: one.bytes)),
    (pa.json_(), st.just('{"a": 1}')),
    (pa.bool8(), st.integers(0, 1)),
    (pa.opaque(pa.int8(), "kind", "vendor"), st.integers(-9, 9)),
    (pa.month_day_nano_interval(), st.just((1, 2, 3))),
]
_META = st.none() | st.dictionaries(st.binary(max_size=4), st.binary(max_size=4), max_size=2)
REFUSED_ARROW = ("month_day_nano_interval", "union", "struct<>")


@st.composite
def arrow_arrays(draw: Any, size: int, depth: int = 2) -> pa.Array:
    """An array of any type: a leaf, or one made of smaller ones."""
    kinds = ["leaf", "leaf", "dictionary", "runs"] + (
        ["struct", "list", "large", "fixed", "view", "map"] if depth else []
    )
    kind = draw(st.sampled_from(kinds))
    if kind in ("leaf", "dictionary", "runs"):
        return _leaf(draw, size, kind)
    if kind == "struct":
        parts = [draw(arrow_arrays(size, depth - 1)) for _ in range(draw(st.integers(1, 2)))]
        fields = [_field(draw, f"f{at}", part) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=_mask(draw, size))
    if kind == "fixed":
        width = draw(st.integers(0, 3))
        inner = draw(arrow_arrays(width * size, depth - 1))
        type_ = pa.list_(_field(draw, "item", inner), width)
        if not width:
            # Of buffers: `from_arrays` divides by the width, and takes the process with it.
            return pa.Array.from_buffers(type_, size, [None], children=[inner])
        return pa.FixedSizeListArray.from_arrays(inner, type=type_, mask=_mask(draw, size))
    counts = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    inner = draw(arrow_arrays(sum(counts), depth - 1))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    if kind == "map":
        keys = pa.array([f"k{at}" for at in range(sum(counts))], pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, inner)
    field = _field(draw, draw(st.sampled_from(["item", "element"])), inner)
    if kind == "view":
        return pa.ListViewArray.from_arrays(
            pa.array(offsets[:-1], pa.int32()), pa.array(counts, pa.int32()), inner, type=pa.list_view(field)
        )
    if kind == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), inner, type=pa.large_list(field))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner, type=pa.list_(field), mask=_mask(draw, size))


def _leaf(draw: Any, size: int, kind: str) -> pa.Array:
    type_, values = draw(st.sampled_from(_LEAVES))
    cells = draw(st.lists(values | st.none(), min_size=size, max_size=size))
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array(cells, type_.storage_type))
    array = pa.array(cells, type_)
    if kind == "dictionary" and type_ in (pa.string(), pa.int8(), pa.date32(), pa.large_binary()):
        made = array.dictionary_encode()
        index = draw(st.sampled_from([pa.int8(), pa.int32(), pa.uint16()]))
        values = made.dictionary[::-1] if draw(st.booleans()) else made.dictionary
        return pa.DictionaryArray.from_arrays(made.indices.cast(index), values, ordered=draw(st.booleans()))
    if kind == "runs" and type_ in (pa.string(), pa.int8(), pa.bool_(), pa.float64()):
        return pc.run_end_encode(array, run_end_type=draw(st.sampled_from([pa.int16(), pa.int32(), pa.int64()])))
    return array


def _mask(draw: Any, size: int) -> pa.Array | None:
    found = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return pa.array(found, pa.bool_()) if any(found) else None


def _field(draw: Any, name: str, array: pa.Array) -> pa.Field:
    nullable = bool(array.null_count) or draw(st.booleans()) or array.type == pa.null()
    if pa.types.is_run_end_encoded(array.type):
        nullable = True
    return pa.field(name, array.type, nullable=nullable, metadata=draw(_META))


@st.composite
def tables(draw: Any) -> pa.Table:
    """A table with field and schema metadata, names that repeat, and more than one chunk."""
    size = draw(st.integers(0, 5))
    parts = [draw(arrow_arrays(size)) for _ in range(draw(st.integers(0, 4)))]
    fields = [_field(draw, draw(TEXT), part) for part in parts]
    table = pa.table(parts, schema=pa.schema(fields, metadata=draw(_META)))
    cut = draw(st.integers(0, size))
    views = any("view" in str(field.type) or "run_end" in str(field.type) for field in fields)
    return table if views or not parts else pa.concat_tables([table.slice(0, cut), table.slice(cut)])


# -- polars, xarray, geopandas, JSON -----------------------------------------------------------------------------------


def polars_frames() -> Any:
    from polars.testing.parametric import dataframes

    return dataframes(max_cols=4, max_size=5)


_ATTRS = st.dictionaries(
    TEXT, st.integers() | st.floats() | TEXT | st.tuples(st.integers()) | st.just(np.float32(2)) | st.none(), max_size=2
)
_NAMES = st.sampled_from(["t", "u", "odd name", "a/b", "é"])
_XARRAY = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.floating_dtypes(sizes=(32, 64), endianness="="),
    hnp.complex_number_dtypes(sizes=(64, 128), endianness="="),
    st.just(np.dtype("U4")),
    st.just(np.dtype("M8[ns]")),
    st.just(np.dtype("m8[s]")),
)


def is_unicode(texts: Any) -> bool:
    """Whether every text can be written in UTF-8: half a surrogate pair cannot."""
    return not any("\ud800" <= mark <= "\udfff" for text in texts.flat for mark in str(text))


@st.composite
def datasets(draw: Any) -> Any:
    """A Dataset or DataArray: dimensions of no length, coordinates with an index, without one and scalar, attrs."""
    import xarray as xr

    sizes = {name: draw(st.integers(0, 3)) for name in draw(st.lists(st.sampled_from("xyz"), max_size=3, unique=True))}

    def variable(dims: tuple[str, ...]) -> Any:
        array = draw(hnp.arrays(draw(_XARRAY), tuple(sizes[dim] for dim in dims)))
        # With pandas 3, xarray makes no variable of objects that hold half a surrogate pair: there is none to record.
        if array.dtype.kind == "U" and is_unicode(array) and draw(st.booleans()):
            array = array.astype(object)
        return xr.Variable(dims, array, draw(_ATTRS))

    dims = st.lists(st.sampled_from(sorted(sizes)), unique=True).map(tuple) if sizes else st.just(())
    coords: dict[str, Any] = {}
    for dim, size in sizes.items():
        if draw(st.booleans()):
            labels = draw(
                st.sampled_from([np.arange(size) * 2, np.arange(size) / 2, pd.date_range("2030", periods=size)])
            )
            coords[dim] = xr.Variable((dim,), labels, draw(_ATTRS))
    if draw(st.booleans()):
        coords["beside"] = variable(draw(dims))
    names = draw(st.lists(_NAMES, max_size=3, unique=True))
    made = xr.Dataset({name: variable(draw(dims)) for name in names}, coords=coords, attrs=draw(_ATTRS))
    for name in made.variables:
        made[name].encoding = {"dtype": "int16", "scale_factor": 0.1} if draw(st.booleans()) else {}
    return made[names[0]] if names and draw(st.booleans()) else made


@st.composite
def geometries(draw: Any, size: int) -> Any:
    import geopandas
    import shapely

    shapes = [
        *(
            None,
            shapely.Point(),
            shapely.Point(1, 2),
            shapely.Point(1, 2, 3),
            shapely.LineString([(0, 0), (1.5, -0.0)]),
        ),
        *(shapely.Polygon(), shapely.box(0, 0, 1, 1), shapely.MultiPoint([(0, 0), (1e-300, 1e300)])),
        shapely.GeometryCollection([shapely.Point(0, 0), shapely.LineString()]),
    ]
    crs = draw(st.sampled_from([None, "EPSG:4326", "EPSG:3857", "+proj=laea +lat_0=52 +lon_0=10 +units=m"]))
    found = draw(st.lists(st.sampled_from(shapes), min_size=size, max_size=size))
    return geopandas.array.GeometryArray(np.array([*found, None], dtype=object)[:-1], crs=crs)


@st.composite
def geo_frames(draw: Any) -> Any:
    """A GeoDataFrame with none to two geometry columns, or a GeoSeries."""
    import geopandas

    size = draw(st.integers(0, 4))
    index = pd.Index([f"r{at}" for at in range(size)], name=draw(st.sampled_from([None, "row"])), dtype=object)
    if draw(st.booleans()):
        return geopandas.GeoSeries(draw(geometries(size)), index=index, name=draw(st.sampled_from([None, "g"])))
    names = draw(st.lists(st.sampled_from(["geometry", "where", "old"]), max_size=2, unique=True))
    columns = {"n": np.arange(size), **{name: draw(geometries(size)) for name in names}}
    made = geopandas.GeoDataFrame(pd.DataFrame(columns, index=index))
    if names and draw(st.booleans()):
        made = made.set_geometry(names[-1])
    made.attrs = {"from": "a survey"} if draw(st.booleans()) else {}
    return made


class Text(str):
    """A subclass of text."""

    __slots__ = ()


_GOOD = st.none() | st.booleans() | st.integers() | st.integers(2**64, 2**200) | TEXT | ANY_TEXT
_GOOD_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_ODD = st.one_of(
    *(
        st.just(value)
        for value in (float("nan"), float("inf"), -float("inf"), Text("x"), np.float64(1), uuid.UUID(int=1))
    ),
    *(st.just(value) for value in ((1, 2), b"x", {1: "a"}, {None: 1}, {"a", "b"}, 1j)),
)


def json_values(*, odd: bool) -> Any:
    """Plain values, in containers; `odd` ones hold at least one that JSON would alter."""
    plain = _GOOD | _GOOD_FLOATS
    leaves = _ODD if odd else plain
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, min_size=1 if odd else 0, max_size=3)
            | st.dictionaries(ANY_TEXT, inner, min_size=1 if odd else 0, max_size=3)
        ),
        max_leaves=6,
    )
