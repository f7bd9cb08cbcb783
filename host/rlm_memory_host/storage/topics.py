"""Topic files: blocks to bytes and back, and edits of one block that leave every other byte alone.

Owns: where blocks begin and end, fences, what is quarantined. Does not own: a block's own text (`topic_blocks`),
reading and writing files, versions, layers (`textmemory.store`). Pure functions over bytes, linear in the file.

A block is `<!-- memory` … `-->` with `key: value` lines, `## title`, the body, optionally `### Evidence`, and
`<!-- /memory -->`, which files of other tools lack. What would look like one of these inside a text gets a backslash on
write and loses it on read, so a body comes back byte for byte whatever it holds. Files are edited by replacing the
bytes of one block: text between blocks and quarantined blocks stay as they are.

Source: design page "The memory model", Storage; the files of the memory runtime are read as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from rlm_memory_host.contracts.memory import (
    Block,
    LayerKind,
)
from rlm_memory_host.storage.topic_blocks import BadBlock, decode_block, encode_block, is_memory_id

_MEMORY: Final = rb"[Mm][Ee][Mm][Oo][Rr][Yy]"
MAX_FILE_BYTES: Final = 16 << 20
"""A larger topic file is not read at all."""
MAX_FILE_BLOCKS: Final = 4_096
"""What follows this many markers in one file is quarantined as a whole."""
_EVENT: Final = re.compile(
    rb"\n(?:(?P<start><!--[ \t]*" + _MEMORY + rb"\b)[^\n]*|(?P<end><!--[ \t]*/" + _MEMORY + rb"[ \t]*-->)[ \t]*"
    rb"| {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*))(?=\n|\Z)"
)
"""Marker and fence lines of a text with a line end put before it: so offsets are those of the text itself."""
_HEADING: Final = re.compile(r"#[ \t]+(\S[^\n]*)")
_MERGE_BYTES: Final = re.compile(rb"^(?:<{7}|>{7})(?:[ \t]|$)", re.MULTILINE)


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


__all__ = [
    "MAX_FILE_BLOCKS",
    "MAX_FILE_BYTES",
    "BadBlock",
    "BadSpan",
    "Span",
    "TopicFile",
    "decode_block",
    "encode_block",
    "is_memory_id",
    "new_file",
]
