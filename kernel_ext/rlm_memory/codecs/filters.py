"""Row filters: parsing, type checks, and what a condition means on a column.

Owns: `filters=` as a list of (column, operator, value) tuples that must all hold, or a list of such lists of which one
must hold; operators == != < <= > >= in, not in. The meaning is pandas': as in `frame[frame.column > value]`, where an
NA in the mask drops the row. A condition that the Parquet types can decide alone is also given as `Simple`, for pruning
and for a fast engine; every other is decided on the decoded column. Text and bytes are never cast into one another or
into another type, though pandas' Arrow columns do: the two against each other are refused, whatever dtype holds them.

Does not own: reading (`scan`). Types are checked before anything is read: a pruned row group would hide a TypeError.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from rlm_memory import errors
from rlm_memory.codecs import axes
from rlm_memory.codecs.libraries import class_of, loaded, pandas, pyarrow
from rlm_memory.codecs.request import listed, said, shown

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ORDERED = frozenset({"<", "<=", ">", ">="})
OPERATORS = (*_COMPARE, "in", "not in")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: the column's label as given, the operator, and the value."""

    label: Any
    op: str
    value: Any


@dataclass(frozen=True, slots=True)
class Simple:
    """A condition on physical values alone. `values` has one item unless `op` is "in" or "not in"."""

    op: str
    values: tuple[Any, ...]
    keep_missing: bool
    """Whether a row with a null fulfils it."""
    floating: bool
    """NaN may be among the values of the column; it fulfils no comparison but != and not in."""


def parse(filters: Any) -> list[list[Condition]]:
    """The alternatives, each a list of conditions. Raises `errors.Invalid`."""
    if not isinstance(filters, list | tuple) or not filters:
        raise errors.Invalid("filters: pass a list of (column, operator, value) tuples, or a list of such lists.")
    items = list(cast("list[Any]", filters))
    if all(isinstance(item, list) for item in items):
        return [[_condition(one) for one in _some(item)] for item in items]
    return [[_condition(item) for item in items]]


def _some(item: Any) -> Any:
    if not item:
        raise errors.Invalid("filters: an alternative is an empty list; leave it out.")
    return item


def _condition(item: Any) -> Condition:
    if not isinstance(item, tuple) or len(cast("tuple[Any, ...]", item)) != 3:
        raise errors.Invalid("filters: each condition is a tuple (column, operator, value).")
    label, op, value = cast("tuple[Any, Any, Any]", item)
    if not isinstance(op, str) or op not in (*OPERATORS, "="):
        raise errors.Invalid(f"filters: the operator {shown(op)} is not one of {', '.join(OPERATORS)}.")
    op = "==" if op == "=" else op
    if op in ("in", "not in"):
        value = [_octets(one) for one in listed(f"filters: {op!r}", value)]
    elif class_of(value) in (list, tuple, set, dict) or getattr(value, "ndim", 0):
        raise errors.Invalid(f"filters: {op!r} wants one value; use 'in' for several.")
    return Condition(label, op, _octets(value))


def _octets(value: Any) -> Any:
    """A bytearray compares as its bytes; pandas takes it for a list of numbers."""
    return bytes(value) if isinstance(value, bytearray) else value


def mask(series: Any, condition: Condition) -> Any:
    """A numpy array of bool: the rows of a decoded Series that fulfil the condition. Raises `errors.Invalid`."""
    try:
        if condition.op in ("in", "not in"):
            found = series.isin(_uncast(series, condition.value))
            found = ~found if condition.op == "not in" else found
        else:
            found = _COMPARE[condition.op](series, condition.value)
    except Exception as fault:  # a value of any class is compared here
        raise errors.Invalid(f"filters: {shown(condition.label)} {condition.op} ...: {said(fault)}") from fault
    if found.dtype != bool:
        found = found.fillna(False)
    return found.to_numpy(dtype=bool)


