"""What of a card is searched: its texts by field, its exact values, its document in an index. Pure functions.

Owns: which fields count and how much. Does not own: how texts become terms (`tokens`), ranking (`ranking`).

Source: DeepSeek Honcho specification, section 30.1; design page "Exact results", Search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from rlm_memory_host.contracts.records import ExperimentCardV1
from rlm_memory_host.storage.ranking import Document, weights
from rlm_memory_host.storage.tokens import document_terms, normalise

WEIGHTS: Final = {"title": 3.0, "tags": 3.0, "source": 1.5, "summary": 1.0, "columns": 1.0, "shape": 0.5}
"""How much a term counts, by the field it stands in."""
_UTC_TEXT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
"""What `utc_text` gives: the times of nearly all cards are there already."""


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and `Z`, as cards carry it: sorts by time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def card_texts(card: ExperimentCardV1) -> dict[str, str]:
    """What of a card is searched as text, by field. Names with underscores are there whole and in pieces."""
    shape = "" if card.shape is None else f"{'x'.join(map(str, card.shape))} {' '.join(map(str, card.shape))}"
    return {
        "title": card.title,
        "tags": _with_pieces(" ".join(card.tags or ())),
        "source": _with_pieces(card.source),
        "summary": card.summary,
        "columns": _with_pieces(" ".join(card.columns or ())),
        "shape": shape,
    }


def weighted_texts(card: ExperimentCardV1) -> list[tuple[float, str]]:
    """The texts that are searched, each with its weight."""
    return [(WEIGHTS[name], text) for name, text in card_texts(card).items() if text]


def card_weights(card: ExperimentCardV1) -> dict[str, float]:
    """The weight of each term of a card."""
    return weights((weight, document_terms(text)) for weight, text in weighted_texts(card))


def facets(card: ExperimentCardV1) -> Iterator[str]:
    """The exact values that a card is found or filtered by."""
    yield f"experiment_id:{card.experiment_id}"
    yield artifact_facet(card.artifact.artifact_id)
    yield size_facet(card.artifact.bytes)
    yield f"query_fingerprint:{card.query_fingerprint}"
    yield f"source_version:{card.source_version}"
    yield f"source:{normalise(card.source)}"
    yield f"session:{card.origin_session_id}"
    for tag in card.tags or ():
        yield f"tag:{normalise(tag)}"


def artifact_facet(artifact: str) -> str:
    """The facet of the cards of an artifact."""
    return f"artifact_id:{artifact}"


def size_facet(size: int) -> str:
    """The facet of the cards of artifacts with so many bytes."""
    return f"bytes:{size}"


def document_of(card: ExperimentCardV1, identity: tuple[int, int, int, int], digest: bytes) -> Document:
    """A card in an index; `identity` is that of its file, `digest` of the file as a host wrote it (empty: unknown)."""
    updated = card.updated_at
    if not _UTC_TEXT.fullmatch(updated):
        updated = utc_text(datetime.fromisoformat(updated))
    artifact = card.artifact
    return Document(
        card.experiment_id, updated, artifact.artifact_id, artifact.bytes, card.index.state, identity, digest
    )


def _with_pieces(text: str) -> str:
    return f"{text} {text.replace('_', ' ')}" if "_" in text else text
