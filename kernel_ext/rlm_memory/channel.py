"""Requests in flight: who waits for which reply, how long, and what happens when none comes.

Owns: ids, the pending table, the window, retransmission, pings, the waits. Does not own: how a message travels
(`route.py`) nor which host answers (`connect.py`). There is no thread of its own: replies arrive on the route's
thread, and whoever waits drives the timers, every 100 ms. Order of locks: the table's lock is never held while a
future is resolved.

Source: design page "Kernel <-> host", Kernel side.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from rlm_memory import errors, wire
from rlm_memory.interrupts import prompt
from rlm_memory.kept import kept
from rlm_memory.route import Route

SILENCE_SECONDS: Final = wire.LOST_SECONDS - 5 * wire.TICK_SECONDS
"""Observed silence that counts as loss: a little under the promise, so that ticks and scheduling stay within it."""
LONGEST_STEP_SECONDS: Final = 0.5
"""A stretch between two ticks counts as at most this much silence: a stopped or busy kernel is not a lost host."""
REMEMBERED_IDS: Final = 4096
"""Finished ids that are still recognised, so that a late or repeated reply is not passed on as a stranger's."""

LOST_TEXT: Final = (
    "the host stopped answering, so this call ended; whether the host had finished it is not known. "
    "The next call connects again (start one with: rlm-memory host run)"
)


@dataclass(eq=False)
class Pending:
    """One request: its future resolves to a `wire.Reply` or fails with a `MemoryFault`."""

    id: str
    data: Mapping[str, Any]
    retransmit: bool
    watched: bool
    epoch: str | None = None
    """The host's epoch when this was submitted; told with every repetition."""
    future: Future[wire.Reply] = field(default_factory=Future)
    due: float = 0.0
    delay: float = wire.RETRANSMIT_SECONDS


