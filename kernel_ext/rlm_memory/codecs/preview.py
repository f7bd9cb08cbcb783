"""A bounded head of an object: at most 10 rows x 20 columns of text cells, at most 32 KiB of JSON.

Owns: previews of tables and arrays. A preview shows values; it is a convenience, unverified, never what `load` gives.
Does not own: summaries, which show no value.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, ParamSpec

from rlm_memory.codecs.libraries import numpy

ROWS, COLUMNS, CELL_CHARACTERS, LABEL_CHARACTERS = 10, 20, 60, 80
MAX_BYTES = 32 << 10

P = ParamSpec("P")
Preview = dict[str, Any]


def cell(value: Any, limit: int = CELL_CHARACTERS) -> str:
    """One value as short printable text; a value whose own text fails shows its class."""
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # a __str__ of any class may fail
        text = f"<{type(value).__qualname__}>"
    text = text.encode("utf-8", "replace").decode()
    text = "".join(mark if mark.isprintable() else " " for mark in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def never_fails(make: Callable[P, Preview | None]) -> Callable[P, Preview | None]:
    """A preview that cannot be made is left out: the file is written and proven by then, and it is what counts."""

    @functools.wraps(make)
    def tried(*args: P.args, **options: P.kwargs) -> Preview | None:
        try:
            return make(*args, **options)
        except Exception:  # values of any class, read by libraries of any version
            return None

    return tried


def _at(values: Any, row: int) -> str:
    """One value as text; pandas 2 cannot make single times in a zone of a dateutil that is newer than itself."""
    try:
        return cell(values[row])
    except Exception as fault:  # as for the preview as a whole
        return f"<{type(fault).__name__}>"


@never_fails
def frame_preview(frame: Any, shape: Any) -> Preview:
    """Head of a pandas DataFrame: labels, dtypes, index and cells, all text; `shape` is that of the recorded object."""
    width, height = min(frame.shape[1], COLUMNS), min(len(frame), ROWS)
    # Column by column: cutting a block of rows and columns fails in pandas 2 for big-endian columns.
    columns = [frame.iloc[:, at].array[:height] for at in range(width)]
    return bounded(
        {
            "kind": "table",
            "columns": [cell(label, LABEL_CHARACTERS) for label in frame.columns[:width]],
            "dtypes": [cell(column.dtype, LABEL_CHARACTERS) for column in columns],
            "index": [_at(frame.index, row) for row in range(height)],
            "rows": [[_at(column, row) for column in columns] for row in range(height)],
            "shape": [int(n) for n in shape],
        }
    )


@never_fails
def table_preview(table: Any, shape: Any) -> Preview:
    """Head of an Arrow table; `shape` is that of the recorded object."""
    head = table.slice(0, ROWS)
    names = table.column_names[:COLUMNS]
    columns = [head.column(at) for at in range(len(names))]
    return bounded(
        {
            "kind": "table",
            "columns": [cell(name, LABEL_CHARACTERS) for name in names],
            "dtypes": [cell(column.type, LABEL_CHARACTERS) for column in columns],
            "rows": [[cell(_value(column[row])) for column in columns] for row in range(head.num_rows)],
            "shape": [int(n) for n in shape],
        }
    )


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, NotImplementedError):
        return scalar


@never_fails
def array_preview(array: Any) -> Preview:
    """The first cells of an array, in C order, and its shape."""
    np = numpy()
    head = array.reshape(-1)[:ROWS] if array.ndim <= 1 else array[tuple(slice(0, 1) for _ in range(array.ndim - 2))]
    if array.ndim > 1:
        rows = np.asarray(head).reshape(-1, head.shape[-1])[:ROWS, :COLUMNS] if array.size else np.empty((0, 0))
    else:
        rows = np.asarray(head).reshape(-1, 1)
    return bounded(
        {
            "kind": "array",
            "dtype": cell(array.dtype, 200),
            "rows": [[cell(item) for item in row] for row in rows],
            "shape": [int(n) for n in array.shape],
        }
    )


def bounded(preview: Preview) -> Preview:
    """Drop rows from the end until the JSON fits."""
    while preview.get("rows") and len(json.dumps(preview)) > MAX_BYTES:
        preview["rows"].pop()
        preview["truncated"] = True
    return preview
