"""Strict comparison: what tests of this folder mean by "came back as it was".

Written apart from the product's own `exact`, so that a fault there does not hide itself.
"""

# ruff: noqa: DTZ001, E721, RUF005, RET503, B905

from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pandas as pd
import pyarrow as pa

KINDS = (
    "type",
    "shape",
    "columns",
    "index",
    "dtype",
    "value",
    "names",
    "attrs",
    "freq",
    "tz_class",
    "flags",
    "metadata",
)


def assert_same(a, b, ignore=()):
    """Raise AssertionError unless b is an exact copy of a.

    Nothing is ignored by default. Policy switches a product may document, and
    then pass here: "attrs", "freq", "tz_class" (same zone, other tzinfo class),
    "flags". MultiIndex level entries that no row uses are not compared. Zeros
    keep their sign; NaN payload bits are not compared.
    """
    unknown = set(ignore) - set(KINDS)
    assert not unknown, f"unknown policy {unknown}"
    found = [d for d in differences(a, b) if d[0] not in ignore]
    if found:
        lines = [f"{k} @ {where}: {text}" for k, where, text in found[:20]]
        raise AssertionError(f"{len(found)} difference(s)\n" + "\n".join(lines))


def differences(a, b, where="obj"):
    out = []
    _any(a, b, where, out)
    return out


def _add(out, kind, where, text):
    if len(out) < 200:
        out.append((kind, where, str(text)[:300]))


def _cls(x):
    t = type(x)
    return f"{t.__module__}.{t.__qualname__}"


def _any(a, b, where, out):
    if isinstance(a, pd.DataFrame):
        return _frame(a, b, where, out)
    if isinstance(a, pd.Series):
        return _series(a, b, where, out)
    if isinstance(a, pd.Index):
        return _index(a, b, where, out)
    if isinstance(a, np.ndarray):
        return _ndarray(a, b, where, out)
    if isinstance(a, pa.Table):
        return _table(a, b, where, out)
    return _scalar(a, b, where, out)


def _meta(a, b, where, out):
    for n in getattr(type(a), "_metadata", []):
        if n in ("_name", "name"):
            continue
        x, y = getattr(a, n, None), getattr(b, n, None)
        n0 = len(out)
        _scalar(x, y, where, out)
        for i in range(n0, len(out)):
            out[i] = ("metadata", f"{where}.{n}", out[i][2])
    if hasattr(type(a), "crs") or type(a).__name__ in ("GeoDataFrame", "GeoSeries"):
        ca, cb = getattr(a, "crs", None), getattr(b, "crs", None)
        if not (ca == cb or (ca is None and cb is None)):
            _add(out, "metadata", where, f"crs {ca!r} -> {cb!r}")
    if a.flags.allows_duplicate_labels != b.flags.allows_duplicate_labels:
        _add(out, "flags", where, "allows_duplicate_labels differs")
    n0 = len(out)
    _scalar(dict(a.attrs), dict(b.attrs), f"{where}.attrs", out)
    for i in range(n0, len(out)):
        out[i] = ("attrs",) + out[i][1:]


def _frame(a, b, where, out):
    if type(a) is not type(b):
        _add(out, "type", where, f"{_cls(a)} -> {_cls(b)}")
        if not isinstance(b, pd.DataFrame):
            return None
    if a.shape != b.shape:
        _add(out, "shape", where, f"{a.shape} -> {b.shape}")
    _index(a.columns, b.columns, f"{where}.columns", out, kind="columns")
    _index(a.index, b.index, f"{where}.index", out)
    _meta(a, b, where, out)
    if a.shape != b.shape:
        return None
    if a.shape[1] > 2000:
        da, db = a.dtypes.to_numpy(), b.dtypes.to_numpy()
        if len(set(da)) == 1 and len(set(db)) == 1 and isinstance(da[0], np.dtype) and da[0] != object:
            if da[0] != db[0]:
                _add(out, "dtype", where, f"{da[0]} -> {db[0]}")
            return _ndarray(a.to_numpy(), b.to_numpy(), where, out)
    for i in range(a.shape[1]):
        label = f"{where}[{i}:{a.columns[i]!r}]"
        x, y = a.iloc[:, i], b.iloc[:, i]
        if _dtype(x.dtype, y.dtype, label, out):
            _values(x.array, y.array, label, out)


