"""Bool, integer, float and complex columns, plain and nullable.

Owns: numpy's numeric dtypes (byte order, half, long double, complex, dtype metadata) and pandas' masked arrays. A NaN
stays a NaN and an NA stays a null: data and mask are handed over separately, never inferred.
"""

from __future__ import annotations

from typing import Any

from rlm_memory.codecs import tagged
from rlm_memory.codecs.libraries import numpy, pandas, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored, null_mask, one_array, to_numpy

NATIVE = frozenset("?bhilqBHILQefd")
"""numpy type characters with a Parquet type of the same width."""


def encode(values: Any, where: str, terms: Terms) -> Stored:
    """A one-dimensional numpy array of a numeric dtype."""
    dtype = values.dtype
    note: Note = {"kind": "number", "dtype": dtype.str if dtype.char not in "gG" else dtype.name}
    if dtype.metadata:
        note["metadata"] = _metadata(dtype, where, terms)
    if dtype.char in NATIVE:
        native = values.astype(dtype.newbyteorder("="), copy=False)
        proof = "native" if dtype.isnative and not dtype.metadata else "encoded"
        return Stored(pyarrow().array(native, from_pandas=False), note, proof=proof)
    if dtype.char in "FD":
        return Stored(_complex_struct(values), note, proof="file")
    if dtype.char == "g":
        return _long_double(values, note, where, terms)
    terms.give_up(where, f"dtype {dtype} has no exact form in Parquet", "becomes complex128")
    return encode(values.astype("complex128"), where, terms)


def decode(note: Note, main: Any, sides: list[Any]) -> Any:
    """The numpy array of the noted dtype."""
    np = numpy()
    dtype = np.dtype(note["dtype"])
    if dtype.char == "g":
        out = to_numpy(main, "float64").astype(dtype) + to_numpy(sides[0], "float64")
    elif dtype.char in "FD":
        part = "float32" if dtype.char == "F" else "float64"
        whole = one_array(main)
        out = np.empty(len(whole), dtype.newbyteorder("="))
        out.real, out.imag = to_numpy(whole.field(0), part), to_numpy(whole.field(1), part)
        out = out.astype(dtype, copy=False)
    else:
        out = to_numpy(main, dtype.newbyteorder("=")).astype(dtype, copy=False)
    if note.get("metadata"):
        out = out.view(np.dtype(note["dtype"], metadata=tagged.untag(note["metadata"])))
    return out


def _metadata(dtype: Any, where: str, terms: Terms) -> Any:
    try:
        return tagged.tag(dict(dtype.metadata))
    except tagged.Untaggable as fault:
        terms.give_up(where, f"the dtype's metadata holds {fault}", "the dtype's metadata is dropped")
        return None


def _complex_struct(values: Any) -> Any:
    pa, np = pyarrow(), numpy()
    parts = [
        pa.array(np.ascontiguousarray(half).astype(half.dtype.newbyteorder("="))) for half in (values.real, values.imag)
    ]
    return pa.StructArray.from_arrays(parts, names=["real", "imag"])


def _long_double(values: Any, note: Note, where: str, terms: Terms) -> Stored:
    """Two doubles whose sum is the value; outside their range there is no such pair."""
    np, pa = numpy(), pyarrow()
    with np.errstate(all="ignore"):
        high = values.astype("float64")
        rest = (values - high).astype("float64")
        rest = np.where(np.isfinite(high), rest, 0.0)
        rest = np.where(high == 0, np.copysign(rest, high), rest)
        back = high.astype(values.dtype) + rest
        same = ((back == values) & (np.signbit(back) == np.signbit(values))) | (np.isnan(back) & np.isnan(values))
    if not same.all():
        terms.give_up(
            where,
            f"row {int(np.argmin(same))} of a long double column lies outside what two doubles hold",
            "becomes float64",
        )
        return encode(high, where, terms)
    return Stored(
        pa.array(high, from_pandas=False), note, (("rest", pa.array(rest, from_pandas=False)),), proof="encoded"
    )


def encode_masked(array: Any, _where: str, _terms: Terms) -> Stored:
    """pandas' BooleanArray, IntegerArray, FloatingArray."""
    mask = array._mask
    main = pyarrow().array(array._data, mask=mask if mask.any() else None, from_pandas=False)
    return Stored(main, {"kind": "nullable", "dtype": array._data.dtype.str})


def decode_masked(note: Note, main: Any, _sides: list[Any]) -> Any:
    """The masked array whose data has the noted dtype."""
    arrays, np = pandas().arrays, numpy()
    dtype = np.dtype(note["dtype"])
    kinds = {"b": arrays.BooleanArray, "f": arrays.FloatingArray}
    return kinds.get(dtype.kind, arrays.IntegerArray)(to_numpy(main, dtype), null_mask(main))
