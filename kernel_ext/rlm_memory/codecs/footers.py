"""What is asked of a Parquet footer again and again: row groups, leaf columns, types, bounds of values, the notes.

Owns: these answers, read out of the footer's octets and each worked out once for a version of a file. pyarrow is not
needed for them: importing it takes 30 MiB and 60 ms, and its parsed form of ten thousand column chunks 15 MiB more,
where the octets are 1 MiB. They are also given to pyarrow where that is the engine, once. Nothing here is changed by
its readers.

Does not own: the protocol (`thrift`, `chunks`), which types are common (`common_types`), which footers are remembered
(`parquet_file`), what bounds rule out (`filters`).
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import chunks, common_types, notes, thrift
from rlm_memory.codecs.chunks import Chunk
from rlm_memory.codecs.common_types import Common
from rlm_memory.codecs.libraries import parquet, pyarrow
from rlm_memory.codecs.thrift import Record

Bounds = tuple[Any, Any]
"""Smallest and largest value of a chunk; those of times as integers in the unit that is written."""

_MAGIC = b"PAR1"
_SCHEMA, _ROWS, _GROUPS, _NOTES, _ORDERS = 2, 3, 4, 5, 7
"""Fields of a footer; those of its parts stand where they are read."""


@contextmanager
def reading() -> Generator[None]:
    """What the octets do not hold is damage. Raises `errors.Integrity`."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, UnicodeDecodeError, struct.error) as fault:
        raise errors.Integrity("The recorded file is damaged: its footer is not readable as Parquet.") from fault


def octets_of(path: Path) -> bytes:
    """The footer of a file. Raises `errors.Integrity` where the file is not Parquet."""
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(size - 8, 0))
        tail = stream.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length > size - 12:
            raise errors.Integrity("The recorded file is not readable as Parquet.")
        stream.seek(size - 8 - length)
        return stream.read(length)


