"""Experiment cards at the memory service: the ports `CardOutbox` and `CardSearch` over the outbox and the client.

Owns: what a projection looks like as a delivery, which rows of an answer are cards of the caller's project. Does not
own: what leaves of a card (`artifacts.indexing`), sending (`delivery`), HTTP (`honcho`).

Isolation: the service's filters have wildcards and prove nothing, so each row is checked again: the source, the
configured project and the caller's own, the assistant's name as the sender and the person it was sent for, the
classification, and the experiment id, which is recomputed from the caller's project and what the row says of itself. A
row that fails is discarded and counted, and nothing of it is told. Where a row leaves its source version out (it was
not fit to leave) its id cannot be recomputed; such a row counts only for a card that is, or was, here (`tools.hybrid`
looks).

Source: DeepSeek Honcho specification, sections 10.3, 27.4, 29.2, 30.1.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, cast

from rlm_memory_host.assembly.asking import CIRCUIT_OPEN, asked, outcome_of
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.cards import (
    CARD_CLASSIFICATION,
    NAMESPACE,
    REMOTE_CARD_VERSION,
    CardAnswer,
    Projection,
    RemoteCard,
)
from rlm_memory_host.contracts.delivery import SOURCE, build_request, message_metadata
from rlm_memory_host.contracts.delivery_ids import card_delivery_id
from rlm_memory_host.contracts.delivery_ports import Place, Watcher
from rlm_memory_host.contracts.records import MAX_COLUMN, MAX_SOURCE, MAX_SUMMARY, MAX_TAG, MAX_TAGS, MAX_TITLE
from rlm_memory_host.contracts.remote import Queued
from rlm_memory_host.contracts.version import version
from rlm_memory_host.delivery.compose import make_scope
from rlm_memory_host.egress import Egress
from rlm_memory_host.errors import HostError, RemoteRejected
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.settings import Settings

ROWS: Final = 50
"""Rows that are asked for: some are older revisions of one card, or another project's."""
MAX_COLUMNS: Final = 64


class OutboxCards:
    """Thread-safe, but for `__init__`, which belongs to the loop that `egress` runs in."""

    def __init__(self, egress: Egress, settings: Settings, redact: Callable[[str], str], metrics: Metrics) -> None:
        if settings.honcho is None or settings.honcho.assistant_peer is None:
            raise ValueError("cards need the memory service and an assistant's peer")
        self._egress = egress
        self._honcho = settings.honcho
        self._assistant = settings.honcho.assistant_peer
        self._redact = redact
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()

    # -- sending -----------------------------------------------------------------------------------------------------
    def delivery_id(self, projection: Projection) -> str:
        """As the port says; the local project is part of the experiment's id."""
        return card_delivery_id(
            namespace=NAMESPACE,
            workspace_id=self._honcho.workspace,
            project_id=self._egress.project_id,
            experiment_id=projection.experiment_id,
            schema_version=REMOTE_CARD_VERSION,
            revision=projection.revision,
        )

    def queue(self, projection: Projection) -> Queued:
        """As the port says. The sender is the assistant, never the person (section 27.4)."""
        delivery = self.delivery_id(projection)
        try:
            scope = make_scope(
                workspace_id=self._honcho.workspace,
                user_peer_id=self._honcho.user_peer,
                assistant_peer_id=self._assistant,
                project_id=self._egress.project_id,
                session_id=projection.session_id,
                agent_kind=projection.agent_kind,
            )
            metadata = message_metadata(
                scope,
                delivery_id=delivery,
                role="memory-note",
                captured_at=projection.updated_at,
                plugin_version=version(),
                repository_id=self._egress.repository_of(projection.project_id),
                classification=CARD_CLASSIFICATION,
            )
            message = {
                "role": "memory-note",
                "peer_id": self._assistant,
                "content": projection.text,
                "created_at": projection.updated_at,
                "metadata": {**metadata, **projection.fields, "projection_revision": projection.revision},
            }
            self._egress.admission.admit(build_request(delivery, scope, [message]))
        except HostError as error:
            return Queued(False, "", error.code)
        return Queued(True, delivery)

    def place(self, delivery_id: str) -> Place:
        """As the port says."""
        return self._egress.outbox.place(delivery_id)

    def revive(self, delivery_id: str) -> bool:
        """As the port says."""
        return self._egress.outbox.revive(delivery_id)

    def withdraw(self, delivery_id: str) -> bool:
        """As the port says."""
        return self._egress.outbox.withdraw(delivery_id)

    def is_open(self) -> bool:
        """As the port says."""
        return self._egress.is_circuit_open()

    def listen(self, listener: Watcher | None) -> None:
        """As the port says."""
        self._egress.watch(listener)

    # -- asking ------------------------------------------------------------------------------------------------------
    def search(self, query: str, *, project: str, limit: int, deadline_seconds: float) -> CardAnswer:
        """As the port says."""
        self._metrics.count("card_search", "attempt")
        answer, problem = asked(self._loop, self._search(query, project, limit, deadline_seconds), deadline_seconds)
        found = answer or CardAnswer(problem=problem)
        self._metrics.count("card_search", outcome_of(found.problem, len(found.cards)))
        for reason, count in found.discarded.items():
            self._metrics.count("scope_rejections", f"card-{reason}", count)
        return found

    async def _search(self, query: str, project: str, limit: int, seconds: float) -> CardAnswer:
        if self._egress.is_circuit_open():
            return CardAnswer(problem=CIRCUIT_OPEN)
        wanted = self._egress.labels_of(project) | {"content_classification": CARD_CLASSIFICATION}
        try:
            rows = await self._egress.client.search(
                self._redact(query), {"metadata": wanted}, limit=ROWS, seconds=seconds
            )
        except RemoteRejected as error:
            return CardAnswer(problem=error.code)
        discarded: Counter[str] = Counter()
        found: dict[str, tuple[str, RemoteCard]] = {}
        for number, row in enumerate(rows):
            told = _metadata(row)
            reason = self._refusal(row, told, project)
            card = None if reason else _card(told, row, 1.0 / (1 + number))
            if card is None:
                discarded[reason or "malformed"] += 1
                continue
            # Several revisions of one card: the place is the best one's, the words are the newest one's.
            at = str(told.get("captured_at") or "")
            before = found.get(card.experiment_id)
            if before is None or at > before[0]:
                found[card.experiment_id] = (at, card)
        return CardAnswer(tuple(card for _, card in found.values())[:limit], "", dict(discarded))

    def _refusal(self, row: Mapping[str, Any], told: Mapping[str, Any], project: str) -> str:
        """Why a row is not the caller's to see; "" where it is."""
        if any(told.get(name) != value for name, value in self._egress.labels_of(project).items()):
            return "foreign-project"
        if told.get("repository_id") != self._egress.repository_of(project):
            return "foreign-project"
        if row.get("peer_id") != self._assistant or told.get("owner_peer_id") != self._honcho.user_peer:
            return "foreign-peer"
        if told.get("content_classification") != CARD_CLASSIFICATION:
            return "not-a-card"
        return "" if _is_of(told, project) else "foreign-identity"


