"""`columns=`, `filters=`, `rows=` and `sample=` of a recorded table: what to read, and the result with its labels.

Owns: resolving labels to physical columns with pandas' own rules, which rows are meant, the labels of the rows that
are left, and the forms `as_=` of a result. Rows are positions in the recorded object; filters apply to those; a sample
is drawn from what is left by a fixed seed and keeps the order of `rows`. Does not own: reading (`scan`), decoding
(`frames`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from rlm_memory import errors
from rlm_memory.codecs import (
    arrow_tables,
    axes,
    columns,
    filters,
    found,
    frames,
    listed,
    object_arrays,
    parquet_file,
    scan,
    tagged,
)
from rlm_memory.codecs.footers import Footer
from rlm_memory.codecs.layout import Layout
from rlm_memory.codecs.libraries import class_of, need, numpy, pandas, pyarrow
from rlm_memory.codecs.request import Request, said, shown, text_names
from rlm_memory.codecs.request import listed as request_items

PANDAS = ("frame", "series", "index")


@dataclass(frozen=True, slots=True)
class Picked:
    """Columns of the result by position; their labels where they are more than these of the recorded header."""

    positions: list[int]
    header: Any = None


@dataclass(frozen=True)
class _Recorded:
    """One recorded table and what its footer says. pandas and the open file are reached only where they are needed."""

    path: Path
    footer: Footer
    note: dict[str, Any]
    layout: Layout

    @cached_property
    def file(self) -> Any:
        return parquet_file.open_file(self.path, self.footer)

    @cached_property
    def header(self) -> Any:
        """The labels of a frame, as the Index that was recorded."""
        return axes.unpack(self.note["header"])

    @cached_property
    def text_labels(self) -> dict[str, int] | None:
        """The position of each label of a frame, where all are text and none is there twice; else None."""
        labels = axes.text_labels(self.note["header"])
        places = {} if labels is None else {label: at for at, label in enumerate(labels)}
        return places if labels is not None and len(places) == len(labels) else None

    def bring_back(self, positions: list[int]) -> None:
        if any(self.layout.listed[at] for at in positions):
            listed.bring_back(self.file, self.note, self.layout, positions)

    @property
    def levels(self) -> range:
        """The positions of the index levels."""
        return range(self.layout.width, self.layout.width + self.layout.levels)


def load(path: Path, request: Request) -> Any:
    """The object, or the part of it that is asked for. Raises `errors.Invalid`, `errors.Integrity`."""
    footer = parquet_file.footer_of(path)
    note = footer.note
    if note["object"] == "cells":
        return object_arrays.load(parquet_file.open_file(path, footer), note, request)
    recorded = _Recorded(path, footer, note, Layout.of(note))
    picked = _pick(recorded, request.columns)
    recorded.bring_back([*picked.positions, *recorded.levels])
    total = int(note["rows"])
    span = span_of(request.rows, total)
    whole = request.filters is None and request.sample is None and span == range(total)
    if whole and not _ends_in_polars(recorded, request):
        names = _physical_names(recorded, picked)
        table = parquet_file.read(recorded.file, None if request.columns is None else names)
        if not set(table.column_names).issuperset(names):
            raise errors.Integrity("The recorded file is damaged: its notes name columns that it does not have.")
        return _result(recorded, table, picked, None, request)
    table, positions = _rows(recorded, picked, span, request)
    return _result(recorded, table, picked, positions, request)


def _pick(recorded: _Recorded, wanted: Any) -> Picked:
    """Columns by pandas' own `frame[columns]`, asked of a frame of positions with the recorded header."""
    note = recorded.note
    if wanted is None:
        return Picked(list(range(recorded.layout.width)))
    if note["object"] == "frame":
        return _pick_labels(recorded, wanted)
    if note["object"] in ("series", "index", "polars-series"):
        raise errors.Invalid(f"columns: this recorded {note['object']} has no columns to pick; use filters or rows.")
    labels = note["labels"]
    labelled = text_names(wanted)
    for name in labelled:
        if labels.count(name) != 1:
            why = "no column" if name not in labels else "more than one column"
            raise errors.Invalid(f"columns: there is {why} {shown(name)} in the recorded table.")
    return Picked([labels.index(name) for name in labelled])


