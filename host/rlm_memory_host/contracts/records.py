"""The records of the artifact store: bounds, requests, results, and the card as it lies on disk.

Owns: the shapes and the card's format, checked on write and on read. Does not own: I/O, ids (`contracts.ids`), the
operator-set limits on a request's texts (`artifacts.checks` applies `Bounds`). Python names are snake_case; the card's
camelCase exists only in its serialised JSON, by alias, and is that of the TypeScript package, so that either side reads
the other's store.

Source: DeepSeek Honcho specification, sections 27, 28.5, 30, 31; design page "Exact results".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from rlm_memory_host.contracts import ids
from rlm_memory_host.errors import FormatVersion, Integrity, SettingsError

CARD_VERSION: Final = 1
UNKNOWN_VERSION: Final = "unknown"
"""A source version that makes freshness unverifiable (section 27.2)."""
DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
MAX_CARD_BYTES: Final = 256 << 10
"""Bytes of one card's JSON; a larger file in the cards folder is no card."""

MAX_TITLE: Final = 200
MAX_SUMMARY: Final = 2_000
MAX_TAGS: Final = 20
MAX_TAG: Final = 80
MAX_COLUMNS: Final = 256
MAX_COLUMN: Final = 128
MAX_SHAPE: Final = 32
MAX_SOURCE: Final = 512
MAX_SOURCE_VERSION: Final = 512
MAX_MEDIA_TYPE: Final = 255
INDEX_CAPACITY: Final = 1_000_000
"""Cards that the index of one project must be able to hold."""

