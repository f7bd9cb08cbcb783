"""One memory as it stands in a topic file: a block to bytes and back, its keys and their values.

Owns: markers, keys, escapes, what makes a block unreadable and under which code. Does not own: where blocks lie in a
file and how a file is edited (`topics`). Pure functions; every scan is linear in the block.

Source: design page "The memory model", Storage; the files of the memory runtime are read as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, cast

from rlm_memory_host.contracts.memory import (
    MAX_BLOCK_BYTES,
    PRIORITIES,
    Authority,
    Block,
    Consent,
    Kind,
    LayerKind,
    Priority,
    Sensitivity,
    Status,
)
from rlm_memory_host.errors import LimitExceeded

KEYS: Final = (
    "id",
    "version",
    "kind",
    "status",
    "authority",
    "sensitivity",
    "consent",
    "created_at",
    "updated_at",
    "valid_from",
    "valid_to",
    "supersedes",
    "superseded_by",
    "scope",
    "workspace_id",
    "project",
    "priority",
    "pinned",
    "tags",
    "confidence",
    "sources",
    "flags",
    "links",
    "lock",
    "source_session",
)
"""In the order in which they are written."""
END: Final = b"<!-- /memory -->"

_START_LINE: Final = re.compile(rb"<!--[ \t]*memory[ \t]*", re.IGNORECASE)
_END_LINE: Final = re.compile(r"<!--[ \t]*/memory[ \t]*-->", re.IGNORECASE)
_WRITTEN_START: Final = b"<!-- memory\n"
_WRITTEN_END: Final = b"\n" + END + b"\n"
_HEADER_END: Final = re.compile(rb"^[ \t]*-->[ \t]*$", re.MULTILINE)
_TITLE: Final = re.compile(r"\s*##[ \t]+(\S[^\n]*)(?:\n|$)")
_KEY_LINE: Final = re.compile(r"[ \t]*([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*:(.*)")
_EVIDENCE: Final = re.compile(r"^###[ \t]+Evidence[ \t]*$", re.MULTILINE | re.IGNORECASE)
_MARKERS: Final = r"<!--[ \t]*/?memory\b|###[ \t]+Evidence[ \t]*$|<{7}(?:[ \t]|$)|>{7}(?:[ \t]|$)"
_TO_ESCAPE: Final = re.compile(rf"^(?=\\*(?:{_MARKERS}))", re.MULTILINE | re.IGNORECASE)
_ESCAPED: Final = re.compile(rf"^\\(?=\\*(?:{_MARKERS}))", re.MULTILINE | re.IGNORECASE)
_MERGE: Final = re.compile(r"^(?:<{7}|>{7})(?:[ \t]|$)", re.MULTILINE)
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_UNQUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_VALUE_ESCAPE: Final = re.compile(r"\\([\\n>,\[])")
_ALIASES: Final = {"memory_id": "id"}


class BadBlock(Exception):
    """This block cannot be served; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def is_memory_id(text: str) -> bool:
    """Whether a text has the form of an id: safe as a folder's name."""
    return _ID.fullmatch(text) is not None


# -- one block ---------------------------------------------------------------------------------------------------------
def encode_block(block: Block) -> bytes:
    """A block as it is written, with its end marker and a final line end.

    Raises LimitExceeded (BLOCK_TOO_LARGE) over 32,768 bytes.
    """
    lines = ["<!-- memory"]
    for key in KEYS:
        value = _WRITERS[key](getattr(block, key))
        if value:
            lines.append(f"{key}: {value}")
    lines.extend((f"{key}:{value}" if key else value).replace("\n", " ") for key, value in block.extra)
    lines += ["-->", "", f"## {block.title}", "", _TO_ESCAPE.sub(r"\\", block.body), ""]
    if block.evidence:
        lines += ["### Evidence", "", _TO_ESCAPE.sub(r"\\", block.evidence), ""]
    data = "\n".join(lines).encode("utf-8") + b"\n" + END + b"\n"
    if len(data) > MAX_BLOCK_BYTES:
        raise LimitExceeded(
            f"the memory takes {len(data):,} bytes, the limit is {MAX_BLOCK_BYTES:,}; shorten it, or record it as an "
            "artifact",
            "BLOCK_TOO_LARGE",
        )
    return data


