"""Row indexes and headers: class, names, levels, ranges and frequency.

Owns: an index as level columns plus a note (`encode`, `decode`), and a small index packed whole into the notes
(`pack`, `unpack`) for headers and categories. A RangeIndex is three numbers; a frequency is kept only where its name
leads back to it. Does not own: values, which are columns like any other.
"""

from __future__ import annotations

import base64
import warnings
from typing import Any

from rlm_memory.codecs import columns, tagged
from rlm_memory.codecs.exact import level_values, plain_array
from rlm_memory.codecs.libraries import need, pandas, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored


def encode(index: Any, where: str, terms: Terms) -> tuple[Note, list[Stored]]:
    """The note of an index and one stored column a level, none for a range."""
    pd = pandas()
    if type(index).__module__.partition(".")[0] != "pandas":
        terms.give_up(where, f"the index class {type(index).__qualname__} is not pandas' own", "becomes a pandas Index")
    names = [_tag_name(name, where, terms) for name in index.names]
    if isinstance(index, pd.RangeIndex):
        return {"axis": "range", "range": [index.start, index.stop, index.step], "names": names}, []
    if isinstance(index, pd.MultiIndex):
        levels = [columns.encode(_level(index, at), f"{where} level {at}", terms) for at in range(index.nlevels)]
        note: Note = {"axis": "multi", "names": names}
        if ranges := _level_ranges(index):
            note["ranges"] = ranges
        return note, levels
    note = {"axis": "flat", "names": names}
    if (name := _frequency(index)) is not None:
        note["freq"] = name
    return note, [columns.encode(plain_array(index), where, terms)]


def _tag_name(name: Any, where: str, terms: Terms) -> Any:
    try:
        return tagged.tag(name)
    except tagged.Untaggable as fault:
        terms.give_up(where, f"its name is of a kind that cannot be kept: {fault}", "the name becomes its text")
        return str(name)


def _level(index: Any, at: int) -> Any:
    return plain_array(level_values(index, at))


def _level_ranges(index: Any) -> list[list[int]]:
    """[level, start, stop, step] of the levels whose values pandas gives as a RangeIndex."""
    levels = [(at, level_values(index, at)) for at in range(index.nlevels)]
    return [[at, one.start, one.stop, one.step] for at, one in levels if isinstance(one, pandas().RangeIndex)]


def _frequency(index: Any) -> str | None:
    pd = pandas()
    if not isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex) or index.freq is None:
        return None
    name = index.freq.freqstr
    return name if _offset(name) == index.freq else None


def _offset(name: str) -> Any:
    to_offset = need("pandas.tseries.frequencies", "A pandas object").to_offset
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return to_offset(name)
        except ValueError:
            return None


def lost_frequency(index: Any) -> bool:
    """True where the index has a frequency whose name does not lead back to it."""
    return (
        getattr(index, "freq", None) is not None and type(index).__name__ != "PeriodIndex" and _frequency(index) is None
    )


def decode(note: Note, arrays: list[Any], *, whole: bool = True) -> Any:
    """The index; `whole=False` drops the frequency, which a selection of rows need not keep."""
    pd = pandas()
    names = [tagged.untag(name) for name in note["names"]]
    if note["axis"] == "range":
        start, stop, step = note["range"]
        return pd.RangeIndex(start, stop, step, name=names[0])
    if note["axis"] == "multi":
        levels = [flat(array) for array in arrays]
        ranges: list[list[int]] = note.get("ranges", []) if whole else []
        for at, *span in ranges:
            levels[at] = pd.RangeIndex(*span)
        return pd.MultiIndex.from_arrays(levels, names=names)
    index = flat(arrays[0], names[0])
    if whole and "freq" in note:
        index.freq = _offset(note["freq"])
    return index


def flat(array: Any, name: Any = None) -> Any:
    """An Index of exactly this array's dtype."""
    return pandas().Index(array, dtype=array.dtype, name=name, tupleize_cols=False)


def pack(index: Any, where: str, terms: Terms) -> Note:
    """A small index as one note: text and integers as JSON, other values as an Arrow stream."""
    note, levels = encode(index, where, terms)
    note["length"] = len(index)
    if levels:
        note["levels"] = [
            {
                "note": level.note,
                "values": [pack_values(array) for array in (level.main, *(side for _, side in level.sides))],
            }
            for level in levels
        ]
    return note


def unpack(note: Note) -> Any:
    """The index of `pack`."""
    arrays: list[Any] = []
    for level in note.get("levels", []):
        main, *sides = [unpack_values(values) for values in level["values"]]
        arrays.append(columns.decode(level["note"], main, sides))
    return decode(note, arrays)


def text_labels(note: Note) -> list[str] | None:
    """The labels of a packed index of plain text, told without pandas; None for any other."""
    if note["axis"] != "flat":
        return None
    level = note["levels"][0]
    kind = level["note"]
    is_text = kind["kind"] == "string" or (kind["kind"] == "object" and kind["cell"]["form"] == "text")
    labels: list[Any] | None = level["values"][0].get("text") if is_text and len(level["values"]) == 1 else None
    return None if labels is None or None in labels else labels


def pack_values(array: Any) -> Note:
    pa = pyarrow()
    if array.type in (pa.large_string(), pa.string()):
        return {"text": array.to_pylist()}
    if array.type == pa.int64():
        return {"int": array.to_pylist()}
    table = pa.table([array], ["values"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return {"stream": base64.b64encode(sink.getvalue()).decode()}


def unpack_values(values: Note) -> Any:
    pa = pyarrow()
    if "array" in values:
        return values["array"]
    if "text" in values:
        return pa.array(values["text"], pa.large_string())
    if "int" in values:
        return pa.array(values["int"], pa.int64())
    with pa.ipc.open_stream(base64.b64decode(values["stream"])) as reader:
        return reader.read_all().column(0)
