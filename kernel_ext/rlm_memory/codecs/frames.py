"""pandas DataFrame, Series and Index as one table plus notes, and back.

Owns: the layout (a physical column per frame column, then the index levels, then side columns), names, attrs, flags,
and putting a frame together from decoded columns. Does not own: kinds of column (`columns`), axes (`axes`), the file
(`parquet_file`), which rows and columns are read (`slicing`).

Source: design page "Exactness", Layout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import axes, columns, found, geometry, listed, notes, tagged
from rlm_memory.codecs.exact import level_values, plain_array
from rlm_memory.codecs.layout import Layout
from rlm_memory.codecs.libraries import numpy, pandas, pyarrow
from rlm_memory.codecs.parquet_file import unique_names
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Stored


def to_table(obj: Any, terms: Terms) -> tuple[Any, dict[str, Any], list[tuple[str, Any, Stored]]]:
    """(physical table, notes, what to prove) of a DataFrame, Series or Index; losses are noted in `terms`."""
    pd = pandas()
    if isinstance(obj, pd.Index):
        return _index_table(obj, terms)
    note: dict[str, Any] = {"object": "series" if isinstance(obj, pd.Series) else "frame", "rows": len(obj)}
    _note_extras(obj, note, terms)
    arrays = [(label, _array_of(obj, at)) for at, label in enumerate(_labels(obj))]
    stored = [columns.encode(array, _where(label), terms) for label, array in arrays]
    if note["object"] == "frame":
        note["header"] = axes.pack(obj.columns, "the column labels", terms)
    else:
        note["name"] = _tag(obj.name, "the name", terms)
    note["index"], levels = axes.encode(obj.index, "the index", terms)
    if axes.lost_frequency(obj.index):
        terms.give_up("the index", f"its freq {obj.index.freq!r} has no name that leads back to it", "freq is dropped")
    proofs = [(_where(label), array, one) for (label, array), one in zip(arrays, stored, strict=True)]
    proofs += _level_proofs(obj.index, levels)
    return (*_assemble(obj, note, stored, levels), proofs)


def _index_table(index: Any, terms: Terms) -> tuple[Any, dict[str, Any], list[tuple[str, Any, Stored]]]:
    note: dict[str, Any] = {"object": "index", "rows": len(index)}
    note["index"], levels = axes.encode(index, "the index", terms)
    if axes.lost_frequency(index):
        terms.give_up("the index", f"its freq {index.freq!r} has no name that leads back to it", "freq is dropped")
    return (*_assemble(index, note, [], levels), _level_proofs(index, levels))


def _level_proofs(index: Any, levels: list[Stored]) -> list[tuple[str, Any, Stored]]:
    if levels and not isinstance(index, pandas().MultiIndex):
        return [("the index", plain_array(index), levels[0])]
    return [(f"the index level {at}", plain_array(level_values(index, at)), one) for at, one in enumerate(levels)]


def _labels(obj: Any) -> list[Any]:
    """The labels one by one, which pandas 2 cannot give in a zone of a dateutil that is newer than itself."""
    try:
        return list(obj.columns) if isinstance(obj, pandas().DataFrame) else [obj.name]
    except Exception as fault:
        raise errors.NotExact(
            f"pandas itself cannot read the column labels ({type(fault).__name__}: {str(fault)[:100]}); nothing was "
            "recorded. Where they are times in a zone of dateutil, convert them to one of zoneinfo.",
            where="the column labels",
        ) from fault


def _array_of(obj: Any, at: int) -> Any:
    return plain_array(obj.iloc[:, at] if isinstance(obj, pandas().DataFrame) else obj)


def _where(label: Any) -> str:
    return f"column {label!r}"


def _tag(value: Any, where: str, terms: Terms) -> Any:
    try:
        return tagged.tag(value)
    except tagged.Untaggable as fault:
        terms.give_up(where, f"it holds {fault}", "becomes text")
        return str(value)


def _note_extras(obj: Any, note: dict[str, Any], terms: Terms) -> None:
    """attrs, the duplicate-labels flag, and a class that is not pandas' own."""
    if obj.attrs:
        attrs: dict[Any, Any] = {}
        for key, value in obj.attrs.items():
            try:
                tagged.tag([key, value])
                attrs[key] = value
            except tagged.Untaggable as fault:
                terms.give_up(f"attrs[{key!r}]", f"it holds {fault}", "is dropped")
        note["attrs"] = tagged.tag(attrs)
    if not obj.flags.allows_duplicate_labels:
        note["unique_labels"] = True
    if geometry.is_geo(obj):
        note["geo"] = geometry.note_frame(obj)
    elif type(obj) not in (pandas().DataFrame, pandas().Series):
        kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
        terms.give_up("the frame", f"the class {kind} is not known", f"becomes a pandas {note['object']}")


