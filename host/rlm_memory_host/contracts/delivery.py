"""What is delivered to the memory service: the shapes and limits of a delivery and of its document.

Owns: document format version 1 (camelCase by alias, the format of the TypeScript package), the metadata of a message.
Does not own: names (`delivery_ids`), the ports around the outbox (`delivery_ports`), I/O, redaction, when anything is
sent.

Source: DeepSeek Honcho specification, sections 9.1, 10, 11.3, 12; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from rlm_memory_host.contracts.delivery_ids import SESSION_PREFIX, fingerprint, honcho_session_id
from rlm_memory_host.contracts.ids import REMOTE_ID_PATTERN
from rlm_memory_host.errors import FormatVersion, Integrity

DOCUMENT_VERSION: Final = 1
METADATA_VERSION: Final = 1
"""`schema_version` in the metadata of every message."""
SOURCE: Final = "deepseek-honcho"
"""`source` in the metadata of every message (section 11.3)."""

MAX_CONTENT: Final = 25_000
"""Characters of one message that the service takes."""
MAX_MESSAGES: Final = 100
"""Messages of one call, so of one delivery: a call is atomic."""
MAX_METADATA_KEYS: Final = 100
MAX_METADATA_DEPTH: Final = 5
MAX_DOCUMENT_BYTES: Final = 16 << 20
"""Bytes of one outbox document; a larger file in the outbox is none."""

Role = Literal["user", "assistant", "memory-note", "correction"]
Redactor = Callable[[str], str]
"""Takes secrets out of a text before it is written anywhere; must be deterministic."""


# -- the document ----------------------------------------------------------------------------------------------------
def iso(moment: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC with microseconds: as text it sorts like the moment."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def seconds(text: str) -> float:
    """The moment of an ISO 8601 text with an offset, in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def _timestamp(value: str) -> str:
    if datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("a time without an offset")
    return value


def _storable(value: str) -> str:
    value.encode("utf-8")
    if "\x00" in value:
        raise ValueError("a NUL character, which the service cannot store")
    return value


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(item) for item in cast("dict[str, Any]", value).values()), default=0)
    if isinstance(value, list | tuple):
        return 1 + max((_depth(item) for item in cast("Sequence[Any]", value)), default=0)
    return 0


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    if len(value) > MAX_METADATA_KEYS:
        raise ValueError(f"more than {MAX_METADATA_KEYS} keys")
    if _depth(value) > MAX_METADATA_DEPTH:
        raise ValueError(f"nested deeper than {MAX_METADATA_DEPTH}")
    _storable_all(value)
    return value


def _storable_all(value: Any) -> None:
    if isinstance(value, str):
        _storable(value)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            _storable(key)
            _storable_all(item)
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            _storable_all(item)


_RemoteId = Annotated[str, StringConstraints(pattern=REMOTE_ID_PATTERN)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=1_024), AfterValidator(_storable)]
_Time = Annotated[str, StringConstraints(min_length=10, max_length=40), AfterValidator(_timestamp)]
_Content = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CONTENT), AfterValidator(_storable)]
_DeliveryId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Metadata = Annotated[dict[str, Any], AfterValidator(_metadata)]


class _Document(BaseModel):
    # What another release added is kept when the document is written again.
    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


class DeliveryScope(_Document):
    """Where a delivery belongs; derived by the host, never from a payload. `dsh_session_id` is the exact one."""

    workspace_id: _RemoteId
    user_peer_id: _RemoteId
    assistant_peer_id: _RemoteId | None = None
    honcho_session_id: _RemoteId
    dsh_session_id: _Text
    project_id: _RemoteId
    agent_kind: Literal["root", "child"] = "root"

    @property
    def lane(self) -> str:
        """Deliveries of one lane arrive in order; an id never holds the slash."""
        return f"{self.workspace_id}/{self.honcho_session_id}"


class DeliveryMessage(_Document):
    """One message; `metadata` has the keys of section 11.3 that apply."""

    role: Role
    peer_id: _RemoteId
    content: _Content
    created_at: _Time
    metadata: _Metadata = Field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """What tells this message among the rows of its delivery: sender, role and text."""
        return fingerprint(self.peer_id, self.role, self.content)


class DeliveryRequest(_Document):
    """What a service hands to the outbox."""

    delivery_id: _DeliveryId
    scope: DeliveryScope
    messages: Annotated[tuple[DeliveryMessage, ...], Field(min_length=1, max_length=MAX_MESSAGES)]

    @model_validator(mode="after")
    def _attribution(self) -> DeliveryRequest:
        scope = self.scope
        if scope.honcho_session_id.startswith(SESSION_PREFIX) and (
            scope.honcho_session_id != honcho_session_id(scope.dsh_session_id)
        ):
            raise ValueError("honchoSessionId does not belong to dshSessionId")
        senders = {message.peer_id for message in self.messages}
        if scope.agent_kind == "child" and scope.user_peer_id in senders:
            raise ValueError("a child session never sends as the human")
        if any(message.metadata.get("delivery_id") != self.delivery_id for message in self.messages):
            raise ValueError("a message without its delivery_id in the metadata could never be found again")
        return self


class Failure(_Document):
    """Why the last attempt failed: a code, never a text of the service."""

    code: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    at: _Time | None = None
    status: int | None = None


