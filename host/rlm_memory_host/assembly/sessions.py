"""Captured sessions in a running host: events in; evidence, habits, candidates and deliveries out; injections back.

Owns: what follows from a captured event, and in which order. Does not own: which events count (`capture`), what a habit
or a candidate is (`textmemory`), sending. The transport that authenticated a session feeds it, with the scope that it
derived; the code in a kernel has no way here, so nothing in a kernel can say something in the user's name.

A completed exchange is in the outbox before anything of it is sent. Extraction asks a model, so it runs in the pool; a
failure in any step is a state of health and ends no session.

Source: DeepSeek Honcho specification, sections 11 to 13; design page "The memory model", Lifecycle and gates.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rlm_memory_host.assembly.extracting import Extracting
from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.capture import Capture, parse_event
from rlm_memory_host.capture.feeders import objects
from rlm_memory_host.contracts.capture import Exchange, SessionEvent
from rlm_memory_host.contracts.judging import JudgeModel
from rlm_memory_host.contracts.memory import Caller, Log, TextStore
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import HostError, ToolInput
from rlm_memory_host.logs import LOGGER, where
from rlm_memory_host.recall.injecting import Injection
from rlm_memory_host.recall.resident import Resident
from rlm_memory_host.recall.service import Recall
from rlm_memory_host.textmemory import aliases, extraction
from rlm_memory_host.textmemory.health import TextHealth
from rlm_memory_host.textmemory.service import TextMemory

if TYPE_CHECKING:
    from rlm_memory_host.assembly.remote import OutboxMemory

KEPT: Final = 256
"""Sessions whose caller is remembered, as many as `capture` holds."""


@dataclass(frozen=True, slots=True)
class After:
    """What a completed exchange goes on to: a remote memory that may have it, a model that may judge it, and where.

    `extracts`: the model may also propose candidates from it.
    """

    remote: OutboxMemory | None
    model: JudgeModel | None
    pool: Executor
    extracts: bool = True


class Sessions:
    """Thread-safe. `capture` is made first, since the text memory reads quotes from it; `serve` completes it."""

    def __init__(
        self,
        store: TextStore,
        redaction: Redaction,
        health: TextHealth,
        human_peer: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.capture = Capture(
            redact=redaction.captured,
            on_evidence=store.add_evidence,
            on_exchange=self._completed,
            kept=lambda session: store.evidence(session, -1),
        )
        self._store = store
        self._health = health
        self._human_peer = human_peer
        self._callers: OrderedDict[str, Caller] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._memory: TextMemory | None = None
        self._recall: Recall | None = None
        self._after: After | None = None
        self._clock = clock
        self._extracting: Extracting | None = None

    def serve(self, memory: TextMemory, recall: Recall, after: After) -> None:
        """From now on what is captured goes on to these."""
        self._memory, self._recall, self._after = memory, recall, after
        if after.model is not None and after.extracts:
            self._extracting = Extracting(self._extract, self._unread, after.pool, self._clock)

    # -- in ----------------------------------------------------------------------------------------------------------
    def feed(self, scope: Scope, event: SessionEvent) -> None:
        """Take one event of the session that `scope` names. Raises ToolInput for another's, StoreError for a full disk.

        The session's header counts only as far as the scope bears it out: a child's never becomes a root's.
        """
        if event.session != scope.session_id:
            raise ToolInput("session: the event belongs to another session than the one that was authenticated")
        agent = scope.agent_kind
        if event.kind == "session" and event.agent == "root" and agent != "root":
            raise ToolInput("agent: only a root session's transport may announce a root session")
        caller = Caller.of(scope, self._human_peer)
        with self._lock:
            self._callers[event.session] = caller
            self._callers.move_to_end(event.session)
            while len(self._callers) > KEPT:
                self._callers.popitem(last=False)
        try:
            self.capture.feed(event)
        except HostError as error:
            self._health.failed(error)
            raise

    def replay(self, scope: Scope, lines: Iterable[str]) -> tuple[int, int]:
        """Feed a recorded session, one JSON object a line; (events taken, lines that are none). Raises as `feed`."""
        taken = skipped = 0
        for value in objects(lines):
            event = parse_event(value)
            if event is None or event.session != scope.session_id:
                skipped += 1
                continue
            self.feed(scope, event)
            taken += 1
        return taken, skipped

    def reconcile(self, scope: Scope, turn: Sequence[SessionEvent]) -> bool:
        """Take what of a whole turn of a session's log is not kept yet; whether anything was new. Raises as `feed`.

        A session that a person purged stays purged: its log still holds what was destroyed here.
        """
        if any(event.session != scope.session_id for event in turn):
            raise ToolInput("session: the turn belongs to another session than the one that was authenticated")
        if any(row.get("session") == scope.session_id for row in self._store.rows(Log.PURGES)):
            with self._lock:
                self._counts["purged-session"] += 1
            return False
        try:
            return self.capture.reconcile(turn)
        except HostError as error:
            self._health.failed(error)
            raise

    def ended(self, scope: Scope) -> None:
        """The session is over, says its feeder: what was not read yet is extracted, in the background."""
        if self._extracting is not None:
            self._extracting.due(Caller.of(scope, self._human_peer))

    def over(self, session: str) -> None:
        """The kernel or guest of a session ended. Nobody waits for what follows."""
        if self._extracting is not None:
            self._extracting.over(session)

    def look(self) -> None:
        """What is to be done from time to time: sessions that fell silent."""
        if self._extracting is not None:
            self._extracting.look()

    def asked(self, scope: Scope, text: str, turn: int) -> None:
        """The user asks this now; the committed message follows. Recall's question, never evidence by itself."""
        if scope.agent_kind == "root":
            self.feed(scope, SessionEvent(scope.session_id, 0, "session", agent="root"))
            self.capture.asked(scope.session_id, text, turn)

    # -- back --------------------------------------------------------------------------------------------------------
    def inject(
        self, scope: Scope, is_wanted: Callable[[], bool] = lambda: True, used: float | None = None
    ) -> Injection:
        """Resident text and recall for the first step of a root turn, in one envelope; no text when there is nothing.

        `is_wanted` is asked once, before what was found counts as given. `used` is as `pressed` takes it.
        """
        if self._recall is None:
            return Injection()
        if used is not None:
            self.pressed(scope, used)
        try:
            caller = Caller.of(scope, self._human_peer)
            return self._recall.injection(caller, warning=self._health.warning(), is_wanted=is_wanted)
        except HostError as error:
            self._fault("recall", error)
            return Injection()

    def pressed(self, scope: Scope, used: float) -> None:
        """A session's context is full to this fraction (0 to 1): the fuller, the less of memory it is given.

        Every step is audited; one that cannot be is a fault of the audit and holds nothing up. Raises ToolInput.
        """
        if not 0.0 <= used <= 1.0:
            raise ToolInput("used: a fraction of the context between 0 and 1")
        if self._recall is None:
            return
        try:
            self._recall.pressed(Caller.of(scope, self._human_peer), used)
        except HostError as error:
            self._fault("audit", error)

    def resident(self, scope: Scope) -> Resident | None:
        """The resident text of a caller; None without a text memory."""
        caller = Caller.of(scope, self._human_peer)
        return None if self._recall is None else self._recall.resident(caller, warning=self._health.warning())

    def counters(self) -> dict[str, int]:
        """What was captured, left out and handed on, by name; no content."""
        # Not under our lock: what capture completes takes it while capture's own is held.
        captured = self.capture.counters()
        with self._lock:
            return {**captured, **self._counts}

    # -- after a completed exchange ----------------------------------------------------------------------------------
    def _completed(self, exchange: Exchange) -> None:
        with self._lock:
            caller = self._callers.get(exchange.session)
        memory, after = self._memory, self._after
        if caller is None or memory is None or after is None:
            return
        if after.remote is not None:
            remote = after.remote
            self._step("exchanges-queued", "outbox", lambda: len(remote.deliver(exchange, caller.project or "")) and 1)
        if after.model is None:
            self._observe(memory, exchange, caller)
        else:
            after.pool.submit(self._observe, memory, exchange, caller)
        if self._extracting is not None:
            if self._extracting.heard(caller):
                self._step("sessions-opened", "judge", lambda: extraction.opened(memory, caller))
            if extraction.is_due(self.capture.completed_turns(exchange.session)):
                self._extracting.due(caller)

    def _observe(self, memory: TextMemory, exchange: Exchange, caller: Caller) -> None:
        for message in exchange.messages:
            if message.role == "user":
                self._step("habits-observed", "habit", lambda each=message: memory.observe(each, caller.preset))
                self._step("aliases-learned", "recall", lambda each=message: aliases.learn(memory, caller, each))

    def _extract(self, caller: Caller) -> None:
        memory, after = self._memory, self._after
        if memory is not None and after is not None:
            run = extraction.extract_rest
            self._step("candidates-extracted", "judge", lambda: run(memory, caller, after.model))

    def _unread(self) -> list[Caller]:
        found: list[Caller] = []
        memory = self._memory
        if memory is not None:
            self._step("sessions-taken-up", "judge", lambda: found.extend(extraction.unread(memory)) or len(found))
        return found

    def _step(self, name: str, feature: str, run: Callable[[], int]) -> None:
        try:
            done = run()
        except HostError as error:
            self._fault(feature, error)
        except Exception as error:
            LOGGER.error("capture_step_failed step=%s %s", name, where(error))
            self._health.fault(feature, "HOST_REQUEST_FAILED")
        else:
            with self._lock:
                self._counts[name] += done

    def _fault(self, feature: str, error: HostError) -> None:
        LOGGER.warning("capture_step_refused feature=%s code=%s", feature, error.code)
        with self._lock:
            self._counts[f"refused-{feature}"] += 1
        if error.code not in (
            "GUARD_SECRET",
            "GUARD_INJECTION",
            "EMPTY_AFTER_REDACTION",
            "VALIDATION",
            "INVALID_SCOPE",
        ):
            self._health.fault(feature, error.code)
