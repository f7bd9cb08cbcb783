"""Which kind a column is, and which module keeps that kind.

Owns: dispatch by exact array class (several pandas classes inherit from one another) and by the `kind` of a note.
Does not own: any kind. Extension arrays of other libraries are refused by name; lossy keeps them as object cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import arrow_columns, categories, compound, geometry, numeric, objects, strings, times
from rlm_memory.codecs.libraries import class_of, numpy, pandas
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored

Encoder = Callable[[Any, str, Terms], Stored]
Decoder = Callable[[Note, Any, list[Any]], Any]

_BY_CLASS: dict[str, Encoder] = {
    "BooleanArray": numeric.encode_masked,
    "IntegerArray": numeric.encode_masked,
    "FloatingArray": numeric.encode_masked,
    "DatetimeArray": times.encode_datetime,
    "TimedeltaArray": times.encode_timedelta,
    "PeriodArray": times.encode_period,
    "StringArray": strings.encode,
    "StringArrayNumpySemantics": strings.encode,
    "ArrowStringArray": strings.encode,
    "ArrowStringArrayNumpySemantics": strings.encode,
    "ArrowExtensionArray": arrow_columns.encode,
    "Categorical": categories.encode,
    "IntervalArray": compound.encode_interval,
    "SparseArray": compound.encode_sparse,
    "GeometryArray": geometry.encode,
}

_DECODERS: dict[str, Decoder] = {
    "number": numeric.decode,
    "nullable": numeric.decode_masked,
    "datetime": times.decode_datetime,
    "timedelta": times.decode_timedelta,
    "period": times.decode_period,
    "string": strings.decode,
    "object": objects.decode,
    "tagged": objects.decode,
    "arrow": arrow_columns.decode,
    "category": categories.decode,
    "interval": compound.decode_interval,
    "sparse": compound.decode_sparse,
    "geometry": geometry.decode,
}


def encode(array: Any, where: str, terms: Terms) -> Stored:
    """A numpy array or pandas extension array as a stored column; losses are noted in `terms` under `where`."""
    if isinstance(array, numpy().ndarray):
        return _encode_numpy(array, where, terms)
    kind = class_of(array)
    encoder = _BY_CLASS.get(kind.__name__) if kind.__module__.partition(".")[0] in ("pandas", "geopandas") else None
    if encoder is None:
        terms.give_up(
            where, f"the extension type {kind.__module__}.{kind.__qualname__} is not known", "becomes object cells"
        )
        return objects.encode(_object_cells(array), where, terms)
    return encoder(array, where, terms)


def _encode_numpy(array: Any, where: str, terms: Terms) -> Stored:
    kind = array.dtype.kind
    if kind == "O":
        return objects.encode(array, where, terms)
    if kind in "biufc":
        return numeric.encode(array, where, terms)
    if kind in "mM":
        return encode(pandas().array(array, dtype=array.dtype), where, terms)
    terms.give_up(where, f"dtype {array.dtype} has no form in Parquet", "becomes object cells")
    return objects.encode(array.astype(object), where, terms)


def _object_cells(array: Any) -> Any:
    cells = numpy().empty(len(array), dtype=object)
    for at, item in enumerate(array):
        cells[at] = item
    return cells


def decode(note: Note, main: Any, sides: list[Any]) -> Any:
    """The array that `encode` was given. Raises `errors.Unsupported` for a kind written by a newer version."""
    decoder = _DECODERS.get(note.get("kind", ""))
    if decoder is None:
        raise errors.Unsupported(
            f"The recorded file holds a column of kind {note.get('kind')!r}, which this version does not know."
        )
    return decoder(note, main, sides)
