"""Arrow types that Parquet, or its other readers, do not have, through plain ones and back.

Owns: the plain type under a type, converting an array there and back, and a type's bytes. Dictionaries become their
values, views and run-ends become plain arrays, seconds become milliseconds, extension types their storage. Unions and
empty structs have no form. Does not own: the order of a dictionary (`arrow_columns`).
"""

from __future__ import annotations

import base64
from typing import Any

from rlm_memory.codecs.libraries import compute, numpy, pyarrow
from rlm_memory.codecs.stored import null_mask, one_array


class NoForm(ValueError):
    """Parquet has no form for the type; the text names it."""


def to_bytes(field: Any) -> str:
    """A field (name, type, nullability, metadata) as the bytes of an Arrow schema, base64."""
    return base64.b64encode(pyarrow().schema([field]).serialize()).decode()


def from_bytes(text: str) -> Any:
    """The field of `to_bytes`."""
    pa = pyarrow()
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0)


def plain(type_: Any) -> Any:
    """The type that is written. Raises `NoForm`."""
    pa = pyarrow()
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return plain(type_.storage_type)
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return plain(type_.value_type)
    if types.is_struct(type_):
        if not type_.num_fields:
            raise NoForm("a struct without fields")
        return pa.struct([_plain_field(type_.field(at)) for at in range(type_.num_fields)])
    if types.is_map(type_):
        return pa.map_(plain(type_.key_type), _plain_field(type_.item_field), keys_sorted=type_.keys_sorted)
    if types.is_union(type_):
        raise NoForm("a union")
    if _is_list(type_):
        large = types.is_large_list(type_) or types.is_large_list_view(type_)
        return (pa.large_list if large else pa.list_)(_plain_field(type_.value_field))
    return _plain_leaf(type_)


def _is_list(type_: Any) -> bool:
    types = pyarrow().types
    kinds = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(is_kind(type_) for is_kind in kinds)


def _plain_field(field: Any) -> Any:
    return pyarrow().field(field.name, plain(field.type), nullable=True)


def _plain_leaf(type_: Any) -> Any:
    pa = pyarrow()
    types = pa.types
    if types.is_string_view(type_):
        return pa.large_string()
    if types.is_binary_view(type_):
        return pa.large_binary()
    if types.is_timestamp(type_):
        return pa.timestamp("ms" if type_.unit == "s" else type_.unit, tz=_plain_zone(type_.tz))
    if types.is_time(type_) and type_ == pa.time32("s"):
        return pa.time32("ms")
    if types.is_date64(type_):
        return pa.int64()
    if types.is_interval(type_):
        raise NoForm(f"the type {type_}")
    if types.is_decimal(type_) and (type_.scale < 0 or type_.scale > type_.precision or type_.bit_width < 128):
        return _plain_decimal(type_)
    return type_


def _plain_decimal(type_: Any) -> Any:
    pa = pyarrow()
    if type_.scale < 0 or type_.scale > type_.precision:
        return pa.large_string()
    return pa.decimal128(type_.precision, type_.scale)


def _plain_zone(zone: str | None) -> str | None:
    from rlm_memory.codecs import zones

    return zone if zone is None or zone in zones.known_keys() else "UTC"


def to_plain(array: Any) -> Any:
    """An array (or chunked array) of any type as its plain type, value for value."""
    pa = pyarrow()
    if isinstance(array, pa.ChunkedArray):
        target = plain(array.type)
        if target == array.type:
            return array
        return pa.chunked_array([_plain_array(chunk) for chunk in array.chunks], target)
    return _plain_array(array)


def _plain_array(array: Any) -> Any:
    pa, types = pyarrow(), pyarrow().types
    type_ = array.type
    target = plain(type_)
    if target == type_:
        return array
    if isinstance(type_, pa.BaseExtensionType):
        return _plain_array(array.storage)
    if types.is_dictionary(type_):
        return _plain_array(array.dictionary.take(array.indices))
    if types.is_run_end_encoded(type_):
        return _plain_array(compute().run_end_decode(array))
    if types.is_struct(type_):
        fields = [_plain_array(array.field(at)) for at in range(type_.num_fields)]
        return pa.StructArray.from_arrays(
            fields, fields=list(target), mask=array.is_null() if array.null_count else None
        )
    if types.is_nested(type_):
        return _plain_nested(array, target)
    return _plain_values(array, target)


def _plain_values(array: Any, target: Any) -> Any:
    pa, types = pyarrow(), pyarrow().types
    type_ = array.type
    if types.is_date64(type_):
        return array.view(pa.int64())
    if types.is_decimal(type_) and types.is_large_string(target):
        return pa.array([None if cell is None else str(cell) for cell in array.to_pylist()], target)
    if types.is_timestamp(type_):
        # Only the unit may change the integers; the zone is a label.
        return array.cast(pa.timestamp(target.unit, tz=type_.tz)).view(pa.int64()).view(target)
    return array.cast(target)


def _plain_nested(array: Any, target: Any) -> Any:
    """Lists and maps: the children converted, the offsets kept; views and fixed sizes through compact lists."""
    pa, types = pyarrow(), pyarrow().types
    type_ = array.type
    if types.is_fixed_size_list(type_):
        return _plain_fixed(array, target)
    if types.is_list_view(type_) or types.is_large_list_view(type_):
        return _compact(array, target)
    if array.offset:
        array = pa.concat_arrays([array.take(pa.array(range(len(array)), pa.int64()))])
    mask = array.is_null() if array.null_count else None
    if types.is_map(type_):
        return pa.MapArray.from_arrays(
            array.offsets, _plain_array(array.keys), _plain_array(array.items), type=target, mask=mask
        )
    made = pa.LargeListArray if types.is_large_list(type_) else pa.ListArray
    return made.from_arrays(array.offsets, _plain_array(array.values), type=target, mask=mask)


