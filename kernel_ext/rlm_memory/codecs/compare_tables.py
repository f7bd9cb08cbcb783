"""What changed between two tables: rows, index, columns, dtypes, values column by column.

Owns: frames, series and indexes of pandas, tables of Arrow and polars. Rows are compared by position. Columns of one
label are taken in their order. Arrow and polars columns are compared as they are: pandas would round their integers.
Does not own: equality (`exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from rlm_memory.codecs import exact
from rlm_memory.codecs.compare_values import Difference, different
from rlm_memory.codecs.libraries import class_of, loaded, numpy
from rlm_memory.codecs.preview import cell


@dataclass(frozen=True, slots=True)
class _Columns:
    """One side: labels in order, and of each column its dtype's short and full text and its values."""

    labels: list[Any]
    dtype: Callable[[int], tuple[str, str]]
    values: Callable[[int], Any]
    rows: int


def differences(a: Any, b: Any) -> list[Difference] | None:
    """The findings; None unless both are tables of some kind."""
    found: list[Difference] = []
    if _is_arrow(a) and _is_arrow(b) and class_of(a) is class_of(b):
        left, right = _of_arrow(a), _of_arrow(b)
        _count(left.rows, right.rows, found)
        _metadata(a, b, found)
        if hasattr(a, "name") and a.name != b.name:  # a polars Series is one column, whatever its name
            found.append(Difference("schema", "name", cell(a.name), cell(b.name)))
            right = replace(right, labels=left.labels)
        _columns(left, right, exact.same_chunked, _differing_items, found)
        return found
    frames = [_as_frame(one, other, found) for one, other in ((a, b), (b, a))]
    if any(frame is None for frame in frames):
        return None
    _frames(frames[0], frames[1], found)
    return found


def _is_arrow(item: Any) -> bool:
    pa, pl = loaded("pyarrow"), loaded("polars")
    return (pa is not None and isinstance(item, (pa.Table, pa.RecordBatch))) or (
        pl is not None and isinstance(item, (pl.DataFrame, pl.Series))
    )


def _of_arrow(item: Any) -> _Columns:
    pa, pl = loaded("pyarrow"), loaded("polars")
    if pl is not None and isinstance(item, (pl.DataFrame, pl.Series)):
        frame = item.to_frame() if isinstance(item, pl.Series) else item
        parts = frame.get_columns()
        return _Columns(
            list(frame.columns),
            lambda at: (str(parts[at].dtype), repr(parts[at].dtype)),
            lambda at: loaded("pyarrow").chunked_array([parts[at].to_arrow()]),
            frame.height,
        )
    table = pa.Table.from_batches([item]) if isinstance(item, pa.RecordBatch) else item
    fields = list(table.schema)
    return _Columns(
        list(table.column_names),
        lambda at: (
            str(fields[at].type),
            f"{fields[at].type}{'' if fields[at].nullable else ' not null'} {dict(fields[at].metadata or {}) or ''}",
        ),
        table.column,
        table.num_rows,
    )


def _metadata(a: Any, b: Any, found: list[Difference]) -> None:
    notes = [dict(getattr(getattr(one, "schema", None), "metadata", None) or {}) for one in (a, b)]
    if notes[0] != notes[1]:
        found.append(Difference("attrs", "metadata", cell(notes[0]), cell(notes[1])))


def _as_frame(item: Any, other: Any, found: list[Difference]) -> Any:
    """A DataFrame of a table of some kind, or None; what a frame cannot show is told once, for the first of a pair."""
    pd = loaded("pandas")
    if pd is None:
        return None
    if isinstance(item, pd.DataFrame):
        return item
    if isinstance(item, pd.Series):
        if isinstance(other, pd.Series) and not exact.same_value(item.name, other.name):
            _once(Difference("schema", "name", cell(item.name), cell(other.name)), found)
            return item.to_frame(0)
        return item.to_frame()
    if isinstance(item, pd.Index):
        names = [list(side.names) if isinstance(side, pd.Index) else None for side in (item, other)]
        if names[1] is not None and not exact.same_value(*names):
            _once(Difference("schema", "names", cell(names[0]), cell(names[1])), found)
        if isinstance(other, pd.Index) and (one := _freq(item)) != (two := _freq(other)):
            _once(Difference("index", "freq", one, two), found)
        levels = [exact.level_values(item, at) for at in range(item.nlevels)] if item.nlevels > 1 else [item]
        return pd.DataFrame({at: pd.Series(exact.plain_array(level)) for at, level in enumerate(levels)})
    if _is_arrow(item):
        made = item.to_pandas()
        return made if isinstance(made, pd.DataFrame) else made.to_frame()
    return None


def _once(difference: Difference, found: list[Difference]) -> None:
    if all((one.what, one.where) != (difference.what, difference.where) for one in found):
        found.append(difference)


