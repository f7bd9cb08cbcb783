"""From an object to its codec, and from a media type to its reader.

Owns: the choice. A library that this process has not loaded cannot have made the object, so `sys.modules` is asked
before anything is imported. Does not own: any format.
"""

from __future__ import annotations

from email.message import Message
from pathlib import Path
from typing import Any, cast

from rlm_memory import errors
from rlm_memory.codecs import files
from rlm_memory.codecs.libraries import class_of, loaded
from rlm_memory.codecs.readers import READERS as _READERS
from rlm_memory.codecs.readers import as_octets as _as_octets
from rlm_memory.codecs.readers import only_whole as _only_whole
from rlm_memory.codecs.readers import open_lazy
from rlm_memory.codecs.readers import read_foreign as _read_foreign
from rlm_memory.codecs.request import Request, shown
from rlm_memory.codecs.results import Encoded, Terms


def encode(obj: Any, folder: Path, *, lossy: bool = False, image: str | None = None) -> Encoded:
    """Write the object into `folder` as one file that is proven to read back.

    Raises `errors.NotExact` (a column or place cannot be kept exactly; `lossy=True` accepts the listed changes) or
    `errors.Invalid` (no codec takes the type). On any failure, interrupts included, no file is left. `image` is the
    format of a matplotlib figure, "png" (the default) or "svg", and is refused with anything else.
    """
    made = files.keep_account()
    try:
        return _encode(obj, folder, Terms(lossy), image)
    except BaseException as fault:
        files.drop(made)  # what is named already, too: an interrupt may come while the summary is made
        if (interrupt := _interrupt_behind(fault)) is not None:
            raise interrupt from None
        raise


def _interrupt_behind(fault: BaseException) -> KeyboardInterrupt | None:
    """The interrupt that a library hid by failing as it was left, as a zip file does that is still written to."""
    behind = fault.__context__
    while behind is not None and not isinstance(behind, KeyboardInterrupt):
        behind = behind.__context__
    return behind


def _encode(obj: Any, folder: Path, terms: Terms, image: str | None) -> Encoded:
    if image is not None and class_of(obj).__module__.partition(".")[0] != "matplotlib":
        raise errors.Invalid(f"image: only a matplotlib figure is drawn; leave image out for a {type(obj).__name__}.")
    if isinstance(obj, str) and type(obj) is str:
        from rlm_memory.codecs.plain import encode_text

        return encode_text(obj, folder, terms)
    if isinstance(obj, bytes | bytearray) and type(obj) in (bytes, bytearray):
        from rlm_memory.codecs.plain import encode_bytes

        return encode_bytes(obj, folder, terms)
    found = _picture(obj, folder, terms, image) or _of_library(obj, folder, terms)
    if found is not None:
        return found
    if obj is None or isinstance(obj, bool | int | float | str | list | tuple | dict):
        from rlm_memory.codecs.jsons import encode_json

        return encode_json(obj, folder, terms)
    raise errors.Invalid(
        f"record: there is no codec for a {type(obj).__module__}.{type(obj).__qualname__}. Pass a table, an "
        "array, a dict or list of plain values, text, bytes, a figure, or a path; batches that come one by one as "
        "pyarrow.RecordBatchReader.from_batches(schema, batches)."
    )


def _picture(obj: Any, folder: Path, terms: Terms, image: str | None) -> Encoded | None:
    """Figures and images, told by their classes without importing their libraries."""
    matplotlib, plotly, pil = loaded("matplotlib.figure"), loaded("plotly.basedatatypes"), loaded("PIL.Image")
    known = [
        *([matplotlib.FigureBase] if matplotlib is not None else []),
        *([plotly.BaseFigure] if plotly is not None else []),
        *([pil.Image] if pil is not None else []),
    ]
    if isinstance(obj, tuple(known)) or class_of(obj).__name__ == "RecordedFigure":
        from rlm_memory.codecs.figures import encode_figure

        return encode_figure(obj, folder, terms, image or "png")
    return None


def _of_library(obj: Any, folder: Path, terms: Terms) -> Encoded | None:
    pd, np = loaded("pandas"), loaded("numpy")
    if pd is not None and isinstance(obj, (pd.DataFrame, pd.Series, pd.Index)):
        from rlm_memory.codecs.tables import encode_pandas

        return encode_pandas(obj, folder, terms)
    pa, pl = loaded("pyarrow"), loaded("polars")
    if pa is not None and isinstance(obj, pa.RecordBatchReader):
        from rlm_memory.codecs.streams import encode_stream

        return encode_stream(obj, folder, terms)
    if (pa is not None and isinstance(obj, (pa.Table, pa.RecordBatch))) or (
        pl is not None and isinstance(obj, (pl.DataFrame, pl.Series))
    ):
        from rlm_memory.codecs.tables import encode_arrow

        return encode_arrow(obj, folder, terms)
    xr = loaded("xarray")
    if xr is not None and isinstance(obj, (xr.Dataset, xr.DataArray)):
        from rlm_memory.codecs.xarrays import encode_xarray

        return encode_xarray(obj, folder, terms)
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
    parameters = dict((message.get_params() or [])[1:])
    return parameters.get("codec"), parameters


FORMS = ("pandas", "arrow", "polars", "dataset", "path", "memmap", "bytes", "text", "json")


def decode(
    path: Path,
    media_type: str,
    *,
    columns: Any = None,
    filters: Any = None,
    rows: Any = None,
    sample: Any = None,
    seed: int = 0,
    as_: str | None = None,
) -> Any:
    """The object of a recorded file, or the part of it that is asked for.

    `columns` are labels; `filters` a list of (column, operator, value) tuples, or a list of such lists of which one
    must hold; `rows` a slice or (start, stop) of positions in the recorded object; `sample` a number of rows or a
    fraction, drawn by `seed` from what the others leave; `as_` one of `FORMS`, the recorded type by default. Raises
    `errors.Invalid` for what the file cannot give, `errors.Integrity` for a damaged file, `errors.Unsupported` for one
    of a newer version or for a type that the libraries here do not have.
    """
    if as_ is not None and (not isinstance(cast("object", as_), str) or as_ not in FORMS):
        raise errors.Invalid(f"as_: {shown(as_)} is not one of {', '.join(FORMS)}.")
    request = Request(columns, filters, rows, sample, seed, as_)
    codec, parameters = codec_of(media_type)
    if as_ in ("path", "bytes", "text", "json"):
        _only_whole(request, f"as_={as_!r}")
        return _as_octets(path, as_)
    if as_ == "dataset" or (as_ == "memmap" and codec != "array"):
        _only_whole(request, f"as_={as_!r}")
        return open_lazy(path, media_type, f"as_={as_!r}")
    if codec is None and as_ is None:
        _only_whole(request, "a file recorded as it is")
        return path.read_bytes()
    reader = _READERS.get(codec or "")
    if reader is None:
        return _read_foreign(path, media_type, request)
    return reader(path, request, {**parameters, "media": media_type})
