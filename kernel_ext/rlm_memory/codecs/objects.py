"""Object columns: the set of exact cell types decides how a column is kept, never inference.

Owns: which form an object column takes.
  - one type that Parquet has (text, bool, int, float, bytes, date, datetime, time, timedelta, Decimal of one exponent,
    UUID) beside missing cells: the native column; more than one kind of missing cell: a side column says which;
  - uniform lists, tuples, arrays and dicts: native nested columns (`nested`);
  - all else: a text column of tagged JSON (`tagged`).
Does not own: values outside the tagged list and subclasses, which are refused by row; lossy turns them into text.

Each native form is decoded again and compared before it is taken; one that differs anywhere falls through to the next.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any

from rlm_memory.codecs import nested, tagged, zones
from rlm_memory.codecs.exact import same_value
from rlm_memory.codecs.libraries import loaded, numpy, pandas, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored, null_mask, one_array, to_numpy

MISSING = ("none", "nan", "NA", "NaT")
"""Kinds of missing cell; a side column holds the position in this tuple."""


def encode(cells: Any, where: str, terms: Terms) -> Stored:
    """A one-dimensional numpy array of objects."""
    kinds: set[Any] = set(map(type, cells))
    markers = _markers(kinds)
    present: set[Any] = {kind for kind in kinds if kind is not type(None) and kind not in markers}
    if present == {float}:
        present = set() if _all_nan(cells) else {float}
    elif float in present and len(present) == 2 and _floats_are_nan(cells):
        present.discard(float)
    if len(present) <= 1:
        stored = _uniform(cells, next(iter(present), None))
        if stored is not None:
            return stored
    return _tagged(cells, where, terms)


def _markers(kinds: set[type]) -> set[type]:
    pd = loaded("pandas")
    return kinds & {type(pd.NA), type(pd.NaT)} if pd is not None else set()


def _all_nan(cells: Any) -> bool:
    return all(cell != cell for cell in cells if type(cell) is float)


_floats_are_nan = _all_nan


def _missing_kinds(cells: Any, floats_missing: bool) -> Any:
    """Per cell: -1 for a value, else the position in MISSING."""
    np, pd = numpy(), loaded("pandas")
    codes: dict[Any, int] = {type(None): 0}
    if pd is not None:
        codes[type(pd.NA)], codes[type(pd.NaT)] = 2, 3
    if floats_missing:
        codes[float] = 1
    return np.fromiter((codes.get(type(cell), -1) for cell in cells), dtype="int8", count=len(cells))


def _uniform(cells: Any, kind: type | None) -> Stored | None:
    """The native form of a column of one type beside missing cells, or None where that is not exact."""
    missing = _missing_kinds(cells, kind is not float)
    mask = missing >= 0
    values = cells[~mask]
    form = _native(values, kind)
    if form is None:
        return None
    compact, note, proof = form
    main = _spread(compact, mask)
    used = sorted(set(missing[mask].tolist()))
    wrapped: Note = {"kind": "object", "cell": note, "missing": [MISSING[code] for code in used]}
    sides: tuple[tuple[str, Any], ...] = ()
    if len(used) > 1:
        sides = (("missing", pyarrow().array(missing, mask=~mask)),)
    return Stored(main, wrapped, sides, proof)


def _spread(compact: Any, mask: Any) -> Any:
    """Put nulls where the mask is set between the values."""
    np, pa = numpy(), pyarrow()
    if not mask.any():
        return compact
    at = np.cumsum(~mask) - 1
    return (
        compact.take(pa.array(np.where(mask, 0, at), mask=mask)) if len(compact) else pa.nulls(len(mask), compact.type)
    )


def _native(values: Any, kind: type | None) -> tuple[Any, Note, Any] | None:
    pa = pyarrow()
    if kind is None:
        return pa.nulls(0, pa.string()), {"form": "none"}, "native"
    if kind in (list, tuple, dict) or (loaded("numpy") is not None and kind is numpy().ndarray):
        return _nested(values)
    maker = _FORMS.get(kind)
    if maker is None:
        return None
    try:
        made = maker(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError, TypeError):
        return None
    if made is None:
        return None
    main, note = made
    if kind not in _CERTAIN and not all(map(same_value, values, _cells(note, main))):
        return None
    return main, note, "native" if kind in _CERTAIN else "encoded"


def _nested(values: Any) -> tuple[Any, Note, Any] | None:
    made = nested.encode(values)
    if made is None:
        return None
    main, shape = made
    return main, {"form": "nested", "shape": shape}, "file"


def _text(values: Any) -> Any:
    pa = pyarrow()
    return pa.array(values, pa.large_string()), {"form": "text"}


def _integer(values: Any) -> Any:
    pa = pyarrow()
    try:
        return pa.array(values, pa.int64()), {"form": "int"}
    except (pa.ArrowInvalid, OverflowError):
        return pa.array(values, pa.uint64()), {"form": "int"}


def _float(values: Any) -> Any:
    np = numpy()
    return pyarrow().array(np.asarray(values, dtype="float64"), from_pandas=False), {"form": "float"}


def _of_type(form: str, type_name: str) -> Callable[[Any], Any]:
    def make(values: Any) -> Any:
        pa = pyarrow()
        return pa.array(values, getattr(pa, type_name)()), {"form": form}

    return make


def _bytearrays(values: Any) -> Any:
    pa = pyarrow()
    return pa.array([bytes(cell) for cell in values], pa.large_binary()), {"form": "bytearray"}


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  a naive epoch on purpose: naive cells have no zone
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def _datetimes(values: Any) -> Any:
    zone = values[0].tzinfo
    if any(cell.tzinfo is not zone for cell in values):
        return None
    if zone is None:
        ticks = [(cell - _EPOCH) // _MICROSECOND for cell in values]
        return _ticks(ticks, "timestamp", None), {"form": "datetime"}
    note = zones.to_note(zone)
    if note is None:
        return None
    ticks = [(cell.astimezone(dt.UTC) - _EPOCH_UTC) // _MICROSECOND for cell in values]
    return _ticks(ticks, "timestamp", zones.physical(note)), {"form": "datetime", "zone": note}


def _ticks(ticks: list[int], kind: str, zone: str | None) -> Any:
    pa = pyarrow()
    type_ = pa.timestamp("us", tz=zone) if kind == "timestamp" else pa.duration("us")
    return pa.array(ticks, pa.int64()).view(type_)


def _times(values: Any) -> Any:
    pa = pyarrow()
    if any(cell.tzinfo is not None or cell.fold for cell in values):
        return None
    return pa.array(values, pa.time64("us")), {"form": "time"}


def _timedeltas(values: Any) -> Any:
    return _ticks([cell // _MICROSECOND for cell in values], "duration", None), {"form": "timedelta"}


def _decimals(values: Any) -> Any:
    """One exponent, at most 76 digits, no special values and no minus zero: Arrow's decimal keeps it."""
    pa = pyarrow()
    parts = [cell.as_tuple() for cell in values]
    exponents = {part.exponent for part in parts}
    exponent = parts[0].exponent
    if len(exponents) != 1 or not isinstance(exponent, int) or not -76 <= exponent <= 0:
        return None
    digits = max(max(len(part.digits) for part in parts), -exponent, 1)
    if digits > 76:
        return None
    type_ = pa.decimal128(digits, -exponent) if digits <= 38 else pa.decimal256(digits, -exponent)
    return pa.array(values, type_), {"form": "decimal"}


