"""State of use: when a memory was last read, how often it was repeated, what people thought of it.

Owns: counts and times by id, their file `derived/activation.json`, what is merged when several processes keep it. Does
not own: when to keep it (a host every `KEEP_SECONDS` and at its end, a command at its end), what follows from a use
(`aging`, `review`). Never changes text, status or residence by itself. Thread-safe.

A read changes a number in memory. Keeping reads the file again under the owner's lock, adds what happened here since,
and puts a whole file in its place: a reader sees one state or the other, and two processes lose nothing of each
other's. A clean end keeps everything. A kill loses what happened since the last time, at most `KEEP_SECONDS` and one
look of the host ago; a crash of the machine may lose the file, which is not flushed. A damaged file, or one of another
format, counts as none: all that is lost is the order of reviews and some renewals. The file holds ids, times and
numbers. A purge takes its ids out of it, and a process that still remembers them does not write them again.

Source: design page "The memory model", Storage (`derived/activation.json`), Lifecycle and gates (DUPLICATE, Aging,
verdict).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, cast

from rlm_memory_host.contracts.memory import Log, TextStore
from rlm_memory_host.errors import HostError

Verdict = Literal["useful", "wrong", "stale"]
FILE: Final = "activation.json"
DAMAGED: Final = "ACTIVITY_DAMAGED"
KEEP_SECONDS: Final = 30.0
MOST: Final = 200_000
"""Memories whose use is kept; those read longest ago go first."""
_FORMAT: Final = 1
_VERDICTS: Final[Mapping[str, Verdict]] = {"useful": "useful", "wrong": "wrong", "stale": "stale"}


@dataclass(frozen=True, slots=True)
class Use:
    """How one memory was used. Times are ISO 8601 in UTC, "" for never."""

    read_at: str = ""
    reads: int = 0
    repeats: int = 0
    verdict: Verdict | None = None
    judged_at: str = ""


class Activity:
    """Uses by memory id, over one store's file."""

    def __init__(self, store: TextStore, on_fault: Callable[[str, str], None] = lambda _feature, _code: None) -> None:
        self._store = store
        self._on_fault = on_fault
        self._kept: dict[str, Use] | None = None
        self._since: dict[str, Use] = {}
        self._lock = threading.Lock()
        self._keeping = threading.Lock()
        self._kept_at = time.monotonic()

    def of(self, memory_id: str) -> Use:
        """How a memory was used so far, here and by others up to their last keeping."""
        with self._lock:
            return _sum(self._loaded().get(memory_id, Use()), self._since.get(memory_id, Use()))

    def read(self, memory_id: str, ts: str) -> None:
        """It was given to somebody."""
        self._add(memory_id, Use(read_at=ts, reads=1))

    def repeated(self, memory_id: str) -> None:
        """The same was said again."""
        self._add(memory_id, Use(repeats=1))

    def judged(self, memory_id: str, verdict: Verdict, ts: str) -> None:
        """Somebody found it useful, wrong or stale."""
        self._add(memory_id, Use(verdict=verdict, judged_at=ts))

    def is_unkept(self) -> bool:
        """Whether something happened since the last keeping."""
        return bool(self._since)

    def is_due(self) -> bool:
        """Whether it is time to keep what happened."""
        return self.is_unkept() and time.monotonic() - self._kept_at >= KEEP_SECONDS

    def keep(self) -> None:
        """Put what happened here into the file. One at a time; a failure leaves it for the next time."""
        if not self._since or not self._keeping.acquire(blocking=False):
            return
        self._kept_at = time.monotonic()
        try:
            with self._store.lock():
                kept, gone = self._read_file(), _purged(self._store)
                with self._lock:
                    since, self._since = self._since, {}
                    merged = kept | {name: _sum(kept.get(name, Use()), use) for name, use in since.items()}
                    self._kept = _newest({name: use for name, use in merged.items() if name not in gone})
                    data = _packed(self._kept)
                self._store.keep_derived(FILE, data)
                if self._store.derived(FILE) != data:
                    self._take_back(kept, since)
        except (HostError, OSError):
            return
        finally:
            self._keeping.release()

    def _take_back(self, kept: dict[str, Use], since: Mapping[str, Use]) -> None:
        """What could not be written happened since the last keeping, still."""
        with self._lock:
            self._kept = kept
            self._since = self._since | {name: _sum(use, self._since.get(name, Use())) for name, use in since.items()}

    def _add(self, memory_id: str, use: Use) -> None:
        with self._lock:
            self._since[memory_id] = _sum(self._since.get(memory_id, Use()), use)

    def _loaded(self) -> dict[str, Use]:
        if self._kept is None:
            self._kept = self._read_file()
        return self._kept

    def _read_file(self) -> dict[str, Use]:
        data = self._store.derived(FILE)
        found = {} if data is None else _unpacked(data)
        if found is None:
            self._on_fault("recall", DAMAGED)
        return found or {}


def without(data: bytes, gone: frozenset[str]) -> bytes | None:
    """A kept file without some memories, for a purge; None for one that cannot be read."""
    kept = _unpacked(data)
    return None if kept is None else _packed({name: use for name, use in kept.items() if name not in gone})


# -- pure --------------------------------------------------------------------------------------------------------------
def _sum(before: Use, more: Use) -> Use:
    judged = more if more.verdict and more.judged_at >= before.judged_at else before
    return Use(
        max(before.read_at, more.read_at),
        before.reads + more.reads,
        before.repeats + more.repeats,
        judged.verdict,
        judged.judged_at,
    )


def _newest(uses: dict[str, Use]) -> dict[str, Use]:
    if len(uses) <= MOST:
        return uses
    order = sorted(uses, key=lambda name: (max(uses[name].read_at, uses[name].judged_at), name), reverse=True)
    return {name: uses[name] for name in order[:MOST]}


def _purged(store: TextStore) -> frozenset[str]:
    return frozenset(str(memory_id) for row in store.rows(Log.PURGES) for _, memory_id in row.get("memories", ()))


def _packed(uses: Mapping[str, Use]) -> bytes:
    rows = {
        name: [use.read_at, use.reads, use.repeats, use.verdict or "", use.judged_at]
        for name, use in sorted(uses.items())
    }
    return json.dumps({"format": _FORMAT, "uses": rows}, separators=(",", ":")).encode()


def _unpacked(data: bytes) -> dict[str, Use] | None:
    try:
        told: Any = json.loads(data)
        rows = cast("dict[str, list[Any]]", told["uses"]) if told["format"] == _FORMAT else None
        return None if rows is None else {name: _use(row) for name, row in rows.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _use(row: list[Any]) -> Use:
    read_at, reads, repeats, verdict, judged_at = row
    if not all(isinstance(item, str) for item in (read_at, verdict, judged_at)):
        raise TypeError("a time is no text")
    for text in (read_at, judged_at):
        # What is no time would count as later than every time for good.
        if text:
            datetime.fromisoformat(text)
    if not all(isinstance(item, int) and item >= 0 for item in (reads, repeats)):
        raise TypeError("a count is no number")
    return replace(Use(read_at, reads, repeats, judged_at=judged_at), verdict=_VERDICTS.get(verdict))