def _series(a, b, where, out):
    if type(a) is not type(b):
        _add(out, "type", where, f"{_cls(a)} -> {_cls(b)}")
        if not isinstance(b, pd.Series):
            return None
    n0 = len(out)
    _scalar(a.name, b.name, f"{where}.name", out)
    for i in range(n0, len(out)):
        out[i] = ("names",) + out[i][1:]
    _index(a.index, b.index, f"{where}.index", out)
    _meta(a, b, where, out)
    if len(a) != len(b):
        return _add(out, "shape", where, f"{len(a)} -> {len(b)}")
    if _dtype(a.dtype, b.dtype, where, out):
        _values(a.array, b.array, where, out)


def _index(a, b, where, out, kind="index"):
    if type(a) is not type(b):
        _add(out, kind, where, f"{type(a).__name__} -> {type(b).__name__} ({getattr(b, 'dtype', '')})")
        if not isinstance(b, pd.Index):
            return None
    na, nb = list(a.names), list(b.names)
    if len(na) != len(nb):
        return _add(out, kind, where, f"{len(na)} level(s) -> {len(nb)}")
    for i, (x, y) in enumerate(zip(na, nb)):
        n0 = len(out)
        _scalar(x, y, f"{where}.names[{i}]", out)
        for j in range(n0, len(out)):
            out[j] = ("names",) + out[j][1:]
    if len(a) != len(b):
        return _add(out, kind, where, f"length {len(a)} -> {len(b)}")
    if isinstance(a, pd.RangeIndex) and isinstance(b, pd.RangeIndex):
        ra, rb = (a.start, a.stop, a.step), (b.start, b.stop, b.step)
        if ra != rb:
            _add(out, kind, where, f"range{ra} -> range{rb}")
        return None
    if isinstance(a, pd.MultiIndex):
        if isinstance(b, pd.MultiIndex):
            for i in range(a.nlevels):
                _index(a.get_level_values(i), b.get_level_values(i), f"{where}.level[{i}]", out, kind)
        return None
    if isinstance(b, pd.MultiIndex):
        return None
    fa, fb = getattr(a, "freq", None), getattr(b, "freq", None)
    if isinstance(a, (pd.DatetimeIndex, pd.TimedeltaIndex)) and type(a) is type(b) and fa != fb:
        _add(out, "freq", where, f"{fa!r} -> {fb!r}")
    n0 = len(out)
    if _dtype(a.dtype, b.dtype, where, out):
        _values(a.array, b.array, where, out)


def _tz(a, b, where, out):
    if (a is None) != (b is None):
        return _add(out, "dtype", where, f"tz {a!r} -> {b!r}")
    if a is None:
        return None
    probes = [dt.datetime(2001, 1, 15, 12), dt.datetime(2001, 7, 15, 12), dt.datetime(1950, 1, 1)]

    def off(tz):
        return [pd.Timestamp(p, tz="UTC").tz_convert(tz).utcoffset() for p in probes]

    try:
        same = off(a) == off(b)
    except Exception as e:
        same = False
        _add(out, "dtype", where, f"tz unusable: {e}")
    ka, kb = getattr(a, "key", getattr(a, "zone", None)), getattr(b, "key", getattr(b, "zone", None))
    if not same or (ka and kb and ka != kb):
        _add(out, "dtype", where, f"tz {a!r} -> {b!r}")
    elif type(a) is not type(b):
        _add(out, "tz_class", where, f"{_cls(a)} {a} -> {_cls(b)} {b}")


