"""One logical column as Parquet keeps it: the contract between the kinds of column and the frames made of them.

Owns: `Stored`, how strongly a kind must be proven, and the small conversions between numpy and Arrow that every kind
uses. Does not own: any kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rlm_memory.codecs.libraries import compute, numpy, pyarrow

Proof = Literal["native", "encoded", "file"]
"""native: the type alone proves it; encoded: decode it in memory and compare; file: decode what the file holds."""

Note = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """`main` is the column that other tools read, `sides` (suffix, array) pairs beside it; `note` brings it back."""

    main: Any
    note: Note
    sides: tuple[tuple[str, Any], ...] = ()
    proof: Proof = "native"


def one_array(column: Any) -> Any:
    """A ChunkedArray or Array as one Array."""
    pa = pyarrow()
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    return pa.concat_arrays(column.chunks)


def to_numpy(column: Any, dtype: Any) -> Any:
    """A primitive column, of Arrow or numpy, as a numpy array of exactly `dtype`; nulls hold zero."""
    np = numpy()
    if isinstance(column, np.ndarray):
        return column.astype(dtype, copy=False)
    if column.null_count:
        column = compute().fill_null(column, 0 if column.type != pyarrow().bool_() else False)
    return np.asarray(
        column.to_numpy() if hasattr(column, "num_chunks") else column.to_numpy(zero_copy_only=False), dtype=dtype
    )


def null_mask(column: Any) -> Any:
    """True where the column is null, as a numpy array of bool."""
    np = numpy()
    if not column.null_count:
        return np.zeros(len(column), dtype=bool)
    mask = column.is_null()
    return np.asarray(
        mask.to_numpy() if hasattr(mask, "num_chunks") else mask.to_numpy(zero_copy_only=False), dtype=bool
    )


def as_type(values: Any, type_: Any, mask: Any = None) -> Any:
    """int64 values re-read as a temporal Arrow type, null where `mask`; no unit conversion happens."""
    pa = pyarrow()
    mask = None if mask is None or not mask.any() else mask
    return pa.array(values, pa.int64(), mask=mask, from_pandas=False).view(type_)


def integers(column: Any) -> Any:
    """The int64 values under a temporal column; nulls hold zero."""
    pa = pyarrow()
    view = one_array(column).view(pa.int64())
    return to_numpy(view, "int64")
