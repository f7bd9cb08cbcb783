"""What changed between two results: schema, rows, values column by column.

Owns: `compare` and its result, which shows as a table. Does not own: loading; it takes decoded objects, or paths of
recorded files with their media types. Rows are compared by position where the labels agree.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rlm_memory.codecs import exact
from rlm_memory.codecs.libraries import class_of, loaded, numpy
from rlm_memory.codecs.preview import cell


@dataclass(frozen=True, slots=True)
class Difference:
    """One finding: `what` (schema, rows, index, column, attrs, value), `where`, and both sides as short text."""

    what: str
    where: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All findings; `same` where there is none."""

    differences: list[Difference]

    @property
    def same(self) -> bool:
        return not self.differences

    def __bool__(self) -> bool:
        return bool(self.differences)

    def __repr__(self) -> str:
        if self.same:
            return "No difference."
        rows = [("what", "where", "before", "after"), *((d.what, d.where, d.before, d.after) for d in self.differences)]
        widths = [min(48, max(len(row[at]) for row in rows)) for at in range(4)]
        return "\n".join(
            "  ".join(text[:48].ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )

    def _repr_html_(self) -> str:
        if self.same:
            return "<p>No difference.</p>"
        cells = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in (d.what, d.where, d.before, d.after)) + "</tr>"
            for d in self.differences
        )
        head = "".join(f"<th>{name}</th>" for name in ("what", "where", "before", "after"))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table>"


def compare(a: Any, b: Any) -> Comparison:
    """Compare two decoded objects, or two (path, media type) pairs of recorded files."""
    a, b = _decoded(a), _decoded(b)
    found: list[Difference] = []
    if class_of(a) is not class_of(b):
        found.append(Difference("schema", "type", class_of(a).__name__, class_of(b).__name__))
    frames = _as_frames(a, b)
    if frames is not None:
        _compare_frames(*frames, found)
    elif not found:
        _compare_values(a, b, found)
    return Comparison(found)


def _decoded(item: Any) -> Any:
    pair = cast("tuple[Any, ...]", item) if class_of(item) is tuple else ()
    if len(pair) == 2:
        path, media_type = pair
        if isinstance(path, Path) and isinstance(media_type, str):
            from rlm_memory.codecs.dispatch import decode

            return decode(path, media_type)
    return item


def _as_frames(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Both as DataFrames where both are tables of some kind."""
    pd = loaded("pandas")
    if pd is None:
        return None
    made: list[Any] = []
    for item in (a, b):
        if isinstance(item, pd.DataFrame):
            made.append(item)
        elif isinstance(item, pd.Series):
            made.append(item.to_frame())
        elif class_of(item).__module__.partition(".")[0] in ("pyarrow", "polars") and hasattr(item, "to_pandas"):
            table = item.to_pandas()
            made.append(table if isinstance(table, pd.DataFrame) else table.to_frame())
    return (made[0], made[1]) if len(made) == 2 else None


def _compare_frames(a: Any, b: Any, found: list[Difference]) -> None:
    if len(a) != len(b):
        found.append(Difference("rows", "count", f"{len(a):,}", f"{len(b):,}"))
    elif not exact.same_index(a.index, b.index):
        found.append(Difference("index", "labels", _index_text(a.index), _index_text(b.index)))
    if not exact.same_value(dict(a.attrs), dict(b.attrs)):
        found.append(Difference("attrs", "attrs", cell(dict(a.attrs)), cell(dict(b.attrs))))
    labels_a, labels_b = list(a.columns), list(b.columns)
    for label in labels_a:
        if label not in labels_b:
            found.append(Difference("column", cell(label), "present", "absent"))
    for label in labels_b:
        if label not in labels_a:
            found.append(Difference("column", cell(label), "absent", "present"))
    shared = [label for label in labels_a if labels_a.count(label) == 1 and labels_b.count(label) == 1]
    if [label for label in labels_b if label in shared] != shared:
        found.append(Difference("schema", "column order", cell(labels_a), cell(labels_b)))
    for label in shared:
        _compare_columns(label, a.iloc[:, labels_a.index(label)], b.iloc[:, labels_b.index(label)], found)


def _index_text(index: Any) -> str:
    return cell(f"{class_of(index).__name__} {list(index[:3])}")


def _compare_columns(label: Any, a: Any, b: Any, found: list[Difference]) -> None:
    if str(a.dtype) != str(b.dtype):
        found.append(Difference("schema", cell(label), str(a.dtype), str(b.dtype)))
        return
    left, right = exact.plain_array(a), exact.plain_array(b)
    if len(a) != len(b) or exact.same_column(left, right):
        return
    rows = _differing_rows(left, right)
    text = f"{len(rows):,} of {len(a):,} rows differ, first at row {rows[0]}" if rows else "differs"
    at = rows[0] if rows else 0
    found.append(Difference("value", f"{cell(label)}: {text}", cell(left[at]), cell(right[at])))


def _differing_rows(a: Any, b: Any) -> list[int]:
    np = numpy()
    if isinstance(a, np.ndarray) and a.dtype.kind in "biuf":
        differ = ~((a == b) | ((a != a) & (b != b)))
        return [int(at) for at in np.flatnonzero(differ)]
    return [at for at, (x, y) in enumerate(zip(a, b, strict=True)) if not exact.same_value(x, y)]


def _compare_values(a: Any, b: Any, found: list[Difference]) -> None:
    np = loaded("numpy")
    if np is not None and isinstance(a, np.ndarray):
        if a.shape != b.shape:
            found.append(Difference("rows", "shape", str(a.shape), str(b.shape)))
        elif a.dtype != b.dtype:
            found.append(Difference("schema", "dtype", str(a.dtype), str(b.dtype)))
        elif not exact.same_array(np.asarray(a), np.asarray(b)):
            count = int(np.count_nonzero(np.asarray(a != b))) if a.dtype.names is None else -1
            found.append(
                Difference(
                    "value", "array", "", f"{count:,} of {a.size:,} cells differ" if count >= 0 else "records differ"
                )
            )
        return
    _walk("$", a, b, found)


def _walk(where: str, a: Any, b: Any, found: list[Difference]) -> None:
    """Dicts and lists item by item; at most 200 findings."""
    if len(found) >= 200 or exact.same_value(a, b):
        return
    if class_of(a) is dict and class_of(b) is dict:
        for key in dict.fromkeys([*a, *b]):
            if key not in a or key not in b:
                found.append(
                    Difference(
                        "column",
                        f"{where}.{key}",
                        "present" if key in a else "absent",
                        "present" if key in b else "absent",
                    )
                )
            else:
                _walk(f"{where}.{key}", a[key], b[key], found)
        return
    if class_of(a) is list and class_of(b) is list and len(a) == len(b):
        for at, (x, y) in enumerate(zip(a, b, strict=True)):
            _walk(f"{where}[{at}]", x, y, found)
        return
    found.append(Difference("value", where, cell(a), cell(b)))
