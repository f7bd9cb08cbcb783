"""The worker that empties the outbox: one per state root, one task, at most `concurrency` deliveries under way.

Owns: the loop, the calls to the service, what is written before and after each, shutdown, counters. Does not own: every
decision (`decisions`, `circuit`, `lanes`), the folder (`outbox`), the client. The task that runs `run` is the owner
of every task it starts; `stop` ends them within its bound, and what is not acknowledged by then stays on disk.

One delivery: provisioning, look-up where rows may exist, the mark `ambiguous` on disk, the one call that adds, the
acknowledgement. A kill between any two leaves a document that says what has to be looked up.

Source: DeepSeek Honcho specification, sections 12.2, 12.3, 18, 19.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from rlm_memory_host.contracts.delivery import DeliveryDocument, Failure, iso
from rlm_memory_host.contracts.delivery_ports import RemoteWriter
from rlm_memory_host.delivery import decisions
from rlm_memory_host.delivery.circuit import Circuit, CircuitPolicy, State
from rlm_memory_host.delivery.decisions import PARTIAL_DELIVERY, Bury, Found, RetryPolicy
from rlm_memory_host.delivery.lanes import Waiting
from rlm_memory_host.delivery.outbox import Outbox
from rlm_memory_host.errors import (
    CredentialError,
    FormatVersion,
    Integrity,
    RemoteAuth,
    RemoteError,
    RemoteUnavailable,
    RemoteUnknownOutcome,
    StoreError,
)
from rlm_memory_host.logs import RateLimited
from rlm_memory_host.metrics import Metrics

CREDENTIAL_SECONDS: Final = 30.0
"""How often a credential's source is read again while a login is needed."""
STORE_SECONDS: Final = 5.0
"""How long a delivery rests when its document could not be read or written."""

_LOG: Final = logging.getLogger("rlm_memory_host.delivery")
_T = TypeVar("_T")


class Offload(Protocol):
    """Runs a blocking call off the loop; `asyncio.to_thread` does."""

    def __call__(self, call: Callable[..., _T], /, *arguments: Any) -> Awaitable[_T]: ...


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """How many at once, how patient."""

    concurrency: int = 4
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    circuit: CircuitPolicy = field(default_factory=CircuitPolicy)


@dataclass(slots=True)
class _Attempt:
    """One delivery under way."""

    waiting: Waiting
    document: DeliveryDocument
    was_sent: bool = False
    """Whether the mark was written, so that rows may come to be from now on."""