def decode_block(data: bytes, topic: str, layer: LayerKind = LayerKind.PROJECT) -> Block:
    """The block that `data` holds, from its start marker on. Raises BadBlock."""
    header, rest, has_end = _split(data)
    values, extra = _read_header(header)
    title = _TITLE.match(rest)
    if title is None:
        raise BadBlock("MISSING_TITLE")
    body, evidence = _read_texts(rest[title.end() :], has_end)
    if "scope" not in values:
        values["scope"] = layer
    elif values["scope"] != layer:
        raise BadBlock("SCOPE_MISMATCH")
    return Block(
        topic=topic, title=title.group(1).rstrip(), body=body, evidence=evidence, extra=extra, **cast("Any", values)
    )


def _split(data: bytes) -> tuple[str, str, bool]:
    """(header, title and texts, whether the end marker is there)."""
    if len(data) > MAX_BLOCK_BYTES:
        raise BadBlock("BLOCK_TOO_LARGE")
    return _written(data) or _any_form(data)


def _written(data: bytes) -> tuple[str, str, bool] | None:
    """The parts of a block in exactly the form in which it is written here, which most are; None for any other."""
    if not (data.startswith(_WRITTEN_START) and data.endswith(_WRITTEN_END)) or b"\x00" in data:
        return None
    end = data.find(b"\n-->\n\n## ", len(_WRITTEN_START) - 1)
    if end < 0 or b"-->" in data[:end] or b"<<<<<<<" in data or b">>>>>>>" in data:
        return None
    try:
        return data[len(_WRITTEN_START) : end].decode(), data[end + 5 : 1 - len(_WRITTEN_END)].decode(), True
    except UnicodeDecodeError:
        return None


def _any_form(data: bytes) -> tuple[str, str, bool]:
    start = data.find(b"\n")
    if start < 0 or _START_LINE.fullmatch(data, 0, start) is None:
        raise BadBlock("ONE_LINE_MARKER" if b"-->" in data[: start if start >= 0 else None] else "MARKER_UNCLOSED")
    end = _HEADER_END.search(data, start + 1)
    if end is None:
        raise BadBlock("MARKER_UNCLOSED")
    if b"\x00" in data:
        raise BadBlock("NUL_CHARACTER")
    try:
        header, rest = data[start + 1 : end.start()].decode("utf-8"), data[end.end() :].decode("utf-8")
    except UnicodeDecodeError:
        raise BadBlock("INVALID_UTF8") from None
    if (b"<<<<<<<" in data or b">>>>>>>" in data) and (_MERGE.search(rest) or _MERGE.search(header)):
        raise BadBlock("MERGE_CONFLICT")
    lines = rest.rstrip()
    last = lines.rfind("\n") + 1
    has_end = _END_LINE.fullmatch(lines, last) is not None
    return header, lines[:last] if has_end else rest, has_end


def _read_header(header: str) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    values: dict[str, Any] = {}
    extra: list[tuple[str, str]] = []
    for line in header.split("\n"):
        name, _, raw = line.partition(":")
        key = name if name in _READERS else _key_of(line)
        reader = _READERS.get(key)
        if reader is None:
            if line.strip():
                extra.append((key, raw.rstrip()) if key else ("", line.rstrip()))
        elif key in values:
            raise BadBlock("DUPLICATE_KEY")
        elif text := raw.strip():
            is_quoted = text[0] in "'\"" and _UNQUOTED.fullmatch(text)
            values[key] = reader(text[1:-1] if is_quoted else text)
    if "id" not in values:
        raise BadBlock("MISSING_ID")
    return values, tuple(extra)


def _key_of(line: str) -> str:
    match = _KEY_LINE.fullmatch(line)
    return _ALIASES.get(match.group(1), match.group(1)) if match else ""


def _read_texts(text: str, has_end: bool) -> tuple[str, str]:
    parts = _EVIDENCE.split(text, maxsplit=1) if "###" in text else [text]
    texts = [_exact(part, lead) if has_end else part.strip() for lead, part in enumerate(parts, 1)]
    body, evidence = texts[0], texts[1] if len(texts) > 1 else ""
    if "\\" in text:
        return _ESCAPED.sub("", body), _ESCAPED.sub("", evidence)
    return body, evidence


def _exact(part: str, lead: int) -> str:
    """The text without the line ends that the writer put around it: `lead` before and two after, as far as there."""
    start = 0
    while start < lead and part.startswith("\n", start):
        start += 1
    stop = len(part)
    while stop > max(start, len(part) - 2) and part[stop - 1] == "\n":
        stop -= 1
    return part[start:stop]


