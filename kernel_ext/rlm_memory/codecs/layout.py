"""Where each logical column lies among the physical ones.

Owns: positions of columns, index levels and side columns, computed from the notes. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlm_memory.codecs import notes


@dataclass(frozen=True, slots=True)
class Layout:
    """`width` columns come first, then `levels` index levels; `sides[i]` are the positions beside main column i."""

    width: int
    levels: int
    notes: list[dict[str, Any]]
    sides: list[range]

    @classmethod
    def of(cls, note: dict[str, Any]) -> Layout:
        """Positions from the notes of a file."""
        columns = notes.stretch(note["columns"])
        every = [*columns, *note["levels"]]
        sides: list[range] = []
        start = len(every)
        for one in every:
            sides.append(range(start, start + one.get("sides", 0)))
            start = sides[-1].stop
        return cls(len(columns), len(note["levels"]), every, sides)
