"""pyarrow tables and batches, polars frames: as tables of plain columns plus the exact schema.

Owns: both conversions; where chunks of a table end is not kept. Does not own: plain types (`physical`), the file
(`tables`), a RecordBatchReader (`streams`), which comes back as a Table.
"""

from __future__ import annotations

import base64
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import arrow_columns, listed, notes
from rlm_memory.codecs.layout import Layout
from rlm_memory.codecs.libraries import need, pyarrow
from rlm_memory.codecs.parquet_file import unique_names
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Stored


def to_table(obj: Any, terms: Terms) -> tuple[Any, dict[str, Any], list[tuple[str, Any, Stored]]]:
    """(physical table, notes, what to prove) of a Table or RecordBatch."""
    pa = pyarrow()
    note: dict[str, Any] = {"object": "table"}
    if isinstance(obj, pa.RecordBatch):
        note["object"] = "batch"
        obj = pa.Table.from_batches([obj])
    return _arrow_table(obj, note, terms)


def _arrow_table(
    table: Any, note: dict[str, Any], terms: Terms
) -> tuple[Any, dict[str, Any], list[tuple[str, Any, Stored]]]:
    pa = pyarrow()
    stored = [
        arrow_columns.encode_chunked(table.column(at), f"column {field.name!r}", terms, field)
        for at, field in enumerate(table.schema)
    ]
    proofs = [
        (f"column {field.name!r}", table.column(at), one)
        for at, (field, one) in enumerate(zip(table.schema, stored, strict=True))
    ]
    note["rows"] = table.num_rows
    moved = [listed.move_out(one, table.num_rows) for one in stored]
    note["columns"], note["levels"] = notes.squeeze([{**one.note, "sides": len(one.sides)} for one in moved]), []
    _note_schema(note, table.schema)
    arrays = [*(one.main for one in moved), *(side for one in moved for _, side in one.sides)]
    wanted = [
        *table.column_names,
        *(f"{name}:{suffix}" for name, one in zip(table.column_names, moved, strict=True) for suffix, _ in one.sides),
    ]
    if not arrays:
        arrays, wanted, note["placeholder"] = [pa.array(range(table.num_rows), pa.int64())], ["index"], True
    return pa.table(arrays, names=unique_names(wanted)), note, proofs


def _note_schema(note: dict[str, Any], schema: Any) -> None:
    note["labels"] = schema.names
    if schema.metadata is not None:
        note["metadata"] = [[base64.b64encode(part).decode() for part in pair] for pair in schema.metadata.items()]


def table_note(schema: Any, rows: int, columns: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """The notes of a Table without side columns."""
    note: dict[str, Any] = {"object": "table", "rows": rows}
    note["columns"], note["levels"] = notes.squeeze([{**one, "sides": 0} for one in columns]), []
    _note_schema(note, schema)
    note["names"] = names
    return note


def from_table(note: dict[str, Any], layout: Layout, table: Any, picked: list[int] | None = None) -> Any:
    """The Table, RecordBatch, polars DataFrame or Series of a physical table."""
    pa = pyarrow()
    positions = list(range(layout.width)) if picked is None else picked
    from rlm_memory.codecs import physical

    fields = [physical.from_bytes(layout.notes[at]["type"]).with_name(note["labels"][at]) for at in positions]
    arrays = [arrow_columns.decode_chunked(layout.notes[at], table[note["names"][at]]) for at in positions]
    metadata = (
        {base64.b64decode(key): base64.b64decode(value) for key, value in note["metadata"]}
        if "metadata" in note
        else None
    )
    made = pa.table(arrays, schema=pa.schema(fields, metadata=metadata))
    if not arrays and metadata is None:
        # Only a selection of no columns keeps a number of rows.
        made = pa.table([pa.nulls(table.num_rows)], names=["rows"]).select([])
    if note["object"] == "batch":
        return _one_batch(made)
    return polars_object(note, made, positions) if note["object"].startswith("polars") else made


def _one_batch(table: Any) -> Any:
    pa = pyarrow()
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)


