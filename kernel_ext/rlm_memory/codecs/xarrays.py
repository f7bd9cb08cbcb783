"""xarray Datasets and DataArrays as Zarr (format 2) in one zip.

Owns: one Zarr array a variable, in the numpy dtype that it has; the exact attrs, dimension order and names in notes
beside them, since Zarr's own attributes are JSON. Members have fixed dates, so equal datasets give equal bytes. How a
file that the dataset came from was packed (its encodings) is not kept; lazy data is loaded.
Refused: indexes that are not made from one coordinate (MultiIndex, custom ones), object values that are not text, and
dtypes that Zarr lacks.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from rlm_memory import errors, wire
from rlm_memory.codecs import readers, tagged
from rlm_memory.codecs.exact import same_array, same_value
from rlm_memory.codecs.files import publishing
from rlm_memory.codecs.libraries import class_of, need, numpy
from rlm_memory.codecs.request import Request, shown, text_names
from rlm_memory.codecs.results import Encoded, Terms, bounded_names

PURPOSE = "An xarray object"
NOTES = "rlm_memory"
"""Attribute of the group that holds the notes, as JSON text."""
VERSION = 1
LONE = "array"
"""Name that a DataArray without one has inside the file."""


def encode_xarray(obj: Any, folder: Path, terms: Terms) -> Encoded:
    """A Dataset or DataArray. Raises `errors.NotExact` naming the variable."""
    xr = need("xarray", PURPOSE)
    dataset, note = _as_dataset(xr, obj, terms)
    dataset = _plain_indexes(dataset, terms)
    note["attrs"] = _attrs(dataset.attrs, "the dataset", terms)
    note["variables"] = [_variable_note(dataset, name, at, terms) for at, name in enumerate(dataset.variables)]
    terms.settle()
    with publishing(folder, ".zip") as (part, final):
        _write(part, dataset, note)
        back = read_xarray(part, Request())
        if not terms.changes and not _same(xr, obj, back):
            raise errors.NotExact(
                "the xarray object does not read back as it was; nothing was recorded.", where="the dataset"
            )
    names = [str(name) for name in dataset.data_vars]
    sizes = ", ".join(f"{dim} {size:,}" for dim, size in dataset.sizes.items())
    text = f"xarray {type(obj).__name__}, {sizes or 'no dimensions'}: {', '.join(bounded_names(names[:12]))}"
    shape = [int(size) for size in dataset.sizes.values()]
    return Encoded(final, wire.MEDIA_XARRAY, shape, bounded_names(names), text, None, "xarray", terms.changes)


def _as_dataset(xr: Any, obj: Any, terms: Terms) -> tuple[Any, dict[str, Any]]:
    if isinstance(obj, xr.Dataset):
        if type(obj) is not xr.Dataset:
            terms.give_up("the dataset", f"the class {type(obj).__qualname__} is not known", "becomes a Dataset")
        return obj, {"object": "dataset"}
    if type(obj) is not xr.DataArray:
        terms.give_up("the array", f"the class {type(obj).__qualname__} is not known", "becomes a DataArray")
    inner = obj.name if obj.name is not None and obj.name not in obj.coords else LONE
    while inner in obj.coords:
        inner = f"{inner}_"
    return obj.to_dataset(name=inner, promote_attrs=False), {
        "object": "array",
        "name": tagged.tag(obj.name),
        "inner": tagged.tag(inner),
    }


def _plain_indexes(dataset: Any, terms: Terms) -> Any:
    """Only indexes that a reader makes again from the coordinate of the same name."""
    pd, made_again = need("pandas", PURPOSE), need("xarray", PURPOSE).indexes.PandasIndex
    for name, index in list(dataset.xindexes.items()):
        kind = getattr(index, "index", None)
        plain = type(index) is made_again and not isinstance(kind, pd.MultiIndex)
        if plain and dataset[name].dims == (name,):
            continue
        told = kind if isinstance(kind, pd.MultiIndex) else index
        terms.give_up(f"coordinate {name!r}", f"its index is a {type(told).__name__}", "is dropped")
        if name in dataset.xindexes:
            dataset = dataset.drop_indexes([key for key in dataset.xindexes if dataset.xindexes[key] is index])
    return dataset.drop_vars(
        [name for name in dataset.variables if dataset[name].dtype == object and not _is_text(dataset[name])]
    )


def _is_text(variable: Any) -> bool:
    return all(type(cell) is str for cell in numpy().asarray(variable.values).ravel())


def _attrs(attrs: Any, where: str, terms: Terms) -> Any:
    kept: list[Any] = []
    for key, value in attrs.items():
        try:
            kept.append([tagged.tag(key), tagged.tag(value)])
        except tagged.Untaggable as fault:
            terms.give_up(f"attrs[{key!r}] of {where}", f"it holds {fault}", "is dropped")
    return kept


def _variable_note(dataset: Any, name: Any, at: int, terms: Terms) -> dict[str, Any]:
    variable = dataset.variables[name]
    where = f"variable {name!r}"
    dtype = numpy().asarray(variable.values).dtype
    if dtype.kind in "VT" or dtype.metadata or dtype.char in "gG":
        raise errors.NotExact(f"{where} cannot be kept exactly: Zarr has no form for dtype {dtype}.", where=where)
    plain = isinstance(name, str) and name.isidentifier()
    return {
        "path": name if plain else f"variable {at}",
        "name": tagged.tag(name),
        "dims": [tagged.tag(dim) for dim in variable.dims],
        "coordinate": name in dataset.coords,
        "indexed": name in dataset.xindexes,
        "object": dtype.kind == "O",
        "dtype": dtype.str,
        "attrs": _attrs(variable.attrs, where, terms),
    }


def _write(path: Path, dataset: Any, note: dict[str, Any]) -> None:
    """Into memory first: the zip's members then have fixed dates and a fixed order."""
    zarr = need("zarr", PURPOSE)
    store = zarr.storage.MemoryStore()
    group = zarr.create_group(
        store, zarr_format=2, attributes={**_shown([], note["attrs"]), NOTES: json.dumps({"version": VERSION, **note})}
    )
    for one in note["variables"]:
        values = numpy().asarray(dataset.variables[tagged.untag(one["name"])].values)
        values = values.astype("U") if one["object"] else values
        made = group.create_array(
            one["path"],
            shape=values.shape,
            dtype=values.dtype,
            attributes=_shown([str(tagged.untag(dim)) for dim in one["dims"]], one["attrs"]),
            # A chunk that equals the fill value would be left out, and a negative zero equals zero.
            config={"write_empty_chunks": True},
        )
        if values.size:
            made[...] = values
    members = {key: value.to_bytes() for key, value in store._store_dict.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as box:
        for key in sorted(members):
            box.writestr(zipfile.ZipInfo(key), members[key])


def _shown(dims: list[str], attrs: list[Any]) -> dict[str, Any]:
    """Attributes for other readers: the plain ones, and the names of dimensions where xarray looks for them."""
    plain: dict[str, Any] = {key: value for key, value in attrs if isinstance(key, str) and class_of(value) in _SHOWN}
    return {**plain, "_ARRAY_DIMENSIONS": dims} if dims or not plain else plain


_SHOWN = (str, int, float, list, bool)


def read_xarray(path: Path, request: Request) -> Any:
    """The Dataset or DataArray; `columns` picks variables of a Dataset."""
    xr, zarr = need("xarray", PURPOSE), need("zarr", PURPOSE)
    readers.only_whole(Request(filters=request.filters, rows=request.rows, sample=request.sample), "an xarray object")
    if request.as_ is not None:
        raise errors.Invalid(f"as_={request.as_!r}: the recorded object is an xarray one; use path or bytes.")
    note = _notes(path)
    if note.get("version") != VERSION:
        raise errors.Unsupported(
            "The recorded dataset was written by a newer version of rlm-memory; update to read it."
        )
    wanted = _wanted(note, request.columns)
    store = zarr.storage.ZipStore(path, mode="r")
    group = zarr.open_group(store, mode="r", zarr_format=2)
    try:  # not before: closing a store that no one has opened yet is an AttributeError, which would hide an interrupt
        variables = {tagged.untag(one["name"]): _variable(xr, group, one) for one in wanted}
    finally:
        store.close()
    indexed = {tagged.untag(one["name"]) for one in wanted if one["indexed"]}
    coordinates = {
        tagged.untag(one["name"]): variables[tagged.untag(one["name"])] for one in wanted if one["coordinate"]
    }
    bare = xr.Coordinates({name: one for name, one in coordinates.items() if name not in indexed}, indexes={})
    dataset = xr.Dataset(
        {name: one for name, one in variables.items() if name not in coordinates},
        coords=bare,
        attrs={tagged.untag(key): tagged.untag(value) for key, value in note["attrs"]},
    ).assign_coords({name: coordinates[name] for name in indexed})
    if note["object"] == "dataset":
        return dataset
    found = dataset[tagged.untag(note["inner"])]
    return found.rename(tagged.untag(note["name"]))


def _notes(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as box:
            return json.loads(json.loads(box.read(".zattrs"))[NOTES])
    except (KeyError, ValueError, zipfile.BadZipFile) as fault:
        raise errors.Integrity("The recorded file is not a dataset of this library.") from fault


def _wanted(note: dict[str, Any], columns: Any) -> list[dict[str, Any]]:
    if columns is None:
        return note["variables"]
    wanted = text_names(columns)
    known = [tagged.untag(one["name"]) for one in note["variables"]]
    if missing := [name for name in wanted if name not in known]:
        raise errors.Invalid(f"columns: there is no variable {shown(missing[0])} in the recorded dataset.")
    return [one for one in note["variables"] if one["coordinate"] or tagged.untag(one["name"]) in wanted]


def _variable(xr: Any, group: Any, one: dict[str, Any]) -> Any:
    values = numpy().asarray(group[one["path"]][...])
    dtype = numpy().dtype(one["dtype"])
    if one["object"]:
        values = values.astype(object)
    else:
        # Zarr gives a lone text in the width that it needs, other values in a dtype that only says it differently.
        values = values.astype(dtype) if values.dtype.itemsize != dtype.itemsize else values.view(dtype)
    attrs = {tagged.untag(key): tagged.untag(value) for key, value in one["attrs"]}
    return xr.Variable([tagged.untag(dim) for dim in one["dims"]], values, attrs)


def _same(xr: Any, a: Any, b: Any) -> bool:
    """Values, dtypes, dimension order, coordinates, indexes, attrs with their types, names."""
    if isinstance(a, xr.DataArray):
        same_name = same_value(a.name, b.name)
        return same_name and _same_variable(a.variable, b.variable) and _same_coordinates(a, b)
    same_names = list(a.data_vars) == list(b.data_vars) and same_value(dict(a.attrs), dict(b.attrs))
    return (
        same_names
        and all(_same_variable(a[name].variable, b[name].variable) for name in a.data_vars)
        and _same_coordinates(a, b)
    )


def _same_coordinates(a: Any, b: Any) -> bool:
    return (
        set(a.coords) == set(b.coords)
        and set(a.xindexes) == set(b.xindexes)
        and all(_same_variable(a.coords[name].variable, b.coords[name].variable) for name in a.coords)
    )


def _same_variable(a: Any, b: Any) -> bool:
    np = numpy()
    return (
        a.dims == b.dims
        and same_value(dict(a.attrs), dict(b.attrs))
        and same_array(np.asarray(a.values), np.asarray(b.values))
    )
