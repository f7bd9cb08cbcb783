"""Whole turns of the real runtimes of both lines, with the bridge installed and a model on the loopback."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from harnesses import Harness, finished
from hosts import host_says
from rlm_memory_host.bearer import existing_token
from stub_model import Call, Do, Fail, Model, Say

pytestmark = [pytest.mark.dsh, pytest.mark.timeout(240)]

Run = Callable[..., str]
Start = Callable[..., subprocess.Popen[bytes]]
NOTE = "Cohort seven gets the blue tape."
ASKED = "Which tape does cohort seven get?"
TITLE = "Counts by cohort seven"


@pytest.fixture
def installed(harness: Harness, rlm_memory: Run, start_host: Start, state_root: Path) -> Harness:
    """A home with the bridge, and a host that serves it."""
    start_host()
    rlm_memory("dsh", "install", "--no-start", *harness.options)
    wait_serving(state_root)
    return harness


def wait_serving(root: Path) -> None:
    """Until the host tells where it serves."""
    for _ in range(600):
        if (root / "run" / "loopback.json").exists():
            return
        signal.sigtimedwait([], 0.05)
    pytest.fail("the host does not serve the loopback API")


def folder_told(conversation: str) -> str:
    """The exports folder that a refusal named."""
    found = re.search(r"exports folder is (\S+?);", conversation)
    assert found is not None, conversation[-2000:]
    return found[1]


def wanted(path: str) -> Mapping[str, Any]:
    """The arguments of a record."""
    return {
        "source_path": path,
        "title": TITLE,
        "summary": "one column of counts",
        "query_fingerprint": hashlib.sha256(b"counts").hexdigest(),
        "source": "lab",
        "source_version": "1",
    }


def write_counts(conversation: str) -> Mapping[str, Any]:
    """A shell command that writes the result where it may be recorded from."""
    return {"description": "Write counts", "command": f"printf 'n\\n7\\n' > {folder_told(conversation)}/counts.csv"}


RECORDING = [
    Call("memory_artifact_record", wanted("/nowhere/counts.csv")),
    Call("bash", write_counts),
    Call("memory_artifact_record", lambda told: wanted(f"{folder_told(told)}/counts.csv")),
    Call("memory_record", {"note": NOTE, "kind": "decision", "quote": NOTE}),
    Say("Both are recorded."),
]


def counted(root: Path) -> dict[str, int]:
    """What the host counted of what it was told."""
    status = host_says(root, {"type": "status"})
    assert status is not None
    return status["capture"]


def wait_captured(root: Path, count: int) -> None:
    """Until the host captured so many messages; what was told before the last one is then kept."""
    for _ in range(600):
        if counted(root).get("captured", 0) >= count:
            return
        signal.sigtimedwait([], 0.05)
    pytest.fail(f"the host was not told of {count} messages")


def user_messages(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages in the user's role, as the harness logged them."""
    return [event["data"] for event in events if event["type"] == "user/message"]


def kind_of_ours(harness: Harness) -> dict[str, str]:
    """The source that the line asks for of a message of ours."""
    return {"kind": "plugin", "plugin": "rlm-memory"} if harness.line == "0.1" else {"kind": "rlm-memory"}


def test_a_turn_records_and_a_second_session_recalls(
    installed: Harness, model: Model, tmp_path: Path, state_root: Path
) -> None:
    """A result and a note through the bridge; in another process and session the note is injected, the result found."""
    work = tmp_path / "work"
    model.plays["Please record"] = RECORDING
    [first] = installed.run(work, ("first", f"Please record the counts. {NOTE}"))
    assert (first.reason, first.final) == ("completed", "Both are recorded.")
    recorded = first.results("memory_artifact_record")
    assert "exports folder" in recorded[0]
    experiment = re.search(r"exp_\w+", recorded[1])
    assert experiment is not None, recorded
    assert "NEW" in first.results("memory_record")[0]

    model.plays[ASKED] = [
        Call("memory_search", {"query": "counts cohort seven", "kind": "experiment-card"}),
        Say("Blue."),
    ]
    [second] = installed.run(work, ("second", ASKED))
    assert second.reason == "completed"
    ours = [message for message in user_messages(second.events) if message["source"] == kind_of_ours(installed)]
    assert len(ours) == 1
    injected = ours[0]["content"][0]["text"]
    assert injected.startswith("<MEMORY_DATA>")
    assert NOTE.removesuffix(".") in injected
    assert NOTE.removesuffix(".") in model.prompts(ASKED)[0]
    assert experiment[0] in second.results("memory_search")[0]
    told = counted(state_root)
    assert told["captured"] == 4, told
    assert "turn-not-completed" not in told


