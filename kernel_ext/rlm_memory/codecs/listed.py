"""Long lists of categories, kept out of the footer.

Owns: moving packed values of a note into a side column whose first row holds them all and whose other rows are null,
and bringing them back. A footer is read at every open; a hundred thousand labels there would cost every slice. Only row
group 0 of that column is read, and only when its column is wanted. Without rows there is no first row, and the footer
keeps the list.
"""

from __future__ import annotations

from typing import Any

from rlm_memory.codecs import axes, parquet_file
from rlm_memory.codecs.layout import Layout
from rlm_memory.codecs.libraries import numpy, pyarrow
from rlm_memory.codecs.stored import Note, Stored, one_array

FOOTER_VALUES = 1000
"""Longest list of values that stays in the footer."""


def move_out(one: Stored, rows: int) -> Stored:
    """The column with its long lists as list columns beside it; unchanged where they are short."""
    places = _places(one.note)
    if not rows or not places or max(len(axes.unpack_values(values)) for values in places) <= FOOTER_VALUES:
        return one
    sides = tuple(
        (f"all {at}", _first_row(one_array(axes.unpack_values(values)), rows)) for at, values in enumerate(places)
    )
    note = _with(one.note, [{"listed": at} for at in range(len(places))])
    return Stored(one.main, {**note, "listed": len(places)}, (*one.sides, *sides), one.proof)


def _places(note: Note) -> list[Note]:
    """The packed values inside a note, in order."""
    found = [values for level in note.get("categories", {}).get("levels", []) for values in level["values"]]
    return [*found, note["dictionary"]] if "dictionary" in note else found


def _with(note: Note, values: list[Note]) -> Note:
    """A copy of the note with other packed values in the same places."""
    rest = iter(values)
    made = dict(note)
    if "categories" in note:
        levels = [
            {**level, "values": [next(rest) for _ in level["values"]]} for level in note["categories"].get("levels", [])
        ]
        made["categories"] = {**note["categories"], "levels": levels}
    if "dictionary" in note:
        made["dictionary"] = next(rest)
    return made


def _first_row(values: Any, rows: int) -> Any:
    pa, np = pyarrow(), numpy()
    offsets = np.full(rows + 1, len(values), dtype="int64")
    offsets[0] = 0
    mask = np.ones(rows, dtype=bool)
    mask[0] = False
    return pa.LargeListArray.from_arrays(pa.array(offsets), values, mask=pa.array(mask))


def bring_back(file: Any, note: Note, layout: Layout, positions: list[int]) -> None:
    """Replace the notes of these columns in `layout` by ones that hold their lists as Arrow arrays."""
    for at in dict.fromkeys(positions):
        if layout.listed[at]:
            names = [note["names"][side] for side in layout.listed[at]]
            first = parquet_file.read(file, names, [0]).slice(0, 1)
            values = [{"array": one_array(column).values[: len(column[0])]} for column in first.columns]
            layout.notes[at] = _with(layout.notes[at], values)
