"""numpy arrays of Python objects as one Parquet column of cells, with their shape in the notes.

Owns: flattening and the shape. Does not own: how cells are kept (`objects`), which is as in a frame's object column.
"""

from __future__ import annotations

from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import objects, parquet_file, readers
from rlm_memory.codecs.libraries import pyarrow
from rlm_memory.codecs.parquet_file import unique_names
from rlm_memory.codecs.request import Request
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Stored


def to_table(array: Any, terms: Terms) -> tuple[Any, dict[str, Any], list[tuple[str, Any, Stored]]]:
    """(physical table, notes, what to prove) of an object array of any shape."""
    fortran = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    cells = array.ravel(order="F" if fortran else "C")
    stored = objects.encode(cells, "the array", terms)
    note: dict[str, Any] = {
        "object": "cells",
        "rows": len(cells),
        "shape": list(array.shape),
        "fortran": fortran,
        "columns": [[1, {**stored.note, "sides": len(stored.sides)}]],
        "levels": [],
    }
    names = unique_names(["cells", *(f"cells:{suffix}" for suffix, _ in stored.sides)])
    return (
        pyarrow().table([stored.main, *(side for _, side in stored.sides)], names=names),
        note,
        [("the array", cells, stored)],
    )


def load(file: Any, note: dict[str, Any], request: Request) -> Any:
    """The object array; it loads whole."""
    readers.only_whole(request, "an array of objects")
    table = parquet_file.read(file)
    if request.as_ == "arrow":
        return table
    if request.as_ is not None:
        raise errors.Invalid(
            f"as_={request.as_!r}: the recorded object is an array of objects; use arrow, path or bytes."
        )
    cells = objects.decode(note["columns"][0][1], table.column(0), table.columns[1:])
    return cells.reshape(note["shape"], order="F" if note["fortran"] else "C")