def test_a_session_goes_on_with_what_was_injected(installed: Harness, model: Model, tmp_path: Path) -> None:
    """A later turn goes on after our message, which is not put there a second time."""
    work = tmp_path / "work"
    model.plays["Please record"] = [Call("memory_record", {"note": NOTE, "kind": "decision"}), Say("Recorded.")]
    installed.run(work, ("first", "Please record it."))
    turns = installed.run(work, ("second", ASKED), ("second", "And once more?"))
    assert [turn.reason for turn in turns] == ["completed", "completed"]
    assert [len([m for m in user_messages(turn.events) if NOTE in json.dumps(m)]) for turn in turns] == [1, 0]


def test_a_child_neither_captures_nor_is_told_and_may_call_tools(
    installed: Harness, model: Model, tmp_path: Path, state_root: Path
) -> None:
    """A subagent's task mentions what memory holds: nothing is injected into it; its own note stays a candidate."""
    work = tmp_path / "work"
    model.plays["Please record"] = [Call("memory_record", {"note": NOTE, "kind": "decision"}), Say("Recorded.")]
    installed.run(work, ("first", "Please record it."))
    before = counted(state_root)["captured"]
    done = threading.Event()
    task = f"CHILD TASK: {ASKED}"
    wait = Do(lambda: done.wait(30), Say("It was asked."))
    model.plays["Ask a child"] = [Call("subagent", {"description": "Look it up", "prompt": task}), wait]
    model.plays["CHILD TASK"] = [
        Call("memory_search", {"query": "cohort seven tape"}),
        Call("memory_record", {"note": "The lamp of cohort nine is green.", "kind": "fact"}),
        Do(done.set, Say("The child is done.")),
    ]
    turns = installed.run(work, ("parent", "Ask a child"), ("parent", "Are you done?"))
    assert {turn.reason for turn in turns} == {"completed"}
    asked = [text for text in model.prompts("CHILD TASK") if "Ask a child" not in text]
    assert len(asked) >= 3
    assert "MEMORY_DATA" not in asked[0]
    assert NOTE in asked[1]
    assert "a person decides" in asked[2]
    assert counted(state_root)["captured"] == before + 4
    assert "child-session" not in counted(state_root)
    [last] = installed.run(work, ("third", "Which lamp has cohort nine?"))
    assert "green" not in json.dumps(user_messages(last.events))


def test_an_aborted_and_a_failed_turn_leave_nothing(
    installed: Harness, model: Model, tmp_path: Path, state_root: Path
) -> None:
    """Neither turn's words are found afterwards, and a message of another plugin never is."""
    work = tmp_path / "work"
    model.plays["Olaf"] = [Call("companion_cancel", {}), Say("Too late.")]
    model.plays["Rosa"] = [Fail(400)]
    model.plays["Bertha"] = [Say("Noted.")]
    search = {"kind": None, "query": "freezer oven centrifuge called companion secret colour vermilion"}
    told_all = Do(lambda: wait_captured(state_root, 5), Call("memory_search", search))
    model.plays["What is called what"] = [told_all, Say("That.")]
    turns = installed.run(
        work,
        ("one", "The freezer is called Olaf."),
        ("one", "The oven is called Rosa."),
        ("one", "The centrifuge is called Bertha."),
        ("one", "What is called what?"),
    )
    assert [turn.reason for turn in turns] == ["aborted", "error", "completed", "completed"]
    found = json.dumps(turns[-1].events)
    found = found.replace("The companion says: the secret colour is vermilion.", "").replace("colour vermilion", "")
    assert "Bertha" in found
    for word in ("Olaf", "Rosa", "vermilion"):
        assert word not in found
    told = counted(state_root)
    assert told["turn-not-completed"] == 2, told
    assert told["injected"] >= 2, told


def test_two_projects_at_once_never_see_each_other(installed: Harness, model: Model, tmp_path: Path) -> None:
    """Two harness processes record and ask at the same time, each in its own folder."""
    sides = {"left": "crimson", "right": "turquoise"}
    for side, colour in sides.items():
        note = {"note": f"The {side} reactor is painted {colour}.", "kind": "decision"}
        search = Call("memory_search", {"query": "reactor painted"})
        model.plays[f"Record the {side} one"] = [Call("memory_record", note), Say("Recorded.")]
        model.plays[f"Search on the {side}"] = [search, Say("Found.")]
    started = {
        side: installed.start(
            tmp_path / side, (f"{side}-1", f"Record the {side} one"), (f"{side}-2", f"Search on the {side} reactor")
        )
        for side in sides
    }
    for side, process in started.items():
        turns = finished(process)
        other = sides["right" if side == "left" else "left"]
        assert [turn.reason for turn in turns] == ["completed", "completed"]
        assert sides[side] in json.dumps(turns[1].events)
        assert other not in json.dumps(turns[1].events)


