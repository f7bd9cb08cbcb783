"""From texts to a delivery: normalise, redact, bound, identify, label. Pure; the redactor is the caller's.

Owns: the order of these steps, so that the id is that of the text which leaves. Does not own: what is eligible
(capture, the note tools), what counts as a secret (the guard), the outbox.

Source: DeepSeek Honcho specification, sections 10, 11.2, 11.3, 12.2.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rlm_memory_host.contracts.delivery import (
    MAX_CONTENT,
    DeliveryRequest,
    DeliveryScope,
    Redactor,
    Role,
    build_request,
    message_metadata,
)
from rlm_memory_host.contracts.delivery_ids import exchange_delivery_id, honcho_session_id
from rlm_memory_host.errors import Integrity, SettingsError

TRUNCATED: Final = "\n[truncated]"
Oversize = Literal["skip", "truncate"]


@dataclass(frozen=True, slots=True)
class Part:
    """One message before it is composed. `sequence` is that of its source event."""

    role: Role
    text: str
    created_at: str
    sequence: int | None = None
    as_human: bool = False
    """A note or correction that the person entered; ignored for the roles user and assistant."""


@dataclass(frozen=True, slots=True)
class Composed:
    """A delivery, and what happened to its texts (counts for metrics)."""

    request: DeliveryRequest
    redacted: int
    truncated: int


@dataclass(frozen=True, slots=True)
class Labels:
    """What is known of the source beside the text; absent stays absent (section 11.3).

    `memory_id` and `revision` are a note's: they tell two notes of one session with the same words apart, and find what
    waits when the memory is forgotten. `supersedes` are the ids that a correction replaces.
    """

    captured_at: str
    plugin_version: str
    turn: int | None = None
    repository_id: str | None = None
    repository_commit: str | None = None
    task_lineage_id: str | None = None
    classification: str | None = None
    memory_id: str | None = None
    revision: str | None = None
    supersedes: tuple[str, ...] = ()


def make_scope(
    *,
    workspace_id: str,
    user_peer_id: str,
    project_id: str,
    session_id: str,
    assistant_peer_id: str | None = None,
    agent_kind: Literal["root", "child"] = "root",
) -> DeliveryScope:
    """The scope of an exact session. Raises SettingsError where an id is not one that the service takes."""
    try:
        return DeliveryScope(
            workspace_id=workspace_id,
            user_peer_id=user_peer_id,
            assistant_peer_id=assistant_peer_id,
            honcho_session_id=honcho_session_id(session_id),
            dsh_session_id=session_id,
            project_id=project_id,
            agent_kind=agent_kind,
        )
    except ValueError as error:
        raise SettingsError(
            "an id for the memory service is not valid: workspace, peers and project take 1 to 512 of the "
            "characters A-Z a-z 0-9 _ -"
        ) from error


def compose(
    scope: DeliveryScope,
    parts: Sequence[Part],
    labels: Labels,
    redact: Redactor,
    *,
    limit: int = MAX_CONTENT,
    oversize: Oversize = "truncate",
) -> Composed:
    """One delivery of `parts`, in order; `limit` is in characters a message.

    The user's part is sent as the human peer, every other one as the assistant's, except a note `as_human`.

    Raises Integrity: EMPTY_AFTER_REDACTION where nothing is left of a part, TOO_LONG where one is over the limit and
    `oversize` says skip, VALIDATION for an assistant's part without an assistant peer and for a child's part in the
    human's name.
    """
    texts: list[str] = []
    redacted = truncated = 0
    for part in parts:
        plain = normalise(part.text)
        text = redact(plain)
        redacted += text != plain
        if not text.strip():
            raise Integrity(
                "nothing is left of a message after redaction; it is not delivered", "EMPTY_AFTER_REDACTION"
            )
        if len(text) > limit:
            if oversize == "skip":
                raise Integrity(f"a message is longer than {limit:,} characters; it is not delivered", "TOO_LONG")
            text = text[: limit - len(TRUNCATED)] + TRUNCATED
            truncated += 1
        texts.append(text)
    delivery_id = exchange_delivery_id(
        scope,
        turn=labels.turn,
        event_sequences=[part.sequence for part in parts if part.sequence is not None],
        contents=[(part.role, text) for part, text in zip(parts, texts, strict=True)],
        revision=labels.revision,
    )
    messages = [
        {
            "role": part.role,
            "peer_id": _sender(scope, part),
            "content": text,
            "created_at": part.created_at,
            "metadata": message_metadata(
                scope,
                delivery_id=delivery_id,
                role=part.role,
                captured_at=labels.captured_at,
                plugin_version=labels.plugin_version,
                event_sequence=part.sequence,
                turn=labels.turn,
                repository_id=labels.repository_id,
                repository_commit=labels.repository_commit,
                task_lineage_id=labels.task_lineage_id,
                classification=labels.classification,
                memory_id=labels.memory_id,
                supersedes=labels.supersedes,
            ),
        }
        for part, text in zip(parts, texts, strict=True)
    ]
    return Composed(build_request(delivery_id, scope, messages), redacted, truncated)


def normalise(text: str) -> str:
    """Line feeds for line ends, composed Unicode (NFC), no NUL and no lone surrogate; the meaning is untouched."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    return unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


def _sender(scope: DeliveryScope, part: Part) -> str:
    if part.role == "user" or (part.as_human and part.role != "assistant"):
        return scope.user_peer_id
    if scope.assistant_peer_id is None:
        raise Integrity("an assistant's message needs honcho.assistant_peer to be configured", "VALIDATION")
    return scope.assistant_peer_id
