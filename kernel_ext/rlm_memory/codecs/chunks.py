"""Column chunks in a Parquet footer: where each description begins, and the few facts of one.

Owns: `ends`, which finds the end of ten thousand descriptions without taking each apart, and `Chunk`, which is made of
those that somebody asks for. A regular expression walks over descriptions of the shape that Arrow writes, 2 µs each
where the protocol value by value takes 26; its repeats are possessive, so it can only agree with the protocol or not
match, and then the protocol decides; its groups are the facts of a `Chunk`. Compiling it takes 15 ms, so short footers
do without.

Does not own: the protocol (`thrift`), what statistics mean for a column (`footers`).
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlm_memory.codecs import thrift

MANY = 512
"""From so many descriptions on, compiling the expression pays."""
_LONGEST = 32
"""Longest name or bound, octets, that the expression takes; each length is an alternative of its own."""

_SIZE, _PAGES, _DICTIONARY, _STATISTICS, _HIGH, _LOW = 7, 9, 11, 12, 5, 6
_FACTS: thrift.Wanted = {
    3: {_SIZE: None, _PAGES: None, _DICTIONARY: None, _STATISTICS: {_HIGH: None, _LOW: None}},
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where the pages lie, as offsets in the file, and the bounds of the values as they are written."""

    start: int
    stop: int
    low: bytes | None
    high: bytes | None


def chunk(octets: bytes, at: int, quick: bool) -> Chunk:
    """The facts of the description at an offset of the footer. Raises `LookupError` where it is not one."""
    found = _usual().match(octets, at) if quick else None
    if found is not None:
        size, pages, dictionary = (thrift.zigzag(part, 0)[0] if part else 0 for part in found.group(1, 2, 3))
        high, low = (None if part is None else part[1:] for part in found.group(4, 5))
        return _chunk(size, pages, dictionary, low, high)
    facts = thrift.record(octets, at, _FACTS)[0][3]
    statistics = facts.get(_STATISTICS, {})
    return _chunk(facts[_SIZE], facts[_PAGES], facts.get(_DICTIONARY, 0), statistics.get(_LOW), statistics.get(_HIGH))


def _chunk(size: int, pages: int, dictionary: int, low: bytes | None, high: bytes | None) -> Chunk:
    start = min(place for place in (dictionary or pages, pages or dictionary))
    if size < 0 or start < 0:
        raise IndexError("pages that lie nowhere")
    return Chunk(start, start + size, low, high)


def ends(octets: bytes, at: int, count: int, starts: array[int], quick: bool) -> int:
    """Append the offsets of `count` descriptions to `starts`; the offset after the last."""
    match = _usual().match if quick else None
    for _ in range(count):
        starts.append(at)
        found = None if match is None else match(octets, at)
        at = thrift.record(octets, at, {})[1] if found is None else found.end()
    return at


@cache
def _usual() -> Any:
    """A description as Arrow writes it. Field heads are (difference to the last field number) * 16 + kind."""
    number = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
    numbers, truths = _heads(4, 5, 6) + number, _heads(1, 2)
    lengths = sorted(range(_LONGEST + 1), key=lambda length: (length not in (8, 4, 1), length))
    octets = _one_of(*(re.escape(bytes([length])) + b".{%d}" % length for length in lengths))
    short = _one_of(rb"\x08.{8}", rb"\x04.{4}", rb"\x01.")
    plain = b"(?:" + numbers + b")*+\x00"
    lists = _heads(9) + _one_of(_counted(number, (4, 5, 6), 14), _counted(plain, (12,), 6))
    structs = _heads(12) + b"(?:" + numbers + b"|" + lists + b")*+\x00"
    old_bounds = rb"(?>\x18" + short + rb"\x18" + short + rb"\x16" + number + rb"|\x36" + number + b")?+"
    bounds = rb"(?>\x28(%b)\x18(%b)%b*+)?+" % (octets, octets, truths)
    facts = (
        rb"\x15%b\x19%b\x19\x18%b" % (number, _counted(number, (4, 5, 6), 14), octets)  # type, encodings, name
        + rb"\x15%b\x16%b\x16%b\x16(%b)" % ((number,) * 4)  # codec, values, sizes
        + rb"\x26(%b)(?>\x26(%b)\x1c|\x3c)" % (number, number)  # pages, dictionary; statistics
        + old_bounds
        + bounds
        + b"\x00"
        + b"(?:" + b"|".join((numbers, truths, lists, structs)) + b")*+\x00"
    )  # fmt: skip
    return re.compile(rb"\x26" + number + rb"\x1c" + facts + plain, re.DOTALL)


def _heads(*kinds: int) -> bytes:
    return b"[" + b"".join(rb"\x%02x" % (step << 4 | kind) for step in range(1, 16) for kind in kinds) + b"]"


def _counted(item: bytes, kinds: tuple[int, ...], most: int) -> bytes:
    """A list of so many items; `most` is below 15, where the count leaves the head."""
    return _one_of(
        *(
            b"[" + b"".join(rb"\x%02x" % (count << 4 | kind) for kind in kinds) + b"]" + b"(?:%b){%d}" % (item, count)
            for count in range(most + 1)
        )
    )


def _one_of(*alternatives: bytes) -> bytes:
    return b"(?>" + b"|".join(alternatives) + b")"
