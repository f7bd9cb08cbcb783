"""Text and octets as files.

Owns: `str`, `bytes`, `bytearray`, and reading any file as text or octets. Does not own: JSON.
Text with lone surrogates has no UTF-8 form and is refused by position; lossy replaces them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlm_memory import errors, wire
from rlm_memory.codecs.files import publishing
from rlm_memory.codecs.results import Encoded, Terms

PREVIEW_CHARACTERS = 2000


def encode_text(text: str, folder: Path, terms: Terms) -> Encoded:
    """UTF-8, byte for byte what `str.encode` gives; newlines are not translated."""
    try:
        octets = text.encode("utf-8")
    except UnicodeEncodeError as fault:
        terms.give_up(
            f"character {fault.start}",
            f"U+{ord(text[fault.start]):04X} is half of a surrogate pair, which UTF-8 cannot hold",
            "lone surrogates become U+FFFD",
        )
        terms.settle()
        octets = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")
    preview = {"kind": "text", "head": octets[: PREVIEW_CHARACTERS * 4].decode("utf-8", "ignore")[:PREVIEW_CHARACTERS]}
    summary = f"Text, {len(text):,} characters"
    return _write(octets, folder, ".txt", wire.MEDIA_TEXT, summary, preview, "text", terms)


def encode_bytes(octets: bytes | bytearray, folder: Path, terms: Terms) -> Encoded:
    """The octets as they are; a bytearray's file says so in its media type."""
    media = wire.MEDIA_BYTES if type(octets) is bytes else f"{wire.MEDIA_BYTES}; class=bytearray"
    return _write(octets, folder, ".bin", media, f"Bytes, {len(octets):,} octets", None, "bytes", terms)


def _write(
    octets: bytes | bytearray,
    folder: Path,
    suffix: str,
    media: str,
    summary: str,
    preview: dict[str, Any] | None,
    codec: str,
    terms: Terms,
) -> Encoded:
    with publishing(folder, suffix) as (part, final):
        part.write_bytes(octets)
        if part.stat().st_size != len(octets):
            raise errors.StoreUnavailable("The file system kept fewer bytes than were written; nothing was recorded.")
    return Encoded(final, media, None, None, summary, preview, codec, terms.changes)


def read_text(path: Path) -> str:
    """The file as UTF-8 text, newlines untouched. Raises `errors.Invalid` where it is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as fault:
        raise errors.Invalid(
            f"as_='text': the recorded file is not UTF-8 text (byte {fault.start}). Use as_='bytes'."
        ) from fault
