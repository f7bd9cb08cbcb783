"""What a request of the loopback API holds: models that refuse what they do not know.

Owns: the shapes and their bounds; the OpenAPI document is made from them. Does not own: what a caller may do.

Names follow the harness's own header (`delegationDepth`), since a bridge passes it on as it is.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

MAX_TEXT: Final = 64_000
MAX_EVENTS: Final = 512


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class SessionHeader(_Shape):
    """A session's header as its harness wrote it; what is not named here stays with the harness."""

    id: Annotated[str, Field(min_length=1, max_length=512, description="The session's exact id.")]
    version: Annotated[int, Field(description="The header's version: 0 or 4; sessions of any other are not captured.")]
    cwd: Annotated[str | None, Field(max_length=4096, description="Absolute; it tells the project.")] = None
    origin: Annotated[str | None, Field(max_length=64, description='"subagent" for a child.')] = None
    delegationDepth: Annotated[int | None, Field(description="Above 0 for a child.")] = None
    agentPreset: Annotated[str | None, Field(max_length=200)] = None


class ListRequest(_Shape):
    """Which tools there are; with a header, for that session."""

    header: SessionHeader | None = None


class CallRequest(_Shape):
    """One tool call."""

    header: SessionHeader
    call_id: Annotated[str | None, Field(max_length=256)] = None
    name: Annotated[str, Field(min_length=1, max_length=128)]
    arguments: dict[str, Any] = {}


class RecallRequest(_Shape):
    """What to inject into the first step of a root's turn. `text` is the user's own message."""

    header: SessionHeader
    turn: Annotated[int, Field(ge=0)]
    text: Annotated[str, Field(max_length=MAX_TEXT)]
    context_used: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            allow_inf_nan=False,
            description="How full the session's context is; the fuller, the less it is given.",
        ),
    ] = None


class EventsRequest(_Shape):
    """Committed records of a session, in order, a turn's from its start on; one that was told before is ignored."""

    header: SessionHeader
    events: Annotated[list[dict[str, Any]], Field(max_length=MAX_EVENTS)]
    ended: Annotated[bool, Field(description="The session is over after these.")] = False
