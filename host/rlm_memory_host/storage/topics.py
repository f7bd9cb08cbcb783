"""Topic files: blocks to bytes and back, and edits of one block that leave every other byte alone.

Owns: the format (markers, keys, escapes, fences), what is quarantined and under which code. Does not own: reading and
writing files, versions, layers (`textmemory.store`). Pure functions over bytes; every scan is linear in the file.

A block is `<!-- memory` … `-->` with `key: value` lines, `## title`, the body, optionally `### Evidence`, and
`<!-- /memory -->`, which files of other tools lack. What would look like one of these inside a text gets a backslash on
write and loses it on read, so a body comes back byte for byte whatever it holds. Files are edited by replacing the
bytes of one block: text between blocks and quarantined blocks stay as they are.

Source: design page "The memory model", Storage; the files of the memory runtime are read as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import islice
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
MAX_FILE_BYTES: Final = 16 << 20
"""A larger topic file is not read at all."""
MAX_FILE_BLOCKS: Final = 4_096
"""What follows this many markers in one file is quarantined as a whole."""
END: Final = b"<!-- /memory -->"

_MEMORY: Final = rb"[Mm][Ee][Mm][Oo][Rr][Yy]"
_EVENT: Final = re.compile(
    rb"\n(?:(?P<start><!--[ \t]*" + _MEMORY + rb"\b)[^\n]*|(?P<end><!--[ \t]*/" + _MEMORY + rb"[ \t]*-->)[ \t]*"
    rb"| {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*))(?=\n|\Z)"
)
"""Marker and fence lines of a text with a line end put before it: so offsets are those of the text itself."""
_START_LINE: Final = re.compile(rb"<!--[ \t]*memory[ \t]*", re.IGNORECASE)
_END_LINE: Final = re.compile(r"<!--[ \t]*/memory[ \t]*-->", re.IGNORECASE)
_HEADER_END: Final = re.compile(rb"^[ \t]*-->[ \t]*$", re.MULTILINE)
_HEADING: Final = re.compile(r"#[ \t]+(\S[^\n]*)")
_TITLE: Final = re.compile(r"\s*##[ \t]+(\S[^\n]*)(?:\n|$)")
_KEY_LINE: Final = re.compile(r"[ \t]*([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*:(.*)")
_EVIDENCE: Final = re.compile(r"^###[ \t]+Evidence[ \t]*$", re.MULTILINE | re.IGNORECASE)
_MARKERS: Final = r"<!--[ \t]*/?memory\b|###[ \t]+Evidence[ \t]*$|<{7}(?:[ \t]|$)|>{7}(?:[ \t]|$)"
_TO_ESCAPE: Final = re.compile(rf"^(?=\\*(?:{_MARKERS}))", re.MULTILINE | re.IGNORECASE)
_ESCAPED: Final = re.compile(rf"^\\(?=\\*(?:{_MARKERS}))", re.MULTILINE | re.IGNORECASE)
_MERGE: Final = re.compile(r"^(?:<{7}|>{7})(?:[ \t]|$)", re.MULTILINE)
_MERGE_BYTES: Final = re.compile(rb"^(?:<{7}|>{7})(?:[ \t]|$)", re.MULTILINE)
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
    if len(data) > MAX_BLOCK_BYTES:
        raise BadBlock("BLOCK_TOO_LARGE")
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


# -- a file ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Span:
    """Where a block lies in the normalised bytes of its file."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class BadSpan:
    """A place that is not served: its line (from 1) and the code."""

    line: int
    code: str


