"""Derived state of use: when a memory was last read, how often it was repeated, what people thought of it.

Owns: counts and times by id, in memory. Does not own: anything that has to last; losing it costs only the order of
reviews and a renewal. Never changes text, status or residence. Thread-safe.

Source: design page "The memory model", Lifecycle and gates (DUPLICATE, Aging, verdict).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Literal

Verdict = Literal["useful", "wrong", "stale"]


@dataclass(frozen=True, slots=True)
class Use:
    """How one memory was used. Times are ISO 8601 in UTC, "" for never."""

    read_at: str = ""
    reads: int = 0
    repeats: int = 0
    verdict: Verdict | None = None


class Activity:
    """Uses by memory id."""

    def __init__(self) -> None:
        self._uses: dict[str, Use] = {}
        self._lock = threading.Lock()

    def of(self, memory_id: str) -> Use:
        """How a memory was used so far."""
        return self._uses.get(memory_id, Use())

    def read(self, memory_id: str, ts: str) -> None:
        """It was given to somebody."""
        with self._lock:
            use = self.of(memory_id)
            self._uses[memory_id] = replace(use, read_at=ts, reads=use.reads + 1)

    def repeated(self, memory_id: str) -> None:
        """The same was said again."""
        with self._lock:
            use = self.of(memory_id)
            self._uses[memory_id] = replace(use, repeats=use.repeats + 1)

    def judged(self, memory_id: str, verdict: Verdict) -> None:
        """Somebody found it useful, wrong or stale."""
        with self._lock:
            self._uses[memory_id] = replace(self.of(memory_id), verdict=verdict)

    def dropped(self, memory_id: str) -> None:
        """Nothing is kept of it (a purge)."""
        with self._lock:
            self._uses.pop(memory_id, None)
