"""Interval and sparse columns: made of other columns.

Owns: the struct of two ends, the dense form with its fill value. Does not own: the ends and the values themselves.
"""

from __future__ import annotations

from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import columns, tagged
from rlm_memory.codecs.exact import plain_array
from rlm_memory.codecs.libraries import numpy, pandas, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored, one_array


def encode_interval(array: Any, where: str, terms: Terms) -> Stored:
    """IntervalArray: a struct of left and right, null where the interval is missing."""
    pa, np = pyarrow(), numpy()
    ends = [columns.encode(plain_array(side), where, terms) for side in (array.left, array.right)]
    note: Note = {
        "kind": "interval",
        "closed": array.closed,
        "dtype": str(array.dtype),
        "ends": [end.note for end in ends],
    }
    mask = np.asarray(array.isna())
    mains = [one_array(end.main) for end in ends]
    struct = pa.StructArray.from_arrays(mains, names=["left", "right"], mask=pa.array(mask) if mask.any() else None)
    return Stored(struct, note, proof="file")


def decode_interval(note: Note, main: Any, _sides: list[Any]) -> Any:
    """The IntervalArray. Raises `errors.Unsupported` where this pandas lacks the subtype."""
    pd, np = pandas(), numpy()
    whole = one_array(main)
    gone = np.asarray(whole.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    ends = [columns.decode(end, _end(whole, at), []) for at, end in enumerate(note["ends"])]
    if gone.any() and isinstance(ends[0], np.ndarray) and ends[0].dtype.kind == "f":
        # A null struct need not keep what lies under it.
        ends = [np.where(gone, np.array(np.nan, end.dtype), end) for end in ends]
    array = pd.arrays.IntervalArray.from_arrays(
        *[pd.Index(end, dtype=end.dtype) for end in ends], closed=note["closed"]
    )
    if str(array.dtype) != note["dtype"]:
        raise errors.Unsupported(
            f"The recorded column has dtype {note['dtype']}, which this pandas turns into {array.dtype}."
        )
    return array


def _end(whole: Any, at: int) -> Any:
    """One child, null where the struct is null."""
    return whole.flatten()[at]


def encode_sparse(array: Any, where: str, terms: Terms) -> Stored:
    """SparseArray: the dense values, the fill value with its type, and the kind of sparse index."""
    try:
        fill = tagged.tag(array.fill_value)
    except tagged.Untaggable as fault:
        terms.give_up(where, f"its fill value is of a kind that cannot be kept: {fault}", "becomes a dense column")
        return columns.encode(array.to_dense(), where, terms)
    dense = columns.encode(numpy().asarray(array.to_dense()), where, terms)
    note: Note = {
        "kind": "sparse",
        "fill": fill,
        "index": array.kind,
        "dtype": array.sp_values.dtype.str,
        "dense": dense.note,
    }
    return Stored(dense.main, note, dense.sides, "file" if dense.proof == "file" else "encoded")


def decode_sparse(note: Note, main: Any, sides: list[Any]) -> Any:
    """The SparseArray of the noted fill value."""
    pd, np = pandas(), numpy()
    dense = columns.decode(note["dense"], main, sides)
    fill = tagged.untag(note["fill"])
    dtype = pd.SparseDtype(np.dtype(note["dtype"]), fill)
    dense = np.asarray(dense)
    return pd.arrays.SparseArray(dense, fill_value=fill, dtype=dtype, kind=note["index"])
