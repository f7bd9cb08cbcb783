"""Thrift's compact protocol, as far as Parquet writes it: reading one value, or the offset after it.

Owns: bounds. Whatever the octets are, each call ends: a value takes at least one octet, depth is bounded, and what does
not fit raises `LookupError`, which callers turn into `errors.Integrity`. A record that lacks a field which its reader
asks for is a `LookupError` too. Does not own: what the fields mean (`footers`, `page_checks`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

Octets = Any
"""bytes or a memory map: indexed it gives an int, sliced it gives bytes."""
Record = dict[int, Any]
"""Values by field number; binary as bytes, lists as lists, structs as records."""
Wanted = Mapping[int, "Wanted"] | None
"""Fields that are asked for, each with those of the struct that it is; None for all."""

_DEPTH = 32
_BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 3, 7, 8, 9, 10, 12
_TRUE, _FALSE = 1, 2
_INTEGERS = (4, 5, 6)
_INT64_OCTETS = 10


def varint(octets: Octets, at: int) -> tuple[int, int]:
    """(value, offset after it) of an integer without sign."""
    value = shift = 0
    for _ in range(_INT64_OCTETS):
        octet = octets[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7
    raise IndexError("an integer of more than 64 bits")


def zigzag(octets: Octets, at: int) -> tuple[int, int]:
    """(value, offset after it) of an integer with sign."""
    value, at = varint(octets, at)
    return (value >> 1) ^ -(value & 1), at


def items(octets: Octets, at: int) -> tuple[int, int, int]:
    """(kind, count, offset of the first) of a list; each item takes an octet or more, so the count is bounded."""
    head = octets[at]
    count, at = head >> 4, at + 1
    if count == 15:
        count, at = varint(octets, at)
    if count > len(octets) - at:
        raise IndexError("a list that is longer than the file")
    return head & 0x0F, count, at


def head(octets: Octets, at: int, field: int) -> tuple[int, int, int]:
    """(field, kind, offset of the value) of what follows `field` in a struct; kind 0 where the struct ends."""
    octet = octets[at]
    at += 1
    if octet == 0:
        return field, 0, at
    if octet >> 4:
        return field + (octet >> 4), octet & 0x0F, at
    field, at = zigzag(octets, at)
    return field, octet & 0x0F, at


def record(octets: Octets, at: int, wanted: Wanted = None, depth: int = 0) -> tuple[Record, int]:
    """(values of a struct by field, offset after it); those of the wanted fields alone, all where None."""
    found: Record = {}
    field, kind, at = head(octets, at, 0)
    while kind:
        if wanted is None:
            found[field], at = value(octets, at, kind, depth)
        elif field not in wanted:
            at = skip(octets, at, kind, depth)
        elif kind == _STRUCT:
            found[field], at = record(octets, at, wanted[field], _deeper(depth))
        else:
            found[field], at = value(octets, at, kind, depth)
        field, kind, at = head(octets, at, field)
    return found, at


def value(octets: Octets, at: int, kind: int, depth: int = 0) -> tuple[Any, int]:
    """(value, offset after it) of a field of this kind."""
    if kind in _INTEGERS:
        return zigzag(octets, at)
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _BINARY:
        length, at = varint(octets, at)
        stop = _inside(octets, at + length)
        return octets[at:stop], stop
    if kind == _STRUCT:
        return record(octets, at, None, _deeper(depth))
    if kind in (_LIST, _SET):
        of, count, at = items(octets, at)
        made: list[Any] = []
        for _ in range(count):
            one, at = _item(octets, at, of, _deeper(depth))
            made.append(one)
        return made, at
    if kind == _BYTE:
        return octets[at], at + 1
    if kind == _DOUBLE:
        stop = _inside(octets, at + 8)
        return struct.unpack("<d", octets[at:stop])[0], stop
    raise IndexError("a kind of value that Parquet does not have")


def _item(octets: Octets, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """An item of a list, where a truth value is an octet."""
    if kind in (_TRUE, _FALSE):
        return octets[at] == _TRUE, at + 1
    return value(octets, at, kind, depth)


def skip(octets: Octets, at: int, kind: int, depth: int = 0) -> int:
    """The offset after a value of this kind."""
    if kind in _INTEGERS:
        return varint(octets, at)[1]
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _BINARY:
        length, at = varint(octets, at)
        return _inside(octets, at + length)
    if kind == _STRUCT:
        return record(octets, at, {}, _deeper(depth))[1]
    if kind in (_LIST, _SET):
        of, count, at = items(octets, at)
        if of in (_TRUE, _FALSE):
            return _inside(octets, at + count)
        for _ in range(count):
            at = skip(octets, at, of, _deeper(depth))
        return at
    if kind in (_BYTE, _DOUBLE):
        return _inside(octets, at + (1 if kind == _BYTE else 8))
    raise IndexError("a kind of value that Parquet does not have")


def _inside(octets: Octets, at: int) -> int:
    if at > len(octets):
        raise IndexError("a value that ends behind the file")
    return at


def _deeper(depth: int) -> int:
    if depth >= _DEPTH:
        raise IndexError("values nested too deeply")
    return depth + 1
