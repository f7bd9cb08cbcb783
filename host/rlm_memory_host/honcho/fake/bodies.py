"""What requests must look like. A violation is answered 422 with the offending input in it, as the service does.

Owns: shapes and limits of request bodies. Does not own: what is done with them (`routes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from rlm_memory_host.honcho.fake.state import MAX_BATCH, MAX_CONTENT, MAX_METADATA_DEPTH, MAX_METADATA_KEYS


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(item) for item in cast("dict[str, Any]", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(item) for item in cast("Sequence[Any]", value)), default=0)
    return 0


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    if len(value) > MAX_METADATA_KEYS:
        raise ValueError(f"metadata may have at most {MAX_METADATA_KEYS} keys")
    if _depth(value) > MAX_METADATA_DEPTH:
        raise ValueError(f"metadata may be nested at most {MAX_METADATA_DEPTH} deep")
    return value


Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$", min_length=1, max_length=512)]
Metadata = Annotated[dict[str, Any], AfterValidator(_metadata)]


class Body(BaseModel):
    """Unknown keys are ignored, as the service ignores them."""

    model_config = ConfigDict(extra="ignore")


class Named(Body):
    """Get or create a workspace, a peer or a session."""

    id: Id
    metadata: Metadata | None = None
    configuration: dict[str, Any] | None = None
    peers: dict[Id, dict[str, Any]] | None = None


class Update(Body):
    """Replace metadata or configuration."""

    metadata: Metadata | None = None
    configuration: dict[str, Any] | None = None


class Listing(Body):
    """A list with filters."""

    filters: dict[str, Any] | None = None


class NewMessage(Body):
    """One message."""

    content: Annotated[str, StringConstraints(max_length=MAX_CONTENT)]
    peer_id: Id
    metadata: Metadata | None = None
    created_at: str | None = None


class NewMessages(Body):
    """A batch; all or none."""

    messages: Annotated[list[NewMessage], Field(min_length=1, max_length=MAX_BATCH)]


class Search(Body):
    """Semantic search over messages."""

    query: str
    filters: dict[str, Any] | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class Representation(Body):
    """What is known of a peer."""

    session_id: str | None = None
    target: str | None = None
    search_query: str | None = None
    max_conclusions: Annotated[int, Field(ge=1, le=100)] = 25


class Dialectic(Body):
    """A question about a peer."""

    query: Annotated[str, StringConstraints(min_length=1, max_length=10_000)]
    stream: bool = False
    session_id: str | None = None
    target: str | None = None
    reasoning_level: Annotated[str, StringConstraints(pattern=r"^(minimal|low|medium|high|max)$")] = "low"


class NewConclusion(Body):
    """A fact about a peer, stated outright."""

    content: Annotated[str, StringConstraints(min_length=1, max_length=65_535)]
    observer_id: Id
    observed_id: Id
    session_id: Id | None = None


class NewConclusions(Body):
    """Several at once."""

    conclusions: Annotated[list[NewConclusion], Field(min_length=1, max_length=100)]


class ConclusionQuery(Body):
    """Semantic search over conclusions."""

    query: str
    top_k: Annotated[int, Field(ge=1, le=100)] = 10
    filters: dict[str, Any] | None = None


class Card(Body):
    """A peer's card."""

    peer_card: list[str]
