"""What changed between two results: schema, rows, values column by column.

Owns: `compare` and its result, which shows as a table. Does not own: what differs in a table (`compare_tables`) or in
any other object (`compare_values`); loading: it takes decoded objects, or paths of recorded files with their types.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rlm_memory.codecs import compare_tables, compare_values
from rlm_memory.codecs.compare_values import Difference
from rlm_memory.codecs.libraries import class_of


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
    tables = compare_tables.differences(a, b)
    if tables is not None:
        found.extend(tables)
    elif not found:
        compare_values.walk("$", a, b, found)
    return Comparison(found)


def _decoded(item: Any) -> Any:
    pair = cast("tuple[Any, ...]", item) if class_of(item) is tuple else ()
    if len(pair) == 2:
        path, media_type = pair
        if isinstance(path, Path) and isinstance(media_type, str):
            from rlm_memory.codecs.dispatch import decode

            return decode(path, media_type)
    return item
