"""From an object to its codec, and from a media type to its reader.

Owns: the choice. A library that this process has not loaded cannot have made the object, so `sys.modules` is asked
before anything is imported. Does not own: any format.
"""

from __future__ import annotations

from email.message import Message
from pathlib import Path
from typing import Any, cast

from rlm_memory import errors
from rlm_memory.codecs.libraries import loaded
from rlm_memory.codecs.results import Encoded, Terms


def encode(obj: Any, folder: Path, *, lossy: bool = False) -> Encoded:
    """Write the object into `folder` as one file that is proven to read back.

    Raises `errors.NotExact` (a column or place cannot be kept exactly; `lossy=True` accepts the listed changes) or
    `errors.Invalid` (no codec takes the type). On any failure, interrupts included, no file is left.
    """
    terms = Terms(lossy)
    if isinstance(obj, str) and type(obj) is str:
        from rlm_memory.codecs.plain import encode_text

        return encode_text(obj, folder, terms)
    if type(obj) in (bytes, bytearray):
        from rlm_memory.codecs.plain import encode_bytes

        return encode_bytes(obj, folder, terms)
    found = _of_library(obj, folder, terms)
    if found is not None:
        return found
    if obj is None or isinstance(obj, bool | int | float | str | list | tuple | dict):
        from rlm_memory.codecs.jsons import encode_json

        return encode_json(obj, folder, terms)
    raise errors.Invalid(
        f"record: there is no codec for a {type(obj).__module__}.{type(obj).__qualname__}. Pass a table, an array, a dict or list "
        "of plain values, text, bytes, a figure, or a path."
    )


def _of_library(obj: Any, folder: Path, terms: Terms) -> Encoded | None:
    pd, np = loaded("pandas"), loaded("numpy")
    if pd is not None and isinstance(obj, (pd.DataFrame, pd.Series, pd.Index)):
        from rlm_memory.codecs.tables import encode_pandas

        return encode_pandas(obj, folder, terms)
    if np is not None:
        from rlm_memory.codecs import arrays

        if isinstance(obj, np.ndarray | np.generic):
            return arrays.encode_array(obj, folder, terms)
        if type(obj) is dict:
            items = cast("dict[Any, Any]", obj)
            if items and all(type(key) is str and isinstance(item, np.ndarray) for key, item in items.items()):
                return arrays.encode_arrays(items, folder, terms)
    return None


def codec_of(media_type: str) -> tuple[str | None, dict[str, str]]:
    """The codec parameter of a media type and all parameters; None for a file recorded as it is."""
    message = Message()
    message["content-type"] = media_type
    parameters = dict(cast("list[tuple[str, str]]", (message.get_params() or [])[1:]))
    return parameters.get("codec"), parameters


def decode(
    path: Path,
    media_type: str,
    *,
    columns: Any = None,
    filters: Any = None,
    rows: Any = None,
    sample: Any = None,
    as_: str | None = None,
) -> Any:
    """The object of a recorded file, or the part of it that is asked for."""
    codec, parameters = codec_of(media_type)
    if as_ == "path":
        return path
    if as_ == "bytes" or (as_ is None and codec in (None, "bytes")):
        octets = path.read_bytes()
        return bytearray(octets) if parameters.get("class") == "bytearray" and as_ is None else octets
    if as_ == "text" or (as_ is None and codec == "text"):
        from rlm_memory.codecs.plain import read_text

        return read_text(path)
    if as_ == "json" or (as_ is None and codec == "json"):
        from rlm_memory.codecs.jsons import read_json

        return read_json(path)
    if codec == "array":
        from rlm_memory.codecs.arrays import read_npy

        return read_npy(path, lazy=as_ == "memmap")
    if codec == "arrays":
        from rlm_memory.codecs.arrays import read_npz

        return read_npz(path, columns)
    from rlm_memory.codecs import frames, notes, parquet_file

    file = parquet_file.open_file(path)
    return frames.from_table(notes.loads(file.metadata.metadata), parquet_file.read(file))
