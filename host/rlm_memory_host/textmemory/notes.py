"""What a writer hands in, made ready for the gates: cleaned, its quote verified, its title and topic found. Pure.

Owns: requests and results of writing, titles taken from the text, the rule that a verified quote is the memory. Does
not own: gates (`gates`), the relation (`judge`), storing (`service`).

A verified quote is stored as the user wrote it. The note may only repeat it (it becomes the title); a note that says
anything else is the model's and carries no quote. Title and tags beside a quote are held to its words, because they
stand in the resident text under the user's authority.

Source: design page "The memory model", Quotes; design page "Recall", Tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rlm_memory_host.contracts.capture import Message
from rlm_memory_host.contracts.memory import (
    MAX_BLOCK_BYTES,
    MAX_TITLE,
    Authority,
    Caller,
    Kind,
    LayerKind,
    Priority,
    Sensitivity,
)
from rlm_memory_host.errors import LimitExceeded, ToolInput
from rlm_memory_host.storage.names import check_body, check_tags, check_title, check_topic, clean_line
from rlm_memory_host.textmemory import commands, gates, quotes
from rlm_memory_host.textmemory.judge import Said
from rlm_memory_host.textmemory.polarity import is_negative
from rlm_memory_host.textmemory.sentences import features, fold, numbers, split
from rlm_memory_host.textmemory.validity import parse_moment, stamp

DEFAULT_TOPICS: Final = {
    Kind.FACT: "Facts",
    Kind.DECISION: "Decisions",
    Kind.PROCEDURE: "Procedures",
    Kind.PREFERENCE: "Preferences",
    Kind.PERSON: "People",
    Kind.RELATIONSHIP: "Relationships",
    Kind.STATE: "State",
    Kind.EPISODE: "Episodes",
    Kind.SOURCE: "Sources",
}
TITLE_CHARS: Final = 80
"""Length of a title that is taken from the text."""
_SPEAKER: Final = features(
    "the user users human i we 用户 我 他 她 says said say wants want prefer prefers 说 希望 要求"
)

State = Literal["active", "candidate", "conflict", "duplicate", "signal", "confirm", "refused"]


@dataclass(frozen=True, slots=True)
class Note:
    """What a writer asks to keep. Nothing in it says who writes; `layer` is a request."""

    text: str
    title: str = ""
    topic: str = ""
    kind: Kind = Kind.FACT
    tags: tuple[str, ...] = ()
    quote: str = ""
    layer: LayerKind | None = None
    basis: str = ""
    sensitivity: Sensitivity = Sensitivity.NORMAL
    confidence: float = 1.0
    valid_from: str = ""
    valid_to: str = ""
    priority: Priority = "P1"
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a write. `id` is the memory's or the candidate's, "" where nothing was kept."""

    id: str
    relation: str
    state: State
    scope: str
    scope_note: str = ""
    version: int = 0
    queued: bool = False
    delivery_id: str = ""
    warnings: tuple[str, ...] = ()
    target: str = ""
    reason: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    """(id, title) of what a person has to choose from."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A note ready for the gates."""

    writer: Authority
    topic: str
    title: str
    body: str
    kind: Kind
    tags: tuple[str, ...]
    columns: tuple[gates.Column, ...]
    sensitivity: Sensitivity
    evidence: str = ""
    sources: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    has_cue: bool = False
    flags: tuple[str, ...] = ()
    confidence: float = 1.0
    valid_from: str = ""
    valid_to: str = ""
    priority: Priority = "P1"
    pinned: bool = False

    @property
    def said(self) -> Said:
        """The text as the judge compares it: a topic that only follows the kind says nothing."""
        topic = "" if self.topic in DEFAULT_TOPICS.values() else self.topic
        return Said(topic, self.title, self.body, is_private=self.sensitivity is not Sensitivity.NORMAL)


