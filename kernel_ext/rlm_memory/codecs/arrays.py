"""numpy arrays as `.npy`, or as `.npz` with notes where the `.npy` header would lose something.

Owns: plain and structured arrays, masked arrays, record arrays, numpy scalars, and dicts of arrays. Object arrays go
through Parquet (`object_arrays`). Does not own: slices of files that are not ours.

A `.npy` header keeps dtype, byte order, shape and Fortran order. It loses: padding that comes from alignment, dtype
metadata, the class. Those go into the notes of an `.npz`, whose members have fixed dates, so equal arrays give equal
bytes.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from rlm_memory import errors, wire
from rlm_memory.codecs import tagged
from rlm_memory.codecs.exact import same_array, same_dtype
from rlm_memory.codecs.files import publishing
from rlm_memory.codecs.libraries import class_of, numpy
from rlm_memory.codecs.preview import array_preview
from rlm_memory.codecs.request import shown
from rlm_memory.codecs.results import Encoded, Terms, bounded_names

NOTES = "rlm_memory.json"
VERSION = 1


def encode_array(array: Any, folder: Path, terms: Terms) -> Encoded:
    """An ndarray (or subclass of numpy's own) or a numpy scalar. Raises `errors.NotExact`."""
    np = numpy()
    if isinstance(array, np.generic):
        return _write_npz({"value": np.asarray(array)}, {"object": "scalar"}, array, folder, terms)
    if isinstance(array, np.ma.MaskedArray):
        return _encode_masked(array, folder, terms)
    if type(array) is np.recarray:
        return _write_npz({"records": array.view(np.ndarray)}, {"object": "recarray"}, array, folder, terms)
    if type(array) is not np.ndarray:
        terms.give_up(
            "the array", f"the class {type(array).__qualname__} would come back as ndarray", "becomes an ndarray"
        )
        array = np.asarray(array)
    if array.dtype == object:
        from rlm_memory.codecs.tables import encode_cells

        return encode_cells(array, folder, terms)
    _refuse_foreign(array.dtype)
    if not _survives_npy(array.dtype):
        return _write_npz({"array": array}, {"object": "array"}, array, folder, terms)
    terms.settle()
    with publishing(folder, ".npy") as (part, final):
        with part.open("wb") as stream:
            np.lib.format.write_array(stream, array, _header(array.dtype), allow_pickle=False)
        _prove_npy(part, array)
    return Encoded(
        final,
        wire.MEDIA_NPY,
        list(array.shape),
        _field_names(array),
        summary(array),
        array_preview(array),
        "array",
        terms.changes,
    )


def encode_arrays(arrays: dict[str, Any], folder: Path, terms: Terms) -> Encoded:
    """A dict of text keys to arrays, in its order."""
    np = numpy()
    plain: dict[str, Any] = {}
    for key, array in arrays.items():
        if type(array) is not np.ndarray:
            terms.give_up(
                f"[{key!r}]", f"the class {type(array).__qualname__} would come back as ndarray", "becomes an ndarray"
            )
        plain[key] = np.asarray(array)
        _refuse_foreign(plain[key].dtype, f"[{key!r}]")
    return _write_npz(plain, {"object": "dict"}, arrays, folder, terms)


def _refuse_foreign(dtype: Any, where: str = "the array") -> None:
    """Objects and variable-width strings inside: nothing but pickle would keep them in these formats."""
    if dtype.hasobject or dtype.kind == "T":
        raise errors.NotExact(
            f"{where} has dtype {dtype}, whose cells are Python objects; record it as a list, a Series or a DataFrame.",
            where=where,
        )


def _survives_npy(dtype: Any) -> bool:
    np = numpy()
    try:
        back = np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype)) if not dtype.metadata else None
    except (ValueError, TypeError):
        return False
    return back is not None and same_dtype(dtype, back) and not _has_metadata(dtype)


def _has_metadata(dtype: Any) -> bool:
    if dtype.metadata:
        return True
    if dtype.subdtype:
        return _has_metadata(dtype.subdtype[0])
    return any(_has_metadata(dtype.fields[name][0]) for name in dtype.names or ())


def _header(dtype: Any) -> tuple[int, int] | None:
    """The format's version: numpy chooses, but warns of the one that field names beyond Latin-1 need."""
    try:
        repr(dtype.descr if dtype.names else "").encode("latin-1")
    except UnicodeEncodeError:
        return (3, 0)
    except ValueError:  # overlapping fields have no descr; numpy's own choice stands
        pass
    return None


def _prove_npy(path: Path, array: Any) -> None:
    """The header is what can go wrong: compare it, and the size; the values are the array's own memory."""
    np = numpy()
    back = np.load(path, mmap_mode="r", allow_pickle=False) if array.size and array.dtype.itemsize else np.load(path)
    if back.shape != array.shape or not same_dtype(back.dtype, array.dtype):
        raise errors.NotExact("the array does not read back as it was; nothing was recorded.", where="the array")


