"""Categorical columns: values that other tools read, and the categories with their order, used or not.

Owns: the look-up from values back to codes. Categories that Parquet reads natively (text, integers, floats, bools,
times) are written as values; all others (intervals, mixed objects) as text beside a column of codes. Does not own: the
categories as an index (`axes`).
"""

from __future__ import annotations

from typing import Any

from rlm_memory.codecs import axes, columns
from rlm_memory.codecs.exact import plain_array
from rlm_memory.codecs.libraries import compute, numpy, pandas, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored, null_mask, one_array, to_numpy


def encode(array: Any, where: str, terms: Terms) -> Stored:
    """pandas' Categorical."""
    pa, np = pyarrow(), numpy()
    categories, codes = array.categories, array.codes
    note: Note = {
        "kind": "category",
        "ordered": array.ordered,
        "categories": axes.pack(categories, f"{where} categories", terms),
    }
    stored = columns.encode(plain_array(categories), where, Terms(lossy=True))
    missing = codes < 0
    at = pa.array(np.where(missing, 0, codes).astype("int32"), mask=missing if missing.any() else None)
    if not _is_looked_up(stored):
        texts = pa.array([str(label) for label in categories], pa.large_string())
        main = pa.DictionaryArray.from_arrays(at, texts)
        return Stored(main, {**note, "coded": True}, (("codes", at),), "file")
    values = stored.main.combine_chunks() if isinstance(stored.main, pa.ChunkedArray) else stored.main
    values = one_array(values)
    if pa.types.is_large_string(values.type):
        return Stored(pa.DictionaryArray.from_arrays(at, values), note, proof="file")
    return Stored(values.take(at) if len(values) else pa.nulls(len(at), values.type), note, proof="encoded")


def _is_looked_up(stored: Stored) -> bool:
    """Values from which the code can be found again: one plain column, no nulls, no repeats, no NaN."""
    pa, pc = pyarrow(), compute()
    if (
        stored.sides
        or pa.types.is_nested(stored.main.type)
        or stored.main.null_count
        or pa.types.is_dictionary(stored.main.type)
    ):
        return False
    if pa.types.is_floating(stored.main.type):
        return False if pa.types.is_float16(stored.main.type) else not pc.any(pc.is_nan(stored.main)).as_py()
    if stored.note["kind"] == "tagged" or len(pc.unique(stored.main)) != len(stored.main):
        return False
    return not pa.types.is_null(stored.main.type)


def decode(note: Note, main: Any, sides: list[Any]) -> Any:
    """The Categorical of the noted categories."""
    np, pd, pa = numpy(), pandas(), pyarrow()
    categories = axes.unpack(note["categories"])
    dtype = pd.CategoricalDtype(categories, ordered=note["ordered"])
    if note.get("coded"):
        codes = np.where(null_mask(sides[0]), -1, to_numpy(sides[0], "int32"))
    else:
        stored = columns.encode(plain_array(categories), "", Terms(lossy=True))
        values = one_array(stored.main)
        codes = _codes(main if isinstance(main, pa.ChunkedArray) else pa.chunked_array([main]), values)
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


def _codes(column: Any, values: Any) -> Any:
    """The position of each value among the categories, -1 for null, chunk by chunk through small dictionaries."""
    np, pa, pc = numpy(), pyarrow(), compute()
    parts: list[Any] = []
    for chunk in column.chunks:
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        found = pc.index_in(coded.dictionary.cast(values.type), value_set=values)
        table = np.append(to_numpy(pc.fill_null(found, -1), "int32"), np.int32(-1))
        codes = to_numpy(coded.indices, "int64")
        parts.append(table[np.where(null_mask(coded.indices), len(table) - 1, codes)])
    return np.concatenate(parts) if parts else np.array([], dtype="int32")