def _frames(a: Any, b: Any, found: list[Difference]) -> None:
    _count(len(a), len(b), found)
    if len(a) == len(b):
        if not exact.same_index(a.index, b.index):
            found.append(Difference("index", "labels", _index_text(a.index), _index_text(b.index)))
        elif (one := _freq(a.index)) != (two := _freq(b.index)):
            found.append(Difference("index", "freq", one, two))
    if not exact.same_value(dict(a.attrs), dict(b.attrs)):
        found.append(Difference("attrs", "attrs", cell(dict(a.attrs)), cell(dict(b.attrs))))
    flags = [str(one.flags.allows_duplicate_labels) for one in (a, b)]
    if flags[0] != flags[1]:
        found.append(Difference("attrs", "allows_duplicate_labels", *flags))
    geometry = [cell(getattr(one, "_geometry_column_name", None)) for one in (a, b)]
    if geometry[0] != geometry[1]:
        found.append(Difference("schema", "active geometry", *geometry))
    before = len(found)
    _columns(_of_frame(a), _of_frame(b), exact.same_column, _differing_rows, found)
    told = any(one.what == "column" or one.where == "column order" for one in found[before:])
    if not told and not exact.same_index(a.columns, b.columns):
        found.insert(before, Difference("schema", "column labels", _index_text(a.columns), _index_text(b.columns)))


def _of_frame(frame: Any) -> _Columns:
    return _Columns(
        list(frame.columns),
        lambda at: _dtype_texts(frame.iloc[:, at]),
        lambda at: exact.plain_array(frame.iloc[:, at]),
        len(frame),
    )


def _dtype_texts(column: Any) -> tuple[str, str]:
    short, full = str(column.dtype), repr(column.dtype)
    # A class without a text of its own shows an address, which says nothing; geometry has its reference system.
    return short, f"{short} {getattr(column, 'crs', '')}".strip() if " object at 0x" in full else full


def _count(a: int, b: int, found: list[Difference]) -> None:
    if a != b:
        found.append(Difference("rows", "count", f"{a:,}", f"{b:,}"))


def _index_text(index: Any) -> str:
    names = [name for name in index.names if name is not None]
    return cell(f"{class_of(index).__name__} {list(index[:3])}{f' named {names}' if names else ''}")


def _freq(index: Any) -> str:
    return str(getattr(index, "freq", None))


def _numbered(labels: Iterable[Any]) -> dict[Any, int]:
    """Positions by label and which of its kind it is, so that equal labels pair up in order."""
    seen: dict[Any, int] = {}
    places: dict[Any, int] = {}
    for at, label in enumerate(labels):
        key = ("nan",) if isinstance(label, float) and label != label else (0, label)
        seen[key] = seen.get(key, 0) + 1
        places[key, seen[key]] = at
    return places


def _columns(
    a: _Columns,
    b: _Columns,
    same: Callable[[Any, Any], bool],
    differing: Callable[[Any, Any], list[int]],
    found: list[Difference],
) -> None:
    left, right = _numbered(a.labels), _numbered(b.labels)
    found.extend(
        Difference("column", cell(a.labels[at]), "present", "absent") for key, at in left.items() if key not in right
    )
    found.extend(
        Difference("column", cell(b.labels[at]), "absent", "present") for key, at in right.items() if key not in left
    )
    shared = [key for key in left if key in right]
    if [key for key in right if key in left] != shared:
        found.append(Difference("schema", "column order", cell(a.labels), cell(b.labels)))
    for key in shared:
        at, to = left[key], right[key]
        label, (short, full), (short_b, full_b) = cell(a.labels[at]), a.dtype(at), b.dtype(to)
        if short != short_b:
            found.append(Difference("schema", label, cell(short), cell(short_b)))
            continue
        if full != full_b:
            found.append(Difference("schema", label, cell(full), cell(full_b)))
        if a.rows != b.rows:
            continue
        before, after = a.values(at), b.values(to)
        if same(before, after):
            continue
        rows = differing(before, after)
        if rows:
            text = f"{label}: {len(rows):,} of {a.rows:,} rows differ, first at row {rows[0]}"
            found.append(Difference("value", text, cell(_plain(before[rows[0]])), cell(_plain(after[rows[0]]))))
        elif full == full_b:
            found.append(Difference("schema", f"{label}: type", cell(full), cell(full_b)))


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value


def _differing_items(a: Any, b: Any) -> list[int]:
    pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
    return [at for at, (x, y) in enumerate(pairs) if not exact.same_value(x, y)]


def _differing_rows(a: Any, b: Any) -> list[int]:
    np = numpy()
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype.kind in "biuf":
        return [int(at) for at in np.flatnonzero(different(a, b))]
    return [at for at, (x, y) in enumerate(zip(a, b, strict=True)) if not exact.same_value(x, y)]