def _pick_labels(recorded: _Recorded, wanted: Any) -> Picked:
    if (plain := _plain_text(recorded.text_labels, wanted)) is not None:
        return Picked(plain)
    pd, np = pandas(), numpy()
    several = isinstance(wanted, list | set | pd.Index | np.ndarray)
    labels = request_items("columns", wanted) if several else [wanted]
    if labels and all(isinstance(label, bool | np.bool_) for label in labels):
        raise errors.Invalid("columns: truths choose rows in pandas, not columns; pass labels, or use rows or filters.")
    probe = pd.DataFrame(np.arange(len(recorded.header)).reshape(1, -1), columns=recorded.header)
    try:
        part = probe[cast(Any, labels)]
    except Exception as fault:  # pandas fails in many ways over what is no label
        raise errors.Invalid(
            f"columns: {said(fault)} (labels are matched by value and type of the recorded header)"
        ) from fault
    return Picked([int(at) for at in part.to_numpy()[0]] if part.shape[1] else [], part.columns)


def _plain_text(labels: dict[str, int] | None, wanted: Any) -> list[int] | None:
    """The positions for a list of text that is all among such labels; None where pandas itself must decide."""
    if labels is None or type(wanted) is not list:
        return None
    names = cast("list[Any]", wanted)
    if not all(class_of(one) is str and one in labels for one in names):
        return None
    return [labels[one] for one in names]


def cut_of(rows: Any) -> slice:
    """`rows` as a slice; a range is none, as its ends do not count from the back. Raises `errors.Invalid`."""
    if isinstance(rows, tuple) and len(cast("tuple[Any, ...]", rows)) == 2:
        return slice(*cast("tuple[Any, Any]", rows))
    if not isinstance(rows, slice):
        raise errors.Invalid("rows: pass a slice, (start, stop) or a range, in row positions of the recorded object.")
    return cast("slice[Any, Any, Any]", rows)


def span_of(rows: Any, total: int) -> range:
    """`rows` as a range of positions. A slice or a (start, stop) pair cuts as `iloc` does, a range is its positions.

    Raises `errors.Invalid` for a range with a position that the recorded object lacks.
    """
    if rows is None:
        return range(total)
    if isinstance(rows, range):
        ends = (rows[0], rows[-1]) if rows else ()
        outside = [at for at in ends if not 0 <= at < total]
        if outside:
            raise errors.Invalid(
                f"rows: {shown(rows)} holds the position {shown(outside[0])}, the recorded object has {total} rows "
                "from 0; a slice or (start, stop) counts from the end and is cut to what is there."
            )
        return rows or range(0)
    cut = cut_of(rows)
    try:
        span = range(total)[cut]
    except (TypeError, ValueError) as fault:
        raise errors.Invalid("rows: start, stop and step are whole numbers, and step is not zero.") from fault
    return span if len(span) else range(0)


def _physical_names(recorded: _Recorded, picked: Picked) -> list[str]:
    """Names to read, each once: picked columns, index levels, and what lies beside them."""
    written, sides = recorded.note["names"], recorded.layout.sides
    mains = [*picked.positions, *recorded.levels]
    names = [written[at] for at in mains] + [written[side] for at in mains for side in sides[at]]
    return list(dict.fromkeys(names)) or written[:1]