class Footer:
    """One footer. Safe for threads: what two of them work out at once is the same."""

    def __init__(self, octets: bytes) -> None:
        """Finds the parts. Raises `errors.Integrity` for octets that are not a footer."""
        self.octets = octets
        self._starts: array[int] = array("Q")
        """Where the description of each column chunk begins, group by group, `_width` a group."""
        self._width = 0
        self._quick = False
        self._rows: list[int] = []
        self._at: dict[int, int] = {}
        self._bounds: dict[str, list[Bounds | None]] = {}
        with reading():
            self._walk()

    def _walk(self) -> None:
        field, kind, at = thrift.head(self.octets, 0, 0)
        while kind:
            self._at[field] = at
            at = self._walk_groups(at) if (field, kind) == (_GROUPS, 9) else thrift.skip(self.octets, at, kind)
            field, kind, at = thrift.head(self.octets, at, field)

    def _walk_groups(self, at: int) -> int:
        kind, groups, at = thrift.items(self.octets, at)
        if kind != 12 and groups:
            raise IndexError("row groups that are none")
        for _ in range(groups):
            at = self._walk_group(at, groups)
        if len(self._starts) != self._width * groups or len(self._rows) != groups:
            raise IndexError("row groups of different columns")
        return at

    def _walk_group(self, at: int, groups: int) -> int:
        octets = self.octets
        field, kind, at = thrift.head(octets, at, 0)
        while kind:
            if (field, kind) == (1, 9):
                _, self._width, at = thrift.items(octets, at)
                self._quick = self._width * groups >= chunks.MANY
                at = chunks.ends(octets, at, self._width, self._starts, self._quick)
            elif field == 3:
                rows, at = thrift.value(octets, at, kind)
                self._rows.append(rows)
            else:
                at = thrift.skip(octets, at, kind)
            field, kind, at = thrift.head(octets, at, field)
        return at

    @cached_property
    def note(self) -> dict[str, Any]:
        """The notes of the file. Raises `errors.Integrity`, `errors.Unsupported`."""
        return notes.loads(self._key_values)

    @cached_property
    def _key_values(self) -> dict[bytes, bytes]:
        with reading():
            pairs: list[Record] = thrift.value(self.octets, self._at[_NOTES], 9)[0] if _NOTES in self._at else []
            return {pair[1]: pair.get(2, b"") for pair in pairs}

    @cached_property
    def edges(self) -> list[int]:
        """The row where each row group starts, and the number of rows."""
        with reading():
            edges = [0, *itertools.accumulate(self._rows)]
            total = thrift.zigzag(self.octets, self._at[_ROWS])[0]
            if min(self._rows, default=0) < 0 or edges[-1] != total:
                raise IndexError("rows that do not add up")
        return edges

    @cached_property
    def _tops(self) -> dict[str, tuple[Record, list[int]]]:
        """Under each top-level name its element of the schema and the numbers of its leaf columns."""
        with reading():
            elements: list[Record] = thrift.value(self.octets, self._at[_SCHEMA], 9)[0]
            tops: dict[str, tuple[Record, list[int]]] = {}
            at, leaf = 1, 0
            for _ in range(elements[0].get(5, 0)):
                top, first, left = elements[at], leaf, 1
                while left:
                    below = elements[at].get(5, 0)
                    left += below - 1
                    leaf += not below
                    at += 1
                tops[top[4].decode()] = (top, list(range(first, leaf)))
            if len(tops) != elements[0].get(5, 0) or (self._starts and leaf != self._width):
                raise IndexError("a schema of other columns")
        return tops

    @cached_property
    def leaves(self) -> dict[str, list[int]]:
        """Leaf column numbers under each top-level name."""
        return {name: leaves for name, (_, leaves) in self._tops.items()}

    @cached_property
    def common(self) -> dict[str, Common | None]:
        """The type of each top-level column where it is a common one, see `common_types`."""
        said = common_types.fields(self._key_values.get(common_types.KEY))
        with reading():
            return {name: common_types.common(top, said.get(name)) for name, (top, _) in self._tops.items()}

    def chunk(self, group: int, leaf: int) -> Chunk:
        """Where the pages of a column chunk lie, and its bounds as they are written. Raises `errors.Integrity`."""
        with reading():
            return chunks.chunk(self.octets, self._starts[group * self._width + leaf], self._quick)

    def bounds(self, name: str) -> list[Bounds | None]:
        """The bounds of a column in each row group; None where they were not written, or not for its type."""
        known = self._bounds.get(name)
        if known is None:
            top, leaves = self._tops[name]
            with reading():
                made = _reader(top) if len(leaves) == 1 and _ORDERS in self._at else None
                known = [
                    None if made is None else _bounds(self.chunk(group, leaves[0]), made)
                    for group in range(len(self._rows))
                ]
            self._bounds[name] = known
        return known

    @cached_property
    def _arrow(self) -> Any:
        pa = pyarrow()
        whole = b"".join((_MAGIC, self.octets, len(self.octets).to_bytes(4, "little"), _MAGIC))
        try:
            return parquet().ParquetFile(pa.BufferReader(whole))
        except (pa.ArrowException, OSError) as fault:
            raise errors.Integrity("The recorded file is not readable as Parquet.") from fault

    @property
    def metadata(self) -> Any:
        """The footer as pyarrow parses it. Raises `errors.Integrity`."""
        return self._arrow.metadata

    @property
    def arrow_schema(self) -> Any:
        """The columns' Arrow types, by pyarrow. Raises `errors.Integrity`."""
        return self._arrow.schema_arrow


_NUMBERS = {1: "<i", 2: "<q", 4: "<f", 5: "<d", 0: "<?"}
_UNSIGNED = {1: "<I", 2: "<Q"}


def _reader(top: Record) -> Callable[[bytes], Any] | None:
    """From a written bound to its value, for the types whose order is that of Python's values; else None."""
    logical = top.get(10, {})
    if top.get(1) == 6:
        return bytes.decode if 1 in logical else None
    signed = logical[10].get(2, False) if 10 in logical else top.get(6) not in (11, 12, 13, 14)
    form = (_NUMBERS if signed else _UNSIGNED).get(top.get(1, -1))
    if form is None or set(logical) - {8, 10}:
        return None

    def number(written: bytes) -> Any:
        return struct.unpack(form, written)[0]

    return number


def _bounds(chunk: Chunk, value: Callable[[bytes], Any]) -> Bounds | None:
    if chunk.low is None or chunk.high is None:
        return None
    try:
        low, high = value(chunk.low), value(chunk.high)
    except UnicodeDecodeError:
        return None
    return (low, high) if low == low and high == high else None
