"""Whether anything may be sent now. A state machine without I/O and without a clock of its own.

Owns: closed, open, half-open; how many deliveries may be under way; which of them is the probe; the pause that a busy
service asked for. Does not own: a delivery's own waiting time (`decisions`), the order (`lanes`).

A service that was never heard from gets one delivery at a time, so that a wrong key costs one request and not four.
401 and 403 open the circuit at once. The probe then takes another lane's delivery: where that passes, the key is right
and a 403 belongs to its own delivery, which is held alone; where that fails too, a login is needed and nothing is sent
until the credential changes or an operator says retry. Transient failures open it after `threshold` in a row.

Source: DeepSeek Honcho specification, sections 12.3, 13.3; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlm_memory_host.errors import RemoteAuth, RemoteBusy, RemoteError, RemoteRejected

State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True)
class CircuitPolicy:
    """`threshold` transient failures in a row open it; the cooldown doubles from `cooldown_seconds` to the cap."""

    threshold: int = 5
    cooldown_seconds: float = 30.0
    cap_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Permission:
    """What may be started now. `until` is when to ask again at the latest, None: only an event changes it."""

    slots: int
    avoid: frozenset[str] = frozenset()
    """Lanes that the probe leaves alone."""
    prefer_others: bool = False
    """Whether a lane of `avoid` may be the probe where there is no other."""
    until: float | None = None


class Circuit:
    """One service, one credential. Not thread-safe: the worker's loop owns it. Times: the caller's clock, seconds."""

    def __init__(self, policy: CircuitPolicy, concurrency: int) -> None:
        self._policy = policy
        self._concurrency = concurrency
        self._proven = False
        self._failures = 0
        self._openings = 0
        self._open_until: float | None = None
        self._suspects: dict[str, int] = {}
        self._warned: set[str] = set()
        self._login_needed = False
        self._pause_until = 0.0
        self.code: str | None = None
        """Why it is open."""
        self.opened = 0
        """How often it opened."""

    def state(self, now: float) -> State:
        """As a person would call it."""
        if self._open_until is None and not self._login_needed:
            return "closed"
        return "open" if self._login_needed or now < (self._open_until or 0.0) else "half-open"

    @property
    def is_login_needed(self) -> bool:
        """Whether only a new credential, or an operator's word, lets anything go again."""
        return self._login_needed

    def paused(self, now: float) -> float:
        """Seconds left of the pause that the service asked for."""
        return max(0.0, self._pause_until - now)

    def permission(self, now: float, under_way: int) -> Permission:
        """How many more deliveries may be started."""
        if self._login_needed and not self._is_single_refusal():
            return Permission(0)
        if now < self._pause_until:
            return Permission(0, until=self._pause_until)
        if self._open_until is not None:
            if now < self._open_until:
                return Permission(0, until=self._open_until)
            # Where one lane alone was refused twice, only another lane can tell more.
            return Permission(max(0, 1 - under_way), frozenset(self._suspects), prefer_others=not self._login_needed)
        limit = self._concurrency if self._proven else 1
        return Permission(max(0, limit - under_way))

    def succeeded(self) -> tuple[str, ...]:
        """The service did what it was asked; the lanes whose 403 is now known to be their own."""
        held = tuple(lane for lane, status in self._suspects.items() if status == 403 or lane in self._warned)
        # A 401 may have been the key's; a second one, with the key at work elsewhere, is the lane's.
        self._warned.update(self._suspects)
        self._close()
        self._proven = True
        return held

    def failed(self, error: RemoteError, lane: str, now: float) -> None:
        """An attempt of that lane failed."""
        match error:
            case RemoteAuth():
                self._refused(error, lane, now)
            case RemoteRejected():
                # It was heard and understood: the service and the key are fine.
                self._failures, self._openings, self._open_until = 0, 0, None
                self._proven = True
            case RemoteBusy():
                # It was heard, and a service that counts requests answers a wrong key otherwise.
                self._proven = True
            case _ if self._open_until is not None and now < self._open_until:
                pass  # one that was under way when it opened
            case _:
                self._failures += 1
                if self._failures >= self._policy.threshold or self._open_until is not None:
                    self._open(error.code, now)

    def pause(self, seconds: float, now: float) -> None:
        """The service asked for silence."""
        self._pause_until = max(self._pause_until, now + seconds)

    def reset(self) -> None:
        """A new credential, or an operator's retry: start as if never heard from."""
        self._close()
        self._warned.clear()
        self._proven = False
        self._pause_until = 0.0

    def _refused(self, error: RemoteAuth, lane: str, now: float) -> None:
        if self._login_needed and not self._is_single_refusal():
            return
        is_probe = self._open_until is not None and now >= self._open_until
        self._suspects[lane] = error.status or 401
        if is_probe:
            self._login_needed = True
            self.code = error.code
            return
        if self._open_until is None:
            self._open(error.code, now)

    def _is_single_refusal(self) -> bool:
        return len(self._suspects) == 1 and 403 in self._suspects.values()

    def _open(self, code: str, now: float) -> None:
        seconds = self._policy.cooldown_seconds * 2.0 ** min(self._openings, 20)
        self._open_until = now + min(self._policy.cap_seconds, seconds)
        self._openings += 1
        self.opened += 1
        self.code = code

    def _close(self) -> None:
        self._failures = self._openings = 0
        self._open_until = None
        self._suspects.clear()
        self._login_needed = False
        self.code = None