def _rows(recorded: _Recorded, picked: Picked, span: range, request: Request) -> tuple[Any, Any]:
    """(physical columns, positions): the rows of the span that pass the filters and the sample."""
    names = _physical_names(recorded, picked)
    tests = [] if request.filters is None else _tests(recorded, request.filters)
    low, high = (min(span[0], span[-1]), max(span[0], span[-1]) + 1) if len(span) else (0, 0)
    if request.sample is not None and not tests:
        chosen = sampled(numpy().asarray(span, dtype="int64"), request)
        return _take(recorded, names, chosen)
    as_polars = _ends_in_polars(recorded, request)
    table, positions = scan.select(recorded, scan.Plan(names, low, high, tests, as_polars))
    if span.step == 1 and request.sample is None and as_polars:
        return table, positions
    np, pa = numpy(), pyarrow()
    positions = np.asarray(positions).astype("int64", copy=False)
    if abs(span.step) != 1:
        keep = np.flatnonzero((positions - span.start) % abs(span.step) == 0)
        table, positions = table.take(pa.array(keep)), positions[keep]
    if span.step < 0:
        back = np.arange(len(positions))[::-1]
        table, positions = table.take(pa.array(back)), positions[::-1]
    if request.sample is not None:
        keep = sampled(np.arange(len(positions)), request)
        table, positions = table.take(pa.array(keep)), positions[keep]
    return table, positions


def _ends_in_polars(recorded: _Recorded, request: Request) -> bool:
    """Whether the columns are wanted in polars as they are in the file, so that neither numpy nor pyarrow is needed."""
    return request.as_ == "polars" and recorded.note["object"] in PANDAS


def sampled(positions: Any, request: Request) -> Any:
    """A draw without repeats, in order: n rows, or a fraction of them."""
    np = numpy()
    want = request.sample
    if (
        isinstance(want, bool)
        or not isinstance(want, int | float)
        or not want >= 0
        or (isinstance(want, float) and not want <= 1)
    ):
        raise errors.Invalid("sample: pass a number of rows (int) or a fraction between 0 and 1 (float).")
    count = min(want, len(positions)) if isinstance(want, int) else round(want * len(positions))
    seed: Any = request.seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise errors.Invalid("seed: pass a whole number that is not negative.")
    draw = np.random.default_rng(int(seed))
    chosen = draw.choice(len(positions), size=count, replace=False)
    return positions[np.sort(chosen)]


def _take(recorded: _Recorded, names: list[str], positions: Any) -> tuple[Any, Any]:
    """Rows by position, in the order of `positions`, one row group in memory at a time."""
    np, pa = numpy(), pyarrow()
    tables: list[Any] = []
    edges = recorded.footer.edges
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        inside = positions[(positions >= start) & (positions < stop)]
        if len(inside):
            tables.append(parquet_file.read(recorded.file, names, [number]).take(pa.array(inside - start)))
    if not tables:
        return scan.select(recorded, scan.Plan(names, 0, 0, []))
    table = pa.concat_tables(tables)
    groups = np.searchsorted(np.asarray(edges[1:]), positions, side="right")
    read = np.argsort(groups, kind="stable")
    if (read[:-1] > read[1:]).any():
        table = table.take(pa.array(np.argsort(read)))
    return table, positions


def _tests(recorded: _Recorded, wanted: Any) -> list[list[scan.Test]]:
    return [[_test(recorded, condition) for condition in some] for some in filters.parse(wanted)]


def _test(recorded: _Recorded, condition: filters.Condition) -> scan.Test:
    at = _position(recorded, condition.label)
    if at is None:
        raise errors.Invalid(
            f"filters: {shown(condition.label)} is the recorded row range, not a column; use rows=(start, stop)."
        )
    recorded.bring_back([at])
    column_note, written = recorded.layout.notes[at], recorded.note["names"]
    name = written[at]
    reads = (name, *(written[side] for side in recorded.layout.sides[at]))

    def series(table: Any) -> Any:
        array = columns.decode(column_note, table[name], [table[side] for side in reads[1:]])
        return pandas().Series(array, dtype=array.dtype)

    simple = filters.simple(column_note, condition) if filters.compares(column_note, condition) else None
    if simple is None:
        filters.check(series(recorded.footer.arrow_schema.empty_table()), column_note, condition)
        simple = filters.simple(column_note, condition)
    return scan.Test(name, reads, simple, lambda table: filters.mask(series(table), condition))