def _dtype(a, b, where, out):
    """True when values may be compared."""
    if type(a) is not type(b):
        _add(out, "dtype", where, f"{a!r} -> {b!r}")
        return False
    if isinstance(a, pd.CategoricalDtype):
        if a.ordered != b.ordered:
            _add(out, "dtype", where, f"ordered {a.ordered} -> {b.ordered}")
        if (a.categories is None) != (b.categories is None):
            _add(out, "dtype", where, "categories None differs")
            return False
        if a.categories is not None:
            n0 = len(out)
            _index(a.categories, b.categories, f"{where}.categories", out)
            for i in range(n0, len(out)):
                if out[i][0] not in ("freq", "tz_class"):
                    out[i] = ("dtype",) + out[i][1:]
            return len(out) == n0
        return True
    if isinstance(a, pd.DatetimeTZDtype):
        if a.unit != b.unit:
            _add(out, "dtype", where, f"unit {a.unit} -> {b.unit}")
        _tz(a.tz, b.tz, where, out)
        return a.unit == b.unit
    if isinstance(a, pd.StringDtype):
        if a.storage != b.storage or type(a.na_value) is not type(b.na_value):
            _add(out, "dtype", where, f"string[{a.storage},{a.na_value}] -> string[{b.storage},{b.na_value}]")
        return True
    if isinstance(a, pd.ArrowDtype):
        if not a.pyarrow_dtype.equals(b.pyarrow_dtype):
            _add(out, "dtype", where, f"{a.pyarrow_dtype} -> {b.pyarrow_dtype}")
            return False
        return True
    if isinstance(a, pd.SparseDtype):
        ok = _dtype(a.subtype, b.subtype, where, out)
        n0 = len(out)
        _scalar(a.fill_value, b.fill_value, f"{where}.fill_value", out)
        for i in range(n0, len(out)):
            out[i] = ("dtype",) + out[i][1:]
        return ok
    if isinstance(a, pd.IntervalDtype):
        if a.closed != b.closed:
            _add(out, "dtype", where, f"closed {a.closed} -> {b.closed}")
        return _dtype(a.subtype, b.subtype, where, out)
    if isinstance(a, pd.PeriodDtype):
        if a.freq != b.freq:
            _add(out, "dtype", where, f"freq {a.freq} -> {b.freq}")
        return a.freq == b.freq
    if isinstance(a, np.dtype):
        if a != b or a.byteorder != b.byteorder or a.metadata != b.metadata:
            _add(out, "dtype", where, f"{a!r} -> {b!r}")
        return a == b
    if a != b or str(a) != str(b):
        _add(out, "dtype", where, f"{a!r} -> {b!r}")
    return a == b


def _values(a, b, where, out):
    if len(a) != len(b):
        return _add(out, "value", where, f"length {len(a)} -> {len(b)}")
    if isinstance(a, pd.Categorical):
        if not np.array_equal(a.codes, b.codes):
            _add(out, "value", where, "category codes differ")
        return None
    if isinstance(a, pd.arrays.IntervalArray):
        for side in ("left", "right"):
            _index(getattr(a, side), getattr(b, side), f"{where}.{side}", out)
        out[:] = [d for d in out if not (d[0] == "freq" and d[1].startswith(where + "."))]
        return None
    if isinstance(a, pd.arrays.SparseArray):
        return _ndarray(a.to_dense(), b.to_dense(), where, out)
    if hasattr(a, "asi8"):
        if not np.array_equal(a.asi8, b.asi8):
            _add(out, "value", where, "datetime-like integers differ")
        return None
    if hasattr(a, "_mask") and hasattr(a, "_data"):
        if not np.array_equal(a._mask, b._mask):
            _add(out, "value", where, f"NA mask {a._mask.tolist()} -> {b._mask.tolist()}")
        keep = ~(a._mask | b._mask)
        return _ndarray(np.asarray(a._data)[keep], np.asarray(b._data)[keep], where, out)
    if hasattr(a, "_pa_array") and isinstance(a.dtype, pd.ArrowDtype):
        x, y = a._pa_array.to_pylist(), b._pa_array.to_pylist()
        for i, (p, q) in enumerate(zip(x, y)):
            _scalar(p, q, f"{where}[{i}]", out)
        return None
    if isinstance(a.dtype, pd.StringDtype):
        x, y = list(a), list(b)
        for i, (p, q) in enumerate(zip(x, y)):
            if pd.isna(p) and pd.isna(q):
                continue
            _scalar(p, q, f"{where}[{i}]", out)
        return None
    if isinstance(a.dtype, np.dtype):
        return _ndarray(np.asarray(a), np.asarray(b), where, out)
    for i, (p, q) in enumerate(zip(list(a), list(b))):
        _scalar(p, q, f"{where}[{i}]", out)


