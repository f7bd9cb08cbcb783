"""Parts of recorded arrays: rows along the first axis, fields or keys, samples, memory maps.

Owns: what `rows`, `columns` and `sample` mean for an array. A slice is taken from a memory map, so the rest of the file
is never read. Does not own: the formats (`arrays`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from rlm_memory import errors
from rlm_memory.codecs import arrays
from rlm_memory.codecs.libraries import numpy
from rlm_memory.codecs.request import Request, text_names


def load(path: Path, request: Request) -> Any:
    """The array of an `.npy`, or part of it. Raises `errors.Invalid`."""
    if request.as_ not in (None, "memmap"):
        raise errors.Invalid(f"as_={request.as_!r}: the recorded object is an array; use memmap, path or bytes.")
    _no_filters(request)
    if request.is_whole:
        return arrays.read_npy(path, lazy=request.as_ == "memmap")
    mapped = arrays.read_npy(path, lazy=True)
    part = _part(mapped, request)
    return part if request.as_ == "memmap" else numpy().array(part)


def load_npz(path: Path, request: Request) -> Any:
    """The arrays of an `.npz`; `columns` picks keys of a recorded dict of arrays."""
    if request.as_ is not None:
        raise errors.Invalid(f"as_={request.as_!r}: the recorded arrays have no such form; use path or bytes.")
    _no_filters(request)
    keys = None if request.columns is None else text_names(request.columns)
    found = arrays.read_npz(path, keys)
    if request.rows is None and request.sample is None:
        return found
    rest = Request(rows=request.rows, sample=request.sample, seed=request.seed)
    if isinstance(found, dict):
        return {key: _part(array, rest) for key, array in cast("dict[str, Any]", found).items()}
    return _part(found, rest)


def _no_filters(request: Request) -> None:
    if request.filters is not None:
        raise errors.Invalid("filters: an array has no columns to filter by; use rows, or load it and index it.")


def _part(array: Any, request: Request) -> Any:
    from rlm_memory.codecs import slicing

    np = numpy()
    if request.columns is not None:
        wanted = text_names(request.columns)
        if not array.dtype.names or any(name not in array.dtype.names for name in wanted):
            raise errors.Invalid("columns: an array has columns only where it is structured; pass its field names.")
        array = array[wanted]
    if request.rows is None and request.sample is None:
        return array
    if not array.ndim:
        raise errors.Invalid("rows: the recorded array has no axes.")
    span = slicing.span_of(request.rows, len(array))
    if request.sample is not None:
        return array[slicing.sampled(np.asarray(span, dtype="int64"), request)]
    return array[slicing.slice_of(span)]
