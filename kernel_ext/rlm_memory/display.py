"""Tables as plain text and HTML, from plain rows.

Owns: escaping, cutting, alignment. What comes in may be a stranger's text: control and direction marks are shown as
escapes, HTML is escaped, and nothing here depends on time, address or folder, so that outputs are the same each run.

Source: design page "Kernel <-> host", Kernel side (reprs); cases G5-09 and G6-01.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

CELL_CHARACTERS: Final = 48

_NUMBER: Final = re.compile(r"[-+]?\d[\d,]*(\.\d*)?([eE][-+]?\d+)?")
_MISSING: Final = frozenset({"", "None", "nan", "NaN", "NaT", "<NA>"})


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
    """The same as an HTML table; every value escaped. Columns of numbers are set to the right, others to the left."""
    sides = ["right" if _is_numeric([row[column] for row in rows]) else "left" for column in range(len(header))]
    head = "".join(_cell("th", name, side) for name, side in zip(header, sides, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell('td', clean(value, 160), side) for value, side in zip(row, sides, strict=True))}</tr>"
        for row in rows
    )
    return f"{_title(caption)}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_pairs(pairs: Sequence[tuple[str, object]], caption: str = "") -> str:
    """Names and values as a two-column HTML table."""
    body = "".join(
        f"<tr>{_cell('th', name, 'left')}{_cell('td', clean(value, 400), 'left')}</tr>" for name, value in pairs
    )
    return f"{_title(caption)}<table><tbody>{body}</tbody></table>"


def _cell(tag: str, text: str, side: str) -> str:
    # Said in each cell, since the front ends' own style sheets set every cell to the right. No colour is set anywhere:
    # the front end's theme, light or dark, has it.
    return f'<{tag} style="text-align:{side}">{html.escape(text)}</{tag}>'


def _title(text: str) -> str:
    # Before the table, not its caption: a caption is broken to the width of a narrow table.
    return f'<p style="margin:0"><strong>{html.escape(text)}</strong></p>' if text else ""


def _is_numeric(values: Sequence[object]) -> bool:
    """Numbers, or the text of numbers, as previews hold them; what is missing among them does not count."""
    texts = [text for value in values if value is not None and (text := str(value)) not in _MISSING]
    return bool(texts) and all(_NUMBER.fullmatch(text) for text in texts)


def _visible(character: str) -> str:
    return character if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co") else ascii(character)[1:-1]


def html_text(text: str) -> str:
    """Text escaped for HTML, control and direction marks shown."""
    return html.escape("\n".join(clean(line, 400) for line in text.split("\n")))
