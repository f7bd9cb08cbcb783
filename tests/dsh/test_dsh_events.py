"""What a session's header and records mean: pure functions over the shapes of both header versions."""

from __future__ import annotations

from typing import Any

import pytest
from rlm_memory_host.contracts.capture import SessionEvent
from rlm_memory_host.dsh.events import Reader
from rlm_memory_host.dsh.header import parse_header


@pytest.mark.parametrize(
    ("header", "agent"),
    [
        ({"version": 0}, "root"),
        ({"version": 4, "isSeeded": False}, "root"),
        ({"version": 4, "delegationDepth": 0}, "root"),
        ({"version": 4, "origin": "subagent"}, "child"),
        ({"version": 0, "origin": "subagent", "delegationDepth": 1}, "child"),
        ({"version": 4, "delegationDepth": 2}, "child"),
        ({"version": 1}, None),
        ({"version": 5}, None),
        ({"version": 4, "origin": "something-new"}, None),
        ({"version": 4, "origin": 7}, None),
        ({"version": 4, "delegationDepth": "1"}, None),
        ({"version": 4, "delegationDepth": -1}, None),
    ],
)
def test_root_and_child_are_told_and_never_guessed(header: dict[str, Any], agent: str | None) -> None:
    """An unknown version, origin or depth is neither."""
    found = parse_header({"id": "s", **header})
    assert found is not None
    assert found.agent == agent


@pytest.mark.parametrize("header", [None, [], {}, {"id": "", "version": 4}, {"id": "s"}, {"id": "s", "version": True}])
def test_what_is_no_header_gives_none(header: object) -> None:
    """No id or no version: no header."""
    assert parse_header(header) is None


def read(*records: object) -> list[SessionEvent]:
    """The events of records in order."""
    reader = Reader("s")
    return [event for record in records for event in reader.read(record)]


def start(seq: int, turn: int) -> dict[str, Any]:
    """A turn's start."""
    return {"type": "turn/start", "seq": seq, "data": {"turn": turn}}


def end(seq: int, turn: int, kind: str = "completed") -> dict[str, Any]:
    """A turn's end."""
    return {"type": "turn/end", "seq": seq, "data": {"turn": turn, "reason": {"kind": kind}}}


def said(seq: int, text: str, *, op: object = "append", **source: Any) -> dict[str, Any]:
    """A message in the user's role."""
    content = [{"type": "text", "text": text}, {"type": "image", "text": "no"}]
    data = {"role": "user", "source": source or {"kind": "user"}, "content": content}
    return {"type": "user/message", "seq": seq, "time": 1000, "surfaceOp": op, "data": data}


def answered(seq: int, text: str, *, turn: int = 1, call: bool = False, **more: Any) -> dict[str, Any]:
    """A message of the assistant's."""
    content: list[dict[str, Any]] = [{"type": "reasoning", "text": "hidden"}, {"type": "text", "text": text}]
    content += [{"type": "tool-call", "id": "c", "name": "bash"}] if call else []
    data = {"turn": turn, "message": {"content": content}, **more}
    return {"type": "assistant/message", "seq": seq, "surfaceOp": "append", "data": data}


def test_a_turn_gives_its_users_words_its_last_answer_and_its_end() -> None:
    """Answers with a tool call, earlier answers and reasoning are left out; times are UTC."""
    events = read(
        start(0, 1),
        said(1, "Why?"),
        answered(2, "Let me look", call=True),
        answered(3, "First"),
        answered(4, "So."),
        end(5, 1),
    )
    assert [(event.kind, event.seq, event.text, event.turn) for event in events] == [
        ("user", 1, "Why?", 1),
        ("assistant", 4, "So.", 1),
        ("turn_end", 5, "", 1),
    ]
    assert events[0].ts == "1970-01-01T00:00:01.000Z"
    assert events[-1].reason == "completed"


@pytest.mark.parametrize("last", [answered(3, "half", interrupted=True), answered(3, "more", call=True)])
def test_a_turn_whose_last_word_is_no_answer_has_none(last: dict[str, Any]) -> None:
    """An interrupted message, or one with a tool call, stands for no earlier one."""
    assert [event.kind for event in read(start(0, 1), answered(2, "So"), last, end(4, 1))] == ["turn_end"]


@pytest.mark.parametrize(
    "record",
    [
        said(1, "x", kind="plugin", plugin="some"),
        said(1, "x", kind="rlm-memory"),
        said(1, "x", kind="runtime-context", form="snapshot"),
        said(1, "x", op={"replace": 0}),
        said(1, "x", kind=7),
    ],
)
def test_a_message_that_no_person_wrote_has_no_words_here(record: dict[str, Any]) -> None:
    """It is told as injected, so that it is counted, and without its text."""
    [event] = read(record)
    assert (event.text, event.source.startswith("plugin:")) == ("", True)


@pytest.mark.parametrize(
    "record",
    [
        None,
        "turn/end",
        {"type": "turn/end"},
        {"type": "turn/end", "seq": -1},
        {"type": "user/message", "seq": True},
        {"type": "tool/result", "seq": 1, "data": {"content": [{"type": "text", "text": "x"}]}},
        {"type": "assistant/chunk", "seq": 1, "data": {}},
        {"type": "system/message", "seq": 1, "data": {}},
    ],
)
def test_everything_else_gives_nothing(record: object) -> None:
    """Tool results, chunks, system text and what has no shape at all."""
    assert read(record) == []


def test_records_without_their_data_end_no_reader() -> None:
    """Fields of wrong types are empty, not errors."""
    records = [
        {"type": kind, "seq": 1, "time": 1e300, "data": 7} for kind in ("user/message", "assistant/message", "turn/end")
    ]
    assert [event.text for event in read(*records)] == ["", ""]