def test_a_turn_completes_without_a_host(
    harness: Harness, rlm_memory: Run, model: Model, tmp_path: Path, state_root: Path
) -> None:
    """None runs and none is started: the model is asked as if there were no memory."""
    rlm_memory("dsh", "install", "--no-start", *harness.options)
    model.plays["Hello"] = [Say("Hello.")]
    [turn] = harness.run(tmp_path / "work", ("one", "Hello"))
    assert (turn.reason, turn.final) == ("completed", "Hello.")
    assert host_says(state_root, {"type": "status"}) is None


def test_a_turn_completes_with_a_slow_host(installed: Harness, model: Model, tmp_path: Path, state_root: Path) -> None:
    """The host stands still: recall is given up after its time, and the turn goes on."""
    model.plays["Please record"] = [Call("memory_record", {"note": NOTE, "kind": "decision"}), Say("Recorded.")]
    installed.run(tmp_path / "work", ("first", "Please record it."))
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    stopped: list[int] = []

    def stop() -> None:
        os.kill(status["pid"], signal.SIGSTOP)
        stopped.append(status["pid"])

    model.plays["Stop it"] = [Do(stop, Say("It stands."))]
    model.plays[ASKED] = [Say("I do not know.")]
    try:
        turns = installed.run(tmp_path / "work", ("second", "Stop it"), ("second", ASKED))
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert [(turn.reason, turn.final) for turn in turns] == [
        ("completed", "It stands."),
        ("completed", "I do not know."),
    ]
    assert NOTE not in json.dumps(user_messages(turns[1].events))


def test_a_turn_completes_where_the_host_is_killed_in_the_middle(
    installed: Harness, model: Model, tmp_path: Path, state_root: Path
) -> None:
    """The tool call after the kill says so with its code, and the turn goes on to its end."""
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    kill = Do(lambda: os.kill(status["pid"], signal.SIGKILL), Call("memory_search", {"query": "tape"}))
    model.plays["Look it up"] = [Call("memory_search", {"query": "tape"}), kill, Say("It is gone.")]
    [turn] = installed.run(tmp_path / "work", ("one", "Look it up"))
    assert (turn.reason, turn.final) == ("completed", "It is gone.")
    before, after = turn.results("memory_search")
    assert "NO_HOST" not in before
    assert re.search("NO_HOST|HOST_LOST", after)


def test_the_bridge_starts_a_host_where_none_runs(
    harness: Harness, rlm_memory: Run, model: Model, tmp_path: Path, state_root: Path
) -> None:
    """The next turns have the tools: the host that was started serves by itself."""
    rlm_memory("dsh", "install", *harness.options)
    model.plays["Hello"] = [Do(lambda: wait_serving(state_root), Say("Hello."))]
    model.plays["Look it up"] = [Call("memory_status", {}), Say("Looked.")]
    harness.run(tmp_path / "work", ("one", "Hello"))
    [turn] = harness.run(tmp_path / "work", ("two", "Look it up"))
    assert turn.reason == "completed"
    assert len(turn.results("memory_status")) == 1


def test_a_removal_gives_the_rows_back_and_the_harness_runs_without_memory(
    installed: Harness, rlm_memory: Run, model: Model, tmp_path: Path, state_root: Path
) -> None:
    """Installed twice, removed once: the file is what it was, nothing of ours is left, no tool of ours is offered."""
    before = b"".join(
        line for line in installed.rows.read_bytes().splitlines(keepends=True) if b"rlm-memory" not in line
    )
    rlm_memory("dsh", "install", *installed.options)
    assert installed.rows.read_bytes() != before
    rlm_memory("dsh", "remove", *installed.options)
    assert installed.rows.read_bytes() == before
    assert not (installed.home / "memory").exists()
    assert existing_token(state_root, "loopback") is None
    model.plays["Hello"] = [Say("Hello.")]
    [turn] = installed.run(tmp_path / "work", ("one", "Hello"))
    assert turn.reason == "completed"
    assert "memory_search" not in json.dumps(model.asked[-1].get("tools"))
