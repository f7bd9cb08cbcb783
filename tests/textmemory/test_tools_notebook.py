"""Text memory in a notebook: the arguments that go out, what comes back, how it looks."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from rlm_memory import errors, textmemory, wire
from rlm_memory.finding import Host
from rlm_memory.steps import Ask, Meet, Steps
from rlm_memory_host.tools.memory_arguments import (
    ForgetArguments,
    MemoryCorrectArguments,
    MemoryRecordArguments,
    MemorySearchArguments,
    ReadArguments,
    RecallArguments,
)

MODELS = {
    "memory_search": MemorySearchArguments,
    "memory_recall": RecallArguments,
    "memory_record": MemoryRecordArguments,
    "memory_correct": MemoryCorrectArguments,
    "memory_read": ReadArguments,
    "memory_forget": ForgetArguments,
}


def answered(steps: Steps[Any], value: dict[str, Any]) -> Any:
    """Drive a call against a host that answers `value`; its arguments must fit the tool's own model."""
    sent: object = None
    while True:
        try:
            step = steps.send(sent)
        except StopIteration as done:
            return done.value
        if isinstance(step, Meet):
            sent = Host(True)
        else:
            assert isinstance(step, Ask)
            assert step.kind == wire.CALL
            MODELS[step.payload["name"]].model_validate(step.payload["arguments"])
            sent = wire.success(value, "text")


def test_hits_are_a_table_without_ids_and_times() -> None:
    """A cell run again, on another day, shows the same."""
    row = {"id": "mem_1", "kind": "memory", "title": "Limit", "text": "10 rows", "layer": "project", "date": "2026"}
    found = answered(textmemory.search("limit", kind="fact", at="2026-01-01", scope="project"), {"results": [row]})
    assert (found[0].id, len(found), [item.title for item in found]) == ("mem_1", 1, ["Limit"])
    assert repr(found).split("\n")[1].split() == ["0", "Limit", "10", "rows", "project"]
    assert "mem_1" not in repr(found) + found._repr_html_()
    assert repr(answered(textmemory.search(), {"results": []})) == "nothing found"


def test_stored_text_cannot_leave_its_cell() -> None:
    """Markup is escaped, control and direction characters are shown as escapes."""
    row = {"id": "mem_1", "title": "<script>\u202e", "text": "<b>x</b>\x1b[31m", "labels": ["<i>"]}
    found = answered(textmemory.recall("anything"), {"items": [row]})
    for html in (found._repr_html_(), found[0]._repr_html_()):
        assert "<script>" not in html
        assert "<b>" not in html
        assert not {"\x1b", "\u202e"} & set(html)
    assert not {"\x1b", "\u202e"} & set(repr(found))


@pytest.mark.parametrize("state", ["active", "duplicate", "candidate", "conflict", "signal", "confirm", "refused"])
def test_a_write_says_what_became_of_it(state: str) -> None:
    """In words, with warnings and choices."""
    value = {
        "id": "mem_1",
        "relation": "NEW",
        "state": state,
        "scope": "project",
        "version": 1,
        "warnings": ["careful"],
        "choices": [{"id": "mem_2", "title": "Tea"}],
    }
    written = answered(textmemory.record("note", title="t", tags=["a"], kind="fact", scope="project"), value)
    corrected = answered(textmemory.correct("new", id="mem_1", expected_version=1, verdict="wrong"), value)
    assert written == corrected
    assert "careful" in repr(written)
    assert "Tea" in repr(written)
    assert pickle.loads(pickle.dumps(written)) == written


def test_read_and_forget_carry_their_arguments() -> None:
    """Ids whole; a forget says what remains."""
    found = answered(textmemory.read("mem_1", "resident", history=True), {"items": [{"id": "mem_1", "text": "x"}]})
    assert found[0].text == "x"
    moved = answered(
        textmemory.forget("mem_1", action="forget", quote="Forget it."),
        {"id": "mem_1", "action": "forget", "state": "done", "remains": ["history"]},
    )
    assert "history" in repr(moved)


@pytest.mark.parametrize("tags", ["lab", 7])
def test_one_text_is_not_taken_apart_into_tags(tags: Any) -> None:
    """Its letters would have become the tags."""
    with pytest.raises(errors.Invalid, match="tags must be a list of texts"):
        next(textmemory.record("The valve is steel.", tags=tags))


def test_a_wrong_argument_is_named_before_anything_is_asked() -> None:
    """Text is text."""
    for call in (textmemory.search(3), textmemory.record(None), textmemory.read(1)):  # type: ignore[arg-type]
        with pytest.raises(errors.Invalid):
            answered(call, {})
