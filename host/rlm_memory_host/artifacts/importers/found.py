"""What a reader found in a source: results to take, and entries that it does not take and why."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rlm_memory.wire import MAX_ANNOTATION_BYTES, encoded_size

from rlm_memory_host.artifacts.checks import check_record
from rlm_memory_host.contracts.records import MAX_TAG, MAX_TITLE, Bounds, ExperimentCardV1, RecordRequest
from rlm_memory_host.storage.objects import Check

MAX_SUMMARY_SHOWN: Final = 1_500
"""Characters of a summary made here; the store takes 2,000."""

Chunks = Callable[[Check], Iterator[bytes]]
"""Reads the bytes from their start, anew each time it is called; the check is called between steps."""


@dataclass(frozen=True, slots=True)
class Item:
    """One result to take. `card` is there where the source is an export, `request` describes it otherwise."""

    name: str
    """What it is called in the source, for people."""
    size: int
    read: Chunks
    request: RecordRequest
    card: ExperimentCardV1 | None = None
    note: dict[str, Any] | None = None
    """Its sidecar."""
    sha256: str | None = None
    """What the bytes must be, where the source says so."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that is not taken: its name in the source, a code, and why."""

    name: str
    code: str
    reason: str


@dataclass(slots=True)
class Found:
    """All of a source."""

    items: list[Item] = field(default_factory=list[Item])
    skipped: list[Skipped] = field(default_factory=list[Skipped])

    def skip(self, name: str, code: str, reason: str) -> None:
        """Note an entry that is not taken."""
        self.skipped.append(Skipped(name, code, reason))


def described(
    *, title: str, summary: str, fingerprint: str, source: str, version: str, media_type: str, tags: list[str]
) -> RecordRequest:
    """A request made of another tool's texts: cleaned and cut to what a card holds."""
    kept = dict.fromkeys(tag for tag in (cut(line(text), MAX_TAG) for text in tags) if tag)
    request = RecordRequest(
        source_path="",
        title=cut(line(title), MAX_TITLE) or "untitled",
        summary=cut("\n".join(line(part) for part in summary.splitlines()), MAX_SUMMARY_SHOWN),
        query_fingerprint=fingerprint,
        source=cut(line(source), 500) or "unspecified",
        source_version=cut(line(version), 500) or "unknown",
        media_type=media_type,
        tags=tuple(kept)[:20],
    )
    return check_record(request, Bounds())


def line(text: str) -> str:
    """The text as one line without control characters."""
    text = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))
    return " ".join("".join(" " if unicodedata.category(each) in _UNFIT else each for each in text).split())


_UNFIT: Final = {"Cc", "Cf", "Zl", "Zp"}


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, the last one an ellipsis where something was left out."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def fitting(note: dict[str, Any], large: str) -> dict[str, Any]:
    """The sidecar, without its field `large` where that does not fit; the sidecar says so."""
    try:
        if encoded_size({"imported": note}) <= MAX_ANNOTATION_BYTES - 1_024:
            return {"imported": note}
    except (ValueError, TypeError, RecursionError):
        pass
    return {"imported": {**{key: value for key, value in note.items() if key != large}, "left_out": [large]}}
