"""One block of ours in a list of rows that somebody else writes: put in and taken out, byte for byte.

Owns: where the block stands and what it is recognised by. Does not own: files, what the rows mean. The rest of the
text is never parsed, reordered or rewritten, so comments, odd formatting and line ends stay as they are: the block goes
before the first row (in a block list), after the opening bracket (in a flow list), or to the end (where there are no
rows yet).

A text that does not begin with a list of rows is refused, since what to do with it would be a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from rlm_memory_host.errors import SettingsError

BEGIN: Final = "# rlm-memory: begin. `rlm-memory dsh remove` takes this out, up to the end mark"
END: Final = "# rlm-memory: end"
OPENED: Final = " (a newline before it is ours too)"
CREATED: Final = " (the file is ours too)"
_BLOCK: Final = re.compile(
    rb"(?P<indent>[ \t]*)" + re.escape(BEGIN.encode()) + rb"(?P<opened>" + re.escape(OPENED.encode()) + rb")?"
    rb"(?P<created>" + re.escape(CREATED.encode()) + rb")?\r?\n"
    rb".*?[ \t]*" + re.escape(END.encode()) + rb"\r?\n",
    re.DOTALL,
)
_SKIPPED: Final = re.compile(rb"(?:[ \t]*(?:#[^\r\n]*)?(?:\r?\n)|%[^\r\n]*\r?\n|---[ \t]*(?:#[^\r\n]*)?\r?\n)*")
_ROW: Final = re.compile(rb"(?P<indent> *)-(?=[ \t\r\n]|\Z)")
_FLOW: Final = re.compile(rb"(?:---[ \t]+)?[ \t]*\[")
_ONLY_SPACE: Final = re.compile(rb"[ \t]*(?:#[^\r\n]*)?\Z")


def holds_block(text: bytes) -> bool:
    """Whether our block is in a text."""
    return _BLOCK.search(text) is not None


def is_created(text: bytes) -> bool:
    """Whether the file was made for our block alone and holds nothing else."""
    found = _BLOCK.search(text)
    return found is not None and found["created"] is not None and without_block(text) == b""


def with_block(text: bytes | None, row: Mapping[str, Any]) -> bytes:
    """The text with our row in it, in place of a block of ours that it had. None: there is no file.

    Raises SettingsError where the text does not begin with a list of rows.
    """
    if text is None or is_created(text):
        return _lines(row, b"", b"- ", b"", CREATED.encode(), b"\n")
    text = without_block(text)
    body = text.removeprefix(b"\xef\xbb\xbf")
    mark = text[: len(text) - len(body)]
    line = b"\r\n" if b"\r\n" in body else b"\n"
    skipped = _SKIPPED.match(body)
    at = skipped.end() if skipped is not None else 0
    rest = body[at:]
    row_found, flow = _ROW.match(rest), _FLOW.match(rest)
    if row_found is not None:
        block = _lines(row, row_found["indent"], b"- ", b"", b"", line)
        return mark + body[:at] + block + rest
    if flow is not None:
        at += flow.end()
        # The bracket's own line goes on after our block; the line end between them is ours.
        return mark + body[:at] + line + _lines(row, b"  ", b"", b",", OPENED.encode(), line) + body[at:]
    if _ONLY_SPACE.match(rest):
        opened = b"" if not rest else line
        return mark + body + opened + _lines(row, b"", b"- ", b"", OPENED.encode() if opened else b"", line)
    raise SettingsError("the file does not begin with a list of rows; put the row in by hand (`rlm-memory dsh row`)")


def without_block(text: bytes) -> bytes:
    """The text without our block: what it was before, where nobody changed it since."""
    found = _BLOCK.search(text)
    if found is None:
        return text
    start = found.start()
    if found["opened"] is not None:
        before = text[:start]
        start -= 2 if before.endswith(b"\r\n") else 1 if before.endswith(b"\n") else 0
    return text[:start] + text[found.end() :]


def _lines(row: Mapping[str, Any], indent: bytes, dash: bytes, comma: bytes, noted: bytes, line: bytes) -> bytes:
    """Our block; the row itself is JSON, which is YAML too."""
    data = json.dumps(row, ensure_ascii=True).encode("ascii")
    rows = (BEGIN.encode() + noted, dash + data + comma, END.encode())
    return b"".join(indent + one + line for one in rows)
