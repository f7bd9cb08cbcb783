"""A model asked about habits over real HTTP: once a session, within its bounds, and the rules stand when it fails."""

from __future__ import annotations

import json

import pytest
from model_server import ModelServer
from rlm_memory_host.contracts.judging import JudgeModel
from rlm_memory_host.textmemory import review
from rlm_memory_host.textmemory.habit_judging import SLICE_CHARS
from rlm_memory_host.textmemory.judging import HttpJudge
from scenes import Scene


def corrected(model: JudgeModel | None, *texts: str, session: str = "s1", scene: Scene | None = None) -> Scene:
    scene = scene or Scene(model=model)
    for text in texts:
        scene.user(text, session)
        message = scene.capture.latest_user_message(session)
        assert message is not None
        scene.memory.observe(message, None)
    return scene


TABS = ("From now on always use tabs.", "Always use tabs.", "Please always use tabs.")
TESTS = ("以后每次都先跑测试。", "每次都先跑测试。", "以后都先跑测试。")


@pytest.mark.parametrize("texts", [TABS, TESTS])
@pytest.mark.parametrize(("habit", "state"), [(True, "pending"), (False, "signal")])
def test_a_yes_makes_it_pending_and_a_no_leaves_it_counted(
    server: ModelServer, texts: tuple[str, ...], habit: bool, state: str
) -> None:
    """One question of at most five slices of 300 characters; a no holds for its session, a yes waits for a person."""
    server.answer = json.dumps({"habit": habit, "same_as": None})
    scene = corrected(server.judge, *texts, *texts, *texts)
    (found,) = scene.memory.habits()
    assert found.state == state
    assert found.count == 9
    assert len(server.asked) == 1
    assert len(server.asked[0]["corrections"]) <= 5
    assert all(len(text) <= SLICE_CHARS for text in server.asked[0]["corrections"])
    assert scene.memory.judge_fallback == ""


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, '{"habit": false, "same_as": null}'),
        (200, "yes, it is one"),
        (200, '```json\n{"habit": false, "same_as": null}\n```'),
        (200, '{"habit": false}'),
        (200, '{"habit": "no", "same_as": null}'),
        (200, '{"habit": true, "same_as": "hab_unknown"}'),
        (200, '{"habit": false, "same_as": null, "state": "auto"}'),
    ],
)
def test_a_broken_judge_leaves_the_rules_and_says_so(server: ModelServer, status: int, answer: str) -> None:
    """Pending as without a model; the status names the fallback."""
    server.status, server.answer = status, answer
    scene = corrected(server.judge, *TABS)
    (found,) = scene.memory.habits()
    assert (found.state, found.count) == ("pending", 3)
    assert scene.memory.judge_fallback in ("judge-failed", "judge-answer")


def test_a_judge_that_is_not_there_leaves_the_rules(unused_port: int) -> None:
    """Nobody listens."""
    scene = corrected(HttpJudge(f"http://127.0.0.1:{unused_port}/v1", "tiny", lambda: "k"), *TABS)
    assert [item.state for item in scene.memory.habits()] == ["pending"]
    assert scene.memory.judge_fallback == "judge-failed"


def test_the_same_habit_in_other_words_is_counted_with_the_known_one(server: ModelServer) -> None:
    """Its sessions are added, a person's gate is not opened by it, and a deleted one is only seen again."""
    server.answer = json.dumps({"habit": True, "same_as": None})
    scene = corrected(server.judge, *TABS)
    known = scene.memory.habits()[0]
    server.answer = json.dumps({"habit": True, "same_as": known.id})
    corrected(None, "Never indent with spaces again.", "Never indent with spaces again!",
              "Please never indent with spaces again.", session="s2", scene=scene)  # fmt: skip
    first, other = scene.memory.habits()
    assert (first.state, first.sessions) == ("pending", ("s1", "s2"))
    assert (other.state, other.count) == ("signal", 0)
    review.gate_habit(scene.memory, known.id, "delete")
    corrected(None, *["Stop indenting lines with blanks."] * 3, session="s3", scene=scene)
    states = [(item.state, item.seen_again) for item in scene.memory.habits()]
    assert states[0] == ("deleted", 3)


def test_without_a_model_nothing_is_asked() -> None:
    """Rules only, by default."""
    assert corrected(None, *TABS).memory.habits()[0].state == "pending"