def _position(recorded: _Recorded, label: Any) -> int | None:
    """The physical position of the column (or, where no column has the label, index level) of a condition."""
    note = recorded.note
    if note["object"] == "frame":
        if (plain := _plain_text(recorded.text_labels, [label])) is not None:
            return plain[0]
        if _has(recorded.header, label):
            positions = _pick_labels(recorded, [label]).positions
            if len(positions) != 1:
                raise errors.Invalid(
                    f"filters: {shown(label)} names {len(positions)} columns; a condition needs exactly one."
                )
            return positions[0]
    elif (
        note["object"] == "series"
        and class_of(label) is class_of(tagged.untag(note["name"]))
        and label == tagged.untag(note["name"])
    ):
        return 0
    elif "labels" in note:
        if class_of(label) is str and note["labels"].count(label) == 1:
            return note["labels"].index(label)
        raise errors.Invalid(f"filters: there is not exactly one column {shown(label)}.")
    names = [tagged.untag(name) for name in note["index"]["names"]]
    levels = [at for at, name in enumerate(names) if class_of(name) is class_of(label) and name == label]
    if len(levels) != 1 or label is None:
        raise errors.Invalid(f"filters: there is no column or index level {shown(label)}.")
    return recorded.layout.width + levels[0] if recorded.layout.levels else None


def _has(header: Any, label: Any) -> bool:
    try:
        return label in header
    except Exception:  # a label of any class: what cannot be looked up is not there
        return False


def _result(recorded: _Recorded, table: Any, picked: Picked, positions: Any, request: Request) -> Any:
    """The rows read so far in the form that is asked for."""
    note, layout = recorded.note, recorded.layout
    if request.as_ in ("arrow", "polars") and note["object"] in PANDAS:
        names = [note["names"][at] for at in [*picked.positions, *recorded.levels]]
        plain = table.select(list(dict.fromkeys(names)) or table.column_names[:1])
        return found.to_arrow(plain) if request.as_ == "arrow" else found.to_polars(plain)
    if note["object"] in PANDAS:
        return frames.from_table(
            note,
            layout,
            table,
            index=None if positions is None else _kept_labels(note, positions, request),
            picked=picked.positions,
            header=_header(recorded, picked),
            whole=positions is None or _is_run(positions, request),
        )
    if request.as_ == "arrow":
        return arrow_tables.from_table({**note, "object": "table"}, layout, table, picked.positions)
    made = arrow_tables.from_table(note, layout, table, picked.positions)
    if request.as_ == "pandas":
        return made.to_pandas()
    if request.as_ == "polars" and not note["object"].startswith("polars"):
        return need("polars", "as_='polars'").from_arrow(made)
    return made


def _header(recorded: _Recorded, picked: Picked) -> Any:
    """The labels of a frame's picked columns; None for what has no header."""
    if recorded.note["object"] != "frame" or picked.header is not None:
        return picked.header
    if picked.positions == list(range(recorded.layout.width)):
        return recorded.header
    return recorded.header.take(picked.positions)


def _is_run(positions: Any, request: Request) -> bool:
    """Rows picked by position alone keep a frequency, as `iloc` with a slice of step 1 does."""
    return (
        request.filters is None
        and request.sample is None
        and len(positions) > 1
        and bool(positions[1] - positions[0] == 1)
    )


def _kept_labels(note: dict[str, Any], positions: Any, request: Request) -> Any:
    """Labels of rows from a recorded range: a range for a slice by position, else the labels themselves."""
    pd = pandas()
    if note["index"]["axis"] != "range":
        return None
    start, _, step = note["index"]["range"]
    name = tagged.untag(note["index"]["names"][0])
    if request.filters is None and request.sample is None:
        rows = request.rows
        cut = slice_of(span_of(rows, int(note["rows"]))) if isinstance(rows, range) else cut_of(rows)
        return pd.RangeIndex(*note["index"]["range"], name=name)[cut]
    labels = positions if (start, step) == (0, 1) else start + step * positions
    return pd.Index(labels, dtype="int64", name=name, copy=False)


def slice_of(span: range) -> slice:
    if not len(span):
        return slice(0, 0)
    stop = span[-1] + (1 if span.step > 0 else -1)
    return slice(span[0], stop if stop >= 0 else None, span.step)