@kept
class HostChannel:
    """Sends requests over one route and gives each caller its own reply. Thread-safe; one per process and route."""

    def __init__(self, route: Route, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._route = route
        self._clock = clock
        # Re-entrant: a signal handler of the user's may call in while its thread holds the lock.
        self._lock = threading.RLock()
        self._flight: dict[str, Pending] = {}
        self._queue: deque[Pending] = deque()
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._tickers: dict[asyncio.AbstractEventLoop, _Ticker] = {}
        self._silence = 0.0
        self._last_tick = 0.0
        self._next_ping = 0.0
        self._route.open(self._receive, self._is_ours)

    def __reduce__(self) -> NoReturn:
        raise TypeError("the live channel to the host cannot be pickled; pickle `memory` itself, it connects again")

    def check_caller(self) -> None:
        """Raise where waiting could never end: Forked in a forked child, the kernel's control or output thread;
        HostUnavailable in a kernel that shuts down."""
        refusal = self._route.refusal()
        if refusal is not None:
            raise refusal

    def submit(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        retransmit: bool = True,
        watched: bool = True,
        epoch: str | None = None,
    ) -> Pending:
        """Send a request, or queue it while `wire.WINDOW` are in flight; returns at once.

        `retransmit` repeats the same id until a reply comes (for hosts that know repeated ids). `watched` requests are
        covered by pings: they fail with HOST_LOST when the host falls silent. `epoch` is what the hello told.

        Raises Forked, TooLarge (over `wire.MAX_INLINE_BYTES`), Invalid (not JSON).
        """
        self.check_caller()
        try:
            data = wire.request_data(kind, payload)
        except wire.WireError as error:
            raise errors.from_code(error.code, str(error)) from error
        pending = Pending(f"{wire.COMM_PREFIX}{uuid.uuid4()}", data, retransmit, watched, epoch)
        with self._lock:
            self._queue.append(pending)
        self._admit()
        return pending

    def wait(self, pending: Pending, timeout: float | None = None) -> wire.Reply:
        """Block until the reply is here; an interrupt ends it at once and tells the host.

        With `timeout` (seconds) a TimeoutError leaves the request in flight; any other end withdraws it.
        Raises HostUnavailable with HOST_LOST when the host falls silent.
        """
        end = None if timeout is None else self._clock() + timeout
        try:
            with prompt():
                while True:
                    left = wire.TICK_SECONDS if end is None else min(wire.TICK_SECONDS, end - self._clock())
                    if pending.future.done() or self._route.wait(pending.future, max(left, 0.0)):
                        return pending.future.result()
                    if end is not None and self._clock() >= end:
                        raise TimeoutError
                    self.check_caller()
                    self.tick()
        except TimeoutError:
            raise
        except BaseException:
            self.withdraw(pending)
            raise

    async def wait_async(self, pending: Pending) -> wire.Reply:
        """The same without blocking the event loop.

        One timer ticks for all that wait on a loop; it also lets a cancellation land while nothing else wakes the loop.
        """
        waiter = asyncio.wrap_future(pending.future)
        try:
            with self._ticking(asyncio.get_running_loop()), self._route.attended():
                await asyncio.wait({waiter})
            return waiter.result()
        finally:
            if not pending.future.done():
                self.withdraw(pending)
            waiter.cancel()

    def switch(self, route: Route, *, opened: bool = False) -> None:
        """Use another route from now on; what is in flight is sent again over it. `opened` where it is ours already."""
        if not opened:
            route.open(self._receive, self._is_ours)
        with self._lock:
            self._route = route
            flight = list(self._flight.values())
        for pending in flight:
            route.send(pending.id, pending.data, pending.epoch)

    def fail(self, fault: errors.MemoryFault) -> None:
        """End every wait: nothing can come any more for what was sent or waits to be."""
        with self._lock:
            left = [*self._flight.values(), *self._queue]
            for pending in self._flight.values():
                self._remember(pending.id)
            self._flight.clear()
            self._queue.clear()
        for pending in left:
            _fail(pending, fault)

    def resend(self, pending: Pending) -> None:
        """Publish the same id once more, now; for a host that has just subscribed."""
        if not pending.future.done():
            self._route.send(pending.id, pending.data)

    def withdraw(self, pending: Pending) -> None:
        """Forget a request and tell the host that nobody waits for it any more; harmless when it is done."""
        with self._lock:
            sent = self._flight.pop(pending.id, None) is not None
            if not sent and pending in self._queue:
                self._queue.remove(pending)
            self._remember(pending.id)
        if not pending.future.cancel() and not sent:
            return
        if sent:
            self._route.cancel(pending.id)
        self._admit()

    def tick(self) -> None:
        """What waiting callers do for all: send again what is due, ping, and notice that the host is gone.

        However many wait, this is done at most twice a tick.
        """
        if 0 <= self._clock() - self._last_tick < wire.TICK_SECONDS / 2:
            return
        if self._queue and len(self._flight) < wire.WINDOW:
            self._admit()  # where an interrupt kept it from being done
        with self._lock:
            now = self._clock()
            step, self._last_tick = now - self._last_tick, now
            watched = [pending for pending in self._flight.values() if pending.watched]
            if not watched:
                return
            self._silence += min(max(step, 0.0), LONGEST_STEP_SECONDS)
            if self._silence >= SILENCE_SECONDS:
                gone, queued = watched, list(self._queue)
                self._queue.clear()
                for pending in watched:
                    del self._flight[pending.id]
                    self._remember(pending.id)
                due: list[Pending] = []
            else:
                gone, queued = [], []
                due = [pending for pending in watched if pending.retransmit and now >= pending.due]
                for pending in due:
                    pending.delay = min(2 * pending.delay, wire.RETRANSMIT_MOST_SECONDS)
                    pending.due = now + pending.delay
                if now >= self._next_ping:
                    self._next_ping = now + wire.PING_SECONDS
                    due.append(self._ping())
        for pending in gone:
            # A host that was only stopped must not run, when it goes on, what nobody waits for any more.
            self._route.cancel(pending.id)
        for pending in (*gone, *queued):
            _fail(pending, errors.HostUnavailable(LOST_TEXT, wire.HOST_LOST))
        for pending in due:
            self._route.send(pending.id, pending.data, pending.epoch)

    def close(self) -> None:
        """Give the kernel's handlers back and end every wait."""
        self._route.close()
        self.fail(errors.HostUnavailable("the connection was closed while this call waited", wire.CANCELLED))

    @contextmanager
    def _ticking(self, loop: asyncio.AbstractEventLoop) -> Generator[None]:
        """Keep one timer going on a loop while anybody waits there. Entered and left on that loop."""
        with self._lock:
            ticker = self._tickers.setdefault(loop, _Ticker(loop, self.tick))
            ticker.waiting += 1
        if ticker.waiting == 1:
            ticker.start()
        try:
            yield
        finally:
            with self._lock:
                ticker.waiting -= 1
                if not ticker.waiting:
                    ticker.stop()
                    self._tickers.pop(loop, None)

    # -- under the table's lock, or called by the route ------------------------------------------------------------

    def _ping(self) -> Pending:
        ping = Pending(f"{wire.COMM_PREFIX}{uuid.uuid4()}", wire.request_data(wire.PING), False, False)
        self._remember(ping.id)
        return ping

    def _remember(self, request_id: str) -> None:
        self._finished[request_id] = None
        while len(self._finished) > REMEMBERED_IDS:
            self._finished.popitem(last=False)

    def _is_ours(self, request_id: str) -> bool:
        with self._lock:
            return request_id in self._flight or request_id in self._finished

    def _admit(self) -> None:
        """Move what fits from the queue into flight and send it."""
        ready: list[Pending] = []
        with self._lock:
            now = self._clock()
            if not any(pending.watched for pending in self._flight.values()):
                self._silence, self._last_tick, self._next_ping = 0.0, now, now + wire.PING_SECONDS
            while self._queue and len(self._flight) < wire.WINDOW:
                pending = self._queue.popleft()
                pending.due = now + pending.delay
                self._flight[pending.id] = pending
                ready.append(pending)
        for pending in ready:
            self._route.send(pending.id, pending.data)

    def _receive(self, request_id: str, data: object) -> bool:
        with self._lock:
            pending = self._flight.get(request_id)
            known = pending is not None or request_id in self._finished
            if not known:
                return False
            self._silence = 0.0
            self._next_ping = self._clock() + wire.PING_SECONDS
            self._remember(request_id)
        if pending is None:
            return True
        try:
            reply = wire.parse_reply(data)
        except wire.WireError as error:
            _fail(pending, errors.HostFault(f"the host's reply cannot be read: {error}"))
        else:
            try:
                pending.future.set_result(reply)
            except InvalidStateError:  # withdrawn in this moment
                pass
        # Only now: an interrupt may end this thread's work anywhere, and what is in flight is asked for again.
        with self._lock:
            self._flight.pop(request_id, None)
        self._admit()
        return True


class _Ticker:
    """The timer of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick: Callable[[], None]) -> None:
        self.waiting = 0
        self._loop, self._tick = loop, tick
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._next = self._loop.call_later(wire.TICK_SECONDS, self._run)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _run(self) -> None:
        self.start()
        self._tick()


def _fail(pending: Pending, fault: errors.MemoryFault) -> None:
    try:
        pending.future.set_exception(fault)
    except InvalidStateError:
        pass