def _is_of(told: Mapping[str, Any], project: str) -> bool:
    """Whether a row's experiment id is what the caller's project makes of the rest of it."""
    experiment, artifact = told.get("experiment_id"), told.get("artifact_id")
    fingerprint, source_version = told.get("query_fingerprint"), told.get("source_version")
    if not (ids.is_experiment_id(experiment) and ids.is_artifact_id(artifact) and ids.is_sha256(fingerprint)):
        return False
    if source_version is None:
        return True
    if not isinstance(source_version, str):
        return False
    try:
        made = ids.experiment_id(
            project_id=project,
            artifact=str(artifact),
            query_fingerprint=str(fingerprint),
            source_version=source_version,
        )
    except ValueError:
        return False
    return made == experiment


def _card(told: Mapping[str, Any], row: Mapping[str, Any], score: float) -> RemoteCard | None:
    """What a row says of a card, bounded as cards are; None where it is malformed."""
    shape, columns = told.get("shape"), told.get("columns")
    if not all(item is None or isinstance(item, list) for item in (shape, columns)):
        return None
    numbers = [item for item in cast("list[Any]", shape or []) if type(item) is int and item >= 0]
    return RemoteCard(
        experiment_id=str(told["experiment_id"]),
        artifact_id=str(told["artifact_id"]),
        title=_text(told.get("card_title"), MAX_TITLE) or "Untitled result",
        summary=_text(told.get("card_summary"), MAX_SUMMARY),
        source=_text(told.get("card_source"), MAX_SOURCE) or "unspecified",
        source_version=_text(told.get("source_version"), MAX_SOURCE),
        query_fingerprint=str(told["query_fingerprint"]),
        shape=None if shape is None else tuple(numbers[:32]),
        columns=None if columns is None else _texts(columns, MAX_COLUMNS, MAX_COLUMN),
        tags=_texts(told.get("tags"), MAX_TAGS, MAX_TAG),
        session_id=_text(told.get("dsh_session_id"), 1_024),
        created_at=_moment(told.get("captured_at")) or _moment(row.get("created_at")),
        score=score,
    )


def _text(value: object, limit: int) -> str:
    return value[:limit] if isinstance(value, str) else ""


def _texts(value: object, most: int, limit: int) -> tuple[str, ...]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return tuple(text for item in items[:most] if (text := _text(item, limit)))


def _moment(value: object) -> str:
    try:
        told = datetime.fromisoformat(str(value))
    except ValueError:
        return ""
    return str(value) if told.tzinfo is not None else ""


def _metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = row.get("metadata")
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {"source": f"not {SOURCE}"}