class DeliveryWorker:
    """Drives one outbox against one service. `now` gives seconds since 1970 for what is written down."""

    def __init__(
        self,
        outbox: Outbox,
        remote: RemoteWriter,
        policy: WorkerPolicy | None = None,
        *,
        now: Callable[[], float] = time.time,
        fraction: Callable[[], float] = random.random,
        offload: Offload = asyncio.to_thread,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self._log = RateLimited(_LOG)
        self._last_circuit: State = "closed"
        self._outbox = outbox
        self._remote = remote
        self._policy = policy or WorkerPolicy()
        self._circuit = Circuit(self._policy.circuit, self._policy.concurrency)
        self._now = now
        self._fraction = fraction
        self._offload = offload
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._counters: Counter[str] = Counter()
        self._last_success_at: str | None = None
        self._last_error_code: str | None = None

    # -- life --------------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Deliver until `stop` or cancellation; both leave everything that is not acknowledged durable."""
        self._loop = asyncio.get_running_loop()
        self._outbox.listen(self._wake_from_anywhere)
        try:
            while not self._stopping:
                self._wake.clear()
                await self._pause(self._start_due())
        finally:
            self._outbox.listen(None)
            await self._cancel_all()

    async def drain(self, seconds: float) -> bool:
        """Wait until nothing is left that could be delivered now, at most `seconds`; True where the outbox is empty.

        Only while `run` runs. What has to wait for its time, or for a login, is not waited for.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline and (self._tasks or self._could_start(loop.time())):
            await asyncio.sleep(min(0.02, max(0.0, deadline - loop.time())))
        return not self._outbox.waiting()

    async def stop(self, drain_seconds: float) -> bool:
        """Take nothing in any more, drain within the bound, end the loop; True where the outbox is empty."""
        self._outbox.stop_admission()
        empty = await self.drain(drain_seconds)
        self._stopping = True
        self._wake.set()
        await self._cancel_all()
        return empty

    def circuit_state(self) -> State:
        """Closed, open or half-open, now."""
        return self._circuit.state(self._loop.time() if self._loop is not None else 0.0)

    def _note_circuit(self) -> None:
        state = self.circuit_state()
        if state != self._last_circuit:
            self._last_circuit = state
            self._metrics.count("circuit_transitions", state)
            _LOG.info("delivery circuit=%s code=%s", state, self._circuit.code)

    def retry_now(self) -> None:
        """An operator's word, or a new credential: forget waiting times and what is held. Call it in the loop."""
        self._circuit.reset()
        self._outbox.hurry()

    def status(self) -> dict[str, Any]:
        """Counts, ages and codes for `memory_status`; no content, no id, no path."""
        now = self._loop.time() if self._loop is not None else 0.0
        return {
            **self._outbox.counts(),
            "in_flight": len(self._tasks),
            "circuit": self._circuit.state(now),
            "circuit_code": self._circuit.code,
            "circuit_openings": self._circuit.opened,
            "login_needed": self._circuit.is_login_needed,
            "paused_seconds": round(self._circuit.paused(now), 1),
            "last_success_at": self._last_success_at,
            "last_error_code": self._last_error_code,
            **{
                name: self._counters[name]
                for name in ("delivered", "retried", "dead_lettered", "duplicates_found", "partial_found", "busy")
            },
        }

    # -- the loop ----------------------------------------------------------------------------------------------------
    def _start_due(self) -> float | None:
        """Start what may be started; when to look again (the loop's clock), None: when woken."""
        now = self._time()
        self._note_circuit()
        while True:
            permission = self._circuit.permission(now, self._outbox.under_way)
            if permission.slots == 0:
                if self._circuit.is_login_needed:
                    return now + CREDENTIAL_SECONDS
                return permission.until
            waiting = self._outbox.take(now, permission.avoid, prefer_others=permission.prefer_others)
            if waiting is None:
                due = self._outbox.next_due()
                if due is not None and due <= now:
                    # Due, and of a lane that the probe avoids: only another lane or a login can help.
                    return now + CREDENTIAL_SECONDS
                return due
            task = asyncio.ensure_future(self._deliver(waiting))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _could_start(self, now: float) -> bool:
        permission = self._circuit.permission(now, self._outbox.under_way)
        due = self._outbox.next_due()
        return permission.slots > 0 and due is not None and due <= now and not permission.avoid

    async def _pause(self, until: float | None) -> None:
        timeout = None if until is None else max(0.0, until - self._time())
        try:
            await asyncio.wait_for(self._wake.wait(), timeout)
        except TimeoutError:
            if self._circuit.is_login_needed and await self._io(self._has_new_credential):
                self.retry_now()

    def _has_new_credential(self) -> bool:
        try:
            return self._remote.renew_credential()
        except CredentialError:
            return False

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nothing in a delivery may end the worker; the class names the fault, its text may hold content.
            _LOG.error("delivery fault kind=%s", type(error).__name__)

    async def _cancel_all(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _wake_from_anywhere(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def _time(self) -> float:
        return asyncio.get_running_loop().time()

    async def _io(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """A blocking call off the loop; a cancellation waits for its end, so that no write outlives the worker."""
        running = asyncio.ensure_future(self._offload(call, *arguments))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})
            raise

    # -- one delivery ------------------------------------------------------------------------------------------------
    async def _deliver(self, waiting: Waiting) -> None:
        try:
            document = await self._io(self._outbox.read, waiting.delivery_id)
        except (Integrity, FormatVersion) as error:
            await self._set_aside(waiting, str(error))
            return
        except StoreError:
            self._rest(waiting)
            return
        attempt = _Attempt(waiting, document)
        try:
            await self._send(attempt)
        except RemoteError as error:
            await self._failed(attempt, error)
        except StoreError:
            # The disk refused: nothing is lost, nothing may be sent that is not marked.
            self._last_error_code = "STORE_UNAVAILABLE"
            self._rest(waiting)
        except BaseException:
            self._rest(waiting)
            raise

    async def _send(self, attempt: _Attempt) -> None:
        waiting, request = attempt.waiting, attempt.document.request
        await self._remote.ensure(request.scope)
        found = Found("absent", request.messages)
        if waiting.look_first or waiting.ambiguous:
            rows = await self._remote.find(request.scope, request.delivery_id)
            found = decisions.compare(request.messages, rows)
        if found.state == "inconsistent":
            self._succeed()
            await self._bury(attempt, Failure(code=PARTIAL_DELIVERY, at=iso(self._now())))
            return
        if found.surplus:
            self._counters["duplicates_found"] += 1
        if found.state == "partial":
            self._counters["partial_found"] += 1
        if found.missing:
            await self._mark(attempt)
            await self._remote.add(request.scope, found.missing)
        self._succeed()
        await self._io(self._outbox.acknowledge, waiting)
        self._counters["delivered"] += 1
        self._last_success_at = iso(self._now())

    async def _mark(self, attempt: _Attempt) -> None:
        """Say on disk, before the call, that its rows may exist from now on."""
        waiting = attempt.waiting
        settle = decisions.settle(waiting.unknown + 1, self._policy.retry)
        attempt.document = attempt.document.model_copy(
            update={
                "attempts": waiting.attempts + 1,
                "ambiguous": True,
                "next_attempt_at": iso(self._now() + settle),
            }
        )
        # What was looked up and found absent is certainly absent now, until this call.
        waiting.ambiguous = False
        await self._io(self._outbox.rewrite, attempt.document)
        attempt.was_sent = True
        # A cancellation from here on (shutdown, a fault) leaves the outcome unknown.
        waiting.ambiguous = True

    def _succeed(self) -> None:
        held_lanes = self._circuit.succeeded()
        self._note_circuit()
        for lane in held_lanes:
            held = self._outbox.hold(lane, RemoteAuth.default_code)
            if held is not None:
                _LOG.warning("delivery held code=%s", RemoteAuth.default_code)

    async def _failed(self, attempt: _Attempt, error: RemoteError) -> None:
        waiting, now = attempt.waiting, self._time()
        waiting.attempts += 1
        is_unknown = isinstance(error, RemoteUnknownOutcome)
        if is_unknown and attempt.was_sent:
            waiting.unknown += 1
            waiting.look_first = True
        if is_unknown and not attempt.was_sent:
            # A read or a get-or-create went unanswered: tiresome, not ambiguous.
            error = RemoteUnavailable(str(error), error.code, status=error.status, retry_after=error.retry_after)
        elif attempt.was_sent and not is_unknown:
            waiting.ambiguous = False
        decision = decisions.after_failure(
            error,
            attempts=waiting.attempts,
            unknown=waiting.unknown,
            was_ambiguous=waiting.ambiguous,
            policy=self._policy.retry,
            fraction=self._fraction,
        )
        self._circuit.failed(error, waiting.lane, now)
        self._note_circuit()
        self._metrics.count("delivery_failures", error.code)
        self._last_error_code = error.code
        self._log.info(
            error.code, "delivery failed code=%s status=%s attempts=%d", error.code, error.status, waiting.attempts
        )
        failure = Failure(code=error.code, at=iso(self._now()), status=error.status)
        if isinstance(decision, Bury):
            await self._bury(attempt, failure.model_copy(update={"code": decision.code}))
            return
        self._counters["retried"] += 1
        if decision.pause:
            self._counters["busy"] += 1
            self._circuit.pause(decision.pause, now)
        waiting.ambiguous = decision.ambiguous
        waiting.due = now + decision.seconds
        try:
            await self._io(
                self._outbox.rewrite,
                attempt.document.model_copy(
                    update={
                        "attempts": waiting.attempts,
                        "ambiguous": waiting.ambiguous,
                        "next_attempt_at": iso(self._now() + decision.seconds),
                        "failure": failure,
                    }
                ),
            )
        except StoreError:
            # The older document on disk claims more doubt than there is, never less.
            self._last_error_code = "STORE_UNAVAILABLE"
        finally:
            self._outbox.put_back(waiting)

    async def _bury(self, attempt: _Attempt, failure: Failure) -> None:
        document = attempt.document.model_copy(
            update={"attempts": attempt.waiting.attempts, "ambiguous": False, "failure": failure}
        )
        try:
            await self._io(self._outbox.bury, attempt.waiting, document)
        except StoreError:
            self._rest(attempt.waiting)
            return
        self._counters["dead_lettered"] += 1
        _LOG.warning("delivery to dead letter code=%s", failure.code)

    async def _set_aside(self, waiting: Waiting, reason: str) -> None:
        try:
            await self._io(self._outbox.set_aside, waiting, reason)
        except StoreError:
            self._rest(waiting)

    def _rest(self, waiting: Waiting) -> None:
        if not waiting.gone:
            waiting.due = self._time() + (
                decisions.settle(waiting.unknown + 1, self._policy.retry) if waiting.ambiguous else STORE_SECONDS
            )
            self._outbox.put_back(waiting)