def _plain_fixed(array: Any, target: Any) -> Any:
    """A list of fixed size as a compact one. Arrow's own cast of it goes wrong where the items are lists of nulls."""
    np = numpy()
    size = array.type.list_size
    return _gathered(array, array.values, np.arange(array.offset, array.offset + len(array)) * size, size, target)


def _compact(array: Any, target: Any) -> Any:
    """A list view as a compact list; views share, reorder and skip values."""
    starts, sizes = (numpy().asarray(part, dtype="int64") for part in (array.offsets, array.sizes))
    return _gathered(array, array.values, starts, sizes, target)


def _gathered(array: Any, values: Any, starts: Any, sizes: Any, target: Any) -> Any:
    """A compact list of the items that each row says, none for a null; the items converted."""
    pa, np = pyarrow(), numpy()
    sizes = np.where(null_mask(array), 0, sizes).astype("int64")
    ends = np.cumsum(sizes)
    at = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    made = pa.LargeListArray if pa.types.is_large_list(target) else pa.ListArray
    offsets = pa.array(np.concatenate([[0], ends]), pa.int64() if made is pa.LargeListArray else pa.int32())
    items = _plain_array(values).take(pa.array(at, pa.int64()))
    return made.from_arrays(offsets, items, type=target, mask=array.is_null() if array.null_count else None)


def from_plain(array: Any, type_: Any) -> Any:
    """Back to the type; the counterpart of `to_plain` for everything but a dictionary's order."""
    pa = pyarrow()
    if isinstance(array, pa.ChunkedArray):
        if _identical(array.type, type_):
            return array
        return pa.chunked_array([_typed(chunk, type_) for chunk in array.chunks], type_)
    return _typed(array, type_)


def _identical(a: Any, b: Any) -> bool:
    """Equality of Arrow types leaves out the names of list items; their text shows them."""
    return a.equals(b, check_metadata=True) and str(a) == str(b)


def _typed(array: Any, type_: Any) -> Any:
    pa, types = pyarrow(), pyarrow().types
    if _identical(array.type, type_):
        return array
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _typed(array, type_.storage_type))
    if types.is_dictionary(type_):
        return _dictionary(array, type_)
    if types.is_run_end_encoded(type_):
        return compute().run_end_encode(_typed(array, type_.value_type), run_end_type=type_.run_end_type)
    if types.is_struct(type_):
        fields = [_typed(array.field(at), type_.field(at).type) for at in range(type_.num_fields)]
        return pa.StructArray.from_arrays(
            fields, fields=list(type_), mask=array.is_null() if array.null_count else None
        )
    if types.is_nested(type_):
        return _typed_nested(array, type_)
    return _typed_values(array, type_)


def _dictionary(array: Any, type_: Any) -> Any:
    pa = pyarrow()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary.take(array.indices)
    made = one_array(_typed(array, type_.value_type)).dictionary_encode()
    return pa.DictionaryArray.from_arrays(made.indices.cast(type_.index_type), made.dictionary, ordered=type_.ordered)


def _typed_values(array: Any, type_: Any) -> Any:
    pa, types = pyarrow(), pyarrow().types
    if types.is_date64(type_):
        return array.cast(pa.int64()).view(type_)
    if types.is_timestamp(type_):
        bare = array.view(pa.int64()).view(pa.timestamp(array.type.unit, tz=type_.tz))
        return bare.cast(type_)
    if types.is_decimal(type_) and (types.is_string(array.type) or types.is_large_string(array.type)):
        import decimal

        return pa.array([None if cell is None else decimal.Decimal(cell) for cell in array.to_pylist()], type_)
    return array.cast(type_)


def _typed_nested(array: Any, type_: Any) -> Any:
    pa, types = pyarrow(), pyarrow().types
    if array.offset:
        array = pa.concat_arrays([array.take(pa.array(range(len(array)), pa.int64()))])
    mask = array.is_null() if array.null_count else None
    if types.is_map(type_):
        keys, items = _typed(array.keys, type_.key_type), _typed(array.items, type_.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=type_, mask=mask)
    if types.is_list(type_) or types.is_large_list(type_):
        made = pa.LargeListArray if types.is_large_list(type_) else pa.ListArray
        values = _typed(array.values, type_.value_type)
        offsets = array.offsets.cast(pa.int64() if types.is_large_list(type_) else pa.int32())
        return made.from_arrays(offsets, values, type=type_, mask=mask)
    if types.is_fixed_size_list(type_):
        items = _typed(array.values.take(_of_fixed(array, type_.list_size)), type_.value_type)
        # Of buffers, since `from_arrays` divides by the size, which may be 0, and takes the process with it.
        valid = array.is_valid().buffers()[1] if array.null_count else None
        return pa.Array.from_buffers(type_, len(array), [valid], children=[items])
    large = types.is_large_list_view(type_)
    offsets = array.offsets.cast(pa.int64() if large else pa.int32())
    starts, sizes = offsets[:-1], compute().subtract(offsets[1:], offsets[:-1])
    values = _typed(array.values, type_.value_type)
    made = pa.LargeListViewArray if large else pa.ListViewArray
    return made.from_arrays(starts, sizes, values, type=type_, mask=mask)


def _of_fixed(array: Any, size: int) -> Any:
    """Where the items of lists of one size lie, null for those of a null list, which has items all the same.

    Arrow's own cast goes wrong where the items are lists of nulls, and takes the process with it.
    """
    np = numpy()
    offsets = np.asarray(array.offsets, dtype="int64")
    at = (offsets[:-1, None] + np.arange(size)).ravel()
    return pyarrow().array(at, mask=np.repeat(null_mask(array), size))
