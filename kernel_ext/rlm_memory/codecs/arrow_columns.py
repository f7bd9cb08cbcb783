"""Arrow-backed pandas columns, and the columns of Arrow tables: the exact type beside plain values.

Owns: type bytes in the note and the order of a dictionary's values. Does not own: the plain form (`physical`).
"""

from __future__ import annotations

from typing import Any

from rlm_memory.codecs import physical
from rlm_memory.codecs.libraries import compute, pandas, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored, one_array


def encode(array: Any, where: str, terms: Terms) -> Stored:
    """pandas' ArrowExtensionArray."""
    return encode_chunked(array._pa_array, where, terms)


def encode_chunked(column: Any, where: str, terms: Terms, field: Any = None) -> Stored:
    """A ChunkedArray with its exact field."""
    pa = pyarrow()
    try:
        physical.plain(column.type)
        main = physical.to_plain(column)
    except (physical.NoForm, pa.ArrowNotImplementedError) as fault:
        why = fault if isinstance(fault, physical.NoForm) else "values of this type"
        terms.give_up(where, f"Parquet has no form for {why} ({column.type})", "becomes text")
        cells = [None if cell is None else str(cell) for cell in column.to_pylist()]
        main = column = pa.chunked_array([pa.array(cells, pa.string())])
        field = None
    field = field if field is not None else pa.field("", column.type)
    note: Note = {"kind": "arrow", "type": physical.to_bytes(field.with_name(""))}
    if pa.types.is_dictionary(column.type):
        values = dictionary_values(column)
        note["dictionary"] = pack(physical.to_plain(values))
        return Stored(main, note, proof="encoded")
    return Stored(
        main, note, proof="native" if main.type == column.type and not pa.types.is_nested(column.type) else "file"
    )


def dictionary_values(column: Any) -> Any:
    """The values of all chunks of a dictionary column, in the order in which they come first."""
    unified = column.unify_dictionaries()
    return unified.chunk(0).dictionary if unified.num_chunks else pyarrow().array([], column.type.value_type)


def pack(values: Any) -> Note:
    """Dictionary values as a note."""
    from rlm_memory.codecs import axes

    return axes.pack_values(values)


def decode(note: Note, main: Any, _sides: list[Any]) -> Any:
    """The ArrowExtensionArray."""
    pd = pandas()
    return pd.arrays.ArrowExtensionArray(decode_chunked(note, main))


def decode_chunked(note: Note, main: Any) -> Any:
    """The ChunkedArray of the noted type, and of the noted order of dictionary values."""
    pa = pyarrow()
    type_ = physical.from_bytes(note["type"]).type
    column = main if isinstance(main, pa.ChunkedArray) else pa.chunked_array([main])
    if "dictionary" in note:
        return _in_order(note, column, type_)
    return physical.from_plain(column, type_)


def _in_order(note: Note, column: Any, type_: Any) -> Any:
    from rlm_memory.codecs import axes

    pa = pyarrow()
    plain_values = one_array(axes.unpack_values(note["dictionary"]))
    values = physical.from_plain(plain_values, type_.value_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    codes = compute().index_in(column, value_set=plain_values, skip_nulls=not plain_values.null_count)
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.cast(type_.index_type), values, ordered=type_.ordered)
        for chunk in (codes.chunks if isinstance(codes, pa.ChunkedArray) else [codes])
    ]
    return pa.chunked_array(chunks, type_)
