"""The harness's own logs, as both released lines write them: what the bridge lost is captured later, nothing twice."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harnesses import Harness
from hosts import host_says
from stub_model import Call, Fail, Model, Say

pytestmark = [pytest.mark.dsh, pytest.mark.timeout(240)]

Run = Callable[..., str]
Start = Callable[..., subprocess.Popen[bytes]]
NOTE = "Cohort seven gets the blue tape."


@pytest.fixture
def options(harness: Harness, tmp_path: Path) -> list[str]:
    """Settings with which a host follows this harness's logs."""
    config = tmp_path / "rlm-memory.toml"
    config.write_text(f"[dsh]\nhome = {json.dumps(str(harness.home))}\ntail = true\ntail_seconds = 1\n")
    config.chmod(0o600)
    return ["--config", str(config)]


def evidence(root: Path) -> list[tuple[str, int, str]]:
    """(session, sequence number, text) of all that was captured, as it lies on the disk."""
    rows = [
        json.loads(line) for path in root.glob("memory/*/evidence/*.ndjson") for line in path.read_text().splitlines()
    ]
    return sorted((row["session"], row["seq"], row["text"]) for row in rows)


def texts(captured: list[tuple[str, int, str]]) -> list[str]:
    """The words alone."""
    return [text for _, _, text in captured]


def log_status(root: Path) -> dict[str, Any]:
    """What the host tells of the logs."""
    status = host_says(root, {"type": "status"})
    assert status is not None
    return status["dsh_log"]


def wait_read(root: Path) -> dict[str, Any]:
    """Until two further passes have ended: all that the harness had written is read."""
    wanted = log_status(root)["passes"] + 2
    for _ in range(1200):
        told = log_status(root)
        if told["passes"] >= wanted:
            return told
        signal.sigtimedwait([], 0.05)
    pytest.fail("the host does not read the logs")


def wait_told(root: Path) -> None:
    """Until the bridge has told something that the log had given, or the log something that the bridge had."""
    for _ in range(1200):
        status = host_says(root, {"type": "status"})
        if status is not None and status["capture"].get("repeated", 0) > 0:
            return
        signal.sigtimedwait([], 0.05)
    pytest.fail("nothing was told twice")


def play(model: Model) -> None:
    """A turn with a tool call, one that fails, one that is cancelled, and one with a child."""
    model.plays["Please note"] = [Call("bash", {"description": "Look", "command": "echo hidden-result"}), Say("Noted.")]
    model.plays["Rosa"] = [Fail(400)]
    model.plays["Olaf"] = [Call("companion_cancel", {}), Say("Too late.")]
    model.plays["Ask a child"] = [
        Call("subagent", {"description": "Look", "prompt": "CHILD TASK: look"}),
        Say("Asked."),
    ]
    model.plays["CHILD TASK"] = [Say("The child is done.")]


PROMPTS = (
    ("one", f"Please note. {NOTE}"),
    ("one", "The oven is called Rosa."),
    ("one", "The freezer is called Olaf."),
    ("two", "Ask a child"),
)
WORDS = {f"Please note. {NOTE}", "Noted.", "Ask a child", "Asked."}


def test_what_happened_while_no_host_ran_is_captured_once_afterwards(
    harness: Harness,
    options: list[str],
    rlm_memory: Run,
    start_host: Start,
    model: Model,
    tmp_path: Path,
    state_root: Path,
) -> None:
    """Completed exchanges of roots alone; again after a restart, and by hand, nothing more."""
    rlm_memory("dsh", "install", "--no-start", *harness.options, *options)
    play(model)
    turns = harness.run(tmp_path / "work", *PROMPTS)
    assert [turn.reason for turn in turns] == ["completed", "error", "aborted", "completed"]
    host = start_host(*options)
    told = wait_read(state_root)
    captured = evidence(state_root)
    assert set(texts(captured)) >= WORDS
    assert told["behind_bytes"] == 0
    assert told["skipped"] == {"child-session": 1}
    for text in ("Rosa", "Olaf", "vermilion", "hidden-result", "CHILD TASK", "runtime context"):
        assert text not in json.dumps(captured), text
    host.terminate()
    host.wait()
    start_host(*options)
    wait_read(state_root)
    rlm_memory("dsh", "tail", "--once", *options)
    assert evidence(state_root) == captured


def test_bridge_and_log_together_capture_each_exchange_once(
    harness: Harness,
    options: list[str],
    rlm_memory: Run,
    start_host: Start,
    model: Model,
    tmp_path: Path,
    state_root: Path,
) -> None:
    """Both are on all the time, and one says what the other said."""
    start_host(*options)
    rlm_memory("dsh", "install", "--no-start", *harness.options, *options)
    for _ in range(600):
        if (state_root / "run" / "loopback.json").exists():
            break
        signal.sigtimedwait([], 0.05)
    play(model)
    harness.run(tmp_path / "work", *PROMPTS)
    wait_told(state_root)
    told = wait_read(state_root)
    captured = evidence(state_root)
    assert set(texts(captured)) >= WORDS
    assert len(captured) == len({(session, seq) for session, seq, _ in captured})
    assert texts(captured).count(f"Please note. {NOTE}") == 1
    assert told["behind_bytes"] == 0
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    assert status["capture"]["repeated"] > 0, status["capture"]