def _ndarray(a, b, where, out):
    if type(a) is not type(b):
        _add(out, "type", where, f"{_cls(a)} -> {_cls(b)}")
        if not isinstance(b, np.ndarray):
            return None
    if a.shape != b.shape:
        return _add(out, "shape", where, f"{a.shape} -> {b.shape}")
    if a.dtype != b.dtype or a.dtype.byteorder != b.dtype.byteorder:
        _add(out, "dtype", where, f"{a.dtype!r} -> {b.dtype!r}")
        if a.dtype != b.dtype:
            return None
    if isinstance(a, np.ma.MaskedArray) and isinstance(b, np.ma.MaskedArray):
        if not np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b)):
            _add(out, "value", where, "mask differs")
        if a.fill_value != b.fill_value:
            _add(out, "value", where, "fill_value differs")
        a, b = a.data, b.data
    if a.dtype == object:
        for i, (p, q) in enumerate(zip(a.ravel(), b.ravel())):
            _scalar(p, q, f"{where}[{i}]", out)
        return None
    if a.dtype.names:
        for n in a.dtype.names:
            _ndarray(np.asarray(a[n]), np.asarray(b[n]), f"{where}.{n}", out)
        return None
    if a.dtype.kind in "mM":
        if not np.array_equal(a.view("i8"), b.view("i8")):
            _add(out, "value", where, "datetime integers differ")
        return None
    if a.dtype.kind == "c":
        _ndarray(a.real.copy(), b.real.copy(), where + ".real", out)
        return _ndarray(a.imag.copy(), b.imag.copy(), where + ".imag", out)
    if a.dtype.kind == "f":
        nan = np.isnan(a)
        if not np.array_equal(nan, np.isnan(b)):
            return _add(out, "value", where, "NaN positions differ")
        ok = ((a == b) & (np.signbit(a) == np.signbit(b))) | nan
        if not ok.all():
            i = int(np.argmin(ok.ravel()))
            _add(out, "value", where, f"[{i}] {a.ravel()[i]!r} -> {b.ravel()[i]!r}")
        return None
    if not np.array_equal(a, b):
        _add(out, "value", where, "values differ")


