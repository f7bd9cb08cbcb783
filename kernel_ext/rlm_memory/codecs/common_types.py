"""Columns of a Parquet file that polars gives back to Arrow value for value, told without pyarrow.

Owns: the list of such types, as the name of the polars type and its arguments. What Parquet alone does not say (zones,
codes beside text) is in the Arrow schema that Arrow writes into a footer, a flatbuffer, of which the fields' types
are read. A column is common only where both agree; every other, and all of a file without that schema, is left to
pyarrow. Does not own: the footer (`footers`), reading (`scan`).
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Any

from rlm_memory.codecs.thrift import Record

KEY = b"ARROW:schema"
Common = tuple[str, ...]
"""A class of polars and its arguments: ("Int64",), ("Datetime", "us", "UTC")."""


@dataclass(frozen=True, slots=True)
class Field:
    """A top-level field of an Arrow schema: number of its type, the type's numbers or zone, whether text is coded."""

    name: str
    kind: int
    facts: tuple[Any, ...]
    coded: bool
    plain: bool
    """Whether nothing but the type is said of it: no children, no metadata, which make extension types."""


_INTEGER, _FLOATING, _TEXT, _TRUTH, _STAMP, _LARGE_TEXT = 2, 3, 5, 6, 10, 20
"""Numbers of the union `Type` of Arrow's Schema.fbs."""
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _OCTETS = 0, 1, 2, 4, 5, 6
"""Physical types of Parquet."""
_IS_TEXT, _IS_STAMP, _IS_INTEGER = 1, 8, 10
"""Members of Parquet's union `LogicalType`."""
_PLAIN: dict[tuple[Any, ...], str] = {
    (_BOOLEAN, _TRUTH): "Boolean",
    (_FLOAT, _FLOATING, 1): "Float32",
    (_DOUBLE, _FLOATING, 2): "Float64",
}
_UNITS = {1: "ms", 2: "us", 3: "ns"}


def common(leaf: Record, field: Field | None) -> Common | None:
    """The type of a column from its element in Parquet's schema and its field in Arrow's; None where not common."""
    if field is None or not field.plain or leaf.get(3, 0) > 1 or leaf.get(5):
        return None
    physical, logical = leaf.get(1), leaf.get(10, {})
    if field.kind in (_TEXT, _LARGE_TEXT):
        return None if physical != _OCTETS or _IS_TEXT not in logical else ("Categorical" if field.coded else "String",)
    if field.coded:
        return None
    if field.kind == _INTEGER:
        return _integer(physical, logical, *field.facts)
    if field.kind == _STAMP:
        return _stamp(physical, logical, *field.facts)
    if logical:
        return None
    name = _PLAIN.get((physical, field.kind, *field.facts))
    return None if name is None else (name,)


def _integer(physical: Any, logical: Record, bits: int, signed: bool) -> Common | None:
    if bits not in (8, 16, 32, 64) or physical != (_INT64 if bits == 64 else _INT32):
        return None
    said = (logical[_IS_INTEGER].get(1), logical[_IS_INTEGER].get(2)) if _IS_INTEGER in logical else None
    if said != (bits, signed) and (logical or not signed or bits < 32):
        return None
    return (f"{'' if signed else 'U'}Int{bits}",)


def _stamp(physical: Any, logical: Record, zone: str | None) -> Common | None:
    """The unit is that which is written: Parquet has no seconds."""
    said = logical.get(_IS_STAMP, {})
    unit = _UNITS.get(next(iter(said.get(2, {})), 0))
    if physical != _INT64 or unit is None or said.get(1) != (zone is not None):
        return None
    return ("Datetime", unit) if zone is None else ("Datetime", unit, zone)


def polars_type(pl: Any, one: Common) -> Any:
    """The polars type."""
    return getattr(pl, one[0])(*one[1:])


def fields(text: bytes | None) -> dict[str, Field]:
    """The fields by name of the schema under `KEY`; none where it is absent or is not one."""
    try:
        octets = base64.b64decode(text or b"", validate=True)
        start = 8 if octets[:4] == b"\xff\xff\xff\xff" else 4
        message = _Table.root(octets[start:])
        return {one.name: one for one in map(_field, message.table(2).tables(1))}
    except (binascii.Error, struct.error, IndexError, UnicodeDecodeError):
        return {}


def _field(table: _Table) -> Field:
    kind = table.number(2, "<B")
    facts: tuple[Any, ...] = ()
    if kind == _INTEGER:
        facts = (table.table(3).number(0, "<i"), bool(table.table(3).number(1, "<B")))
    elif kind == _FLOATING:
        facts = (table.table(3).number(0, "<h"),)
    elif kind == _STAMP:
        facts = (table.table(3).text(1),)
    name = table.text(0)
    plain = not table.count(5) and not table.count(6)
    return Field("" if name is None else name, kind, facts, table.has(4), plain)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a flatbuffer: `slots` are the offsets of its fields, 0 for one that is absent."""

    octets: bytes
    at: int
    slots: tuple[int, ...]

    @classmethod
    def of(cls, octets: bytes, at: int) -> _Table:
        where = at - _read(octets, at, "<i")
        size = _read(octets, where, "<H")
        return cls(octets, at, struct.unpack_from(f"<{max(size - 4, 0) // 2}H", octets, where + 4))

    @classmethod
    def root(cls, octets: bytes) -> _Table:
        return cls.of(octets, _read(octets, 0, "<I"))

    def has(self, slot: int) -> bool:
        return slot < len(self.slots) and self.slots[slot] != 0

    def number(self, slot: int, form: str) -> int:
        return _read(self.octets, self.at + self.slots[slot], form) if self.has(slot) else 0

    def table(self, slot: int) -> _Table:
        if not self.has(slot):
            raise IndexError("a table that is absent")
        return _Table.of(self.octets, self._target(slot))

    def text(self, slot: int) -> str | None:
        if not self.has(slot):
            return None
        start = self._target(slot)
        return self.octets[start + 4 : start + 4 + _read(self.octets, start, "<I")].decode()

    def count(self, slot: int) -> int:
        return _read(self.octets, self._target(slot), "<I") if self.has(slot) else 0

    def tables(self, slot: int) -> list[_Table]:
        count = self.count(slot)
        if count > len(self.octets):
            raise IndexError("a vector that is longer than the schema")
        first = self._target(slot) + 4 if count else 0
        places = range(first, first + 4 * count, 4)
        return [_Table.of(self.octets, at + _read(self.octets, at, "<I")) for at in places]

    def _target(self, slot: int) -> int:
        at = self.at + self.slots[slot]
        return at + _read(self.octets, at, "<I")


def _read(octets: bytes, at: int, form: str) -> int:
    """A number at an offset; an offset before the start is none."""
    if at < 0:
        raise IndexError("an offset before the start")
    return struct.unpack_from(form, octets, at)[0]
