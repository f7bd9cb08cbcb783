"""Where each logical column lies among the physical ones.

Owns: positions of columns, index levels and side columns, computed from the notes. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlm_memory.codecs import notes


@dataclass(frozen=True, slots=True)
class Layout:
    """`width` columns come first, then `levels` index levels; `sides[i]` are the positions beside main column i.

    `listed[i]` are those whose first row alone matters (see `listed`)."""

    width: int
    levels: int
    notes: list[dict[str, Any]]
    sides: list[range]
    listed: list[range]

    @classmethod
    def of(cls, note: dict[str, Any]) -> Layout:
        """Positions from the notes of a file."""
        columns = notes.stretch(note["columns"])
        every = [*columns, *note["levels"]]
        sides: list[range] = []
        listed: list[range] = []
        start = len(every)
        for one in every:
            stop = start + one.get("sides", 0)
            sides.append(range(start, stop - one.get("listed", 0)))
            listed.append(range(sides[-1].stop, stop))
            start = stop
        return cls(len(columns), len(note["levels"]), every, sides, listed)