class TopicFile:
    """The content of one topic file, parsed when it is first asked. Immutable: an edit gives another TopicFile.

    `data` is the file with LF line ends and without a byte order mark; `is_normal` says that the file on disk is that
    already.
    """

    def __init__(self, raw: bytes, layer: LayerKind = LayerKind.PROJECT, fallback_topic: str = "") -> None:
        self.data = _normalised(raw)
        self.is_normal = self.data is raw
        self.layer = layer
        self._fallback_topic = fallback_topic

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """All blocks, good or bad, in file order."""
        return tuple(islice(_spans(self.data), MAX_FILE_BLOCKS))

    @cached_property
    def topic(self) -> str:
        """The H1 before the first block, else the name that the file's own name suggests."""
        return self._heading or self._fallback_topic

    @cached_property
    def _heading(self) -> str:
        stop = self.data.find(b"<!--")
        stop = len(self.data) if stop < 0 else stop
        for line in self.data[:stop].split(b"\n"):
            if line.startswith(b"#") and (match := _HEADING.fullmatch(line.decode("utf-8", "replace").rstrip())):
                return match.group(1)
        return ""

    @cached_property
    def _read(self) -> tuple[dict[str, tuple[Span, Block]], tuple[tuple[int, str], ...]]:
        found: dict[str, tuple[Span, Block]] = {}
        bad: list[tuple[int, str]] = list(self._stray())
        for span in self.spans:
            try:
                block = decode_block(self.data[span.start : span.stop], self.topic, self.layer)
                if block.id in found:
                    raise BadBlock("DUPLICATE_ID")
                found[block.id] = span, block
            except BadBlock as error:
                bad.append((span.start, error.code))
        if len(self.spans) == MAX_FILE_BLOCKS and self.data[self.spans[-1].stop :].strip():
            bad.append((self.spans[-1].stop, "TOO_MANY_BLOCKS"))
        return found, tuple(sorted(bad))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The good blocks in file order; of two with one id the first."""
        return tuple(block for _, block in self._read[0].values())

    @property
    def bad(self) -> tuple[BadSpan, ...]:
        """What is quarantined, by line."""
        return tuple(BadSpan(self.line_of(offset), code) for offset, code in self._read[1])

    def places(self) -> dict[str, Span]:
        """Where each good block lies, by id."""
        return {name: span for name, (span, _) in self._read[0].items()}

    def get(self, memory_id: str) -> Block | None:
        """One good block."""
        found = self._read[0].get(memory_id)
        return found[1] if found else None

    def line(self, memory_id: str) -> int:
        """The line, from 1, of a good block's start marker; 0 when it is not here."""
        found = self._read[0].get(memory_id)
        return self.line_of(found[0].start) if found else 0

    def line_of(self, offset: int) -> int:
        """The line, from 1, of an offset."""
        return bisect_left(self._line_ends, offset) + 1

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer(rb"\n", self.data)]

    # -- edits ---------------------------------------------------------------------------------------------------------
    def replaced(self, block: Block) -> TopicFile:
        """With `block` in the place of the one with its id. KeyError when there is none."""
        span, _ = self._read[0][block.id]
        return self._spliced(span, encode_block(block), block)

    def appended(self, block: Block) -> TopicFile:
        """With `block` at the end."""
        head = self.data
        if head and not head.endswith(b"\n"):
            head += b"\n"
        if head and not head.endswith(b"\n\n"):
            head += b"\n"
        added = encode_block(block)
        edited = TopicFile(head + added, self.layer, self._fallback_topic)
        if "_read" in self.__dict__:
            placed = Span(len(head), len(head) + len(added))
            found = {**self._read[0], block.id: (placed, replace(block, topic=self.topic))}
            edited.__dict__.update(spans=(*self.spans, placed), topic=self.topic, _read=(found, self._read[1]))
        return edited

    def removed(self, memory_id: str) -> TopicFile:
        """Without the block of that id (purge only). KeyError when there is none."""
        span, _ = self._read[0][memory_id]
        stop = span.stop + 1 if self.data[span.stop : span.stop + 1] == b"\n" else span.stop
        return TopicFile(self.data[: span.start] + self.data[stop:], self.layer, self._fallback_topic)

    def _spliced(self, span: Span, data: bytes, block: Block) -> TopicFile:
        tail = self.data[span.stop :]
        edited = TopicFile(self.data[: span.start] + data + tail, self.layer, self._fallback_topic)
        grown = len(data) - (span.stop - span.start)

        def moved(other: Span) -> Span:
            if other.start < span.start:
                return other
            if other.start == span.start:
                return Span(span.start, span.start + len(data))
            return Span(other.start + grown, other.stop + grown)

        found = {name: (moved(place), kept) for name, (place, kept) in self._read[0].items()}
        found[block.id] = moved(span), replace(block, topic=self.topic)
        bad = tuple((offset + grown if offset > span.start else offset, code) for offset, code in self._read[1])
        spans = tuple(moved(place) for place in self.spans)
        edited.__dict__.update(spans=spans, topic=self.topic, _read=(found, bad))
        return edited

    def _stray(self) -> Iterator[tuple[int, str]]:
        if not self._heading:
            yield 0, "MISSING_TOPIC"
        position = 0
        for start, stop in [*((span.start, span.stop) for span in self.spans), (len(self.data), len(self.data))]:
            gap = self.data[position:start]
            if gap.strip(b"\n"):
                yield from ((position + offset, code) for offset, code in _stray_places(gap))
            position = stop


def _stray_places(gap: bytes) -> Iterator[tuple[int, str]]:
    if (nul := gap.find(b"\x00")) >= 0:
        yield nul, "NUL_CHARACTER"
    if match := _MERGE_BYTES.search(gap):
        yield match.start(), "MERGE_CONFLICT"
    try:
        gap.decode("utf-8")
    except UnicodeDecodeError as error:
        yield error.start, "INVALID_UTF8"


def new_file(topic: str, layer: LayerKind) -> TopicFile:
    """An empty topic file: its heading."""
    return TopicFile(f"# {topic}\n".encode(), layer, topic)


def _normalised(raw: bytes) -> bytes:
    data = raw[3:] if raw.startswith(b"\xef\xbb\xbf") else raw
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


# -- markers and fences ------------------------------------------------------------------------------------------------
def _spans(data: bytes) -> Iterator[Span]:
    events = list(_EVENT.finditer(b"\n" + data))
    closers = _closers(events) if any(event["fence"] for event in events) else {}
    yield from _spans_of(events, closers, len(data))


def _spans_of(events: list[re.Match[bytes]], closers: Mapping[int, int], length: int) -> Iterator[Span]:
    start = -1
    index = 0
    while index < len(events):
        event = events[index]
        if event["start"]:
            if start >= 0:
                yield Span(start, event.start())
            start = event.start()
        elif event["end"]:
            if start >= 0:
                yield Span(start, min(event.end(), length))
            start = -1
        elif index in closers:
            index = closers[index]
        index += 1
    if start >= 0:
        yield Span(start, length)


def _closers(events: list[re.Match[bytes]]) -> dict[int, int]:
    """For each fence that may open, the event that closes it before any end marker. One pass from the end."""
    found: dict[int, int] = {}
    stacks: dict[bytes, list[tuple[int, int]]] = {b"`": [], b"~": []}
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event["end"]:
            stacks = {b"`": [], b"~": []}
        fence = event["fence"]
        if not fence:
            continue
        mark, length = fence[:1], len(fence)
        stack = stacks[mark]
        if not (mark == b"`" and b"`" in event["info"]):
            at = bisect_left(stack, -length + 1, key=lambda item: -item[0]) - 1
            if at >= 0:
                found[index] = stack[at][1]
        if not event["info"].strip():
            while stack and stack[-1][0] <= length:
                stack.pop()
            stack.append((length, index))
    return found