def check(series: Any, note: dict[str, Any], condition: Condition) -> None:
    """Raise `errors.Invalid` for a comparison that the column's type lacks; `series` is the column with no rows."""
    _check_letters(series, note, condition)
    if condition.op in ORDERED and note["kind"] in ("object", "tagged"):
        _check_cells(note, condition)
    mask(series, condition)


def _check_letters(series: Any, note: dict[str, Any], condition: Condition) -> None:
    """Refuse bytes against text and text against bytes."""
    holds = _letters(series, note)
    values = condition.value if condition.op in ("in", "not in") else [condition.value]
    for value in values:
        if holds is not None and isinstance(value, bytes if holds == "text" else str):
            raise errors.Invalid(
                f"filters: {shown(condition.label)} {condition.op} ...: the column is {holds}, "
                f"the value is a {class_of(value).__name__}; pass {'str' if holds == 'text' else 'bytes'}."
            )


def _letters(series: Any, note: dict[str, Any]) -> str | None:
    """The word text or bytes where the column can hold nothing else."""
    pd, dtype = pandas(), series.dtype
    if isinstance(dtype, pd.StringDtype):
        return "text"
    if isinstance(dtype, pd.ArrowDtype):
        return _arrow_letters(dtype.pyarrow_dtype)
    if note["kind"] == "object":
        return {"text": "text", "bytes": "bytes", "bytearray": "bytes"}.get(note["cell"]["form"])
    if isinstance(dtype, pd.CategoricalDtype) and len(dtype.categories):
        kinds = {class_of(label) for label in dtype.categories}
        return "text" if kinds == {str} else "bytes" if kinds == {bytes} else None
    return None


def _arrow_letters(type_: Any) -> str | None:
    types = pyarrow().types
    if types.is_dictionary(type_):
        return _arrow_letters(type_.value_type)
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    octets = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return "bytes" if any(is_kind(type_) for is_kind in octets) else None


def _uncast(series: Any, values: list[Any]) -> list[Any]:
    """Values for `isin`: on an Arrow column of numbers or times it would parse text, where == finds no match."""
    dtype = series.dtype
    if not isinstance(dtype, pandas().ArrowDtype) or _arrow_letters(dtype.pyarrow_dtype) is not None:
        return values
    return [one for one in values if not isinstance(one, str | bytes)]


_CELLS: dict[str, tuple[type, ...]] = {"text": (str,), "int": (int, float), "float": (int, float), "bool": (int, float)}


def _check_cells(note: dict[str, Any], condition: Condition) -> None:
    where = f"filters: {shown(condition.label)} {condition.op} ...:"
    if note["kind"] == "tagged" or note["cell"]["form"] in ("none", "nested"):
        raise errors.Invalid(f"{where} the column's cells have no common order.")
    if note["missing"]:
        raise errors.Invalid(f"{where} the object column has missing cells, which cannot be ordered.")
    wanted = _CELLS.get(note["cell"]["form"])
    if wanted is not None and not isinstance(condition.value, wanted):
        raise errors.Invalid(
            f"{where} the cells are {note['cell']['form']}, the value is a {class_of(condition.value).__name__}."
        )


def compares(note: dict[str, Any], condition: Condition) -> bool:
    """Whether the kind of column has the comparison with each value that makes a `Simple`, so that none is tried."""
    if note["kind"] == "object" and note["cell"]["form"] == "text":
        return condition.op not in ORDERED or not note["missing"]
    return note["kind"] in ("number", "nullable", "string")


def simple(note: dict[str, Any], condition: Condition) -> Simple | None:
    """The condition on physical values, or None where only the decoded column decides."""
    op = condition.op
    values = list(condition.value) if op in ("in", "not in") else [condition.value]
    kind = note["kind"]
    if kind == "category":
        return _on_categories(note, op, values)
    keep_missing = op in ("!=", "not in")
    if kind in ("nullable", "arrow") or (kind == "string" and note["missing"] == "NA"):
        keep_missing = op == "not in"
    if kind in ("number", "nullable"):
        made = _numbers(note["dtype"], values)
        return None if made is None else Simple(op, made, keep_missing, _FLOATING.match(note["dtype"]) is not None)
    if (kind == "string" and "cells" not in note) or (kind == "object" and note["cell"]["form"] == "text"):
        return Simple(op, tuple(values), keep_missing, False) if all(class_of(one) is str for one in values) else None
    if kind == "datetime" and "raw" not in note:
        stamps = _stamps(note, values)
        return None if stamps is None else Simple(op, stamps, keep_missing, False)
    return None


