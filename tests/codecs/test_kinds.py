"""Whatever array, table, dataset or JSON is made up, it comes back exactly, or is refused as the manual says."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import generated_kinds as made
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from rlm_memory import codecs, errors
from rlm_memory.codecs import exact
from same import assert_same

# numpy makes a default fill value for fields that cannot hold it.
pytestmark = [pytest.mark.compat, pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")]


def back(obj: Any) -> Any:
    """Through a file; nothing else is left in the folder, nor anything where it is refused."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            encoded = codecs.encode(obj, folder)
        except errors.NotExact:
            assert list(folder.iterdir()) == []
            raise
        assert list(folder.iterdir()) == [encoded.path]
        return codecs.decode(encoded.path, encoded.media_type)


def same_bits(a: Any, b: Any) -> None:
    """Class, dtype, shape, order and every bit of every value; not the padding between fields."""
    assert type(a) is type(b)
    assert a.dtype == b.dtype
    assert a.dtype.byteorder == b.dtype.byteorder
    assert a.dtype.isalignedstruct == b.dtype.isalignedstruct
    assert a.shape == b.shape
    for name in a.dtype.names or ():
        same_bits(np.asarray(a[name]), np.asarray(b[name]))
    if not a.dtype.names:
        # A lone long double has padding too, which holds anything.
        padded = a.dtype.char in "gG"
        assert exact.same_array(a, b) if padded else a.tobytes() == b.tobytes()


def check_array(array: Any) -> None:
    found = back(array)
    same_bits(array, found)
    if array.flags.c_contiguous or array.flags.f_contiguous:
        assert found.flags.f_contiguous == array.flags.f_contiguous


def check_masked(array: Any) -> None:
    found = back(array)
    assert type(found) is np.ma.MaskedArray
    same_bits(np.asarray(array.data), np.asarray(found.data))
    assert (array.mask is np.ma.nomask) == (found.mask is np.ma.nomask)
    same_bits(np.ma.getmaskarray(array), np.ma.getmaskarray(found))
    same_bits(np.asarray(array.fill_value), np.asarray(found.fill_value))
    assert array.hardmask == found.hardmask


def check_scalar(array: Any) -> None:
    if array.size and not array.dtype.names and type(array.flat[0]) is not np.void:
        value = array.ravel()[0]
        found = back(value)
        assert type(found) is type(value)
        same_bits(np.asarray(value), np.asarray(found))


def check_dict(arrays: Any) -> None:
    found = back(arrays)
    assert list(found) == list(arrays)
    for key, array in arrays.items():
        same_bits(array, found[key])


def check_table(table: pa.Table) -> None:
    if any(word in str(table.schema.types) for word in made.REFUSED_ARROW):
        with pytest.raises(errors.NotExact, match="Parquet has no form"):
            back(table)
        return
    found = back(table)
    assert found.schema.equals(table.schema, check_metadata=True)
    assert str(found.schema.types) == str(table.schema.types)
    assert found.num_rows == table.num_rows
    for one, other in zip(table.columns, found.columns, strict=True):
        other.validate(full=True)
        assert repr(one.to_pylist()) == repr(other.to_pylist())
        if pa.types.is_dictionary(one.type) and len(one):
            values = [column.unify_dictionaries().chunk(0).dictionary.to_pylist() for column in (one, other)]
            assert repr(values[0]) == repr(values[1])


def check_polars(frame: Any) -> None:
    """Objects, extension types, named categories and coded or 128-bit cells inside nested types are refused."""
    refused = ("Object", "Extension")
    inside = ("Categorical", "Enum", "Int128", *refused)
    if any(str(one).startswith(refused) or (one.is_nested() and has(str(one), inside)) for one in frame.dtypes):
        with pytest.raises(errors.NotExact, match="no exact form"):
            back(frame)
        return
    found = back(frame)
    assert found.schema == frame.schema
    assert found.equals(frame, null_equal=True)
    assert repr(found.rows()) == repr(frame.rows())


def has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)


def check_dataset(obj: Any) -> None:
    found = back(obj)
    assert type(found) is type(obj)
    assert found.identical(obj)
    for name in obj.coords if hasattr(obj, "name") else obj.variables:
        assert found[name].dtype == obj[name].dtype
        assert found[name].dims == obj[name].dims
        assert repr(found[name].attrs) == repr(obj[name].attrs)
    assert list(found.xindexes) == list(obj.xindexes) or set(found.xindexes) == set(obj.xindexes)


def check_geo(obj: Any) -> None:
    found = back(obj)
    assert_same(obj, found)
    if obj.ndim == 2:
        assert found._geometry_column_name == obj._geometry_column_name


def check_json(value: Any) -> None:
    if type(value) is str:
        return
    assert repr(back(value)) == repr(value)


def check_odd_json(value: Any) -> None:
    if type(value) in (bytes, made.Text) or isinstance(value, np.generic):
        return
    with pytest.raises((errors.NotExact, errors.Invalid)):
        back(value)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], None], str]] = {
    "numpy": (made.arrays, check_array, "numpy"),
    "masked": (made.masked, check_masked, "numpy"),
    "scalars": (made.arrays, check_scalar, "numpy"),
    "dicts": (made.array_dicts, check_dict, "numpy"),
    "arrow": (made.tables, check_table, "pyarrow"),
    "polars": (made.polars_frames, check_polars, "polars"),
    "xarray": (made.datasets, check_dataset, "zarr"),
    "geopandas": (made.geo_frames, check_geo, "geopandas"),
    "json": (lambda: made.json_values(odd=False), check_json, "json"),
    "odd json": (lambda: made.json_values(odd=True), check_odd_json, "json"),
}


def campaign(kind: str, examples: int, phases: tuple[Phase, ...] = tuple(Phase)) -> None:
    make, check, library = KINDS[kind]
    pytest.importorskip(library)
    options = settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), phases=phases, database=None
    )

    @options
    @given(make())
    def run(obj: Any) -> None:
        check(obj)

    run()


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_made_up_comes_back_exactly(kind: str) -> None:
    """A few dozen of each kind."""
    campaign(kind, 25)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_of_each_kind_come_back_exactly(kind: str) -> None:
    """The long campaign, without the shrinking of what it finds."""
    campaign(kind, 1000, (Phase.generate,))


def lists_of_nulls() -> pa.FixedSizeListArray:
    """What Arrow's own cast gets wrong: items that are lists of nulls, and a null list among them."""
    items = pa.ListViewArray.from_arrays(
        pa.array([0, 1, 2, 2, 0, 1], pa.int32()), pa.array([2, 2, 1, 2, 2, 2], pa.int32()), pa.nulls(4)
    )
    return pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, True, False]))


FIXED: dict[str, pa.Array] = {
    "lists of nulls": lists_of_nulls(),
    "a part of them": lists_of_nulls().slice(1),
    "no items": pa.array([[], None, []], pa.list_(pa.int8(), 0)),
    "all null": pa.array([None, None], pa.list_(pa.list_(pa.null()), 3)),
    "fixed in fixed": pa.array([[[1, 2], [3, 4]], None, [None, [None, 5]]], pa.list_(pa.list_(pa.int8(), 2), 2)),
}


@pytest.mark.parametrize("name", FIXED)
def test_lists_of_one_size_need_no_cast_of_arrows(name: str) -> None:
    """Arrow's own aborts the process for some of these."""
    check_table(pa.table({"a": FIXED[name]}))
