"""Python values as JSON that gives them back exactly, for names, attrs and cells that no Parquet type fits.

Owns: the tags and both directions. None, bool, int, finite float, str, list and dict with text keys are plain JSON, so
that other tools read something sensible; all else is an object with one key that begins with `$`. The reader builds
values from a closed list of types: nothing in a file can name code to run.

Does not own: which columns use it (`objects`), zones (`zones`). Anything outside the list raises `Untaggable`, and so
do subclasses, which would lose their class.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import fractions
import json
import math
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import zones
from rlm_memory.codecs.libraries import class_of, loaded, numpy, pandas

MAX_DEPTH = 200
MAX_INT_BITS = 13_000


class Untaggable(ValueError):
    """A value that has no exact form here; the text says which type and why."""


def dumps(value: Any) -> str:
    """One line of ASCII JSON. Raises `Untaggable`."""
    return json.dumps(tag(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Any:
    """The value that `dumps` was given."""
    return untag(json.loads(text))


def tag(value: Any, depth: int = 0) -> Any:
    """The JSON form. Raises `Untaggable` for types outside the list, subclasses, cycles and extreme nesting."""
    kind = class_of(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if value.bit_length() <= MAX_INT_BITS else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if depth > MAX_DEPTH:
        raise Untaggable("values nested deeper than 200 levels, or that hold themselves")
    if kind is list:
        return [tag(item, depth + 1) for item in value]
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: tag(item, depth + 1) for key, item in value.items()}
        return {"$dict": [[tag(key, depth + 1), tag(item, depth + 1)] for key, item in value.items()]}
    if kind in _GROUPS:
        return {_GROUPS[kind]: [tag(item, depth + 1) for item in value]}
    writer = _WRITERS.get(kind)
    return writer(value) if writer is not None else _tag_library(value, depth)


def untag(form: Any) -> Any:
    """The value of a JSON form. Raises `errors.Integrity` for a tag that is not in the list."""
    kind = class_of(form)
    if kind is list:
        return [untag(item) for item in form]
    if kind is not dict:
        return form
    if len(form) == 1:
        ((name, item),) = form.items()
        if name.startswith("$"):
            reader = _READERS.get(name)
            if reader is None:
                raise errors.Unsupported(
                    f"The recorded file holds a value tagged {name!r}, which this version does not know."
                )
            return reader(item)
    return {key: untag(item) for key, item in form.items()}


_GROUPS: dict[type, str] = {tuple: "$tuple", set: "$set", frozenset: "$frozenset"}


def _tag_datetime(value: dt.datetime) -> Any:
    form: dict[str, Any] = {"at": value.replace(tzinfo=None, fold=0).isoformat()}
    if value.tzinfo is not None:
        form["zone"] = _zone(value.tzinfo)
    if value.fold:
        form["fold"] = 1
    return {"$datetime": form}


def _untag_datetime(form: Any) -> Any:
    zone = zones.from_note(form["zone"]) if "zone" in form else None
    return dt.datetime.fromisoformat(form["at"]).replace(tzinfo=zone, fold=form.get("fold", 0))


def _tag_time(value: dt.time) -> Any:
    form: dict[str, Any] = {"at": value.replace(tzinfo=None, fold=0).isoformat()}
    if value.tzinfo is not None:
        form["zone"] = _zone(value.tzinfo)
    if value.fold:
        form["fold"] = 1
    return {"$time": form}


def _untag_time(form: Any) -> Any:
    zone = zones.from_note(form["zone"]) if "zone" in form else None
    return dt.time.fromisoformat(form["at"]).replace(tzinfo=zone, fold=form.get("fold", 0))


def _zone(zone: Any) -> Any:
    note = zones.to_note(zone)
    if note is None:
        raise Untaggable(f"a time zone of class {type(zone).__module__}.{type(zone).__qualname__}")
    return note


def _number(value: float) -> Any:
    return value if math.isfinite(value) else repr(value)


_WRITERS: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    bytearray: lambda value: {"$bytearray": base64.b64encode(value).decode()},
    complex: lambda value: {"$complex": [_number(value.real), _number(value.imag)]},
    decimal.Decimal: lambda value: {"$decimal": str(value)},
    fractions.Fraction: lambda value: {"$fraction": [hex(value.numerator), hex(value.denominator)]},
    dt.datetime: _tag_datetime,
    dt.date: lambda value: {"$date": value.isoformat()},
    dt.time: _tag_time,
    dt.timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    uuid.UUID: lambda value: {"$uuid": str(value)} if value.is_safe is uuid.SafeUUID.unknown else _unsafe_uuid(),
    pathlib.PurePosixPath: lambda value: {"$posixpath": str(value)},
    pathlib.PureWindowsPath: lambda value: {"$windowspath": str(value)},
    slice: lambda value: {"$slice": [tag(value.start), tag(value.stop), tag(value.step)]},
    range: lambda value: {"$range": [hex(value.start), hex(value.stop), hex(value.step)]},
    type(Ellipsis): lambda _: {"$ellipsis": True},
}


def _unsafe_uuid() -> Any:
    raise Untaggable("a UUID that carries a safety flag of this machine")


def _from_hex(text: str) -> int:
    return int(text, 16)


_READERS: dict[str, Callable[[Any], Any]] = {
    "$int": _from_hex,
    "$float": float,
    "$dict": lambda items: {untag(key): untag(item) for key, item in items},
    "$tuple": lambda items: tuple(untag(item) for item in items),
    "$set": lambda items: {untag(item) for item in items},
    "$frozenset": lambda items: frozenset(untag(item) for item in items),
    "$bytes": base64.b64decode,
    "$bytearray": lambda text: bytearray(base64.b64decode(text)),
    "$complex": lambda parts: complex(float(parts[0]), float(parts[1])),
    "$decimal": decimal.Decimal,
    "$fraction": lambda parts: fractions.Fraction(_from_hex(parts[0]), _from_hex(parts[1])),
    "$datetime": _untag_datetime,
    "$date": dt.date.fromisoformat,
    "$time": _untag_time,
    "$timedelta": lambda parts: dt.timedelta(parts[0], parts[1], parts[2]),
    "$uuid": uuid.UUID,
    "$posixpath": pathlib.PurePosixPath,
    "$windowspath": pathlib.PureWindowsPath,
    "$slice": lambda parts: slice(*(untag(part) for part in parts)),
    "$range": lambda parts: range(*(_from_hex(part) for part in parts)),
    "$ellipsis": lambda _: Ellipsis,
    "$NA": lambda _: pandas().NA,
    "$NaT": lambda _: pandas().NaT,
    "$numpy": lambda form: _untag_numpy(form),
    "$array": lambda form: _untag_array(form),
    "$timestamp": lambda form: _untag_timestamp(form),
    "$duration": lambda form: pandas().Timedelta(numpy().timedelta64(form["value"], form["unit"])),
    "$period": lambda form: _untag_period(form),
    "$interval": lambda form: pandas().Interval(untag(form["left"]), untag(form["right"]), closed=form["closed"]),
}


def _tag_library(value: Any, depth: int) -> Any:
    """Values of numpy and pandas, which are loaded if such a value exists."""
    np, pd = loaded("numpy"), loaded("pandas")
    if np is not None:
        if isinstance(value, np.generic):
            return _tag_numpy(np, value)
        if type(value) is np.ndarray:
            return _tag_array(np, value, depth)
    if pd is not None:
        if value is pd.NA:
            return {"$NA": True}
        if value is pd.NaT:
            return {"$NaT": True}
        if type(value) is pd.Timestamp:
            return _tag_timestamp(value)
        if type(value) is pd.Timedelta:
            return {"$duration": {"value": int(value.asm8.astype("int64")), "unit": value.unit}}
        if type(value) is pd.Period:
            return {"$period": {"ordinal": value.ordinal, "dtype": str(pd.PeriodDtype(value.freq))}}
        if type(value) is pd.Interval:
            return {"$interval": {"left": tag(value.left), "right": tag(value.right), "closed": value.closed}}
    raise Untaggable(f"values of type {type(value).__module__}.{type(value).__qualname__}")


def _tag_numpy(np: Any, value: Any) -> Any:
    code = value.dtype.str
    if (
        type(value) is not value.dtype.type
        or value.dtype.kind in "OVT"
        or value.dtype.metadata
        or value.dtype.char in "gG"
    ):
        raise Untaggable(f"numpy scalars of dtype {value.dtype}")
    if value.dtype.kind in "SUmM":
        return {"$numpy": [code, base64.b64encode(np.asarray(value).tobytes()).decode()]}
    if value.dtype.kind == "c":
        return {"$numpy": [code, [_number(float(value.real)), _number(float(value.imag))]]}
    if value.dtype.kind == "f":
        return {"$numpy": [code, _number(float(value))]}
    return {"$numpy": [code, value.item()]}


def _untag_numpy(form: Any) -> Any:
    np = numpy()
    code, item = form
    dtype = np.dtype(code)
    if dtype.kind in "SUmM":
        octets = base64.b64decode(item)
        return np.frombuffer(octets, dtype, count=1)[0] if dtype.itemsize else dtype.type()
    if dtype.kind == "c":
        return dtype.type(complex(float(item[0]), float(item[1])))
    return dtype.type(float(item) if dtype.kind == "f" else item)


def _tag_array(np: Any, value: Any, depth: int) -> Any:
    if value.dtype.kind == "O":
        items: Any = [tag(item, depth + 1) for item in value.ravel()]
        return {"$array": {"dtype": "O", "shape": list(value.shape), "items": items}}
    if value.dtype.kind in "VT" or value.dtype.metadata or value.dtype.char in "gG":
        raise Untaggable(f"numpy arrays of dtype {value.dtype}")
    octets = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return {"$array": {"dtype": value.dtype.str, "shape": list(value.shape), "octets": octets}}


def _untag_array(form: Any) -> Any:
    np = numpy()
    if form["dtype"] == "O":
        cells = np.empty(len(form["items"]), dtype=object)
        for at, item in enumerate(form["items"]):
            cells[at] = untag(item)
        return cells.reshape(form["shape"])
    dtype = np.dtype(form["dtype"])
    if dtype.itemsize == 0:
        return np.zeros(form["shape"], dtype)
    return np.frombuffer(base64.b64decode(form["octets"]), dtype).reshape(form["shape"]).copy()


def _tag_timestamp(value: Any) -> Any:
    form: dict[str, Any] = {"value": int(value.asm8.astype("int64")), "unit": value.unit}
    if value.tzinfo is not None:
        form["zone"] = _zone(value.tzinfo)
    if value.fold:
        form["fold"] = 1
    return {"$timestamp": form}


def _untag_timestamp(form: Any) -> Any:
    stamp = pandas().Timestamp(numpy().datetime64(form["value"], form["unit"]))
    if "zone" in form:
        stamp = stamp.tz_localize("UTC").tz_convert(zones.from_note(form["zone"]))
    return stamp if stamp.fold == form.get("fold", 0) else stamp.replace(fold=form.get("fold", 0))


def _untag_period(form: Any) -> Any:
    pd = pandas()
    dtype = pd.PeriodDtype(form["dtype"].removeprefix("period[").removesuffix("]"))
    return pd.arrays.PeriodArray(numpy().array([form["ordinal"]], dtype="int64"), dtype=dtype)[0]