def prepare(
    note: Note, caller: Caller, message: Message | None, *, operator: bool = False, background: bool = False
) -> Ready:
    """The note as it may be written. Raises ToolInput or LimitExceeded naming the argument."""
    text = _body(note.text)
    quoted, warnings = (None, []) if operator else _quoted(note, message)
    writer = (
        Authority.OPERATOR if operator else gates.writer_of(caller, quoted=quoted is not None, background=background)
    )
    by_user = writer is Authority.USER and quoted is not None
    body = quoted if by_user and quoted is not None else text
    title, topic, tags, more = _names(note, body, text, by_user=by_user)
    sensitivity = gates.sensitivity_of(note.sensitivity, title, body, topic)
    return Ready(
        writer=writer,
        topic=topic,
        title=title,
        body=body,
        kind=note.kind,
        tags=tags,
        columns=gates.columns_of(note.kind, topic, title, body, sensitivity=sensitivity),
        sensitivity=sensitivity,
        evidence=_evidence(note, message if by_user else None),
        sources=(f"{message.session}:{message.seq}",) if by_user and message is not None else (),
        warnings=(*warnings, *more),
        has_cue=commands.is_cross_project(message.text) if message is not None else False,
        confidence=note.confidence,
        valid_from=_moment(note.valid_from, "valid_from"),
        valid_to=_moment(note.valid_to, "valid_to"),
        priority=note.priority if operator else "P1",
        pinned=note.pinned and operator,
    )


def _moment(text: str, what: str) -> str:
    return stamp(parse_moment(text, what)) if text else ""


def _body(text: str) -> str:
    body = check_body(text, "note").strip("\n")
    if not body.strip():
        raise ToolInput("note: it is empty")
    if len(body.encode()) > MAX_BLOCK_BYTES:
        raise LimitExceeded(
            f"the note has {len(body.encode()):,} bytes, the limit is {MAX_BLOCK_BYTES:,}; record it as an artifact",
            "BLOCK_TOO_LARGE",
        )
    return body


def _quoted(note: Note, message: Message | None) -> tuple[str | None, list[str]]:
    """(the verified sentence that is the memory, warnings); None when the note is the model's."""
    if not note.quote:
        return None, []
    found = quotes.verify(message.text if message is not None else None, note.quote)
    if not found.verified:
        return None, [f"{found.code}: {quotes.HINTS[found.code]}; kept as the model's own note"]
    if not says_no_more(note.text, found.text):
        return None, ["QUOTE_NOTE: the note says more than the quote; kept as the model's own note"]
    return found.text, []


def says_no_more(note: str, quote: str) -> bool:
    """Whether a note only repeats a quote: contained in it, or made of its words with equal negation and numbers."""
    whole = {fold(quote), *(fold(sentence.text) for sentence in split(quote))}
    if fold(note) in whole:
        return True
    if is_negative(note) != is_negative(quote) or not numbers(note) <= numbers(quote):
        return False
    said = features(note) - _SPEAKER
    return bool(said) and said <= features(quote)


def _names(note: Note, body: str, text: str, *, by_user: bool) -> tuple[str, str, tuple[str, ...], list[str]]:
    """(title, topic, tags, warnings): cleaned; beside a quote only with the quote's own words."""
    warnings: list[str] = []
    for what, value in (("title", note.title), ("topic", note.topic), *(("tag", tag) for tag in note.tags)):
        if value and clean_line(value)[1]:
            warnings.append(f"invisible or direction characters were removed from the {what}")
    title = check_title(note.title) if note.title.strip() else ""
    if by_user and title and not says_no_more(title, body):
        title = ""
        warnings.append("the title says more than the quote; one was taken from the quote")
    if not title:
        title = check_title(title_from(text if by_user and len(text) <= TITLE_CHARS else body))
    topic = check_topic(note.topic) if note.topic.strip() else DEFAULT_TOPICS[note.kind]
    tags = check_tags(note.tags)
    if by_user and (kept := tuple(tag for tag in tags if " " not in tag and len(tag) <= 30)) != tags:
        tags = kept
        warnings.append("tags of more than one word were left out beside a quote")
    return title, topic, tags, warnings


def title_from(text: str) -> str:
    """A title out of a text: its first sentence, cut at a word."""
    first = next((sentence.text for sentence in split(text)), text.strip())
    line = clean_line(first.lstrip("#>*-•` \t"))[0].rstrip(".。!！") or clean_line(text)[0] or "Note"
    if len(line) <= TITLE_CHARS:
        return line[:MAX_TITLE]
    cut = line[:TITLE_CHARS]
    return (cut.rsplit(" ", 1)[0] if " " in cut[TITLE_CHARS // 2 :] else cut).rstrip(" ,;:，；：") + "…"


def _evidence(note: Note, message: Message | None) -> str:
    lines: list[str] = []
    if message is not None:
        lines.append(f"Quoted from {message.session}:{message.seq}" + (f" ({message.ts})" if message.ts else ""))
        lines.append(note.quote.strip("\n"))
    if note.basis.strip():
        lines.append(f"Basis: {check_body(note.basis, 'basis').strip()}")
    return "\n".join(lines)
