"""Whole turns of a session's log, beside what is told live: each exchange is captured once, whoever is first."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.assembly.sessions import Sessions
from rlm_memory_host.capture import Capture
from rlm_memory_host.contracts.capture import Exchange, SessionEvent
from rlm_memory_host.contracts.memory import Evidence
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.guard import Guard


def turn(number: int, reason: str = "completed", words: str = "Use tabs") -> tuple[SessionEvent, ...]:
    """A whole turn: ten sequence numbers for each."""
    seq = 10 * number
    return (
        SessionEvent("s", seq, "user", text=f"{words} {number}.", ts=f"t{seq}", turn=number),
        SessionEvent("s", seq + 1, "assistant", text=f"Done {number}.", ts=f"t{seq + 1}", turn=number, source="model"),
        SessionEvent("s", seq + 2, "turn_end", turn=number, reason=reason),
    )


class Told:
    """A capture, what it kept and what it told on."""

    def __init__(self, kept: Sequence[Evidence] = ()) -> None:
        self.kept = list(kept)
        self.exchanges: list[Exchange] = []
        self.capture = Capture(
            on_evidence=self.kept.append, on_exchange=self.exchanges.append, kept=lambda _: tuple(self.kept)
        )
        self.capture.feed(SessionEvent("s", 0, "session", agent="root"))

    def live(self, events: Sequence[SessionEvent]) -> None:
        """A bridge tells these."""
        for event in events:
            self.capture.feed(event)

    @property
    def ids(self) -> list[str]:
        """What is evidence."""
        return [item.id for item in self.kept]


Order = Callable[[Told, tuple[SessionEvent, ...]], None]
ORDERS: dict[str, Order] = {
    "log alone": lambda told, events: _do(told.capture.reconcile(events)),
    "live, then log": lambda told, events: (told.live(events), _do(told.capture.reconcile(events)))[0],
    "log, then live": lambda told, events: (_do(told.capture.reconcile(events)), told.live(events))[1],
    "log while the turn runs": lambda told, events: (
        told.live(events[:1]),
        _do(told.capture.reconcile(events)),
        told.live(events),
    )[0],
    "log twice": lambda told, events: (_do(told.capture.reconcile(events)), _do(told.capture.reconcile(events)))[0],
}


def _do(_: object) -> None:
    pass


@pytest.mark.parametrize("order", ORDERS)
def test_a_turn_is_captured_once_whoever_tells_it_first(order: str) -> None:
    """One exchange, each message once, counted once."""
    told = Told()
    ORDERS[order](told, turn(1))
    assert told.ids == ["s:10", "s:11"]
    assert [exchange.turn for exchange in told.exchanges] == [1]
    assert told.capture.counters()["captured"] == 2


def test_a_turn_that_was_lost_in_the_middle_is_captured_later() -> None:
    """The bridge told turns 1 and 3; the log has 2 too. The latest message stays the latest."""
    told = Told()
    told.live(turn(1))
    told.live(turn(3))
    assert [told.capture.reconcile(turn(number)) for number in (1, 2, 3)] == [False, True, False]
    assert told.ids == ["s:10", "s:11", "s:30", "s:31", "s:20", "s:21"]
    latest = told.capture.latest_user_message("s")
    assert latest is not None
    assert latest.text == "Use tabs 3."


def test_a_late_turn_leaves_the_one_that_runs_alone() -> None:
    """Turn 3 runs while the log's turn 2 is taken; its end completes it."""
    told = Told()
    told.live(turn(3)[:2])
    assert told.capture.reconcile(turn(2))
    told.live(turn(3)[2:])
    assert told.ids == ["s:20", "s:21", "s:30", "s:31"]


def test_what_is_kept_is_known_after_a_restart() -> None:
    """Neither the log nor the bridge repeats it; half of a turn that was cut off is completed."""
    before = Told()
    before.live(turn(1))
    after = Told(before.kept)
    assert not after.capture.reconcile(turn(1))
    after.live(turn(1))
    assert after.ids == ["s:10", "s:11"]
    half = Told(before.kept[:1])
    assert half.capture.reconcile(turn(1))
    assert half.ids == ["s:10", "s:11"]


def test_numbers_that_changed_are_known_by_speaker_and_time() -> None:
    """A harness that moves a log to a new format counts its records anew."""
    told = Told()
    told.live(turn(2))
    moved = tuple(
        SessionEvent(
            "s", event.seq - 7, event.kind, event.text, event.ts, event.turn, event.source, reason=event.reason
        )
        for event in turn(2)
    )
    assert not told.capture.reconcile(moved)
    assert told.ids == ["s:20", "s:21"]


@pytest.mark.parametrize("reason", ["error", "aborted", "interrupted", ""])
def test_a_turn_that_did_not_end_well_leaves_nothing(reason: str) -> None:
    """Neither from the log, nor from what was told of it live; the bridge's own end changes nothing."""
    told = Told()
    told.live(turn(1, reason)[:1])
    assert not told.capture.reconcile(turn(1, reason))
    told.live(turn(1, reason))
    assert (told.ids, told.exchanges) == ([], [])
    assert told.capture.counters()["turn-not-completed"] == 1


def test_what_may_not_be_captured_live_may_not_be_from_a_log() -> None:
    """Injected text, a child's session, a session whose kind nobody told."""
    injected = SessionEvent("s", 10, "user", text="The colour is red.", turn=1, source="plugin:companion")
    told = Told()
    assert not told.capture.reconcile((injected, turn(1)[2]))
    assert told.capture.counters()["injected"] == 1
    for agent in ("child", None):
        other = Capture(on_evidence=told.kept.append)
        if agent is not None:
            other.feed(SessionEvent("s", 0, "session", agent="child"))
        assert not other.reconcile(turn(1))
    assert told.kept == []


class _Slow:
    """A store whose write of evidence waits until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def evidence(self, session: str, after: int = 0) -> Iterator[Evidence]:
        """Nothing is kept."""
        del session, after
        return iter(())

    def add_evidence(self, evidence: Evidence) -> None:
        """Wait."""
        del evidence
        self.begun.set()
        assert self.let_go.wait(30)

    def rows(self, log: object) -> tuple[object, ...]:
        """Nothing was purged."""
        del log
        return ()


def test_counting_while_a_turn_is_kept_locks_nobody_out(tmp_path: Path) -> None:
    """A status that asks in the middle of an exchange waits for it, and the exchange goes on to its end."""
    store: Any = _Slow()
    redaction: Any = Redaction(Guard([]), (tmp_path, tmp_path))
    health: Any = None
    sessions = Sessions(store, redaction, health, "me")
    scope = Scope("p", "s", tmp_path, "root")
    sessions.feed(scope, SessionEvent("s", 0, "session", agent="root"))
    taking = threading.Thread(target=lambda: sessions.reconcile(scope, turn(1)), daemon=True)
    counting = threading.Thread(target=sessions.counters, daemon=True)
    taking.start()
    assert store.begun.wait(30)
    counting.start()
    while not _is_in(counting, Path("capture") / "sessions.py"):
        signal.sigtimedwait([], 0.01)
    store.let_go.set()
    for thread in (taking, counting):
        thread.join(30)
        assert not thread.is_alive()


def _is_in(thread: threading.Thread, name: Path) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
    return frame is not None and frame.f_code.co_filename.endswith(str(name))
