"""Lists, tuples, arrays and dicts in cells as native nested columns, where every cell has the same shape of types.

Owns: finding the one shape that all cells share, and both directions. A shape is JSON: a scalar's name ("str", "int",
"float", "bool", "bytes"), `["list", shape]`, `["tuple", shape]`, `["array", dtype]`, `["dict", [[key, shape], ...]]`,
or None where only empty containers or None were seen. Cells that share no shape are kept as tagged JSON by `objects`.
"""

from __future__ import annotations

from typing import Any

from rlm_memory.codecs.exact import same_value
from rlm_memory.codecs.libraries import class_of, numpy, pyarrow
from rlm_memory.codecs.stored import one_array

_SCALARS: dict[type, str] = {str: "str", int: "int", float: "float", bool: "bool", bytes: "bytes"}
MAX_DEPTH = 20


class _NoShape(ValueError):
    """The cells share no shape that Parquet has."""


def encode(cells: Any) -> tuple[Any, Any] | None:
    """(Arrow array, shape), or None where no native form brings the same cells back."""
    pa = pyarrow()
    try:
        shape: Any = None
        for cell in cells:
            shape = _join(shape, _shape(cell, 0))
        array = pa.array([_bare(cell) for cell in cells], _type(shape))
    except (_NoShape, pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError):
        return None
    return (array, shape) if all(map(same_value, cells, decode(shape, array))) else None


def _shape(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _NoShape
    kind = class_of(value)
    if value is None:
        return None
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind is list or kind is tuple:
        inner: Any = None
        for item in value:
            inner = _join(inner, _shape(item, depth + 1))
        return ["list" if kind is list else "tuple", inner]
    if kind is dict and value and all(type(key) is str for key in value):
        return ["dict", [[key, _shape(item, depth + 1)] for key, item in value.items()]]
    if kind is numpy().ndarray and value.ndim == 1 and value.dtype.char in "?bhilqBHILQfd" and value.dtype.isnative:
        return ["array", value.dtype.str]
    raise _NoShape


def _join(a: Any, b: Any) -> Any:
    """The shape that covers both; raises where none does."""
    if a is None or a == b:
        return b
    if b is None:
        return a
    if isinstance(a, str) or isinstance(b, str) or a[0] != b[0] or a[0] == "array":
        raise _NoShape
    if a[0] == "dict":
        if [key for key, _ in a[1]] != [key for key, _ in b[1]]:
            raise _NoShape
        return ["dict", [[key, _join(x, y)] for (key, x), (_, y) in zip(a[1], b[1], strict=True)]]
    return [a[0], _join(a[1], b[1])]


def _type(shape: Any) -> Any:
    pa = pyarrow()
    if shape is None:
        return pa.string()
    if isinstance(shape, str):
        return {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "bytes": pa.binary()}[
            shape
        ]
    if shape[0] == "dict":
        return pa.struct([(key, _type(inner)) for key, inner in shape[1]])
    if shape[0] == "array":
        return pa.list_(pa.from_numpy_dtype(numpy().dtype(shape[1])))
    return pa.list_(_type(shape[1]))


def _bare(value: Any) -> Any:
    """Tuples as lists; arrays stay, Arrow takes them as they are."""
    kind = class_of(value)
    if kind is list or kind is tuple:
        return [_bare(item) for item in value]
    if kind is dict:
        return {key: _bare(item) for key, item in value.items()}
    return value


def decode(shape: Any, column: Any) -> list[Any]:
    """The cells, None where null."""
    if shape is not None and not isinstance(shape, str) and shape[0] == "array":
        return _arrays(shape[1], one_array(column))
    return [_dress(item, shape) for item in column.to_pylist()]


def _arrays(dtype: str, column: Any) -> list[Any]:
    """Cut one flat array at the offsets: a cell by cell conversion would cost a Python object an item."""
    np = numpy()
    offsets = np.asarray(column.offsets)
    flat = np.asarray(column.values.to_numpy(zero_copy_only=False), dtype=dtype)
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    return [
        flat[start:stop].copy() if there else None
        for start, stop, there in zip(offsets[:-1], offsets[1:], valid, strict=True)
    ]


def _dress(value: Any, shape: Any) -> Any:
    if value is None or shape is None or isinstance(shape, str):
        return value
    if shape[0] == "array":
        return numpy().array(value, dtype=shape[1])
    if shape[0] == "dict":
        return {key: _dress(value[key], inner) for key, inner in shape[1]}
    items = [_dress(item, shape[1]) for item in value]
    return items if shape[0] == "list" else tuple(items)