def polars_table(obj: Any, terms: Terms) -> tuple[Any, dict[str, Any], list[tuple[str, Any, Stored]]]:
    """A polars DataFrame or Series; its dtypes go into the notes beside the Arrow ones."""
    pl = need("polars", "A polars frame")
    note: dict[str, Any] = {"object": "polars"}
    if isinstance(obj, pl.Series):
        note["object"] = "polars-series"
        obj = obj.to_frame()
    height = obj.height
    columns: dict[str, Any] = {}
    dtypes: list[Any] = []
    note["dtypes"] = dtypes
    for series in obj.get_columns():
        where = f"column {series.name!r}"
        dtype_note = _dtype_note(series.dtype)
        if dtype_note is None:
            terms.give_up(where, f"the polars type {series.dtype} has no exact form", "becomes text")
            series = pl.Series(
                series.name, [None if cell is None else str(cell) for cell in series.to_list()], pl.String
            )
            dtype_note = _dtype_note(series.dtype)
        dtypes.append(dtype_note)
        columns[series.name] = _to_arrow(series)
    table = pyarrow().table(columns) if columns else pyarrow().table({"index": range(height)}).select([])
    made, note, proofs = _arrow_table(table, note, terms)
    if not terms.found:
        back = polars_object(note, _decoded(note, made), list(range(len(columns))))
        back = back.to_frame() if note["object"] == "polars-series" else back
        if back.schema != obj.schema or not back.equals(obj, null_equal=True):
            raise errors.NotExact(
                "the polars frame does not read back as it was; nothing was recorded.", where="the frame"
            )
    return made, note, proofs


def _decoded(note: dict[str, Any], made: Any) -> Any:
    probe = {**note, "object": "table", "names": made.column_names}
    return from_table(probe, Layout.of(probe), made)


def _to_arrow(series: Any) -> Any:
    """Coded text as plain text, which is what others read; 128-bit integers, which Arrow lacks, as text too."""
    pl = need("polars", "A polars frame")
    if isinstance(series.dtype, pl.Categorical | pl.Enum) or series.dtype in (pl.Int128, pl.UInt128):
        series = series.cast(pl.String)
    return series.to_arrow()


def _dtype_note(dtype: Any) -> Any:
    """A polars dtype as JSON, None where there is no exact form (objects; 128-bit and coded types inside others)."""
    pl = need("polars", "A polars frame")
    if isinstance(dtype, pl.Enum):
        return ["Enum", dtype.categories.to_list()]
    if isinstance(dtype, pl.Categorical):
        return ["Categorical"] if dtype == pl.Categorical() else None
    if isinstance(dtype, pl.Datetime):
        return ["Datetime", dtype.time_unit, dtype.time_zone]
    if isinstance(dtype, pl.Duration):
        return ["Duration", dtype.time_unit]
    if isinstance(dtype, pl.Decimal):
        return ["Decimal", dtype.precision, dtype.scale]
    if isinstance(dtype, pl.List | pl.Array):
        inner = _inner_note(dtype.inner)
        extra = [dtype.size] if isinstance(dtype, pl.Array) else []
        # polars cannot take arrays of width 0 from Arrow: it panics.
        return None if inner is None or extra == [0] else [type(dtype).__name__, inner, *extra]
    if isinstance(dtype, pl.Struct):
        fields = [[field.name, _inner_note(field.dtype)] for field in dtype.fields]
        return None if any(note is None for _, note in fields) else ["Struct", fields]
    return [str(dtype)] if str(dtype) in _SIMPLE else None


_SIMPLE = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128)) | {
    "Boolean",
    "Float16",
    "Float32",
    "Float64",
    "String",
    "Binary",
    "Date",
    "Time",
    "Null",
}


def _inner_note(dtype: Any) -> Any:
    note = _dtype_note(dtype)
    return None if note is None or note[0] in ("Enum", "Categorical", "Int128", "UInt128") else note


def _dtype_from(note: Any) -> Any:
    pl = need("polars", "A polars frame")
    name, *rest = note
    if name in ("List", "Array"):
        return getattr(pl, name)(_dtype_from(rest[0]), *rest[1:])
    if name == "Struct":
        return pl.Struct([pl.Field(label, _dtype_from(inner)) for label, inner in rest[0]])
    return getattr(pl, name)(*rest)


def polars_object(note: dict[str, Any], table: Any, positions: list[int]) -> Any:
    """The polars object of an Arrow table, every dtype as noted."""
    pl = need("polars", "This result was recorded from polars; loading it as it was (as_='arrow' does not)")
    columns: list[Any] = []
    for at, position in enumerate(positions):
        name, dtype = note["labels"][position], _dtype_from(note["dtypes"][position])
        series = pl.from_arrow(table.column(at)).rename(name)
        columns.append(series if series.dtype == dtype else series.cast(dtype))
    if note["object"] == "polars-series":
        return columns[0]
    return pl.DataFrame(columns) if columns else pl.DataFrame(height=table.num_rows)
