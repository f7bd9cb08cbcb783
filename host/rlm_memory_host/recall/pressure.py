"""What is given up first as a context fills up: a fixed order, visible. Pure, but for the small board of sessions.

Owns: the ladder, at which fullness a step begins, and how far a session is down it. Does not own: measuring a context
(its agent host tells), the audit log, what a tier looks like (`resident`).

First the tier of the resident text, then how many and how long items are, then all but P0 and the sure ones, then a
single line, then none. A step that was taken is taken back only when the context is `SLACK` emptier than where the step
begins, so that a context about there does not change its text with every turn. A compacted context starts at the top.
The fractions are ours: early enough that two steps are taken before harnesses compact by themselves.

Source: design page "Recall", Resident text; DSH memory plugin, Degradation order.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Literal

from rlm_memory_host.recall.budget import KEPT_SESSIONS, Bounds
from rlm_memory_host.recall.resident import Tier

SLACK: Final = 0.05


@dataclass(frozen=True, slots=True)
class Step:
    """One level of pressure and what it leaves. It begins where the fraction `begins` of a context is used."""

    tier: Tier
    bounds: Bounds
    reason: str
    begins: float
    only_important: bool = False


_FEWER: Final = Bounds(items=3, item_chars=600, call_chars=2_000)
_ONE: Final = Bounds(items=1, item_chars=300, call_chars=300)

LADDER: Final = (
    Step("full", Bounds(), "", 0.0),
    Step("compact", Bounds(), "resident-compact", 0.60),
    Step("minimal", Bounds(), "resident-minimal", 0.70),
    Step("minimal", _FEWER, "fewer-and-shorter", 0.80),
    Step("minimal", _FEWER, "important-only", 0.87, only_important=True),
    Step("single", _ONE, "single-line", 0.93, only_important=True),
    Step("none", _ONE, "none", 0.98, only_important=True),
)
"""`bounds` are of what an agent asks for itself; an injection holds no items from the single line on."""


def at(level: int) -> tuple[Step, tuple[str, ...]]:
    """The step of a level (0 is none) and the reasons of all steps up to it."""
    level = max(0, min(level, len(LADDER) - 1))
    return LADDER[level], tuple(step.reason for step in LADDER[1 : level + 1])


def level_of(used: float, level: int = 0) -> int:
    """The level at a fraction of a context that is used, coming from `level`."""
    reached = sum(1 for step in LADDER[1:] if used >= step.begins)
    while level > reached and used < LADDER[level].begins - SLACK:
        level -= 1
    return max(level, reached)


Move = tuple[Literal["pressure", "relief"], str]
"""One step down or up the ladder: which way, and the step's reason."""


@dataclass(frozen=True, slots=True)
class _Told:
    epoch: int
    level: int


class Pressure:
    """How far each session is down the ladder. Thread-safe; bounded; a restarted host waits to be told again."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, _Told] = OrderedDict()
        self._lock = threading.Lock()

    def told(self, session: str, epoch: int, used: float) -> tuple[Move, ...]:
        """A session's context is full to this fraction: the steps that are taken or taken back now, in order."""
        with self._lock:
            before = self._level(session, epoch)
            after = level_of(used, before)
            self._sessions[session] = _Told(epoch, after)
            self._sessions.move_to_end(session)
            while len(self._sessions) > KEPT_SESSIONS:
                self._sessions.popitem(last=False)
        if after >= before:
            return tuple(("pressure", LADDER[level].reason) for level in range(before + 1, after + 1))
        return tuple(("relief", LADDER[level].reason) for level in range(before, after, -1))

    def level(self, session: str, epoch: int) -> int:
        """The level of a session; 0 after a compaction, and where nobody told."""
        with self._lock:
            return self._level(session, epoch)

    def _level(self, session: str, epoch: int) -> int:
        told = self._sessions.get(session)
        return told.level if told is not None and told.epoch == epoch else 0