class DeliveryDocument(_Document):
    """One file of the outbox. Times are ISO 8601; milliseconds since 1970 are read too."""

    version: Literal[1] = DOCUMENT_VERSION
    request: DeliveryRequest
    created_at: _Time
    attempts: Annotated[int, Field(ge=0, le=1 << 31)] = 0
    ambiguous: bool = False
    next_attempt_at: _Time | None = None
    failure: Failure | None = None

    @field_validator("created_at", "next_attempt_at", mode="before")
    @classmethod
    def _read_milliseconds(cls, value: Any) -> Any:
        return iso(value / 1000) if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("failure", mode="before")
    @classmethod
    def _read_bare_code(cls, value: Any) -> Any:
        return {"code": value} if isinstance(value, str) else value

    @field_serializer("version")
    def _plain_version(self, value: int) -> int:
        return value

    def to_json(self) -> bytes:
        """The document's file."""
        return self.model_dump_json(by_alias=True, exclude_none=True).encode("utf-8")


def parse_document(data: bytes, delivery_id: str | None = None) -> DeliveryDocument:
    """Read an outbox document; with `delivery_id` it must be of that delivery.

    Raises FormatVersion for a version that this release does not know, Integrity (code VALIDATION) for anything else
    that is no document. Messages name the field and carry no content.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise Integrity(f"the document has over {MAX_DOCUMENT_BYTES:,} bytes", "VALIDATION")
    try:
        document = DeliveryDocument.model_validate_json(data)
    except ValidationError as error:
        _refuse_unknown_version(data)
        raise Integrity(f"the document is malformed{_place(error)}", "VALIDATION") from None
    except ValueError:
        raise Integrity("the document is malformed", "VALIDATION") from None
    if delivery_id is not None and document.request.delivery_id != delivery_id:
        raise Integrity("the document belongs to another delivery than its name says", "VALIDATION")
    return document


@dataclass(frozen=True, slots=True)
class Glance:
    """What has to be known of a waiting document to queue it; times in seconds since 1970."""

    delivery_id: str
    lane: str
    created_at: float
    attempts: int
    ambiguous: bool
    next_attempt_at: float | None


def glance(data: bytes, delivery_id: str) -> Glance:
    """The queueing fields of a document, without the price of checking its texts: a start reads thousands.

    `parse_document` checks the rest before anything of it is sent. Raises as `parse_document` does.
    """
    try:
        document: Any = json.loads(data)
        scope, following = document["request"]["scope"], document.get("nextAttemptAt")
        plain = Glance(
            document["request"]["deliveryId"],
            f"{scope['workspaceId']}/{scope['honchoSessionId']}",
            seconds(document["createdAt"]),
            document["attempts"],
            document["ambiguous"],
            None if following is None else seconds(following),
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return _looked_at(parse_document(data, delivery_id))
    if document.get("version") == DOCUMENT_VERSION and plain.delivery_id == delivery_id and type(plain.attempts) is int:
        return plain
    return _looked_at(parse_document(data, delivery_id))


def _looked_at(document: DeliveryDocument) -> Glance:
    following = document.next_attempt_at
    return Glance(
        document.request.delivery_id,
        document.request.scope.lane,
        seconds(document.created_at),
        document.attempts,
        document.ambiguous,
        None if following is None else seconds(following),
    )


def build_request(
    delivery_id: str, scope: DeliveryScope | Mapping[str, Any], messages: Sequence[Mapping[str, Any]]
) -> DeliveryRequest:
    """A checked request. Raises Integrity (code VALIDATION), naming the field, without its content."""
    try:
        return DeliveryRequest.model_validate({"delivery_id": delivery_id, "scope": scope, "messages": list(messages)})
    except ValidationError as error:
        reason = error.errors(include_input=False, include_url=False, include_context=False)[0]["msg"]
        raise Integrity(f"the delivery is not valid{_place(error)}: {reason[:120]}", "VALIDATION") from None


def _place(error: ValidationError) -> str:
    location = error.errors(include_input=False, include_url=False)[0]["loc"]
    # A key of the metadata is content; the names of our own fields are not.
    where = ".".join(str(part) for part in location[:4] if not isinstance(part, str) or part.isidentifier())
    return f" at {where[:60]}" if where else ""


def _refuse_unknown_version(data: bytes) -> None:
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        version = cast("dict[str, Any]", document).get("version")
        if isinstance(version, int) and version != DOCUMENT_VERSION:
            raise FormatVersion("the document has a version that this release does not know; upgrade rlm-memory-host")


def message_metadata(
    scope: DeliveryScope,
    *,
    delivery_id: str,
    role: Role,
    captured_at: str,
    plugin_version: str,
    event_sequence: int | None = None,
    turn: int | None = None,
    repository_id: str | None = None,
    repository_commit: str | None = None,
    task_lineage_id: str | None = None,
    classification: str | None = None,
    memory_id: str | None = None,
    supersedes: Sequence[str] = (),
) -> dict[str, Any]:
    """The metadata of a message (section 11.3); what is not known is left out, never invented."""
    known: dict[str, Any] = {
        "source": SOURCE,
        "schema_version": METADATA_VERSION,
        "delivery_id": delivery_id,
        "dsh_session_id": scope.dsh_session_id,
        "dsh_event_seq": event_sequence,
        "dsh_turn": turn,
        "dsh_agent_kind": scope.agent_kind,
        "project_id": scope.project_id,
        "owner_peer_id": scope.user_peer_id,
        "repository_id": repository_id,
        "repository_commit": repository_commit,
        "task_lineage_id": task_lineage_id,
        "role": role,
        "captured_at": captured_at,
        "plugin_version": plugin_version,
        "content_classification": classification,
        "memory_id": memory_id,
        "supersedes": list(supersedes) or None,
    }
    return {name: value for name, value in known.items() if value is not None}