def _uuids(values: Any) -> Any:
    pa = pyarrow()
    if any(cell.is_safe is not uuid.SafeUUID.unknown for cell in values):
        return None
    return pa.array([str(cell) for cell in values], pa.large_string()), {"form": "uuid"}


_FORMS: dict[type, Callable[[Any], Any]] = {
    str: _text,
    bool: _of_type("bool", "bool_"),
    int: _integer,
    float: _float,
    bytes: _of_type("bytes", "large_binary"),
    bytearray: _bytearrays,
    dt.date: _of_type("date", "date32"),
    dt.datetime: _datetimes,
    dt.time: _times,
    dt.timedelta: _timedeltas,
    decimal.Decimal: _decimals,
    uuid.UUID: _uuids,
}
_CERTAIN = frozenset({str, bool, int, float, bytes, bytearray, dt.date, dt.timedelta, uuid.UUID})
"""Types whose native form cannot differ once it could be made; the others are compared cell by cell."""


def decode(note: Note, main: Any, sides: list[Any]) -> Any:
    """The numpy array of objects."""
    if note["kind"] == "tagged":
        return _filled([tagged.loads(text) for text in main.to_pylist()])
    cells = _filled(_cells(note["cell"], main))
    missing = note["missing"]
    if not missing:
        return cells
    mask = null_mask(main)
    if len(missing) == 1:
        _put(cells, mask, missing[0])
        return cells
    codes = to_numpy(sides[0], "int8")
    for code, name in enumerate(MISSING):
        if name in missing:
            _put(cells, mask & (codes == code), name)
    return cells