def _scalar(x, y, where, out):
    if x is y:
        return None
    if type(x) is not type(y):
        return _add(out, "value", where, f"{_cls(x)} {x!r} -> {_cls(y)} {y!r}")
    if isinstance(x, (float, np.floating)):
        if (math.isnan(x) and math.isnan(y)) or (x == y and np.signbit(x) == np.signbit(y)):
            return None
        return _add(out, "value", where, f"{x!r} -> {y!r}")
    if isinstance(x, (complex, np.complexfloating)):
        _scalar(x.real, y.real, where, out)
        return _scalar(x.imag, y.imag, where, out)
    if isinstance(x, decimal.Decimal):
        if x.as_tuple() != y.as_tuple():
            _add(out, "value", where, f"{x!r} -> {y!r}")
        return None
    if isinstance(x, np.ndarray):
        return _ndarray(x, y, where, out)
    if isinstance(x, (pd.DataFrame, pd.Series, pd.Index)):
        return _any(x, y, where, out)
    if isinstance(x, (list, tuple)):
        if len(x) != len(y):
            return _add(out, "value", where, f"length {len(x)} -> {len(y)}")
        for i, (p, q) in enumerate(zip(x, y)):
            _scalar(p, q, f"{where}[{i}]", out)
        return None
    if isinstance(x, (set, frozenset)):
        if sorted(map(repr, x)) != sorted(map(repr, y)):
            _add(out, "value", where, f"{x!r} -> {y!r}")
        return None
    if isinstance(x, dict):
        kx, ky = [(_cls(k), k) for k in x], [(_cls(k), k) for k in y]
        if kx != ky:
            return _add(out, "value", where, f"keys {list(x)!r} -> {list(y)!r}")
        for k in x:
            _scalar(x[k], y[k], f"{where}[{k!r}]", out)
        return None
    if isinstance(x, (np.datetime64, np.timedelta64)):
        if x.dtype != y.dtype or not ((np.isnat(x) and np.isnat(y)) or x == y):
            _add(out, "value", where, f"{x!r} -> {y!r}")
        return None
    if isinstance(x, pd.Timestamp):
        if x.tzinfo is not None or y.tzinfo is not None:
            _tz(x.tzinfo, y.tzinfo, where, out)
        if x.asm8 != y.asm8 or x.unit != y.unit or x.fold != y.fold:
            _add(out, "value", where, f"{x!r} ({x.unit}) -> {y!r} ({y.unit})")
        return None
    if isinstance(x, (dt.datetime, dt.time)):
        if x.replace(tzinfo=None) != y.replace(tzinfo=None) or x.fold != y.fold:
            _add(out, "value", where, f"{x!r} -> {y!r}")
        if (x.tzinfo is None) != (y.tzinfo is None) or (x.tzinfo is not None and x.utcoffset() != y.utcoffset()):
            _add(out, "value", where, f"tz {x!r} -> {y!r}")
        elif x.tzinfo is not None and type(x.tzinfo) is not type(y.tzinfo):
            _add(out, "tz_class", where, f"{_cls(x.tzinfo)} -> {_cls(y.tzinfo)}")
        return None
    if isinstance(x, pd.Period):
        if x.freq != y.freq or x.ordinal != y.ordinal:
            _add(out, "value", where, f"{x!r} -> {y!r}")
        return None
    if isinstance(x, pd.Interval):
        if x.closed != y.closed:
            _add(out, "value", where, f"{x!r} -> {y!r}")
        _scalar(x.left, y.left, where, out)
        return _scalar(x.right, y.right, where, out)
    try:
        same = bool(x == y)
    except Exception as e:
        return _add(out, "value", where, f"cannot compare: {e!r}")
    if not same:
        _add(out, "value", where, f"{x!r} -> {y!r}")


def _table(a, b, where, out):
    if not isinstance(b, pa.Table):
        return _add(out, "type", where, f"pyarrow.Table -> {_cls(b)}")
    if not a.schema.equals(b.schema, check_metadata=True):
        for i, f in enumerate(a.schema):
            g = b.schema.field(i) if i < len(b.schema) else None
            if g is None or not f.equals(g, check_metadata=True):
                _add(
                    out,
                    "dtype",
                    f"{where}[{i}]",
                    f"{f} null={f.nullable} {f.metadata} -> {g} "
                    f"null={getattr(g, 'nullable', None)} {getattr(g, 'metadata', None)}",
                )
        if a.schema.metadata != b.schema.metadata:
            _add(out, "metadata", where, f"{a.schema.metadata} -> {b.schema.metadata}")
    if a.shape != b.shape:
        return _add(out, "shape", where, f"{a.shape} -> {b.shape}")
    for i in range(a.num_columns):
        x, y = a.column(i).to_pylist(), b.column(i).to_pylist()
        for j, (p, q) in enumerate(zip(x, y)):
            _scalar(p, q, f"{where}[{i}][{j}]", out)
