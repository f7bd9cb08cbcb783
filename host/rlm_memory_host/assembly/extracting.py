"""When captured sessions are read for candidates in a running host: every ten turns, at their end, after a silence.

Owns: which sessions have words that were not read yet, when one counts as over, that they are read one after another.
Does not own: reading (`textmemory.extraction`), whose failure ends nothing, what a session says (`capture`).

A session is over when its kernel or guest ended, when its feeder says so, or when nothing of it was completed for
`QUIET_SECONDS`; in a host that was started again, those that an earlier one left unread are quiet too, unless they go
on. A session that goes on is simply read again later: the cursor in the jobs log makes every word be read once. Reading
takes one thread of the pool at most, however many sessions end at once, and nobody waits for it: what a host that ends
has not read is in the log for the next one.

Source: design page "The memory model", Lifecycle and gates (Incremental extraction).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from rlm_memory_host.contracts.memory import Caller

QUIET_SECONDS: Final = 600.0
KEPT: Final = 4_096
"""Sessions that are watched for their silence; of more, the longest silent are left to the next start."""


class Extracting:
    """Thread-safe. `read` reads one session; `unread` gives those that an earlier host left."""

    def __init__(
        self,
        read: Callable[[Caller], None],
        unread: Callable[[], Iterable[Caller]],
        pool: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._unread: Callable[[], Iterable[Caller]] | None = unread
        self._pool = pool
        self._clock = clock
        self._heard: OrderedDict[str, tuple[float, Caller]] = OrderedDict()
        self._due: OrderedDict[str, Caller] = OrderedDict()
        self._is_reading = False
        self._lock = threading.Lock()

    def heard(self, caller: Caller) -> bool:
        """A turn of the caller's session was completed; whether it is the first since the session was read."""
        with self._lock:
            is_first = caller.session not in self._heard
            self._heard[caller.session] = (self._clock(), caller)
            self._heard.move_to_end(caller.session)
            while len(self._heard) > KEPT:
                self._heard.popitem(last=False)
            return is_first

    def due(self, caller: Caller) -> None:
        """Read the caller's session soon, in the background."""
        with self._lock:
            self._due[caller.session] = caller
        self._start()

    def over(self, session: str) -> None:
        """A session ended: read the rest of it, where there may be one. Costs nothing for one that was never heard."""
        with self._lock:
            heard = self._heard.pop(session, None)
            if heard is not None:
                self._due[session] = heard[1]
        self._start()

    def look(self) -> None:
        """Read sessions that fell silent; called from time to time, in a thread."""
        with self._lock:
            unread, self._unread = self._unread, None
        if unread is not None:
            self._left(unread())
        with self._lock:
            until = self._clock() - QUIET_SECONDS
            while self._heard and next(iter(self._heard.values()))[0] <= until:
                session, (_, caller) = self._heard.popitem(last=False)
                self._due[session] = caller
        self._start()

    def _left(self, callers: Iterable[Caller]) -> None:
        """Sessions of before count as heard at this host's start: first in the order, since nothing is older."""
        for caller in callers:
            with self._lock:
                if caller.session not in self._heard:
                    self._heard[caller.session] = (self._clock(), caller)

    def _start(self) -> None:
        with self._lock:
            if self._is_reading or not self._due:
                return
            self._is_reading = True
        try:
            self._pool.submit(self._all)
        except RuntimeError:
            # The host ends; the next one finds what was not read.
            with self._lock:
                self._is_reading = False

    def _all(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    self._is_reading = False
                    return
                _, caller = self._due.popitem(last=False)
            with suppress(Exception):
                self._read(caller)