def _encode_masked(array: Any, folder: Path, terms: Terms) -> Encoded:
    np = numpy()
    if type(array) is not np.ma.MaskedArray:
        terms.give_up("the array", f"the class {type(array).__qualname__} is not known", "becomes a MaskedArray")
    _refuse_foreign(array.dtype)
    members = {"data": np.asarray(array.data)}
    if array.mask is not np.ma.nomask:
        members["mask"] = np.asarray(array.mask)
    # Asking for the public attribute would set a default, which small integers do not even hold.
    fill = array._fill_value
    if fill is not None:
        members["fill_value"] = np.asarray(fill)
    note = {"object": "masked", "hard": bool(array.hardmask), "fill": fill is not None}
    return _write_npz(members, note, array, folder, terms)


def _write_npz(members: dict[str, Any], note: dict[str, Any], original: Any, folder: Path, terms: Terms) -> Encoded:
    np = numpy()
    terms.settle()
    names = _member_names(list(members))
    note = {
        "version": VERSION,
        **note,
        "members": [_member_note(name, key, members[key]) for name, key in zip(names, members, strict=True)],
    }
    with publishing(folder, ".npz") as (part, final):
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, allowZip64=True) as box:
            for name, array in zip(names, members.values(), strict=True):
                with box.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, _bare(array), _header(array.dtype), allow_pickle=False)
            box.writestr(zipfile.ZipInfo(NOTES), json.dumps(note))
        back = read_npz(part)
        if not _same(original, back, terms):
            raise errors.NotExact("the array does not read back as it was; nothing was recorded.", where="the array")
    shown = original if not isinstance(original, dict) else None
    shape = list(np.shape(shown)) if shown is not None else None
    columns = bounded_names(list(members)) if note["object"] == "dict" else _field_names(original)
    text = _dict_summary(list(members)) if shown is None else summary(original)
    preview = array_preview(np.asarray(shown)) if shown is not None else None
    return Encoded(final, wire.MEDIA_NPZ, shape, columns, text, preview, "arrays", terms.changes)


def _member_names(keys: list[str]) -> list[str]:
    """Keys that are safe file names as they are, so that `numpy.load` shows them; others numbered."""
    safe = [key if key.isidentifier() and key.isascii() and len(key) < 100 else "" for key in keys]
    return [name or f"array {at}" for at, name in enumerate(safe)]


def _member_note(name: str, key: str, array: Any) -> dict[str, Any]:
    return {"name": name, "key": tagged.tag(key), "dtype": _dtype_note(array.dtype)}


def _dtype_note(dtype: Any) -> Any:
    """A dtype as JSON: text, or what a struct or a dtype with metadata needs beside it."""
    form: dict[str, Any] = {}
    if dtype.names:
        form["fields"] = [
            [name, _dtype_note(dtype.fields[name][0]), dtype.fields[name][1], *map(str, dtype.fields[name][2:])]
            for name in dtype.names
        ]
        form["size"], form["align"] = dtype.itemsize, dtype.isalignedstruct
        form["record"] = dtype.type.__name__ == "record"
    elif dtype.subdtype:
        form["of"], form["shape"] = _dtype_note(dtype.subdtype[0]), list(dtype.subdtype[1])
    if dtype.metadata:
        form["metadata"] = _metadata(dtype)
    if not form:
        return dtype.str
    if "fields" not in form and "of" not in form:
        form["base"] = dtype.str
    return form


def _metadata(dtype: Any) -> Any:
    try:
        return tagged.tag(dict(dtype.metadata))
    except tagged.Untaggable as fault:
        raise errors.NotExact(f"the dtype's metadata holds {fault}; drop it first.", where="the dtype") from fault


def _dtype_from(form: Any) -> Any:
    np = numpy()
    if isinstance(form, str):
        return np.dtype(form)
    extra = {"metadata": tagged.untag(form["metadata"])} if "metadata" in form else {}
    if "of" in form:
        return np.dtype((_dtype_from(form["of"]), tuple(form["shape"])), **extra)
    if "fields" not in form:
        return np.dtype(form["base"], **extra)
    fields = form["fields"]
    spec: dict[str, Any] = {
        "names": [name for name, *_ in fields],
        "formats": [_dtype_from(kind) for _, kind, *_ in fields],
        "offsets": [offset for _, _, offset, *_ in fields],
        "itemsize": form["size"],
    }
    if any(title for _, _, _, *title in fields):
        spec["titles"] = [title[0] if title else None for _, _, _, *title in fields]
    made = np.dtype(spec, align=form["align"], **extra)
    return np.dtype((np.record, made)) if form.get("record") else made


def _bare(array: Any) -> Any:
    """What the member file holds: the array without dtype metadata, which the format would warn about."""
    np = numpy()
    if not _has_metadata(array.dtype):
        return array
    return array.view(_stripped(array.dtype, np))