_FLOATING = re.compile("[<>]f")
_NATIVE = "<" if sys.byteorder == "little" else ">"
_INTEGERS = {
    f"{'|' if octets == 1 else _NATIVE}{sign}{octets}": (8 * octets, sign == "i")
    for octets in (1, 2, 4, 8)
    for sign in "iu"
}


def _numbers(dtype: str, values: list[Any]) -> tuple[Any, ...] | None:
    """Values that the column's own type holds exactly, so that no promotion decides the comparison.

    The type is as numpy writes it, "<f8". Its numbers are known where the session has it; it is not imported for this.
    """
    if dtype == "|b1":
        return tuple(values) if all(class_of(one) is bool for one in values) else None
    np = loaded("numpy")
    whole = (int,) if np is None else (int, np.integer)
    other = (bool,) if np is None else (bool, np.bool_, np.timedelta64)
    if any(isinstance(one, other) for one in values):
        return None
    if dtype in _INTEGERS:
        bits, signed = _INTEGERS[dtype]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        fits = all(isinstance(one, whole) and low <= int(one) <= high for one in values)
        return tuple(int(one) for one in values) if fits else None
    if dtype != f"{_NATIVE}f8" or not all(isinstance(one, (*whole, float)) for one in values):
        return None
    if any(isinstance(one, whole) and abs(int(one)) > 2**53 for one in values):
        return None
    found = tuple(float(one) for one in values)
    return found if all(one == one for one in found) else None


def _stamps(note: dict[str, Any], values: list[Any]) -> tuple[Any, ...] | None:
    """Integers in the unit that is written, for values that name one instant of that unit exactly."""
    pd = pandas()
    unit = "ms" if note["unit"] == "s" else note["unit"]
    found: list[int] = []
    for value in values:
        try:
            stamp = pd.Timestamp(value)
            if stamp is pd.NaT or (stamp.tzinfo is None) != ("zone" not in note):
                return None
            fine = stamp.as_unit(unit, round_ok=False)
        except (TypeError, ValueError, OverflowError):
            return None
        found.append(int(fine.asm8.astype("int64")))
    return tuple(found)


def _on_categories(note: dict[str, Any], op: str, values: list[Any]) -> Simple | None:
    """Any condition on text categories is membership: ordered comparisons follow the order of the categories."""
    if note.get("coded"):
        return None
    categories = axes.unpack(note["categories"])
    labels = list(categories)
    if not all(class_of(label) is str for label in labels) or any(one is None or one != one for one in values):
        return None
    if op in ("in", "not in"):
        return Simple(op, tuple(one for one in values if class_of(one) is str), op == "not in", False)
    if op in ("==", "!="):
        found = tuple(one for one in values if class_of(one) is str)
        return Simple("in" if op == "==" else "not in", found, op == "!=", False)
    at = labels.index(values[0])
    kept = [label for place, label in enumerate(labels) if _COMPARE[op](place, at)]
    return Simple("in", tuple(kept), False, False)


def may_match(one: Simple, low: Any, high: Any) -> bool:
    """False only where a row group whose values lie in [low, high] cannot hold a row that fulfils the condition."""
    if one.op == "in":
        return any(low <= value <= high for value in one.values)
    if one.op in ("!=", "not in"):
        return True
    value = one.values[0]
    return {
        "==": low <= value <= high,
        "<": low < value,
        "<=": low <= value,
        ">": high > value,
        ">=": high >= value,
    }[one.op]
