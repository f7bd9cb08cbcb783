"""A bounded head of an object: at most 10 rows x 20 columns of text cells, at most 32 KiB of JSON.

Owns: previews of tables and arrays. A preview shows values; it is a convenience, unverified, never what `load` gives.
Does not own: summaries, which show no value.
"""

from __future__ import annotations

import json
from typing import Any

from rlm_memory.codecs.libraries import numpy

ROWS, COLUMNS, CELL_CHARACTERS, LABEL_CHARACTERS = 10, 20, 60, 80
MAX_BYTES = 32 << 10


def cell(value: Any, limit: int = CELL_CHARACTERS) -> str:
    """One value as short printable text; a value whose own text fails shows its class."""
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # a __str__ of any class may fail
        text = f"<{type(value).__qualname__}>"
    text = text.encode("utf-8", "replace").decode()
    text = "".join(mark if mark.isprintable() else " " for mark in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def frame_preview(frame: Any, shape: Any) -> dict[str, Any]:
    """Head of a pandas DataFrame: labels, dtypes, index and cells, all text; `shape` is that of the recorded object."""
    width, height = min(frame.shape[1], COLUMNS), min(len(frame), ROWS)
    # Column by column: cutting a block of rows and columns fails in pandas 2 for big-endian columns.
    columns = [frame.iloc[:, at].array[:height] for at in range(width)]
    return bounded(
        {
            "kind": "table",
            "columns": [cell(label, LABEL_CHARACTERS) for label in frame.columns[:width]],
            "dtypes": [cell(column.dtype, LABEL_CHARACTERS) for column in columns],
            "index": [cell(label) for label in frame.index[:height]],
            "rows": [[cell(column[row]) for column in columns] for row in range(height)],
            "shape": [int(n) for n in shape],
        }
    )


def table_preview(table: Any) -> dict[str, Any]:
    """Head of an Arrow table."""
    head = table.slice(0, ROWS)
    names = table.column_names[:COLUMNS]
    columns = [head.column(at) for at in range(len(names))]
    return bounded(
        {
            "kind": "table",
            "columns": [cell(name, LABEL_CHARACTERS) for name in names],
            "dtypes": [cell(column.type, LABEL_CHARACTERS) for column in columns],
            "rows": [[cell(_value(column[row])) for column in columns] for row in range(head.num_rows)],
            "shape": [table.num_rows, table.num_columns],
        }
    )


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, NotImplementedError):
        return scalar


def array_preview(array: Any) -> dict[str, Any]:
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


def bounded(preview: dict[str, Any]) -> dict[str, Any]:
    """Drop rows from the end until the JSON fits."""
    while preview.get("rows") and len(json.dumps(preview)) > MAX_BYTES:
        preview["rows"].pop()
        preview["truncated"] = True
    return preview