def _put(cells: Any, mask: Any, name: str) -> None:
    pd = pandas() if name in ("NA", "NaT") else None
    value: Any = None if name == "none" else float("nan") if pd is None else getattr(pd, name)
    cells[mask] = value


def _filled(items: Any) -> Any:
    np = numpy()
    if isinstance(items, np.ndarray) and items.dtype == object and items.ndim == 1:
        return items
    cells = np.empty(len(items), dtype=object)
    for at, item in enumerate(items):
        cells[at] = item
    return cells


def _cells(note: Note, main: Any) -> Any:
    """The cells of a native form; missing ones are None or anything."""
    form = note["form"]
    if form == "none":
        return [None] * len(main)
    if form == "nested":
        return nested.decode(note["shape"], main)
    if form == "text":
        return one_array(main).to_numpy(zero_copy_only=False).copy() if len(main) else []
    if form == "float":
        return [None if cell is None else cell for cell in main.to_pylist()]
    if form == "bytearray":
        return [None if cell is None else bytearray(cell) for cell in main.to_pylist()]
    if form == "uuid":
        return [None if cell is None else uuid.UUID(cell) for cell in main.to_pylist()]
    if form in ("datetime", "timedelta"):
        return _from_ticks(note, main)
    return main.to_pylist()


def _from_ticks(note: Note, main: Any) -> list[Any]:
    pa = pyarrow()
    ticks = one_array(main).view(pa.int64()).to_pylist()
    if note["form"] == "timedelta":
        return [None if tick is None else tick * _MICROSECOND for tick in ticks]
    if "zone" not in note:
        return [None if tick is None else _EPOCH + tick * _MICROSECOND for tick in ticks]
    zone = zones.from_note(note["zone"])
    return [None if tick is None else (_EPOCH_UTC + tick * _MICROSECOND).astimezone(zone) for tick in ticks]


def _tagged(cells: Any, where: str, terms: Terms) -> Stored:
    """One line of tagged JSON a cell, compared with the cell after reading it back."""
    texts: list[str] = []
    told = False
    for row, cell in enumerate(cells):
        try:
            text = tagged.dumps(cell)
            fault = (
                None if same_value(cell, tagged.loads(text)) else f"a {type(cell).__name__} would not come back equal"
            )
        except (tagged.Untaggable, ValueError, TypeError, OverflowError, RecursionError) as found:
            fault = str(found) or type(found).__name__
            text = "null"
        if fault is not None:
            text = tagged.dumps(_as_text(cell))
            if not told:
                terms.give_up(where, f"row {row} holds {fault}", "such cells become their text")
            told = True
        texts.append(text)
    return Stored(pyarrow().array(texts, pyarrow().large_string()), {"kind": "tagged"}, proof="native")


def _as_text(cell: Any) -> str:
    try:
        return str(cell)
    except Exception:  # any class may define a __str__ that fails; lossy must still go on
        return f"<{type(cell).__qualname__}>"
