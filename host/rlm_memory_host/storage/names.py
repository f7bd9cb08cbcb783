"""Names in the text memory: what a topic, title or tag may hold, when two topics are one, how a topic's file is called.

Owns: pure rules. Does not own: which names are taken (`textmemory.store` asks for the next one).

Topics, titles and tags are single lines in NFC without control, zero-width and bidirectional characters, which can
make one text look like another; joiners stay, since scripts and emoji need them. A body keeps its code points; only
its line ends become LF, once.

Source: design page "The memory model", Storage.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from functools import lru_cache
from typing import Final

from rlm_memory_host.contracts.memory import MAX_TAG, MAX_TAGS, MAX_TITLE, MAX_TOPIC, RESERVED_NAMES
from rlm_memory_host.errors import LimitExceeded

_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
_BLANKS: Final = re.compile(r"\s+")
_CLIMBING: Final = re.compile(r"(?:^|[/\\])\s*\.{1,2}\s*(?:[/\\]|$)")
_GAPS: Final = re.compile(r"[\W_]+")
_MAX_SLUG_CHARS: Final = 60
_MAX_SLUG_BYTES: Final = 150


def clean_line(text: str) -> tuple[str, bool]:
    """The text as one line in NFC, and whether characters that nobody can see were removed."""
    kept = _INVISIBLE.sub("", text)
    line = unicodedata.normalize("NFC", _BLANKS.sub(" ", kept).strip())
    return line, len(kept) != len(text)


def check_topic(text: str) -> str:
    """The topic as it is stored. Raises LimitExceeded with a named code; the text is not repeated."""
    topic = _checked_line(text, "topic", MAX_TOPIC)
    if _CLIMBING.search(topic):
        raise LimitExceeded("the topic looks like a path with '.' or '..'; name the subject instead", "INVALID_TOPIC")
    return topic


def check_title(text: str) -> str:
    """The title as it is stored. Raises LimitExceeded with a named code."""
    return _checked_line(text, "title", MAX_TITLE)


def check_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """The tags as they are stored: cleaned, empty and repeated ones left out. Raises LimitExceeded."""
    if len(tags) > MAX_TAGS:
        raise LimitExceeded(f"there are {len(tags):,} tags, the limit is {MAX_TAGS}", "TOO_MANY_TAGS")
    lines = [clean_line(check_body(_INVISIBLE.sub("", tag), "tag"))[0] for tag in tags]
    for line in lines:
        if len(line) > MAX_TAG:
            raise LimitExceeded(f"a tag has {len(line):,} characters, the limit is {MAX_TAG}", "TAG_TOO_LONG")
    return tuple(dict.fromkeys(line for line in lines if line))


def check_body(text: str, what: str = "body") -> str:
    """The text with LF line ends. Raises LimitExceeded for NUL and for what UTF-8 cannot hold."""
    if "\x00" in text:
        raise LimitExceeded(f"the {what} holds a NUL character, which no text file keeps", "INVALID_TEXT")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise LimitExceeded(f"the {what} holds half of a surrogate pair", "INVALID_TEXT") from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _checked_line(text: str, what: str, most: int) -> str:
    if len(text) > most * 8:
        raise LimitExceeded(f"the {what} has {len(text):,} characters, the limit is {most}", f"{what.upper()}_TOO_LONG")
    line = clean_line(check_body(_INVISIBLE.sub("", text), what))[0]
    if not line:
        raise LimitExceeded(f"the {what} is empty", f"{what.upper()}_EMPTY")
    if len(line) > most:
        raise LimitExceeded(f"the {what} has {len(line):,} characters, the limit is {most}", f"{what.upper()}_TOO_LONG")
    return line


@lru_cache(maxsize=8_192)
def topic_key(topic: str) -> str:
    """Equal for topics that are one: case, compatibility forms, blanks and invisible characters do not count."""
    shaped = unicodedata.normalize("NFKC", clean_line(topic)[0]).casefold()
    return _BLANKS.sub(" ", unicodedata.normalize("NFKC", shaped)).strip()


def slug(topic: str) -> str:
    """The plain file name (without suffix) of a topic: letters and digits of any script; "" when there are none."""
    text = _GAPS.sub("-", topic_key(topic)).strip("-")[:_MAX_SLUG_CHARS]
    while len(text.encode("utf-8")) > _MAX_SLUG_BYTES:
        text = text[:-1]
    return text.strip("-")


def file_stems(topic: str) -> tuple[str, str]:
    """The two names that a topic's file may have: the plain slug, and the one with six hex digits of the topic.

    The plain one is "" where only the second will do: no letter in the topic, a reserved name, or a cut slug.
    """
    key = topic_key(topic)
    plain = slug(topic)
    digest = hashlib.sha256(key.encode("utf-8")).hexdigest()
    marked = f"{plain or 'topic'}-{digest[:6]}"
    is_cut = len(_GAPS.sub("-", key).strip("-")) > len(plain)
    return ("" if not plain or is_cut or plain in RESERVED_NAMES else plain), marked


def part_name(stem: str, part: int) -> str:
    """The file of a topic's `part`, from 1: `stem.md`, `stem.0002.md`, … A slug has no dot, so these never clash."""
    return f"{stem}.md" if part == 1 else f"{stem}.{part:04d}.md"


@lru_cache(maxsize=16_384)
def split_name(name: str) -> tuple[str, int] | None:
    """(stem, part) of a topic file's name; None for any other file."""
    match = re.fullmatch(r"([^./\\\x00-\x1f][^./\\\x00-\x1f]*)(?:\.(\d{4}))?\.md", name)
    if match is None or match.group(1).lower() == "memory":
        return None
    return match.group(1), int(match.group(2) or 1)
