"""Habits: corrections in the user's own words, counted by session, through two human gates."""

from __future__ import annotations

import pytest
from rlm_memory_host.textmemory import habits
from rlm_memory_host.textmemory.habits import Habit, Refusal, Signal


@pytest.mark.parametrize(
    "message",
    [
        "From now on use tabs.",
        "Always run the tests first.",
        "Please stop adding comments.",
        "I told you to use pytest.",
        "Use ruff instead of black.",
        "I prefer short answers.",
        "Don't do that again.",
        "以后都用 tabs",
        "以后不要加注释。",
        "不要再用 black 了",
        "我说过用 pytest",
        "应该用 ruff 而不是 black",
        "统一使用制表符",
        "我更喜欢简短的回答",
    ],
)
def test_corrections_are_detected(message: str) -> None:
    """English and Chinese phrases of correction."""
    assert habits.detect(message) == (message,)


@pytest.mark.parametrize(
    "message",
    [
        "The build is green.",
        "> From now on use tabs.",
        "```\nAlways use tabs.\n```",
        '"Always use tabs."',
        "用户说：以后都用 tabs",
        "2026-01-01 12:00 INFO always use tabs",
        "Should I always use tabs?",
        "I have always loved tea",
        "从这里开始看",
        "Always " + "x" * 400,
    ],
)
def test_what_is_no_correction_of_the_user(message: str) -> None:
    """Statements, pasted and quoted text, questions, over-long segments."""
    assert habits.detect(message) == ()


def observe(times: int, session: str = "s1", known: list[Habit] | None = None, text: str = "Always use tabs.") -> Habit:
    on_file = list(known or [])
    found = Habit("", "")
    for _ in range(times):
        found = habits.observe(on_file, Signal(text, session, ts="2026-01-01T00:00:00Z"))
        on_file = [item for item in on_file if item.id != found.id] + [found]
    return found


def test_repeats_in_one_session_count_once_towards_auto() -> None:
    """Fifty repeats propose a habit and still cannot make it automatic."""
    habit = observe(50)
    assert (habit.state, habit.sessions, habit.count) == ("pending", ("s1",), 50)
    suggested = habits.confirm(habit, ts="t")
    assert isinstance(suggested, Habit)
    refused = habits.promote(suggested, ts="t")
    assert isinstance(refused, Refusal)
    assert refused.code == "HABIT_SESSIONS"


def test_two_human_gates_lead_to_auto() -> None:
    """pending, confirmed, promoted; no step can be left out."""
    habit = observe(2, "s2", [observe(2, "s1")])
    assert habit.state == "pending"
    assert isinstance(habits.promote(habit, ts="t"), Refusal)
    suggested = habits.confirm(habit, ts="t")
    assert isinstance(suggested, Habit)
    assert habits.injected([suggested], None) == ()
    auto = habits.promote(suggested, ts="t")
    assert isinstance(auto, Habit)
    assert habits.injected([auto], None) == (auto,)


def test_no_number_of_signals_opens_a_gate() -> None:
    """Signals alone never get a habit past pending."""
    known: list[Habit] = []
    for number in range(20):
        known = [observe(5, f"s{number}", known)]
    assert known[0].state == "pending"
    assert habits.injected(known, None) == ()


def test_a_deleted_pattern_is_never_learned_again() -> None:
    """Three new sessions of it are shown as seen again, and paraphrases meet the same tombstone."""
    gone = habits.delete(observe(3), ts="t")
    assert gone.evidence == ()
    for number, text in enumerate(["Always use tabs.", "always use TABS", "Please always use tabs"]):
        gone = habits.observe([gone], Signal(text, f"new{number}"))
    assert (gone.state, gone.seen_again) == ("deleted", 3)


def test_paraphrases_are_one_pattern_and_opposites_are_two() -> None:
    """Stems decide, and what a sentence denies is another pattern."""
    assert habits.same_pattern("Always use tabs.", "from now on, use tabs")
    assert habits.same_pattern("以后都用 tabs", "以后请用 tabs")
    assert not habits.same_pattern("Always use tabs.", "Never use tabs.")
    assert not habits.same_pattern("Always use tabs.", "Always run the tests.")


def test_a_habit_of_another_preset_is_not_injected() -> None:
    """The preset is part of the habit's key."""
    auto = Habit("hab_1", "use tabs", state="auto", preset="coder")
    assert habits.injected([auto], "coder") == (auto,)
    assert habits.injected([auto], "writer") == ()
    assert habits.injected([auto], None) == ()


def test_rows_come_back_as_they_went() -> None:
    """Odd rows fall back to the harmless state."""
    habit = observe(4)
    assert habits.from_row(habits.to_row(habit)) == habit
    assert habits.from_row({"id": "hab_1", "state": "emperor", "sessions": "x"}).state == "signal"
