"""Tables as Parquet files: pandas objects here, Arrow and polars through the same steps.

Owns: the order encode -> settle losses -> prove -> write -> read back -> publish, and the facts for the card.
Does not own: layout (`frames`, `arrow_tables`), the file format (`parquet_file`), reading slices (`slicing`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlm_memory import errors, wire
from rlm_memory.codecs import (
    arrow_columns,
    arrow_tables,
    axes,
    columns,
    frames,
    geometry,
    listed,
    notes,
    object_arrays,
    parquet_file,
)
from rlm_memory.codecs.exact import same_chunked, same_column, same_index
from rlm_memory.codecs.files import publishing
from rlm_memory.codecs.layout import Layout
from rlm_memory.codecs.libraries import class_of, pandas, pyarrow
from rlm_memory.codecs.preview import Preview, array_preview, cell, frame_preview, never_fails, table_preview
from rlm_memory.codecs.results import Encoded, Terms, bounded_names
from rlm_memory.codecs.stored import Stored

Proof = tuple[str, Any, Stored]
"""Where, the original column, and what was made of it."""


def encode_pandas(obj: Any, folder: Path, terms: Terms) -> Encoded:
    """A DataFrame, Series or Index. Raises `errors.NotExact` naming the columns; leaves no file then."""
    table, note, proofs = frames.to_table(obj, terms)
    terms.settle()
    if not terms.changes:
        _prove_axes(obj, note)
    more = (
        geometry.parquet_key(
            obj, table.column_names, [one for _, _, one in proofs][: obj.shape[-1] if obj.ndim == 2 else 1]
        )
        if "geo" in note
        else {}
    )
    path = _publish(folder, table, note, proofs, terms, more)
    names = _column_names(obj)
    facts = (
        [int(n) for n in obj.shape],
        bounded_names(names),
        summary(obj, names),
        _preview(obj),
    )
    return Encoded(path, wire.MEDIA_FRAME, *facts, "frame", terms.changes)


@never_fails
def _preview(obj: Any) -> Preview | None:
    return frame_preview(_shown(obj), obj.shape)


def _shown(obj: Any) -> Any:
    """A DataFrame to preview: itself, a Series as its one column, an Index as row labels."""
    pd = pandas()
    if isinstance(obj, pd.DataFrame):
        return obj
    return obj.iloc[:10].to_frame() if isinstance(obj, pd.Series) else pd.DataFrame(index=obj[:10])


def encode_arrow(obj: Any, folder: Path, terms: Terms) -> Encoded:
    """A pyarrow Table or RecordBatch, or a polars DataFrame or Series."""
    is_polars = class_of(obj).__module__.partition(".")[0] == "polars"
    table, note, proofs = (arrow_tables.polars_table if is_polars else arrow_tables.to_table)(obj, terms)
    terms.settle()
    path = _publish(folder, table, note, proofs, terms)
    kind = f"{'polars' if is_polars else 'Arrow'} {class_of(obj).__name__}"
    head = table.select(table.column_names[: len(note["labels"])])
    return arrow_facts(path, kind, note["labels"], note["rows"], head, terms)


def arrow_facts(path: Path, kind: str, names: list[str], rows: int, head: Any, terms: Terms) -> Encoded:
    """The facts of a table of which `head` holds at least the first rows."""
    shown = ", ".join(cell(name, 40) for name in names[:12]) + (", ..." if len(names) > 12 else "")
    text = f"{kind}, {rows:,} rows x {len(names):,} columns: {shown}"
    preview = table_preview(head, [rows, len(names)])
    return Encoded(
        path, wire.MEDIA_FRAME, [rows, len(names)], bounded_names(names), text, preview, "frame", terms.changes
    )


def encode_cells(array: Any, folder: Path, terms: Terms) -> Encoded:
    """A numpy array of Python objects."""
    table, note, proofs = object_arrays.to_table(array, terms)
    terms.settle()
    path = _publish(folder, table, note, proofs, terms)
    text = f"Array of objects, {' x '.join(f'{n:,}' for n in array.shape) or 'no axes'}"
    return Encoded(path, wire.MEDIA_FRAME, list(array.shape), None, text, array_preview(array), "frame", terms.changes)


def _publish(
    folder: Path,
    table: Any,
    note: dict[str, Any],
    proofs: list[Proof],
    terms: Terms,
    more: dict[bytes, bytes] | None = None,
) -> Path:
    """Prove what can be proven in memory, write, prove the rest from the file. A lossy file is its own original."""
    exact = not terms.changes
    for where, original, stored in proofs if exact else []:
        if stored.proof == "encoded":
            prove(where, original, stored.note, stored.main, [side for _, side in stored.sides])
    with publishing(folder, ".parquet") as (part, final):
        note["names"] = table.column_names
        parquet_file.write(part, table, {notes.KEY: notes.dumps(note), **(more or {})})
        file = parquet_file.open_file(part)
        if file.metadata.num_rows != table.num_rows:
            raise errors.StoreUnavailable("The file holds fewer rows than were written; nothing was recorded.")
        _prove_file(file, proofs if exact else [])
    return final


def _prove_file(file: Any, proofs: list[Proof]) -> None:
    back = notes.loads(file.metadata.metadata)
    layout = Layout.of(back)
    for at, (where, original, stored) in enumerate(proofs):
        if stored.proof == "file":
            listed.bring_back(file, back, layout, [at])
            names = [back["names"][at], *(back["names"][side] for side in layout.sides[at])]
            read = parquet_file.read(file, names)
            prove(where, original, layout.notes[at], read.column(0), read.columns[1:])


def prove(where: str, original: Any, note: dict[str, Any], main: Any, sides: list[Any]) -> None:
    """Raise `errors.NotExact` unless the column decodes to what it was."""
    if isinstance(original, pyarrow().ChunkedArray):
        back = arrow_columns.decode_chunked(note, main)
        same = _is_valid(back) and same_chunked(original, back)
    else:
        same = same_column(original, columns.decode(note, main, sides))
    if not same:
        raise errors.NotExact(f"{where} does not read back as it was; nothing was recorded.", where=where)


def _is_valid(column: Any) -> bool:
    """False for a column that equals another and yet fits in no table."""
    try:
        column.validate()
    except pyarrow().ArrowInvalid:
        return False
    return True


def _prove_axes(obj: Any, note: dict[str, Any]) -> None:
    if note["object"] != "frame":
        return
    if not same_index(obj.columns, axes.unpack(note["header"])):
        raise errors.NotExact(
            "the column labels do not read back as they were; nothing was recorded.", where="the column labels"
        )


def _column_names(obj: Any) -> list[str]:
    pd = pandas()
    if isinstance(obj, pd.DataFrame):
        return [str(label) for label in obj.columns[:256]]
    names = [obj.name] if isinstance(obj, pd.Series) else list(obj.names)
    return [str(name) if name is not None else "" for name in names]


def summary(obj: Any, names: list[str]) -> str:
    """Kind, shape and column names; no values."""
    kind = type(obj).__name__
    if kind not in ("DataFrame", "Series"):
        return f"{kind}, {len(obj):,} labels"
    shown = ", ".join(cell(name, 40) for name in names[:12])
    more = ", ..." if len(names) > 12 else ""
    if kind == "Series":
        return f"Series, {len(obj):,} rows, {obj.dtype}"[:300]
    return f"DataFrame, {obj.shape[0]:,} rows x {obj.shape[1]:,} columns: {shown}{more}"
