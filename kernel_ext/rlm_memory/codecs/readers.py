"""One reader for each codec, and files recorded as they are.

Owns: which parts of a request each kind of file can answer. Does not own: reading itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs.libraries import need
from rlm_memory.codecs.request import Request, said

Reader = Callable[[Path, Request, dict[str, str]], Any]


def only_whole(request: Request, what: str) -> None:
    """Raise `errors.Invalid` where parts are asked of something that loads whole."""
    for name in ("columns", "filters", "rows", "sample"):
        if getattr(request, name) is not None:
            raise errors.Invalid(f"{name}: {what} loads whole; leave {name} out.")


def as_octets(path: Path, form: str) -> Any:
    """The file itself in one of the forms that any file has."""
    from rlm_memory.codecs import jsons, plain

    if form == "path":
        return path
    if form == "text":
        return plain.read_text(path)
    return jsons.read_json(path) if form == "json" else path.read_bytes()


def _read_bytes(path: Path, request: Request, parameters: dict[str, str]) -> Any:
    _no_form(request, "octets")
    only_whole(request, "a recorded bytes object")
    octets = path.read_bytes()
    return bytearray(octets) if parameters.get("class") == "bytearray" else octets


def _read_text(path: Path, request: Request, _parameters: dict[str, str]) -> Any:
    _no_form(request, "text")
    only_whole(request, "recorded text")
    return as_octets(path, "text")


def _read_json(path: Path, request: Request, _parameters: dict[str, str]) -> Any:
    _no_form(request, "JSON")
    only_whole(request, "recorded JSON")
    return as_octets(path, "json")


def _read_frame(path: Path, request: Request, _parameters: dict[str, str]) -> Any:
    from rlm_memory.codecs import slicing

    return slicing.load(path, request)


def _read_array(path: Path, request: Request, _parameters: dict[str, str]) -> Any:
    from rlm_memory.codecs import array_slices

    return array_slices.load(path, request)


def _read_arrays(path: Path, request: Request, _parameters: dict[str, str]) -> Any:
    from rlm_memory.codecs import array_slices

    return array_slices.load_npz(path, request)


def _read_figure(path: Path, request: Request, parameters: dict[str, str]) -> Any:
    from rlm_memory.codecs.figures import read_figure

    _no_form(request, "a picture")
    only_whole(request, "a recorded figure")
    return read_figure(path, parameters["media"])


def _read_xarray(path: Path, request: Request, _parameters: dict[str, str]) -> Any:
    from rlm_memory.codecs.xarrays import read_xarray

    return read_xarray(path, request)


def _no_form(request: Request, kind: str) -> None:
    if request.as_ is not None:
        raise errors.Invalid(f"as_={request.as_!r}: the recorded object is {kind}, which has no such form.")


READERS: dict[str, Reader] = {
    "bytes": _read_bytes,
    "text": _read_text,
    "json": _read_json,
    "frame": _read_frame,
    "array": _read_array,
    "arrays": _read_arrays,
    "figure": _read_figure,
    "xarray": _read_xarray,
}


def open_lazy(path: Path, media_type: str, asked: str = "open") -> Any:
    """A pyarrow dataset of a recorded table, or a read-only numpy memory map of a recorded array.

    Nothing is read until it is asked for. Raises `errors.Invalid`, which says what `asked` for it, for a file that has
    no lazy form.
    """
    if "parquet" in media_type or path.suffix == ".parquet":
        dataset = need("pyarrow.dataset", "A lazy table").dataset
        with _parsing(asked, "Parquet"):
            return dataset(path, format="parquet")
    if "x-npy" in media_type or path.suffix == ".npy":
        from rlm_memory.codecs.arrays import read_npy

        return read_npy(path, lazy=True)
    raise errors.Invalid(f"{asked}: only tables (Parquet) and arrays (.npy) open lazily; use load.")


_PARSERS = {
    "parquet": ("pyarrow.parquet", "read_table"),
    "csv": ("pyarrow.csv", "read_csv"),
    "arrow": ("pyarrow.feather", "read_table"),
    "feather": ("pyarrow.feather", "read_table"),
}
"""By a word of the media type or the suffix."""


@contextmanager
def _parsing(argument: str, kind: str) -> Generator[None]:
    """What pyarrow cannot parse is refused: the host has verified the bytes, so they are what was recorded."""
    pa = need("pyarrow", argument)
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as fault:
        raise errors.Invalid(
            f"{argument}: the file does not parse as {kind}: {said(fault)}; use as_='bytes' or as_='path'."
        ) from fault


def read_foreign(path: Path, media_type: str, request: Request) -> Any:
    """A file recorded as it is, parsed as the caller asks: Parquet, CSV or Arrow as a table."""
    only_whole(request, "a file recorded as it is")
    name = f"{media_type} {path.suffix}".lower()
    for kind, (module, function) in _PARSERS.items():
        if kind in name:
            read = getattr(need(module, f"as_={request.as_!r}"), function)
            with _parsing(f"as_={request.as_!r}", kind):
                table = read(path)
            break
    else:
        raise errors.Invalid(
            f"as_={request.as_!r}: a file of type {media_type[:60]!r} is not a table; use bytes, text or path."
        )
    if request.as_ == "polars":
        return need("polars", "as_='polars'").from_arrow(table)
    return table.to_pandas() if request.as_ == "pandas" else table
