"""The port `RemoteMemory` over the outbox and the memory service's client.

Owns: what a note and a captured exchange look like as deliveries, which rows of an answer belong to the caller's
project, the short cache of answers. Does not own: sending (`delivery`), HTTP (`honcho`), what joins recall (`recall`).

Called from tool threads; the client belongs to the host's loop, so every question is handed over to it and waited for
at most until its deadline. Nothing here raises for want of a network.

Isolation: every row carries `project_id`; where the caller's project is not the configured one (it was told from the
kernel's folder), its id goes along as `repository_id`. A row counts only where both are the caller's own and the sender
is one of the two configured: the service's filters have wildcards and prove nothing. What was destroyed here, and what
is an experiment card, is left out.

Source: DeepSeek Honcho specification, sections 9, 11, 13; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast

from rlm_memory_host.assembly.asking import CIRCUIT_OPEN, asked, outcome_of
from rlm_memory_host.contracts.capture import Exchange
from rlm_memory_host.contracts.cards import CARD_CLASSIFICATION
from rlm_memory_host.contracts.delivery import DeliveryScope
from rlm_memory_host.contracts.remote import Offered, Queued, RemoteAnswer, RemoteHit
from rlm_memory_host.contracts.version import version
from rlm_memory_host.delivery.announced import Announced
from rlm_memory_host.delivery.compose import Labels, Part, compose, make_scope, normalise
from rlm_memory_host.delivery.destroyed import Destroyed
from rlm_memory_host.egress import Egress
from rlm_memory_host.errors import HostError, Integrity
from rlm_memory_host.settings import Settings

CACHE_SECONDS: Final = 60.0
CACHED: Final = 64
WITHDRAW_SECONDS: Final = 2.0
WITHDRAW_PAUSE: Final = 0.02
ROWS: Final = 100
"""Rows that are asked for: some are another project's, or say again what was corrected since."""


