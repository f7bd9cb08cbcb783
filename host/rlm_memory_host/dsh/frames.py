"""A log of concatenated zstd frames, read frame by frame: where each ends, and the lines in it.

Owns: finding whole frames, verifying and decompressing them in bounded memory. Does not own: what a line means, where
reading goes on (`cursors`).

A frame's end is found from the sizes that its blocks carry, without decompressing: a frame whose end is not in the file
yet is torn, and is looked for again when the file has grown. A whole frame is decompressed twice, first to verify it
against its checksum, then for its lines, so that no line of a damaged frame is ever seen. Memory: one step of output,
one line; a line over `MAX_LINE` is given as its first bytes alone.

Source: design page "DeepSeek Harness and MCP", Ways in (Log tailer); RFC 8878, section 3.1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import zstandard

MAX_LINE: Final = 4 << 20
"""Bytes of a line that is read; of a longer one the first `LINE_HEAD` are told."""
LINE_HEAD: Final = 256
MAX_FRAME: Final = 1 << 30
"""Bytes that one frame may decompress to."""
MAX_BLOCKS: Final = 1 << 17
"""Blocks of one frame whose sizes are added up: of empty ones a file holds millions."""
MAX_WINDOW: Final = 8 << 20
"""Bytes of memory that a frame may ask its reader to keep; the harness's ask for 2 MiB."""
STEP: Final = 64 << 10
_HEADER: Final = 18
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_MAGIC: Final = 0xFD2FB528
_BLOCK_HEADER: Final = 3
_RLE: Final = 1
_RESERVED: Final = 3


class Unreadable(Exception):
    """What stands in a log is no frame, or a damaged or forbidden one. `why` is a name for the status."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Stopped(Exception):
    """Whoever asked does not want to wait any longer."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end. `is_whole` is False where only its first bytes are here."""

    data: bytes
    is_whole: bool = True


def end_of_frame(descriptor: int, start: int, size: int) -> int | None:
    """Where the frame that begins at `start` ends; None where its end is not in the file's first `size` bytes.

    Raises Unreadable where no frame begins there, or one of too many blocks.
    """
    head = os.pread(descriptor, min(_HEADER, max(0, size - start)), start)
    if len(head) < 4:
        return None
    magic = int.from_bytes(head[:4], "little")
    if magic in _SKIPPABLE:
        return _within(start + 8 + int.from_bytes(head[4:8], "little"), size) if len(head) >= 8 else None
    if magic != _MAGIC:
        raise Unreadable("no-frame")
    if len(head) < 5:
        return None
    at = start + 5 + _header_rest(head[4])
    checksum = 4 if head[4] & 4 else 0
    for _ in range(MAX_BLOCKS):
        if at + _BLOCK_HEADER > size:
            return None
        block = int.from_bytes(os.pread(descriptor, _BLOCK_HEADER, at), "little")
        kind, length = block >> 1 & 3, block >> 3
        if kind == _RESERVED:
            raise Unreadable("damaged-frame")
        at += _BLOCK_HEADER + (1 if kind == _RLE else length)
        if block & 1:
            return _within(at + checksum, size)
    raise Unreadable("frame-too-large")


def _header_rest(descriptor: int) -> int:
    """Bytes of a frame's header after its descriptor: window, dictionary, content size."""
    is_single = descriptor >> 5 & 1
    content = (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
    return (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3] + content


def _within(end: int, size: int) -> int | None:
    return end if end <= size else None


def verify(descriptor: int, start: int, end: int, is_stopped: Callable[[], bool]) -> None:
    """Decompress a whole frame and forget it. Raises Unreadable, Stopped."""
    total = 0
    for part in _output(descriptor, start, end, is_stopped):
        total += len(part)
        if total > MAX_FRAME:
            raise Unreadable("frame-too-large")


@dataclass(slots=True)
class Lines:
    """The lines of frames in order; what follows the last line end waits for the next frame."""

    pending: bytearray = field(default_factory=bytearray)
    _is_long: bool = False

    @property
    def is_between(self) -> bool:
        """Whether no line is half read."""
        return not self.pending and not self._is_long

    def of(self, descriptor: int, start: int, end: int, is_stopped: Callable[[], bool]) -> Iterator[Line]:
        """The lines that end in a verified frame. Raises Unreadable, Stopped."""
        for part in _output(descriptor, start, end, is_stopped):
            yield from self.cut(part)

    def cut(self, part: bytes) -> Iterator[Line]:
        """The lines that end in the next bytes."""
        *ended, rest = part.split(b"\n")
        for piece in ended:
            self._add(piece)
            line = Line(bytes(self.pending), not self._is_long)
            self.pending.clear()
            self._is_long = False
            if line.data:
                yield line
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        if self._is_long:
            return
        self.pending += piece
        if len(self.pending) > MAX_LINE:
            del self.pending[LINE_HEAD:]
            self._is_long = True


def _output(descriptor: int, start: int, end: int, is_stopped: Callable[[], bool]) -> Iterator[bytes]:
    """What a whole frame decompresses to, in bounded steps."""
    if int.from_bytes(os.pread(descriptor, 4, start), "little") in _SKIPPABLE:
        return
    decompressor, fault = _made()
    source: Any = _Slice(descriptor, start, end)
    with decompressor.stream_reader(source, read_size=STEP, closefd=False) as reader:
        while True:
            if is_stopped():
                raise Stopped
            try:
                part = reader.read(STEP)
            except fault:
                raise Unreadable("damaged-frame") from None
            except MemoryError:
                raise Unreadable("frame-too-large") from None
            if not part:
                return
            yield part


def _made() -> tuple[zstandard.ZstdDecompressor, type[Exception]]:
    # Loaded when there is a log to read: most hosts never see one.
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW), zstandard.ZstdError


@dataclass(slots=True)
class _Slice:
    """A part of a file as the decompressor reads it, whatever else reads the file."""

    descriptor: int
    at: int
    end: int

    def read(self, size: int = -1) -> bytes:
        """The next bytes, b"" at the part's end."""
        left = self.end - self.at
        data = os.pread(self.descriptor, left if size < 0 else min(size, left), self.at)
        self.at += len(data)
        return data
