"""The service's filters, with their traps. Pure functions.

`"*"` matches everything, whatever the field. An empty filter matches everything. Metadata is matched by JSON
containment, case-sensitive and typed. Known operators are `in ne gt gte lt lte contains icontains`; anything else that
looks like one (`$in`, `eq`) is silently taken as a literal.

Source: design page "Honcho, the outbox, capture and recall", Client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

WILDCARD: Final = "*"


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return value == wanted
    return type(value) is type(wanted) and value == wanted


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(value: Any, wanted: Any) -> bool:
        try:
            return value is not None and bool(compare(value, wanted))
        except TypeError:
            return False

    return holds


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "in": lambda value, wanted: any(_same(value, item) for item in wanted),
    "ne": lambda value, wanted: not _same(value, wanted),
    "gt": _ordered(lambda value, wanted: value > wanted),
    "gte": _ordered(lambda value, wanted: value >= wanted),
    "lt": _ordered(lambda value, wanted: value < wanted),
    "lte": _ordered(lambda value, wanted: value <= wanted),
    "contains": lambda value, wanted: isinstance(value, str) and str(wanted) in value,
    "icontains": lambda value, wanted: isinstance(value, str) and str(wanted).lower() in value.lower(),
}


def matches(row: Mapping[str, Any], filters: Any) -> bool:
    """Whether a row (its columns and `metadata`) passes."""
    if not filters:
        return True
    return all(_condition(row, key, wanted) for key, wanted in cast("dict[str, Any]", filters).items())


def _condition(row: Mapping[str, Any], key: str, wanted: Any) -> bool:
    match key:
        case "AND":
            return all(matches(row, item) for item in wanted)
        case "OR":
            return any(matches(row, item) for item in wanted)
        case "NOT":
            return not any(matches(row, item) for item in wanted)
        case _:
            return _field(row.get(key), wanted)


def _field(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and wanted == WILDCARD:
        return True
    if isinstance(wanted, dict):
        condition = cast("dict[str, Any]", wanted)
        if condition and all(name in _OPERATORS for name in condition):
            return all(_OPERATORS[name](value, operand) for name, operand in condition.items())
        if not isinstance(value, dict):
            return False
        held = cast("dict[str, Any]", value)
        return all(
            (item == WILDCARD) or (name in held and _field(held[name], item)) or _is_ne(name, item, held)
            for name, item in condition.items()
        )
    return contains(value, wanted)


def _is_ne(name: str, item: Any, held: Mapping[str, Any]) -> bool:
    return name not in held and isinstance(item, dict) and set(cast("dict[str, Any]", item)) == {"ne"}


def contains(value: Any, wanted: Any) -> bool:
    """JSON containment: every part of `wanted` is in `value`."""
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return False
        held = cast("dict[str, Any]", value)
        parts = cast("dict[str, Any]", wanted).items()
        return all(name in held and contains(held[name], item) for name, item in parts)
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return False
        items = cast("list[Any]", value)
        return all(any(contains(item, part) for item in items) for part in cast("list[Any]", wanted))
    return _same(value, wanted)
