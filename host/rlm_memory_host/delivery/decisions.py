"""What follows from an outcome: when to try again, when to look first, when to give up. Pure functions, no I/O.

Owns: backoff, settling, Retry-After, the comparison of a delivery with the rows that the service holds. Does not own:
whether anything may be sent at all (`circuit`), which delivery is next (`lanes`), doing it (`worker`).

The service has no idempotency and deletes nothing; a call that timed out is still carried out, sometimes seconds later.
So an unknown outcome waits (`settle`) before the rows are looked up, and only what is missing is sent again.

Source: DeepSeek Honcho specification, sections 12.2, 12.3; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rlm_memory_host.contracts.delivery import DeliveryMessage
from rlm_memory_host.contracts.delivery_ports import RemoteRow
from rlm_memory_host.errors import (
    RemoteAuth,
    RemoteBusy,
    RemoteError,
    RemoteRejected,
    RemoteUnknownOutcome,
)

PARTIAL_DELIVERY: Final = "PARTIAL_DELIVERY"
ATTEMPTS_EXHAUSTED: Final = "ATTEMPTS_EXHAUSTED"

Fraction = Callable[[], float]
"""A random number from 0 up to 1."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient the worker is; all times in seconds."""

    base_seconds: float = 1.0
    cap_seconds: float = 300.0
    """The longest pause between two attempts; a longer Retry-After is cut to it."""
    settle_seconds: float = 20.0
    """How long an unknown outcome rests before it is looked up, at first; it doubles with every further one."""
    settle_cap_seconds: float = 640.0
    spread_seconds: float = 2.0
    """After a Retry-After, attempts spread over at least this long instead of coming back all at once."""
    max_attempts: int | None = None
    """Attempts after which a delivery goes to dead letter; None: it waits for ever, as section 12.3 asks."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `seconds`; `pause` keeps every other delivery back too (the service is busy)."""

    seconds: float
    ambiguous: bool
    code: str
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Bury:
    """To dead letter: no further attempt can help."""

    code: str


def after_failure(
    error: RemoteError,
    *,
    attempts: int,
    unknown: int,
    was_ambiguous: bool,
    policy: RetryPolicy,
    fraction: Fraction,
) -> Retry | Bury:
    """What an attempt's error leads to.

    `attempts` counts this one, `unknown` the unknown outcomes of this delivery in this process (with this one).
    `was_ambiguous` says that rows may have come to be in an earlier attempt, or by this one before it failed.
    """
    match error:
        case RemoteRejected():
            return Bury(error.code)
        case RemoteAuth():
            # The circuit decides when the next one goes; the delivery itself has nothing to wait for.
            return Retry(0.0, was_ambiguous, error.code)
        case RemoteUnknownOutcome():
            seconds = max(settle(unknown, policy), _asked(error, policy) or 0.0)
            ambiguous, pause = True, 0.0
        case _:
            asked = _asked(error, policy)
            pause = asked if asked is not None and isinstance(error, RemoteBusy) else 0.0
            seconds = backoff(attempts, policy, fraction) if asked is None else _spread(asked, policy, fraction)
            ambiguous = was_ambiguous
    if policy.max_attempts is not None and attempts >= policy.max_attempts:
        return Bury(ATTEMPTS_EXHAUSTED)
    return Retry(seconds, ambiguous, error.code, pause)


def backoff(attempts: int, policy: RetryPolicy, fraction: Fraction) -> float:
    """Exponential with full jitter, from a tenth of the base up to the cap; seconds."""
    ceiling = min(policy.cap_seconds, policy.base_seconds * 2.0 ** min(attempts, 40))
    floor = policy.base_seconds / 10
    return floor + (ceiling - floor) * fraction()


def settle(unknown: int, policy: RetryPolicy) -> float:
    """How long the nth unknown outcome of a delivery rests before it is looked up; seconds."""
    return min(policy.settle_cap_seconds, policy.settle_seconds * 2.0 ** min(max(unknown, 1) - 1, 40))


def _asked(error: RemoteError, policy: RetryPolicy) -> float | None:
    return None if error.retry_after is None else min(error.retry_after, policy.cap_seconds)


def _spread(asked: float, policy: RetryPolicy, fraction: Fraction) -> float:
    # Never before the stated time, and not all in the same instant after it.
    return asked + max(policy.spread_seconds, asked / 10) * fraction()


@dataclass(frozen=True, slots=True)
class Found:
    """What the service holds of a delivery. `missing` is to be sent when `state` is `absent` or `partial`."""

    state: Literal["absent", "partial", "complete", "inconsistent"]
    missing: tuple[DeliveryMessage, ...] = ()
    surplus: int = 0
    """Rows beyond the expected ones: duplicates that an earlier writer left."""


def compare(messages: Sequence[DeliveryMessage], rows: Sequence[RemoteRow]) -> Found:
    """Hold the expected messages against the rows found by their delivery id.

    A row that is none of the expected messages makes the delivery inconsistent: something else wrote under its id.
    """
    held = Counter(row.fingerprint for row in rows)
    expected = Counter(message.fingerprint for message in messages)
    if any(print_ not in expected for print_ in held):
        return Found("inconsistent")
    left = Counter(held)
    missing: list[DeliveryMessage] = []
    for message in messages:
        if left[message.fingerprint] > 0:
            left[message.fingerprint] -= 1
        else:
            missing.append(message)
    surplus = sum(left.values())
    if not missing:
        return Found("complete", surplus=surplus)
    return Found("partial" if rows else "absent", tuple(missing), surplus)
