"""Exact equality of values, type for type: what "comes back as it was" means here.

Owns: the comparison of single values, numpy arrays and pandas columns. Zeros keep their sign; any NaN equals any NaN
(payload bits are not compared). Does not own: frames as a whole, whose parts are compared where they are encoded.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

from rlm_memory.codecs.libraries import class_of, loaded, numpy, pandas


def same_value(a: Any, b: Any) -> bool:
    """True when both have the same exact type and the same value, containers item by item."""
    if a is b:
        return True
    kind = class_of(a)
    if kind is not type(b):
        return False
    if kind in _PLAIN:
        return a == b
    if kind is float:
        return _same_float(a, b)
    if kind is list or kind is tuple:
        return len(a) == len(b) and all(map(same_value, a, b))
    if kind is dict:
        return len(a) == len(b) and all(map(same_value, a, b)) and all(map(same_value, a.values(), b.values()))
    if kind is set or kind is frozenset:
        return _same_set(a, b)
    if kind is decimal.Decimal:
        return a.as_tuple() == b.as_tuple()
    if kind is complex:
        return _same_float(a.real, b.real) and _same_float(a.imag, b.imag)
    if kind is dt.datetime or kind is dt.time:
        return a.replace(tzinfo=None) == b.replace(tzinfo=None) and a.fold == b.fold and same_zone(a.tzinfo, b.tzinfo)
    return _same_library(a, b)


_PLAIN = frozenset({bool, int, str, bytes, bytearray, dt.date, dt.timedelta, range, type(None)})


def _same_float(a: float, b: float) -> bool:
    return (a == b and math.copysign(1.0, a) == math.copysign(1.0, b)) or (a != a and b != b)


def _same_set(a: Any, b: Any) -> bool:
    if len(a) != len(b):
        return False
    keyed = {repr(item): item for item in b}
    return all(repr(item) in keyed and same_value(item, keyed[repr(item)]) for item in a)


def zone_arguments(zone: Any) -> Any:
    """What a `datetime.timezone` was made with: its equality leaves out the name."""
    return zone.__getinitargs__()


def same_zone(a: Any, b: Any) -> bool:
    """The same zone of the same class."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, dt.timezone):
        return zone_arguments(a) == zone_arguments(b)
    key = getattr(a, "key", getattr(a, "zone", None))
    return key == getattr(b, "key", getattr(b, "zone", None)) and (key is not None or a == b)


def _same_library(a: Any, b: Any) -> bool:
    np, pd = loaded("numpy"), loaded("pandas")
    if np is not None:
        if isinstance(a, np.ndarray):
            return same_array(a, b)
        if isinstance(a, np.generic):
            return a.dtype == b.dtype and same_array(np.asarray(a), np.asarray(b))
    if pd is not None:
        if isinstance(a, pd.Timestamp):
            return a.asm8 == b.asm8 and a.unit == b.unit and a.fold == b.fold and same_zone(a.tzinfo, b.tzinfo)
        if isinstance(a, pd.Timedelta):
            return a.asm8 == b.asm8 and a.unit == b.unit
        if isinstance(a, pd.Period):
            return a.freq == b.freq and a.ordinal == b.ordinal
        if isinstance(a, pd.Interval):
            return a.closed == b.closed and same_value(a.left, b.left) and same_value(a.right, b.right)
    try:
        return bool(a == b)
    except Exception:  # a comparison that fails proves nothing
        return False


def same_array(a: Any, b: Any) -> bool:
    """Two numpy arrays: class, dtype with byte order and metadata, shape, values."""
    np = numpy()
    if type(a) is not type(b) or a.shape != b.shape or not same_dtype(a.dtype, b.dtype):
        return False
    if a.dtype.names:
        return all(same_array(np.asarray(a[name]), np.asarray(b[name])) for name in a.dtype.names)
    kind = a.dtype.kind
    if kind == "O":
        return all(map(same_value, a.ravel(), b.ravel()))
    if kind == "c":
        return same_array(a.real.copy(), b.real.copy()) and same_array(a.imag.copy(), b.imag.copy())
    if kind == "f":
        nan = np.isnan(a)
        return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (nan & np.isnan(b))).all())
    if kind in "mM":
        return bool(np.array_equal(a.view("i8"), b.view("i8")))
    if kind == "V":
        return a.tobytes() == b.tobytes()
    return bool(np.array_equal(a, b))


