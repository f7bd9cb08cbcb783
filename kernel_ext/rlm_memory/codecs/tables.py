"""Tables as Parquet files: pandas objects here, Arrow and polars through the same steps.

Owns: the order encode -> settle losses -> prove -> write -> read back -> publish, and the facts for the card.
Does not own: layout (`frames`, `arrow_tables`), the file format (`parquet_file`), reading slices (`slicing`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlm_memory import errors, wire
from rlm_memory.codecs import columns, frames, notes, parquet_file
from rlm_memory.codecs.exact import same_column, same_index
from rlm_memory.codecs.files import publishing
from rlm_memory.codecs.layout import Layout
from rlm_memory.codecs.libraries import pandas
from rlm_memory.codecs.preview import cell, frame_preview
from rlm_memory.codecs.results import Encoded, Terms, bounded_names
from rlm_memory.codecs.stored import Stored


def encode_pandas(obj: Any, folder: Path, terms: Terms) -> Encoded:
    """A DataFrame, Series or Index. Raises `errors.NotExact` naming the columns; leaves no file then."""
    table, note, proofs = frames.to_table(obj, terms)
    terms.settle()
    if not terms.changes:
        for where, array, stored in proofs:
            if stored.proof == "encoded":
                columns.prove(array, stored, where)
        _prove_axes(obj, note)
    with publishing(folder, ".parquet") as (part, final):
        write_proven(part, table, note, [] if terms.changes else proofs)
    pd = pandas()
    shown = (
        obj if isinstance(obj, pd.DataFrame) else obj.to_frame() if isinstance(obj, pd.Series) else obj[:10].to_frame()
    )
    shape = [int(n) for n in obj.shape]
    names = _column_names(obj)
    return Encoded(
        final,
        wire.MEDIA_FRAME,
        shape,
        bounded_names(names),
        summary(obj, names),
        frame_preview(shown),
        "frame",
        terms.changes,
    )


def write_proven(path: Path, table: Any, note: dict[str, Any], proofs: list[tuple[str, Any, Stored]]) -> None:
    """Write, then read back from the file what its types alone do not prove."""
    note["names"] = table.column_names
    parquet_file.write(path, table, {notes.KEY: notes.dumps(note)})
    file = parquet_file.open_file(path)
    if file.metadata.num_rows != table.num_rows:
        raise errors.StoreUnavailable("The file holds fewer rows than were written; nothing was recorded.")
    back = notes.loads(file.metadata.metadata)
    layout = Layout.of(back)
    for at, (where, array, stored) in enumerate(proofs):
        if stored.proof != "file":
            continue
        names = [back["names"][at], *(back["names"][side] for side in layout.sides[at])]
        read = parquet_file.read(file, names)
        if not same_column(array, columns.decode(layout.notes[at], read.column(0), read.columns[1:])):
            raise errors.NotExact(
                f"{where} does not read back from the file as it was; nothing was recorded.", where=where
            )


def _prove_axes(obj: Any, note: dict[str, Any]) -> None:
    if note["object"] != "frame":
        return
    from rlm_memory.codecs import axes

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
