"""The forms in which a text is scanned: as it is, and as somebody would read it who puts the pieces together.

Owns: views and the way from a place in a view back to a line. Does not own: patterns. Every step is linear.

Views: raw; NFKC without format characters, confusable letters made Latin; lines joined (with all blanks, quotes, `+`
and backslashes at the joints gone); entities and percent signs decoded once; base64 that starts like a PEM or a JWT
decoded once. Other base64 is not decoded: a documented limit.

Source: design page "Recall, resident text, guard, audit, health, tools", Guard.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
import urllib.parse
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_CONFUSABLE: Final = str.maketrans(
    "аеорсухіјѕԁɡһԛԝкмтвнАВЕКМНОРСТУХІЈЅԌαοερτικνυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧıⅼǀոսհցօʟ",
    "aeopcyxijsdghqwkmtbhABEKMHOPCTYXIJSGaoeptiknuxyABEZHIKMNOPTYXilInuhgol",
)
_AT_JOINTS: Final = " \t\r\v\f\"'`+\\>|#*"
_CONCATENATED: Final = re.compile(r"[\"'`][ \t]{0,8}(?:\+|\.|\|\||&)?[ \t]{0,8}[\"'`]")
_BASE64: Final = re.compile(r"(?:LS0tLS1CRUdJTi|ZXlK)[A-Za-z0-9+/_=-]{24,}")
_MAX_DECODED: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class View:
    """One form of a text. `starts` are, for joined lines, the offsets at which each line begins."""

    name: str
    text: str
    starts: tuple[int, ...] | None = None

    def line_of(self, offset: int) -> int:
        """The line of the raw text, from 1, that an offset belongs to."""
        if self.starts is not None:
            return max(1, bisect_right(self.starts, offset))
        return self.text.count("\n", 0, offset) + 1


def views(text: str) -> Iterator[View]:
    """All views that differ from one another, the raw one first."""
    yield View("raw", text)
    seen = {text}
    for view in _others(text):
        if view.text not in seen:
            seen.add(view.text)
            yield view


def plain(text: str) -> str:
    """NFKC without format characters, confusable letters made Latin."""
    if text.isascii():
        return text
    shaped = unicodedata.normalize("NFKC", text)
    kept = "".join(c for c in shaped if unicodedata.category(c) not in ("Cf", "Mn"))
    return kept.translate(_CONFUSABLE)


def _others(text: str) -> Iterator[View]:
    readable = plain(text)
    yield View("nfkc", readable)
    decoded = _decoded(readable)
    yield View("decoded", decoded)
    yield _joined(decoded)
    for match in _BASE64.finditer(decoded.replace("\n", "")):
        if found := _from_base64(match.group()):
            yield View("base64", found, (0,))


def _joined(text: str) -> View:
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    for line in text.split("\n"):
        part = _CONCATENATED.sub("", line.strip(_AT_JOINTS))
        starts.append(length)
        parts.append(part)
        length += len(part)
    return View("joined", "".join(parts), tuple(starts))


def _decoded(text: str) -> str:
    decoded = html.unescape(text) if "&" in text else text
    decoded = urllib.parse.unquote(decoded, errors="replace") if "%" in decoded else decoded
    return decoded.replace('\\"', '"').replace("\\n", "\n").replace("\\u002d", "-") if "\\" in decoded else decoded


def _from_base64(text: str) -> str:
    piece = text[:_MAX_DECODED].rstrip("=").replace("-", "+").replace("_", "/")
    piece = piece[: len(piece) // 4 * 4]
    try:
        return base64.b64decode(piece).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
