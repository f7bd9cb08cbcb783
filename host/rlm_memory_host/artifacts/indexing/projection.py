"""What of a card leaves: made field by field from an allowlist, never by taking fields away. Pure functions.

Owns: which fields leave, their bounds, the sentence that is searched. Does not own: secrets (the caller's redactor),
what else no text may hold (`exclusions`), identity and sending (`contracts.cards`, `assembly`).

Absent on purpose: the bytes and their size, the media type, the sidecar (lineage, preview, statistics, environment),
raw queries and code, parameter values, paths, the agent's and the call's ids.

Source: DeepSeek Honcho specification, sections 27.4, 29.3; design page "Honcho, the outbox, capture and recall", The
remote card.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any, Final

from rlm_memory_host.artifacts.indexing.exclusions import is_hollow, without
from rlm_memory_host.contracts.cards import REMOTE_CARD_VERSION, Projection, Skipped
from rlm_memory_host.contracts.delivery import Redactor
from rlm_memory_host.contracts.records import ExperimentCardV1

EMPTY: Final = "EMPTY_AFTER_REDACTION"
MAX_COLUMNS: Final = 64
"""Column names that leave; a card has up to 256."""
MAX_COLUMN_CHARS: Final = 4_000
"""Characters of all of them together."""
UNTITLED: Final = "Untitled result"
NO_SESSION: Final = "rlm-memory-cards"
"""The session of cards that name none, as imported ones may."""


def project_card(card: ExperimentCardV1, redact: Redactor) -> Projection | Skipped:
    """The projection of a card, or why there is none: its summary has nothing left.

    `redact` takes secrets and the host's own paths out; it runs on every text before anything else looks at it.
    """

    def clean(text: str) -> str:
        return without(redact(_normal(text)))

    summary = clean(card.summary)
    if is_hollow(summary):
        return Skipped(EMPTY)
    title, source = clean(card.title), clean(card.source)
    fields: dict[str, Any] = {
        "card_schema_version": REMOTE_CARD_VERSION,
        "experiment_id": card.experiment_id,
        "artifact_id": card.artifact.artifact_id,
        "query_fingerprint": card.query_fingerprint,
        "card_title": _one_line(UNTITLED if is_hollow(title) else title),
        "card_summary": summary,
        "tags": _kept(card.tags or (), clean),
    }
    if not is_hollow(source):
        fields["card_source"] = _one_line(source)
    # A version that something was taken out of would be another version.
    if clean(card.source_version) == card.source_version:
        fields["source_version"] = card.source_version
    if card.shape is not None:
        fields["shape"] = list(card.shape)
    if card.columns:
        fields["columns"] = _fitting(_kept(card.columns, clean))
    return Projection(
        project_id=card.project_id,
        experiment_id=card.experiment_id,
        artifact_id=card.artifact.artifact_id,
        session_id=card.origin_session_id or NO_SESSION,
        agent_kind="child" if card.origin_agent_kind == "child" else "root",
        updated_at=card.updated_at,
        text=_sentence(fields),
        fields=fields,
    )


def _sentence(fields: dict[str, Any]) -> str:
    """What is searched by meaning."""
    version = f", version {fields['source_version']}" if "source_version" in fields else ""
    lines = [f"Experiment result: {fields['card_title']}", fields["card_summary"]]
    if "card_source" in fields:
        lines.append(f"Source: {fields['card_source']}{version}.")
    if "shape" in fields:
        lines.append(f"Shape: {' x '.join(map(str, fields['shape']))}.")
    if fields.get("columns"):
        lines.append(f"Columns: {', '.join(fields['columns'])}.")
    if fields["tags"]:
        lines.append(f"Tags: {', '.join(fields['tags'])}.")
    lines.append(f"Recorded as {fields['experiment_id']}.")
    return "\n".join(lines)


def _kept(names: Iterable[str], clean: Redactor) -> list[str]:
    """Names of which nothing had to be taken out; part of a name says nothing worth the risk."""
    return [text for name in names if (text := _one_line(_normal(name))) and clean(text) == text]


def _fitting(names: list[str]) -> list[str]:
    kept: list[str] = []
    room = MAX_COLUMN_CHARS
    for name in names[:MAX_COLUMNS]:
        room -= len(name)
        if room < 0:
            break
        kept.append(name)
    return kept


def _normal(text: str) -> str:
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    return unicodedata.normalize("NFC", plain.encode("utf-8", "replace").decode("utf-8"))


def _one_line(text: str) -> str:
    return " ".join(text.split())
