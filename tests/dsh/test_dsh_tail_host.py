"""Logs and a running host: what the tailer captures is evidence once, beside a bridge, over kills and restarts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import host_says, stop_host
from rlm_memory_host.textmemory import purging
from rlm_memory_host.textmemory.opening import open_memory
from session_logs import Record, added, frame, header, turn, written

pytestmark = pytest.mark.kernel

Start = Callable[..., subprocess.Popen[bytes]]
HERE = Path(__file__).parent
PATIENCE = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A harness's home."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def configured(tmp_path: Path, home: Path) -> Callable[..., list[str]]:
    """`configured(tail=True)` gives the host's options for settings that name the home."""

    def make(*, tail: bool = True) -> list[str]:
        config = tmp_path / "rlm-memory.toml"
        config.write_text(
            "[loopback]\nenabled = true\n[dsh]\n"
            f"home = {json.dumps(str(home))}\ntail = {json.dumps(tail)}\ntail_seconds = 1\n"
        )
        config.chmod(0o600)
        return ["--config", str(config)]

    return make


def evidence(root: Path) -> list[tuple[str, str]]:
    """(session, text) of all that was captured, as it lies on the disk."""
    rows = [
        json.loads(line)
        for path in sorted(root.glob("memory/*/evidence/*.ndjson"))
        for line in path.read_text().splitlines()
    ]
    return [(row["session"], row["text"]) for row in rows]


def log_status(root: Path) -> dict[str, Any]:
    """What the host tells of the logs."""
    status = host_says(root, {"type": "status"})
    assert status is not None
    return status["dsh_log"]


def wait_passes(root: Path, more: int = 2) -> dict[str, Any]:
    """Until so many further passes have ended: what the files held before is read then."""
    wanted = log_status(root)["passes"] + more
    until = time.monotonic() + PATIENCE
    while (told := log_status(root))["passes"] < wanted:
        assert time.monotonic() < until, told
        signal.sigtimedwait([], 0.05)
    return told


def turns(*numbers: int, words: str = "Words") -> list[Record]:
    """The records of these turns."""
    return [record for number in numbers for record in turn(number, f"{words} {number}.", f"Answer {number}.")]


def captured(session: str, *numbers: int, words: str = "Words") -> list[tuple[str, str]]:
    """What these turns are as evidence."""
    return [(session, text) for number in numbers for text in (f"{words} {number}.", f"Answer {number}.")]


def test_off_by_default_and_read_once_by_hand(
    start_host: Start, configured: Callable[..., list[str]], home: Path, tmp_path: Path, state_root: Path
) -> None:
    """A host whose settings say nothing reads no log; `dsh tail --once` has it read them, once."""
    options = configured(tail=False)
    start_host(*options)
    written(home, header(4, "one", tmp_path / "work"), [frame(*turns(1, 2))])
    assert log_status(state_root) == {"state": "off", "passes": 0}
    for _ in range(2):
        told = run("tail", "--once", "--json", *options)
        assert json.loads(told.stdout)["turns"] == {"captured": 2}
        assert evidence(state_root) == captured("one", 1, 2)
    shown = run("status", "--home", str(home), *options)
    assert "turns captured: 2" in shown.stdout


def test_without_a_host_the_command_is_one_for_a_pass(
    configured: Callable[..., list[str]], home: Path, tmp_path: Path, state_root: Path
) -> None:
    """Nothing runs before or after; a torn tail is told by the exit code and read the next time."""
    options = configured(tail=False)
    last = frame(*turns(2))
    log = written(home, header(0, "one", tmp_path / "work"), [frame(*turns(1)), last[:-3]])
    told = run("tail", "--once", *options, code=1)
    assert "bytes behind in 1" in told.stdout
    assert evidence(state_root) == captured("one", 1)
    added(log, last[-3:])
    assert "0 bytes behind" in run("tail", "--once", *options).stdout
    assert evidence(state_root) == captured("one", 1, 2)
    assert host_says(state_root, {"type": "status"}) is None


def test_a_host_that_is_on_captures_what_is_added(
    start_host: Start, configured: Callable[..., list[str]], home: Path, tmp_path: Path, state_root: Path
) -> None:
    """Two projects, each session its own; a child's and an aborted turn's words are nowhere."""
    start_host(*configured())
    left, right = tmp_path / "left", tmp_path / "right"
    one = written(home, header(4, "one", left), [frame(*turns(1, words="Left"))])
    written(home, header(0, "two", right), [frame(*turns(1, words="Right"))])
    written(home, header(4, "three", left, origin="subagent", delegationDepth=1), [frame(*turns(1, words="Child"))])
    wait_passes(state_root)
    added(one, frame(*turn(2, "Secretly.", reason="aborted"), *turns(3, words="Left")))
    told = wait_passes(state_root)
    assert sorted(evidence(state_root)) == sorted(
        [*captured("one", 1, 3, words="Left"), *captured("two", 1, words="Right")]
    )
    assert told["skipped"] == {"child-session": 1}
    assert "vermilion" not in json.dumps(evidence(state_root))


