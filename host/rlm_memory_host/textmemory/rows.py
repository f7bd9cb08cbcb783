"""Candidates and conflicts as rows of the append-only logs, and back. Pure functions.

Owns: the two shapes. Does not own: the logs. A row that cannot be read is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, TypeVar, cast

from rlm_memory_host.contracts.memory import Authority, Candidate, Conflict, Kind, Log, LogRow, Sensitivity, TextStore

_T = TypeVar("_T", Candidate, Conflict)
_ENUMS: dict[str, type[Enum]] = {"kind": Kind, "writer": Authority, "sensitivity": Sensitivity}


def to_row(item: Candidate | Conflict) -> dict[str, Any]:
    """JSON types only; fields at their default are left out, all but the id."""
    row: dict[str, Any] = {}
    for spec in fields(item):
        value = getattr(item, spec.name)
        if spec.default is not MISSING and value == spec.default:
            continue
        if isinstance(value, tuple):
            row[spec.name] = list(cast("tuple[object, ...]", value))
        else:
            row[spec.name] = value.value if isinstance(value, Enum) else value
    return row


def log_row(item: Candidate | Conflict) -> LogRow:
    """The row in its log."""
    return LogRow(Log.CANDIDATES if isinstance(item, Candidate) else Log.CONFLICTS, to_row(item))


def from_row(shape: type[_T], row: Mapping[str, Any]) -> _T | None:
    """The item of a row, None when the row has not its shape."""
    known: dict[str, Any] = {}
    for spec in fields(shape):
        if spec.name not in row:
            continue
        value = row[spec.name]
        try:
            if spec.name in _ENUMS:
                value = _ENUMS[spec.name](value)
        except ValueError:
            return None
        known[spec.name] = tuple(cast("list[object]", value)) if isinstance(value, list) else value
    try:
        return shape(**known)
    except TypeError:
        return None


def candidates(store: TextStore) -> list[Candidate]:
    """All candidates, in the order in which they came."""
    return _read(Candidate, store.rows(Log.CANDIDATES))


def conflicts(store: TextStore) -> list[Conflict]:
    """All conflicts, in the order in which they came."""
    return _read(Conflict, store.rows(Log.CONFLICTS))


def contested(store: TextStore) -> frozenset[str]:
    """The ids of memories that an open conflict contests."""
    return frozenset(item.target for item in conflicts(store) if item.state == "open" and item.contests)


def _read(shape: type[_T], rows: Iterable[Mapping[str, Any]]) -> list[_T]:
    read = (from_row(shape, row) for row in rows)
    return [item for item in read if item is not None]
