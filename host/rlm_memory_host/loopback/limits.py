"""How often a session may ask: a bucket of tokens for each. Pure but for the clock that it is given.

Owns: that. Does not own: what a refusal looks like (`api`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

KEPT: Final = 1_024
"""Sessions whose bucket is remembered; one that was forgotten starts with a full one."""


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Rates:
    """Belongs to the event loop. `per_minute` requests in the long run, `burst` at once; `clock` gives seconds."""

    def __init__(self, per_minute: int, burst: int, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = per_minute / 60, float(burst), clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait(self, name: str) -> float:
        """Take one request of that name: 0.0 where it may run, else the seconds until the next may."""
        now = self._clock()
        bucket = self._buckets.setdefault(name, _Bucket(self._burst, now))
        self._buckets.move_to_end(name)
        if len(self._buckets) > KEPT:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left >= 1:
            bucket.left -= 1
            return 0.0
        return (1 - bucket.left) / self._rate