def _assemble(obj: Any, note: dict[str, Any], stored: list[Stored], levels: list[Stored]) -> tuple[Any, dict[str, Any]]:
    """The physical table, with a column of positions where there would be none, else the rows are lost."""
    pa, pd = pyarrow(), pandas()
    rows = int(note["rows"])
    stored, levels = [listed.move_out(one, rows) for one in stored], [listed.move_out(one, rows) for one in levels]
    everything = [*stored, *levels]
    wanted = [str(label) for label in _labels(obj)] if stored else []
    index = obj if isinstance(obj, pd.Index) else obj.index
    wanted += [_level_name(index, at) for at in range(len(levels))]
    main = list(wanted)
    wanted += [f"{name}:{suffix}" for name, one in zip(main, everything, strict=True) for suffix, _ in one.sides]
    arrays = [one.main for one in everything] + [side for one in everything for _, side in one.sides]
    if not arrays:
        wanted, arrays, note["placeholder"] = ["index"], [pa.array(index.to_numpy())], True
    note["columns"] = notes.squeeze([_column_note(one) for one in stored])
    note["levels"] = [_column_note(one) for one in levels]
    return pa.table(arrays, names=unique_names(wanted)), note


def _level_name(index: Any, at: int) -> str:
    name = index.names[at]
    return (
        name
        if isinstance(name, str)
        else str(name)
        if name is not None
        else "index"
        if index.nlevels == 1
        else f"level_{at}"
    )


def _column_note(one: Stored) -> dict[str, Any]:
    return {**one.note, "sides": len(one.sides)} if one.sides else one.note


def from_table(
    note: dict[str, Any],
    layout: Layout,
    table: Any,
    *,
    index: Any = None,
    picked: list[int] | None = None,
    header: Any = None,
    whole: bool = True,
) -> Any:
    """The object of a physical table that holds at least the columns wanted, by name.

    `picked` are frame column positions (all by default) and `header` their labels; `index` replaces the recorded
    one where rows were selected from a range; `whole=False` marks a selection of rows.
    """
    names = note["names"]

    def column(at: int) -> Any:
        main = found.for_pandas(table, names[at], layout.notes[at]["kind"])
        return columns.decode(layout.notes[at], main, [table[names[side]] for side in layout.sides[at]])

    if index is None:
        levels = [column(layout.width + at) for at in range(layout.levels)]
        index = axes.decode(note["index"], levels, whole=whole)
    if note["object"] == "index":
        return index
    return _built(note, layout, index, picked, header, column)


def _built(
    note: dict[str, Any],
    layout: Layout,
    index: Any,
    picked: list[int] | None,
    header: Any,
    column: Callable[[int], Any],
) -> Any:
    pd = pandas()
    if note["object"] == "series":
        array = column(0)
        obj = pd.Series(array, index=index, dtype=array.dtype, name=tagged.untag(note["name"]), copy=True)
    else:
        positions = range(layout.width) if picked is None else picked
        header = axes.unpack(note["header"]) if header is None else header
        arrays = {at: _safe(column(position), index) for at, position in enumerate(positions)}
        obj = pd.DataFrame(arrays, index=index, columns=None if arrays else header, copy=not _are_own(arrays.values()))
        if arrays:
            obj.columns = header
    if "geo" in note:
        obj = geometry.restore(obj, note["geo"])
    if "attrs" in note:
        obj.attrs = tagged.untag(note["attrs"])
    if note.get("unique_labels"):
        obj = obj.set_flags(allows_duplicate_labels=False)
    return obj


FEW_COLUMNS = 32
"""Up to so many a frame may keep each column as a block of its own; more are copied into one block for each dtype."""


def _are_own(arrays: Collection[Any]) -> bool:
    """Whether no array shares memory with what was read, so that a frame may take them without a copy.

    Text of Arrow never changes in place. Other extension arrays may lie over read-only buffers.
    """
    np = numpy()
    return len(arrays) <= FEW_COLUMNS and all(
        one.flags.writeable and one.base is None
        if isinstance(one, np.ndarray)
        else type(one).__name__ in ("ArrowStringArray", "ArrowStringArrayNumpySemantics")
        for one in arrays
    )


def _safe(array: Any, index: Any) -> Any:
    """pandas 3 infers text from bare object arrays; a Series of dtype object is taken as it is."""
    if isinstance(array, numpy().ndarray) and array.dtype == object:
        return pandas().Series(array, index=index, dtype=object, copy=False)
    return array