Freshness = Literal["fresh", "stale", "unverifiable", "not_checked"]
IndexStateName = Literal["pending", "queued", "indexed", "failed", "disabled"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a store accepts. Defaults are section 28.5's; operators lower them freely.

    `artifact_bytes`, `project_bytes` and `cards` may go over the defaults only with `raised=True`, an operator's
    explicit word. Text bounds are characters (code points). Raises SettingsError, naming the bound and its range.
    """

    artifact_bytes: int = 1 << 30
    project_bytes: int = 20 << 30
    cards: int = 10_000
    title: int = MAX_TITLE
    summary: int = MAX_SUMMARY
    tags: int = MAX_TAGS
    tag: int = MAX_TAG
    columns: int = MAX_COLUMNS
    column: int = MAX_COLUMN
    search_results: int = 20
    raised: bool = False

    def __post_init__(self) -> None:
        for item in fields(self):
            if item.name != "raised":
                self._check(item.name, cast("int", item.default))

    def _check(self, name: str, default: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SettingsError(f"the bound '{name}' must be a whole number from 1 upwards")
        if value <= default:
            return
        if name not in ("artifact_bytes", "project_bytes", "cards"):
            raise SettingsError(f"the bound '{name}' is {value:,}; it can only be lowered, from {default:,}")
        if not self.raised:
            raise SettingsError(
                f"the bound '{name}' is {value:,}, over the default {default:,}; an operator must set 'raised'"
            )
        if name == "cards" and value > INDEX_CAPACITY:
            raise SettingsError(f"the bound 'cards' is {value:,}; the index holds at most {INDEX_CAPACITY:,}")


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """What a caller asks to keep (section 31.2). Nothing here is trusted; `artifacts.checks` validates it."""

    source_path: str | Path
    title: str
    summary: str
    query_fingerprint: str
    source: str
    source_version: str
    media_type: str | None = None
    tags: tuple[str, ...] | None = None
    shape: tuple[int, ...] | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The answer to a record: everything in it is durable when the caller reads it."""

    experiment_id: str
    artifact_id: str
    sha256: str
    bytes: int
    local_saved: bool
    deduplicated: bool
    """Whether the bytes were already there (and were verified)."""
    honcho_queued: bool
    index_state: IndexStateName
    warnings: tuple[str, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """The tool's result, JSON types only."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """A portable reference to bytes: no path in it (section 27.1)."""

    artifact_id: str
    sha256: str
    bytes: int
    media_type: str
    created_at: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """A verified artifact and what its card says. `path` is short-lived and only for the authorised caller."""

    path: Path
    experiment_id: str
    artifact: ArtifactRef
    title: str
    summary: str
    source: str
    source_version: str
    query_fingerprint: str
    shape: tuple[int, ...] | None
    columns: tuple[str, ...] | None
    tags: tuple[str, ...]
    created_at: str
    updated_at: str
    session_id: str
    freshness: Freshness
    verified_at: str
    """When the bytes were last hashed and found right, ISO 8601 in UTC."""
    warnings: tuple[str, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """The tool's result, JSON types only."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A query over the cards of the caller's project. An empty query lists the newest."""

    query: str = ""
    limit: int = 10
    """1 to 50; a page is also never longer than the bound `search_results`."""
    cursor: str | None = None
    """Of the page before; only for the same query and filters."""
    tag: str | None = None
    source: str | None = None
    since: str | None = None
    """ISO date or datetime; cards updated at or after it (UTC where no offset is given)."""
    session: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One card that matched, and why."""

    experiment_id: str
    artifact_id: str
    title: str
    summary: str
    source: str
    source_version: str
    query_fingerprint: str
    shape: tuple[int, ...] | None
    columns: tuple[str, ...] | None
    tags: tuple[str, ...]
    media_type: str
    bytes: int
    created_at: str
    updated_at: str
    session_id: str
    index_state: IndexStateName
    local_available: bool
    """The bytes are here, of the right size, and not known to be damaged. Only `resolve` verifies them."""
    matched: tuple[str, ...]
    score: float
    found_in: tuple[Literal["local", "remote"], ...] = ("local",)
    """Who found it: this store, the memory service, or both."""
    removed: bool = False
    """It was removed here, and the memory service still lists it."""
    kind: Literal["experiment-card"] = "experiment-card"
    trust: Literal["untrusted"] = "untrusted"


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of hits, best first; `total` counts all matches, `cursor` is None on the last page."""

    results: tuple[SearchHit, ...]
    total: int
    cursor: str | None = None
    warnings: tuple[str, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """The tool's result, JSON types only."""
        return {
            "results": [_plain(hit) for hit in self.results],
            "total": self.total,
            "cursor": self.cursor,
            "warnings": list(self.warnings),
        }


def _plain(record: Any) -> dict[str, Any]:
    return {item.name: _plain_value(getattr(record, item.name)) for item in fields(record)}


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    if isinstance(value, Path):
        return str(value)
    return _plain(value) if isinstance(value, ArtifactRef) else value


# -- the card on disk ------------------------------------------------------------------------------------------------


def _timestamp(value: str) -> str:
    if datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("a time without an offset")
    return value


_Timestamp = Annotated[str, StringConstraints(min_length=10, max_length=40), AfterValidator(_timestamp)]
_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Title = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TITLE)]
_Summary = Annotated[str, StringConstraints(max_length=MAX_SUMMARY)]
_Source = Annotated[str, StringConstraints(min_length=1, max_length=MAX_SOURCE)]
_SourceVersion = Annotated[str, StringConstraints(min_length=1, max_length=MAX_SOURCE_VERSION)]
_Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG)]
_Column = Annotated[str, StringConstraints(max_length=MAX_COLUMN)]
_Opaque = Annotated[str, StringConstraints(max_length=1_024)]
_Count = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]


