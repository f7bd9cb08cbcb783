"""What changed between two values that are no tables: arrays, datasets, dicts and lists, plain values.

Owns: one finding (`Difference`), the walk through dicts and lists, arrays, xarray objects. Does not own: equality,
which is that of recording (`exact`): where two results are not the same, there is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlm_memory.codecs import exact
from rlm_memory.codecs.libraries import class_of, loaded, numpy
from rlm_memory.codecs.preview import cell

MAX_FINDINGS = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """One finding: `what` (schema, rows, index, column, attrs, value), `where`, and both sides as short text."""

    what: str
    where: str
    before: str
    after: str


def walk(where: str, a: Any, b: Any, found: list[Difference]) -> None:
    """Dicts and lists item by item; at most 200 findings."""
    if len(found) >= MAX_FINDINGS or a is b:
        return
    np, xr = loaded("numpy"), loaded("xarray")
    if np is not None and isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        _arrays("array" if where == "$" else where, a, b, found)
    elif xr is not None and isinstance(a, (xr.Dataset, xr.DataArray)) and class_of(a) is class_of(b):
        _datasets(xr, a, b, found)
    elif class_of(a) is dict and class_of(b) is dict:
        for key in dict.fromkeys([*a, *b]):
            if key in a and key in b:
                walk(f"{where}.{key}", a[key], b[key], found)
            else:
                sides = ["present" if key in side else "absent" for side in (a, b)]
                found.append(Difference("column", f"{where}.{key}", *sides))
    elif class_of(a) is list and class_of(b) is list and len(a) == len(b):
        for at, (x, y) in enumerate(zip(a, b, strict=True)):
            walk(f"{where}[{at}]", x, y, found)
    elif not exact.same_value(a, b):
        found.append(Difference("value", where, cell(a), cell(b)))


def _arrays(where: str, a: Any, b: Any, found: list[Difference]) -> None:
    np = numpy()
    if class_of(a) is not class_of(b):
        found.append(Difference("schema", f"{where}: type", class_of(a).__name__, class_of(b).__name__))
    elif a.shape != b.shape:
        found.append(Difference("rows", "shape" if where == "array" else f"{where}: shape", str(a.shape), str(b.shape)))
    elif not exact.same_dtype(a.dtype, b.dtype):
        label = "dtype" if where == "array" else f"{where}: dtype"
        found.append(Difference("schema", label, cell(a.dtype), cell(b.dtype)))
    elif isinstance(a, np.ma.MaskedArray):
        _masked(where, a, b, found)
    elif (places := different(np.asarray(a), np.asarray(b))).any():
        found.append(_cells(where, a, b, places))


def _masked(where: str, a: Any, b: Any, found: list[Difference]) -> None:
    np = numpy()
    hidden_a, hidden_b = np.ma.getmaskarray(a), np.ma.getmaskarray(b)
    values = different(np.asarray(a.data), np.asarray(b.data))
    if a.dtype.names:
        hidden_a, hidden_b, values = (_any_field(side, len(a.shape)) for side in (hidden_a, hidden_b, values))
    masks = hidden_a != hidden_b
    shown = masks | (values & ~hidden_a)
    if shown.any():
        found.append(_cells(where, a, b, shown))
    if (values & ~shown).any():
        found.append(_cells(f"{where}: under the mask", a.data, b.data, values & ~shown))
    if not exact.same_value(a.fill_value, b.fill_value) or a.hardmask != b.hardmask:
        found.append(Difference("schema", f"{where}: fill value, hard mask", *(_fill(side) for side in (a, b))))


def _any_field(mask: Any, axes: int) -> Any:
    """A mask of cells from one of fields: a cell whose any field is marked."""
    if mask.dtype.names:
        parts = [_any_field(mask[name], axes) for name in mask.dtype.names]
        return numpy().logical_or.reduce(parts)
    return mask.any(axis=tuple(range(axes, mask.ndim))) if mask.ndim > axes else mask


def _fill(array: Any) -> str:
    return cell(f"{array.fill_value!r}, {array.hardmask}")


def _cells(where: str, a: Any, b: Any, places: Any) -> Difference:
    np = numpy()
    first = tuple(int(at) for at in np.argwhere(places)[0]) if places.ndim else ()
    count = int(np.count_nonzero(places))
    at = f", first at {list(first)}" if first else ""
    text = f"{where}: {count:,} of {a.size:,} cells differ{at}"
    return Difference("value", text, cell(a[first]), cell(b[first]))


def different(a: Any, b: Any) -> Any:
    """For two arrays of one shape and dtype, a mask of the cells that are not exactly the same."""
    np = numpy()
    kind = a.dtype.kind
    if a.dtype.names:
        marks = [_any_field(different(np.asarray(a[name]), np.asarray(b[name])), a.ndim) for name in a.dtype.names]
        return np.logical_or.reduce(marks)
    if kind == "c":
        return different(a.real, b.real) | different(a.imag, b.imag)
    if kind == "f":
        return ~(((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b)))
    if kind in "mM":
        same = a == b
        return ~(same | (np.isnat(a) & np.isnat(b)))
    if kind in "OV":
        marks = [not exact.same_value(x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
        return np.array(marks, dtype=bool).reshape(a.shape)
    return np.asarray(a != b)


def _datasets(xr: Any, a: Any, b: Any, found: list[Difference]) -> None:
    """Names, dimensions, attributes and values, variable by variable."""
    if isinstance(a, xr.DataArray):
        if not exact.same_value(a.name, b.name):
            found.append(Difference("schema", "name", cell(a.name), cell(b.name)))
        parts = [
            {"the array": one.variable, **{name: one.coords[name].variable for name in one.coords}} for one in (a, b)
        ]
    else:
        parts = [dict(one.variables) for one in (a, b)]
        _noted("attrs", a.attrs, b.attrs, found)
        if set(a.coords) != set(b.coords) and set(parts[0]) == set(parts[1]):
            found.append(
                Difference("schema", "coordinates", cell(sorted(map(str, a.coords))), cell(sorted(map(str, b.coords))))
            )
    if set(a.xindexes) != set(b.xindexes):
        found.append(
            Difference("schema", "indexes", cell(sorted(map(str, a.xindexes))), cell(sorted(map(str, b.xindexes))))
        )
    for name in dict.fromkeys([*parts[0], *parts[1]]):
        if name not in parts[0] or name not in parts[1]:
            shown = ["present" if name in part else "absent" for part in parts]
            found.append(Difference("column", cell(name), *shown))
            continue
        _variables(cell(name), parts[0][name], parts[1][name], found)


def _variables(name: str, a: Any, b: Any, found: list[Difference]) -> None:
    if a.dims != b.dims:
        found.append(Difference("schema", f"{name}: dimensions", cell(a.dims), cell(b.dims)))
    else:
        _arrays(name, numpy().asarray(a.values), numpy().asarray(b.values), found)
    _noted(f"{name}: attrs", a.attrs, b.attrs, found)


def _noted(where: str, a: Any, b: Any, found: list[Difference]) -> None:
    if not exact.same_value(dict(a), dict(b)):
        found.append(Difference("attrs", where, cell(dict(a)), cell(dict(b))))
