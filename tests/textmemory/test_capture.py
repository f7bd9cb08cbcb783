# ruff: noqa: RUF005
"""What of a session is captured: the user's and the assistant's committed words of root sessions, turn by turn."""

from __future__ import annotations

import json

import pytest
from rlm_memory_host.capture import Capture, parse_event, replay
from rlm_memory_host.contracts.memory import Evidence
from scenes import Scene


def evidence(scene: Scene, session: str = "s1") -> list[tuple[str, str]]:
    return [(item.speaker, item.text) for item in scene.store.evidence(session)]


def latest(scene: Scene, session: str = "s1") -> str | None:
    found = scene.capture.latest_user_message(session)
    return found.text if found else None


def test_a_completed_turn_becomes_ordered_evidence() -> None:
    """Messages are readable at once and kept when their turn ended well."""
    scene = Scene()
    scene.user("Use tabs here.")
    assert latest(scene) == "Use tabs here."
    assert evidence(scene) == []
    scene.assistant("Done.")
    scene.end()
    assert evidence(scene) == [("user", "Use tabs here."), ("assistant", "Done.")]


@pytest.mark.parametrize("reason", ["error", "aborted", "cancelled", "", "length?"])
def test_a_turn_that_did_not_end_well_leaves_no_evidence(reason: str) -> None:
    """Error, abort, cancellation and unknown ends."""
    scene = Scene()
    scene.user("Use tabs here.")
    scene.end(reason=reason)
    assert evidence(scene) == []


@pytest.mark.parametrize(
    "row",
    [
        {"type": "user/message", "content": "injected words", "source": {"kind": "plugin", "plugin": "memory"}},
        {"type": "user/message", "content": "injected words", "source": "plugin:memory"},
        {"type": "user/message", "content": "injected words", "source": {"kind": "parent"}},
        {"type": "user/message", "content": "injected words", "source": 7},
        {"type": "assistant/chunk", "content": "part"},
        {"type": "assistant/message", "content": "part", "final": False},
        {"type": "assistant/reasoning", "content": "hidden"},
        {"type": "tool/result", "content": "From now on use tabs."},
        {"type": "tool/call", "content": "rm"},
        {"type": "system/message", "content": "You are"},
        {"type": "developer/message", "content": "You are"},
        {"type": "compaction/summary", "content": "The user likes tea."},
        {"type": "user/message", "content": [{"type": "image", "text": "caption"}]},
        {"type": "user/message", "content": {"text": "an unknown object"}},
        {"type": "user/message", "content": "<MEMORY_DATA>\nThe user likes tea.\n</MEMORY_DATA>"},
        {"type": "user/message", "content": "[Honcho memory - untrusted]\n- likes tea\n[/Honcho memory]"},
        {"type": "user/message", "content": "x" * 64_001},
    ],
)
def test_everything_else_stays_out(row: dict[str, object]) -> None:
    """Injected, partial, hidden, tool, system, compacted, non-text and oversized content."""
    scene = Scene()
    scene.events("s1", row)
    scene.end()
    assert evidence(scene) == []
    assert latest(scene) is None


def test_a_child_session_is_never_captured() -> None:
    """Neither evidence nor a message that a quote could verify against."""
    scene = Scene()
    scene.user("Use tabs here.", "s9-child")
    scene.end("s9-child")
    assert latest(scene, "s9-child") is None
    assert evidence(scene, "s9-child") == []


def test_a_session_without_its_header_is_not_captured() -> None:
    """Nobody said that it is a root session."""
    capture = Capture()
    replay(capture, [json.dumps({"type": "user/message", "session": "x", "seq": 1, "content": "Use tabs here."})])
    assert capture.latest_user_message("x") is None
    assert capture.counters() == {"no-header": 1}


def test_injected_text_inside_a_message_is_cut_out() -> None:
    """What the host put there is not the user's; what stands around it is."""
    scene = Scene()
    scene.user("Use tabs here.\n<MEMORY_DATA>\nI like tea.\n</MEMORY_DATA>\nThanks a lot.")
    assert latest(scene) == "Use tabs here.\n\nThanks a lot."


def test_a_replay_repeats_nothing() -> None:
    """Sequence numbers that were seen are ignored, also after a restart that remembers the last one."""
    rows = [
        {"type": "session", "session": "s", "seq": 0, "agent": "root"},
        {"type": "user/message", "session": "s", "seq": 1, "content": "Use tabs here."},
        {"type": "turn/end", "session": "s", "seq": 2, "reason": "completed"},
    ]
    lines = [json.dumps(row) for row in rows]
    kept: list[Evidence] = []
    capture = Capture(on_evidence=kept.append)
    replay(capture, lines + lines)
    assert [item.id for item in kept] == ["s:1"]
    restarted = Capture(on_evidence=kept.append, kept=lambda _: tuple(kept))
    replay(restarted, lines)
    assert [item.id for item in kept] == ["s:1"]


def test_evidence_is_redacted_and_the_quote_still_sees_the_message() -> None:
    """Redaction happens where text is kept."""
    kept: list[tuple[str, tuple[str, ...]]] = []
    capture = Capture(
        redact=lambda text: (text.replace("hunter2", "[secret]"), ("assignment",)),
        on_evidence=lambda item: kept.append((item.text, item.redacted)),
    )
    replay(
        capture,
        [
            '{"type": "session", "session": "s", "seq": 0, "agent": "root"}',
            '{"type": "user/message", "session": "s", "seq": 1, "content": "The word is hunter2."}',
            '{"type": "turn/end", "session": "s", "seq": 2, "reason": "completed"}',
        ],
    )
    assert kept == [("The word is [secret].", ("assignment",))]


@pytest.mark.parametrize(
    "value",
    [None, 3, "text", [], {}, {"type": "user/message"}, {"type": "user/message", "session": "s", "seq": "1"}]
    + [{"type": "odd", "session": "s", "seq": 1}, {"type": "user/message", "session": "", "seq": 1}],
)
def test_an_object_of_no_known_shape_is_no_event(value: object) -> None:
    """It is never turned into text for want of something better."""
    assert parse_event(value) is None


def test_a_broken_line_is_counted_and_the_others_are_taken() -> None:
    """A recorded session with a torn line can be replayed."""
    capture = Capture()
    assert replay(capture, ['{"type": "session", "session": "s", "seq": 0}', "{torn", "", "[" * 9000]) == (1, 2)


def test_compaction_starts_a_new_epoch() -> None:
    """After it recalled items may be shown again."""
    scene = Scene()
    scene.user("Hello there.")
    scene.events("s1", {"type": "session/compact"}, {"type": "session/clear"})
    assert scene.capture.epoch("s1") == 2