class _Document(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


class ArtifactRefV1(_Document):
    """`artifact` of a card."""

    schema_version: Literal[1] = 1
    artifact_id: Annotated[str, StringConstraints(pattern=r"^art_[a-z2-7]{52}$")]
    sha256: _Sha256
    bytes: _Count
    media_type: Annotated[str, StringConstraints(min_length=1, max_length=MAX_MEDIA_TYPE)]
    created_at: _Timestamp


class IndexStateV1(_Document):
    """`index` of a card: how far the remote projection got. `queued` means durably accepted here, no more."""

    state: IndexStateName
    projection_revision: _Count | Annotated[str, StringConstraints(max_length=128)] = 0
    attempts: _Count = 0
    last_attempt_at: _Timestamp | None = None
    last_error_code: Annotated[str, StringConstraints(max_length=128)] | None = None


class ExperimentCardV1(_Document):
    """A card (section 27.3). Ids are recomputed on every read: a card that claims another identity is malformed."""

    schema_version: Literal[1] = 1
    experiment_id: Annotated[str, StringConstraints(pattern=r"^exp_[a-z2-7]{52}$")]
    artifact: ArtifactRefV1
    title: _Title
    summary: _Summary
    query_fingerprint: _Sha256
    source: _Source
    source_version: _SourceVersion
    shape: Annotated[tuple[_Count, ...], Field(max_length=MAX_SHAPE, strict=False)] | None = None
    columns: Annotated[tuple[_Column, ...], Field(max_length=MAX_COLUMNS, strict=False)] | None = None
    tags: Annotated[tuple[_Tag, ...], Field(max_length=MAX_TAGS, strict=False)] | None = None
    project_id: Annotated[str, StringConstraints(min_length=1, max_length=1_024)]
    origin_session_id: _Opaque
    origin_agent_kind: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    root_agent_id: _Opaque | None = None
    tool_call_id: _Opaque | None = None
    plugin_version: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    created_at: _Timestamp
    updated_at: _Timestamp
    index: IndexStateV1

    @model_validator(mode="after")
    def _identity(self) -> ExperimentCardV1:
        if not ids.is_artifact_of(self.artifact.artifact_id, self.artifact.sha256):
            raise ValueError("artifactId does not belong to sha256")
        is_right = ids.is_experiment_of(
            self.experiment_id,
            project_id=self.project_id,
            artifact=self.artifact.artifact_id,
            query_fingerprint=self.query_fingerprint,
            source_version=self.source_version,
        )
        if not is_right:
            raise ValueError("experimentId does not belong to the card's identity")
        return self

    def to_json(self) -> bytes:
        """The card's file: camelCase, absent fields left out, UTF-8."""
        return self.model_dump_json(by_alias=True, exclude_none=True).encode("utf-8")


def parse_card(data: bytes) -> ExperimentCardV1:
    """Read a card's file.

    Raises FormatVersion for a schema version this release does not know, Integrity (code VALIDATION) for anything
    else that is not a card. Messages carry no content of the card.
    """
    if len(data) > MAX_CARD_BYTES:
        raise Integrity(f"the card has {len(data):,} bytes, the limit is {MAX_CARD_BYTES:,}", "VALIDATION")
    try:
        return ExperimentCardV1.model_validate_json(data, by_alias=True, by_name=False)
    except ValidationError as error:
        _refuse_unknown_version(data)
        where = ".".join(str(part) for part in error.errors(include_input=False, include_url=False)[0]["loc"][:3])
        raise Integrity(f"the card is malformed{f' at {where[:60]}' if where else ''}", "VALIDATION") from None
    except ValueError:
        raise Integrity("the card is malformed", "VALIDATION") from None


def _refuse_unknown_version(data: bytes) -> None:
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    card = cast("dict[str, Any]", document)
    artifact: Any = card.get("artifact")
    versions = [card.get("schemaVersion")]
    if isinstance(artifact, dict):
        versions.append(cast("dict[str, Any]", artifact).get("schemaVersion"))
    if any(isinstance(version, int) and version != CARD_VERSION for version in versions):
        raise FormatVersion("the card has a schema version that this release does not know; upgrade rlm-memory-host")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A card that was skipped, for operators: which file and why, without content."""

    name: str
    """The file's name in the cards folder."""
    code: str
    reason: str = field(default="")