def same_dtype(a: Any, b: Any) -> bool:
    """numpy dtypes, with what their own equality leaves out."""
    return (
        a == b
        and a.byteorder == b.byteorder
        and a.isalignedstruct == b.isalignedstruct
        and (a.metadata or None) == (b.metadata or None)
    )


def same_column(a: Any, b: Any) -> bool:
    """Two pandas arrays or numpy arrays of one column: class, dtype and values."""
    np, pd = numpy(), pandas()
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and same_array(a, b)
    if type(a) is not type(b) or str(a.dtype) != str(b.dtype) or len(a) != len(b):
        return False
    if isinstance(a.dtype, pd.CategoricalDtype):
        return a.ordered == b.ordered and same_index(a.categories, b.categories) and same_array(a.codes, b.codes)
    if isinstance(a.dtype, pd.IntervalDtype):
        return same_column(_ends(a, "left"), _ends(b, "left")) and same_column(_ends(a, "right"), _ends(b, "right"))
    if isinstance(a.dtype, pd.SparseDtype):
        return (
            same_value(a.fill_value, b.fill_value)
            and a.kind == b.kind
            and same_array(a.sp_values, b.sp_values)
            and same_array(a.sp_index.indices, b.sp_index.indices)
            if hasattr(a.sp_index, "indices") and hasattr(b.sp_index, "indices")
            else same_value(a.fill_value, b.fill_value) and a.kind == b.kind and same_array(a.to_dense(), b.to_dense())
        )
    return _same_extension(a, b)


def same_chunked(a: Any, b: Any) -> bool:
    """Two Arrow columns: the type to the last name, and the values; not where chunks end."""
    if str(a.type) != str(b.type) or not a.type.equals(b.type, check_metadata=True) or len(a) != len(b):
        return False
    return a.equals(b) or all(map(same_value, a.to_pylist(), b.to_pylist()))


def _ends(array: Any, side: str) -> Any:
    ends = getattr(array, side).array
    return ends.to_numpy() if type(ends).__name__ == "NumpyExtensionArray" else ends


def _same_extension(a: Any, b: Any) -> bool:
    np, pd = numpy(), pandas()
    if isinstance(a.dtype, pd.ArrowDtype):
        return same_chunked(a._pa_array, b._pa_array)
    if hasattr(a, "asi8"):
        zone = getattr(a, "tz", None)
        return a.dtype == b.dtype and bool(np.array_equal(a.asi8, b.asi8)) and same_zone(zone, getattr(b, "tz", None))
    if hasattr(a, "geom_type"):
        from rlm_memory.codecs.geometry import binary

        return a.crs == b.crs and all(map(same_value, binary(a), binary(b)))
    if hasattr(a, "_mask"):
        keep = ~a._mask
        return bool(np.array_equal(a._mask, b._mask)) and same_array(a._data[keep], b._data[keep])
    if isinstance(a.dtype, pd.StringDtype):
        missing = np.asarray(a.isna())
        if not np.array_equal(missing, np.asarray(b.isna())):
            return False
        return all(map(same_value, np.asarray(a, dtype=object)[~missing], np.asarray(b, dtype=object)[~missing]))
    return all(map(same_value, list(a), list(b)))


def same_index(a: Any, b: Any) -> bool:
    """Two pandas indexes: class, names, values; the range of a RangeIndex; not freq."""
    pd = pandas()
    if type(a) is not type(b) or len(a) != len(b) or not same_value(list(a.names), list(b.names)):
        return False
    if isinstance(a, pd.RangeIndex):
        return (a.start, a.stop, a.step) == (b.start, b.stop, b.step)
    if isinstance(a, pd.MultiIndex):
        return all(same_index(level_values(a, at), level_values(b, at)) for at in range(a.nlevels))
    return same_column(plain_array(a), plain_array(b))


def level_values(index: Any, at: int) -> Any:
    """Values of a MultiIndex level by position: the public method takes an integer for a level's name first."""
    return index._get_level_values(at)


def plain_array(holder: Any) -> Any:
    """The array of a Series or Index; a numpy array where pandas only wraps one."""
    array = holder.array
    return array.to_numpy() if type(array).__name__ == "NumpyExtensionArray" else array
