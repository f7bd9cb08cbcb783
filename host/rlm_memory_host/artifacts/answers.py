"""What callers are answered: the results of `record` and `resolve`, freshness, the words of a refusal.

Owns: these texts and shapes. Does not own: the calls (`store`). Pure functions.

Source: DeepSeek Honcho specification, sections 30.2 and 33.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rlm_memory.wire import ARTIFACT_CORRUPT, ARTIFACT_MISSING

from rlm_memory_host.artifacts.commit import Outcome
from rlm_memory_host.contracts.records import (
    UNKNOWN_VERSION,
    ArtifactRef,
    ExperimentCardV1,
    Freshness,
    Recorded,
    Resolved,
)
from rlm_memory_host.errors import Integrity
from rlm_memory_host.storage.index_cards import utc_text
from rlm_memory_host.storage.objects import Verdict

CARD_EDITED = "CARD_EDITED"
"""The code of a diagnostic, not of an error: such a card is served, with a warning."""
EDITED = (
    "this card was edited after a host wrote it; its title, summary, type and tags "
    "may not be what was recorded (the bytes are: they are checked by themselves)"
)


def freshness_of(recorded: str, current: str | None) -> Freshness:
    """How a recorded source version stands to the current one (section 30.2). Texts are equal only when identical.

    None asks for no comparison; `unknown` and the empty text say that nobody knows.
    """
    if current is None:
        return "not_checked"
    if current in ("", UNKNOWN_VERSION) or recorded == UNKNOWN_VERSION:
        return "unverifiable"
    return "fresh" if current == recorded else "stale"


def recorded(outcome: Outcome) -> Recorded:
    """The answer to a record."""
    card = outcome.card
    warnings = ("the stored bytes were damaged; this record replaced them",) if outcome.repaired else ()
    return Recorded(
        experiment_id=card.experiment_id,
        artifact_id=card.artifact.artifact_id,
        sha256=card.artifact.sha256,
        bytes=card.artifact.bytes,
        local_saved=True,
        deduplicated=outcome.deduplicated,
        honcho_queued=card.index.state in ("queued", "indexed"),
        index_state=card.index.state,
        warnings=warnings,
    )


def resolved(card: ExperimentCardV1, path: Path, verdict: Verdict, current: str | None, *, is_edited: bool) -> Resolved:
    """The answer to a resolve."""
    freshness = freshness_of(card.source_version, current)
    warnings: tuple[str, ...] = ()
    if freshness == "stale":
        warnings = (f"stale: recorded from source version {card.source_version!r}, current is {current!r}",)
    elif freshness == "unverifiable":
        warnings = (f"freshness cannot be told: recorded {card.source_version!r}, current {current!r}",)
    if is_edited:
        warnings += (EDITED,)
    return Resolved(
        path=path,
        experiment_id=card.experiment_id,
        artifact=ArtifactRef(
            artifact_id=card.artifact.artifact_id,
            sha256=card.artifact.sha256,
            bytes=card.artifact.bytes,
            media_type=card.artifact.media_type,
            created_at=card.artifact.created_at,
        ),
        title=card.title,
        summary=card.summary,
        source=card.source,
        source_version=card.source_version,
        query_fingerprint=card.query_fingerprint,
        shape=card.shape,
        columns=card.columns,
        tags=card.tags or (),
        created_at=card.created_at,
        updated_at=card.updated_at,
        session_id=card.origin_session_id,
        freshness=freshness,
        verified_at=utc_text(datetime.fromtimestamp(verdict.at, UTC)),
        warnings=warnings,
    )


def damaged(card: ExperimentCardV1, verdict: Verdict) -> Integrity:
    """The reference and both digests; no path and no content."""
    name, sha256 = card.experiment_id, card.artifact.sha256
    if verdict.identity is None:
        return Integrity(
            f"the bytes of {name} (sha256 {sha256}) are missing from the store; record the same result again",
            ARTIFACT_MISSING,
        )
    return Integrity(
        f"the bytes of {name} are corrupt: recorded sha256 {sha256}, found {verdict.actual}; "
        "recording the same result again repairs them",
        ARTIFACT_CORRUPT,
    )