# -- values ------------------------------------------------------------------------------------------------------------
def _write_text(value: str) -> str:
    return _quoted(_escaped(value)) if value else ""


def _write_list(values: tuple[str, ...]) -> str:
    return _quoted(", ".join(_escaped(value).replace(",", "\\,") for value in values)) if values else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("-->", "--\\>").replace("[", "\\[")


def _quoted(value: str) -> str:
    """In quotes where the reader would otherwise take quotes or blanks at the ends for its own."""
    if value == value.strip() and _UNQUOTED.fullmatch(value) is None:
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'


def _read_text(raw: str) -> str:
    return _VALUE_ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], raw) if "\\" in raw else raw


def _read_list(raw: str) -> tuple[str, ...]:
    if raw.startswith("[") and raw.endswith("]"):
        raw = raw[1:-1]
    items = re.split(r"(?<!\\),", raw) if "\\" not in raw else _split_escaped(raw)
    return tuple(_read_text(item.strip()) for item in items if item.strip())


def _split_escaped(raw: str) -> list[str]:
    return re.findall(r"(?:[^\\,]|\\.|\\$)+", raw)


def _read_id(raw: str) -> str:
    if _ID.fullmatch(raw) is None:
        raise BadBlock("BAD_ID")
    return raw


def _read_version(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9 or int(raw) < 1:
        raise BadBlock("BAD_VERSION")
    return int(raw)


@lru_cache(maxsize=4_096)
def _read_time(raw: str) -> str:
    try:
        datetime.fromisoformat(raw)
    except ValueError:
        raise BadBlock("BAD_DATE") from None
    return raw


def _read_confidence(raw: str) -> float:
    try:
        value = float(raw)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise BadBlock("BAD_CONFIDENCE")
    return value


def _read_flag(raw: str) -> bool:
    if raw.lower() not in ("true", "false", "yes", "no"):
        raise BadBlock("BAD_VALUE")
    return raw.lower() in ("true", "yes")


def _read_priority(raw: str) -> Priority:
    if raw not in PRIORITIES:
        raise BadBlock("BAD_VALUE")
    return raw


def _one_of(values: Mapping[str, object]) -> Callable[[str], object]:
    def read(raw: str) -> object:
        try:
            return values[raw]
        except KeyError:
            raise BadBlock("BAD_VALUE") from None

    return read


_SCOPES: Final = {kind.value: kind for kind in LayerKind} | {"workspace": LayerKind.PROJECT}
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(KEYS, _read_text),
    **dict.fromkeys(("created_at", "updated_at", "valid_from", "valid_to"), _read_time),
    **dict.fromkeys(("supersedes", "tags", "sources", "flags", "links"), _read_list),
    "id": _read_id,
    "version": _read_version,
    "kind": _one_of({str(kind): kind for kind in Kind}),
    "status": _one_of({str(status): status for status in Status}),
    "authority": _one_of({str(authority): authority for authority in Authority}),
    "sensitivity": _one_of({str(sensitivity): sensitivity for sensitivity in Sensitivity}),
    "consent": _one_of({str(consent): consent for consent in Consent}),
    "scope": _one_of(_SCOPES),
    "priority": _read_priority,
    "pinned": _read_flag,
    "lock": _read_flag,
    "confidence": _read_confidence,
}


def _unless(default: object) -> Callable[[Any], str]:
    return lambda value: "" if value == default else str(value)


_WRITERS: Final[Mapping[str, Callable[[Any], str]]] = {
    **dict.fromkeys(KEYS, _write_text),
    **dict.fromkeys(("supersedes", "tags", "sources", "flags", "links"), _write_list),
    "version": _unless(1),
    "kind": _unless(Kind.FACT),
    "status": _unless(Status.ACTIVE),
    "authority": _unless(Authority.MODEL),
    "sensitivity": _unless(Sensitivity.NORMAL),
    "consent": _unless(Consent.PENDING),
    "scope": _unless(LayerKind.PROJECT),
    "priority": _unless("P1"),
    "pinned": lambda value: "true" if value else "",
    "lock": lambda value: "true" if value else "",
    "confidence": lambda value: "" if value == 1 else repr(float(value)),
}
