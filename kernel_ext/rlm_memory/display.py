"""Tables as plain text and HTML, from plain rows.

Owns: escaping, cutting, alignment. What comes in may be a stranger's text: control and direction marks are shown as
escapes, HTML is escaped, and nothing here depends on time, address or folder, so that outputs are the same each run.

Source: design page "Kernel <-> host", Kernel side (reprs); cases G5-09 and G6-01.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from typing import Final

CELL_CHARACTERS: Final = 48


def clean(value: object, limit: int = CELL_CHARACTERS) -> str:
    """One line of inert text, at most `limit` characters."""
    text = " ".join(str(value).split()) if not isinstance(value, str) else " ".join(value.split())
    text = "".join(_visible(character) for character in text[: limit * 2])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def size(count: int) -> str:
    """A byte count for people: 8 bytes, 1.2 kB, 3.4 MB."""
    if count < 1000:
        return f"{count} byte{'' if count == 1 else 's'}"
    number, units = count / 1000, iter(("kB", "MB", "GB", "TB"))
    unit = next(units)
    while number >= 999.95:
        number, unit = number / 1000, next(units)
    return f"{number:.1f} {unit}"


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns divided by two spaces, without trailing white space."""
    cells = [list(header), *([clean(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> str:
    """The same as an HTML table; every value escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(clean(value, 160))}</td>" for value in row) + "</tr>" for row in rows
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_pairs(pairs: Sequence[tuple[str, object]], caption: str = "") -> str:
    """Names and values as a two-column HTML table."""
    body = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(clean(value, 400))}</td></tr>" for name, value in pairs
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<tbody>{body}</tbody></table>"


def _visible(character: str) -> str:
    return character if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co") else ascii(character)[1:-1]


def html_text(text: str) -> str:
    """Text escaped for HTML, control and direction marks shown."""
    return html.escape("\n".join(clean(line, 400) for line in text.split("\n")))