def _stripped(dtype: Any, np: Any) -> Any:
    if dtype.names:
        spec = {
            "names": list(dtype.names),
            "formats": [_stripped(dtype.fields[name][0], np) for name in dtype.names],
            "offsets": [dtype.fields[name][1] for name in dtype.names],
            "itemsize": dtype.itemsize,
        }
        return np.dtype(spec)
    if dtype.subdtype:
        return np.dtype((_stripped(dtype.subdtype[0], np), dtype.subdtype[1]))
    return np.dtype(dtype.str)


def read_npz(path: Path, columns: list[str] | None = None) -> Any:
    """The object of an `.npz` that this module wrote; `columns` picks keys of a dict of arrays."""
    note, arrays = _members(path, columns)
    if columns is not None:
        if note["object"] != "dict":
            raise errors.Invalid("columns: this recorded array has no named parts; use rows.")
        if missing := [name for name in columns if name not in arrays]:
            raise errors.Invalid(f"columns: there is no array {shown(missing[0])} in the recorded dict.")
        return {name: arrays[name] for name in columns}
    return _object(note, arrays)


def _members(path: Path, columns: list[str] | None) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The notes and the arrays by key. Raises `errors.Integrity`, `errors.Unsupported`."""
    np = numpy()
    arrays: dict[Any, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as box, zipfile.ZipFile(path) as members:
            note = json.loads(members.read(NOTES))
            if note.get("version") != VERSION:
                raise errors.Unsupported(
                    "The recorded arrays were written by a newer version of rlm-memory; update to read them."
                )
            for member in note["members"]:
                key = tagged.untag(member["key"])
                if columns is None or key in columns:
                    arrays[key] = _redressed(box[member["name"]], _dtype_from(member["dtype"]))
    except (ValueError, KeyError, AttributeError, OSError, zipfile.BadZipFile, zlib.error) as fault:
        raise errors.Integrity("The recorded file is not readable as the arrays of this library.") from fault
    return note, arrays


def _redressed(array: Any, dtype: Any) -> Any:
    return array if same_dtype(array.dtype, dtype) and not _has_metadata(dtype) else array.view(dtype)


def _object(note: dict[str, Any], arrays: dict[Any, Any]) -> Any:
    np = numpy()
    kind = note["object"]
    if kind == "dict":
        return arrays
    if kind == "scalar":
        return arrays["value"][()]
    if kind == "recarray":
        return arrays["records"].view(np.recarray)
    if kind == "array":
        return arrays["array"]
    made = np.ma.MaskedArray(arrays["data"], mask=arrays.get("mask", np.ma.nomask), hard_mask=note["hard"])
    if note["fill"]:
        made._fill_value = arrays["fill_value"]
    return made


def _same(original: Any, back: Any, terms: Terms) -> bool:
    np = numpy()
    if terms.changes:
        return True
    if class_of(original) is dict:
        return list(original) == list(back) and all(same_array(original[key], back[key]) for key in original)
    if isinstance(original, np.ma.MaskedArray):
        return (
            type(original) is type(back)
            and same_array(np.asarray(original.data), np.asarray(back.data))
            and np.array_equal(np.ma.getmaskarray(original), np.ma.getmaskarray(back))
            and original.hardmask == back.hardmask
            and _same_fill(original._fill_value, back._fill_value)
        )
    if isinstance(original, np.generic):
        return type(original) is type(back) and same_array(np.asarray(original), np.asarray(back))
    return same_array(original, back)


def _same_fill(a: Any, b: Any) -> bool:
    np = numpy()
    return (a is None) == (b is None) and (a is None or same_array(np.asarray(a), np.asarray(b)))


def read_npy(path: Path, *, lazy: bool = False) -> Any:
    """The array, or a read-only memory map of the file. Raises `errors.Integrity` where it is no array."""
    np = numpy()
    try:
        return np.load(path, mmap_mode="r" if lazy else None, allow_pickle=False)
    except (ValueError, EOFError, OSError) as fault:
        raise errors.Integrity(f"The recorded file is not a readable numpy array: {str(fault)[:200]}") from fault


def _field_names(array: Any) -> list[str] | None:
    names = getattr(getattr(array, "dtype", None), "names", None)
    return bounded_names(list(names)) if names else None


def _dict_summary(names: list[str]) -> str:
    return f"{len(names):,} arrays: {', '.join(bounded_names(names[:12]))}" + (", ..." if len(names) > 12 else "")


def summary(value: Any) -> str:
    """Kind, shape and dtype; no values."""
    np = numpy()
    if isinstance(value, np.generic):
        return f"numpy scalar, {value.dtype}"
    kind = "Masked array" if isinstance(value, np.ma.MaskedArray) else "Array"
    return f"{kind}, {' x '.join(f'{n:,}' for n in value.shape) or 'no axes'}, {value.dtype}"[:500]