class OutboxMemory:
    """Thread-safe, but for `__init__`, which belongs to the loop that `egress` runs in."""

    def __init__(self, egress: Egress, settings: Settings, redact: Callable[[str], str]) -> None:
        if settings.honcho is None:
            raise ValueError("there is no remote memory without its settings")
        self._egress = egress
        self._announced = Announced(settings.state_root)
        self._destroyed = Destroyed(settings.state_root)
        self._honcho = settings.honcho
        self._redact = redact
        self._loop = asyncio.get_running_loop()
        self._answers: OrderedDict[tuple[str, str, int], tuple[float, RemoteAnswer]] = OrderedDict()
        self._lock = threading.Lock()

    # -- sending -----------------------------------------------------------------------------------------------------
    def announce(self, note: Offered) -> None:
        """As the port says. Where it cannot be written, the note is kept all the same, and `offer` says so."""
        with suppress(HostError):
            self._announced.keep(replace(note, text=self._redact(normalise(note.text))))

    def retract(self, note: Offered) -> None:
        """As the port says."""
        with suppress(HostError):
            self._announced.drop(note)

    def settle(self, is_kept: Callable[[Offered], bool], only: frozenset[str] | None = None) -> None:
        """Offer what was announced and kept. A start drops the rest; with `only` some memories, it may be under way."""
        for note in self._announced.all():
            if only is not None and note.memory_id not in only:
                continue
            if is_kept(note):
                self.offer(note)
            elif only is None:
                self.retract(note)

    def offer(self, note: Offered) -> Queued:
        """As the port says."""
        part = Part(
            "correction" if note.kind == "correction" else "memory-note",
            note.text,
            _moment(note.ts),
            as_human=note.speaker in ("user", "operator"),
        )
        labels = Labels(
            _moment(""),
            version(),
            repository_id=self._egress.repository_of(note.project),
            memory_id=note.memory_id,
            revision=note.delivery_id,
            supersedes=note.supersedes,
        )
        kind: Literal["root", "child"] = "child" if note.speaker == "child" else "root"
        try:
            composed = compose(self._scope(note.session, kind), [part], labels, self._redact)
            admitted = self._egress.admission.admit(composed.request)
        except HostError as error:
            if isinstance(error, Integrity):
                self.retract(note)
            return Queued(False, "", error.code)
        self.retract(note)
        return Queued(True, admitted.delivery_id)

    def withdraw(self, memory_id: str) -> int:
        """As the port says. A delivery that is just being tried is waited for: it may fail and be free again."""
        outbox = self._egress.outbox
        until = time.monotonic() + WITHDRAW_SECONDS
        taken = 0
        while found := outbox.unsent_about(memory_id):
            taken += sum(outbox.withdraw(delivery) for delivery in found)
            if time.monotonic() > until:
                break
            time.sleep(WITHDRAW_PAUSE)
        return taken + sum(outbox.drop(delivery) for delivery in outbox.dead_about(memory_id))

    def deliver(self, exchange: Exchange, project: str) -> str:
        """Put a captured exchange into the outbox; its delivery id. Raises StoreError, Integrity, SettingsError."""
        parts = [
            Part(message.role, message.text, _moment(message.ts), message.seq)
            for message in exchange.messages
            if message.role == "user" or self._honcho.assistant_peer is not None
        ]
        labels = Labels(_moment(""), version(), turn=exchange.turn, repository_id=self._egress.repository_of(project))
        composed = compose(self._scope(exchange.session, "root"), parts, labels, self._redact)
        return self._egress.admission.admit(composed.request).delivery_id

    def _scope(self, session: str, kind: Literal["root", "child"]) -> DeliveryScope:
        return make_scope(
            workspace_id=self._honcho.workspace,
            user_peer_id=self._honcho.user_peer,
            assistant_peer_id=self._honcho.assistant_peer,
            project_id=self._egress.project_id,
            session_id=session,
            agent_kind=kind,
        )

    # -- asking ------------------------------------------------------------------------------------------------------
    def recall(self, query: str, *, project: str, limit: int, deadline_seconds: float) -> RemoteAnswer:
        """As the port says; a good answer is kept for a minute."""
        key = (query, project, limit)
        metrics = self._egress.metrics
        metrics.count("recall", "attempt")
        with self._lock:
            kept = self._answers.get(key)
        if kept is not None and time.monotonic() - kept[0] < CACHE_SECONDS:
            metrics.count("recall", "cached")
            return self._without_destroyed(kept[1])
        with metrics.timing("recall_seconds"):
            answer, problem = asked(self._loop, self._search(query, project, limit, deadline_seconds), deadline_seconds)
        found = answer or RemoteAnswer(problem=problem)
        metrics.count("recall", outcome_of(found.problem, len(found.hits)))
        if not found.problem:
            with self._lock:
                self._answers[key] = (time.monotonic(), found)
                while len(self._answers) > CACHED:
                    self._answers.popitem(last=False)
        return self._without_destroyed(found)

    def _without_destroyed(self, answer: RemoteAnswer) -> RemoteAnswer:
        """What was destroyed here since never comes back, also not from the cache."""
        kept = tuple(hit for hit in answer.hits if not self._destroyed.holds(hit.memory_id, hit.session))
        if len(kept) < len(answer.hits):
            self._egress.metrics.count("scope_rejections", "destroyed", len(answer.hits) - len(kept))
        return replace(answer, hits=kept)

    def answer(self, question: str, *, project: str, deadline_seconds: float) -> RemoteAnswer:
        """As the port says; the service cannot tell its reasoning apart by project, so it has to be switched on."""
        del project
        if not self._honcho.dialectic:
            return RemoteAnswer()
        answer, problem = asked(self._loop, self._speak(question, deadline_seconds), deadline_seconds)
        return answer or RemoteAnswer(problem=problem)

    async def _search(self, query: str, project: str, limit: int, seconds: float) -> RemoteAnswer:
        if self._egress.is_circuit_open():
            return RemoteAnswer(problem=CIRCUIT_OPEN)
        cards = {"metadata": {"content_classification": CARD_CLASSIFICATION}}
        wanted: dict[str, Any] = {"AND": [{"metadata": self._egress.labels_of(project)}, {"NOT": [cards]}]}
        rows = await self._egress.client.search(
            self._redact(query), wanted, limit=min(ROWS, max(2 * limit, 10)), seconds=seconds
        )
        own: list[Mapping[str, Any]] = []
        for row in rows:
            reason = self._refusal(row, project)
            if reason:
                self._egress.metrics.count("scope_rejections", reason)
            else:
                own.append(row)
        found = tuple(_hits(own, project))
        self._egress.metrics.count("recall_truncated", by=max(0, len(found) - limit))
        return RemoteAnswer(found[:limit])

    def _refusal(self, row: Mapping[str, Any], project: str) -> str:
        """Why a row is not the caller's to see as a text; "" where it is."""
        told = _metadata(row)
        is_here = all(told.get(name) == value for name, value in self._egress.labels_of(project).items())
        if not is_here or told.get("repository_id") != self._egress.repository_of(project):
            return "foreign-project"
        if not self._egress.is_of_owner(row.get("peer_id"), told.get("owner_peer_id")):
            return "foreign-peer"
        # A result of a computation is no trait of anybody (section 27.4).
        return "experiment-card" if told.get("content_classification") == CARD_CLASSIFICATION else ""

    async def _speak(self, question: str, seconds: float) -> RemoteAnswer:
        said = await self._egress.client.ask(self._honcho.user_peer, self._redact(question), seconds=seconds)
        return RemoteAnswer(text=said or "")


def _metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = row.get("metadata")
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _hits(rows: Sequence[Mapping[str, Any]], project: str) -> Iterable[RemoteHit]:
    """The rows in the service's order; what a correction among them replaced is left out."""
    latest: dict[str, str] = {}
    for row in rows:
        told = _metadata(row)
        for memory_id in (told.get("memory_id"), *_list(told.get("supersedes"))):
            latest[str(memory_id)] = max(latest.get(str(memory_id), ""), str(told.get("captured_at") or ""))
    for number, row in enumerate(rows):
        told = _metadata(row)
        memory_id, at = str(told.get("memory_id") or ""), str(told.get("captured_at") or "")
        if memory_id and at < latest[memory_id]:
            continue
        yield RemoteHit(
            id=str(row.get("id", "")),
            text=str(row.get("content", "")),
            score=1.0 / (1 + number),
            ts=str(row.get("created_at") or at),
            session=str(told.get("dsh_session_id", "")),
            project=project,
            memory_id=memory_id,
            peer=str(row.get("peer_id", "")),
        )


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _moment(text: str) -> str:
    """A time with an offset, as the outbox takes it; now where the text is none."""
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        told = None
    if told is None or told.tzinfo is None or not 10 <= len(text) <= 40:
        return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return text
