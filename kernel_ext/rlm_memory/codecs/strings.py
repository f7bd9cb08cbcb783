"""pandas' string dtypes: both storages, both missing values.

Owns: `StringDtype`. Text that UTF-8 cannot hold (lone surrogates, possible only in the Python storage) is kept as
JSON text in the cells, see `objects`.
"""

from __future__ import annotations

from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import objects
from rlm_memory.codecs.libraries import numpy, pandas, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored, one_array


def encode(array: Any, where: str, terms: Terms) -> Stored:
    """Any of the string arrays; each cell is text or the dtype's one missing value."""
    pa, pd = pyarrow(), pandas()
    dtype = array.dtype
    missing = "NA" if dtype.na_value is pd.NA else "nan"
    note: Note = {"kind": "string", "storage": dtype.storage, "missing": missing}
    if dtype.storage == "pyarrow":
        return Stored(_large(array._pa_array), note)
    cells = numpy().asarray(array, dtype=object)
    try:
        return Stored(pa.array(cells, pa.large_string(), from_pandas=True), note)
    except UnicodeEncodeError:
        inner = objects.encode(cells, where, terms)
        return Stored(inner.main, {**note, "cells": inner.note}, inner.sides, "encoded")


def _large(column: Any) -> Any:
    pa = pyarrow()
    return column if column.type == pa.large_string() else column.cast(pa.large_string())


def decode(note: Note, main: Any, sides: list[Any]) -> Any:
    """The string array of the noted storage and missing value."""
    pd, np, pa = pandas(), numpy(), pyarrow()
    dtype = string_dtype(note)
    if "cells" in note:
        cells = objects.decode(note["cells"], main, sides)
        return dtype.construct_array_type()._from_sequence(cells, dtype=dtype)
    column = main if isinstance(main, pa.ChunkedArray) else pa.chunked_array([main])
    if note["storage"] == "pyarrow":
        return dtype.__from_arrow__(_large(column))
    cells = np.asarray(one_array(column).to_numpy(zero_copy_only=False), dtype=object)
    if column.null_count:
        cells = cells.copy()
        cells[np.asarray(column.is_null().to_numpy(), dtype=bool)] = pd.NA if note["missing"] == "NA" else np.nan
    return dtype.construct_array_type()(cells, **_python_options(dtype))


def _python_options(dtype: Any) -> dict[str, Any]:
    """pandas 3 wants the dtype beside the cells; in 2.3 the class alone says which."""
    return {"dtype": dtype} if int(pandas().__version__.partition(".")[0]) >= 3 else {}


def string_dtype(note: Note) -> Any:
    """Raises `errors.Unsupported` where this pandas has no such dtype."""
    pd = pandas()
    try:
        return pd.StringDtype(note["storage"], na_value=pd.NA if note["missing"] == "NA" else numpy().nan)
    except (TypeError, ValueError, ImportError) as fault:
        raise errors.Unsupported(
            "The recorded file has a string dtype that this pandas does not know; pandas 2.3 or newer does."
        ) from fault