def test_one_session_is_one_projects_in_the_log_and_on_the_bridge(
    start_host: Start, configured: Callable[..., list[str]], home: Path, tmp_path: Path, state_root: Path
) -> None:
    """A log of the same id in another project's folder is refused, as its bridge would be."""
    options = configured()
    start_host(*options)
    written(home, header(4, "one", tmp_path / "left"), [frame(*turns(1, words="Left"))])
    wait_passes(state_root)
    written(home, header(4, "one", tmp_path / "right"), [frame(*turns(2, words="Right"))])
    assert wait_passes(state_root)["skipped"] == {"denied": 1}
    assert evidence(state_root) == captured("one", 1, words="Left")


@pytest.mark.parametrize("first", ["log", "bridge"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_bridge_and_log_together_capture_once(
    start_host: Start,
    configured: Callable[..., list[str]],
    home: Path,
    tmp_path: Path,
    state_root: Path,
    first: str,
    is_restarted: bool,
) -> None:
    """Whoever is first, also where the host is another one by then; a turn that the bridge lost comes from the log."""
    options, work = configured(), tmp_path / "work"
    head = {"id": "one", "version": 4, "cwd": str(work), "delegationDepth": 0}

    def tell(*numbers: int) -> None:
        for number in numbers:
            tell_host(state_root, head, turns(number))

    def log() -> None:
        written(home, header(4, "one", work), [frame(*turns(1)), frame(*turns(2, 3))])
        wait_passes(state_root)

    start_host(*options)
    log() if first == "log" else tell(1, 3)
    if is_restarted:
        stop_host(state_root)
        start_host(*options)
    tell(1, 3) if first == "log" else log()
    tell(1, 2, 3)
    assert sorted(evidence(state_root)) == sorted(captured("one", 1, 2, 3))


def test_a_kill_between_capture_and_cursor_captures_once(
    start_host: Start, configured: Callable[..., list[str]], home: Path, tmp_path: Path, state_root: Path
) -> None:
    """The next host reads the same turns again, and knows them."""
    options = configured()
    written(home, header(4, "one", tmp_path / "work"), [frame(*turns(1)), frame(*turns(2))])
    host = subprocess.run([sys.executable, str(HERE / "killed_tail.py"), *options], check=False, timeout=PATIENCE)
    assert host.returncode == -signal.SIGKILL
    assert evidence(state_root) == captured("one", 1, 2)
    assert not list((state_root / "dsh").glob("tail/*.json"))
    start_host(*options)
    assert wait_passes(state_root)["behind_bytes"] == 0
    assert evidence(state_root) == captured("one", 1, 2)
    assert len(list((state_root / "dsh").glob("tail/*.json"))) == 1


def test_a_purged_session_does_not_come_back_from_its_log(
    configured: Callable[..., list[str]], home: Path, tmp_path: Path, state_root: Path
) -> None:
    """Also where every cursor is lost."""
    options = configured(tail=False)
    log = written(home, header(4, "one", tmp_path / "work"), [frame(*turns(1))])
    run("tail", "--once", *options)
    assert evidence(state_root) == captured("one", 1)
    store = open_memory(state_root).store
    plan = purging.plan(store, "session", "one")
    purging.apply(store, plan, plan.token, lambda: purging.plan(store, "session", "one"))
    assert evidence(state_root) == []
    for cursor in (state_root / "dsh" / "tail").iterdir():
        cursor.unlink()
    added(log, frame(*turns(2)))
    assert json.loads(run("tail", "--once", "--json", *options).stdout)["turns"] == {"left": 2}
    assert evidence(state_root) == []


def tell_host(root: Path, head: dict[str, Any], records: list[Record]) -> None:
    """What a bridge sends of a turn."""
    place, until = root / "run" / "loopback.json", time.monotonic() + PATIENCE
    while not place.exists():
        assert time.monotonic() < until, "the host does not serve the loopback API"
        signal.sigtimedwait([], 0.05)
    request = urllib.request.Request(
        json.loads(place.read_text())["url"] + "/v1/events",
        json.dumps({"header": head, "events": records}).encode(),
        {"Authorization": f"Bearer {(root / 'run' / 'loopback.token').read_text().strip()}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.status == 200


def run(*arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """`rlm-memory dsh …`."""
    command = [str(Path(sys.executable).with_name("rlm-memory")), "dsh", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert code is None or done.returncode in (code, 1 if arguments[0] == "status" else code), done.stderr
    return done
