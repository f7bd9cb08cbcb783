"""Kernels and hosts that restart, die, race and stop: who is served, as whom, and what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from host_harness import HostProcess, RawKernel, until
from rlm_memory import wire
from rlm_memory_host.process import identify

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]
SLOW_HOST = (str(Path(__file__).with_name("slow_host.py")),)
PROBE = """
import os, resource, sys
from rlm_memory_host.process import harden
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    # A changed uid makes a process unreadable until its next exec; undo that for the comparison.
    import ctypes; ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
ready, say = os.pipe(); go, let_go = os.pipe()
host = os.fork()
if host == 0:
    os.write(say, b"1"); os.read(go, 1)
    harden()
    os.write(say, b"2"); os.read(go, 1)
    os._exit(0)
def look(name):
    try:
        with open(f"/proc/{host}/{name}", "rb") as file: file.read(1) if name != "mem" else None
        return "read"
    except PermissionError: return "refused"
os.read(ready, 1)
print("before:", look("environ"))
os.write(let_go, b"1")
os.read(ready, 1)
print("after:", look("environ"), look("mem"), look("maps"))
os.write(let_go, b"1"); os.waitpid(host, 0)
"""
HELLO = {"protocol": 1, "extension": "0"}


def attached(host: HostProcess) -> list[dict[str, Any]]:
    return host.say({"type": "status"})["kernels"]


def entries(host: HostProcess) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (host.state_root / "attachments").glob("*.json")]


def test_a_restart_keeps_the_session_and_raises_the_generation(
    start_host: Callable[..., HostProcess], start_kernel: Callable[..., RawKernel]
) -> None:
    """The restarted kernel is served without attaching again, in the same folder; calls of before are over."""
    host, kernel = start_host(command=SLOW_HOST), start_kernel()
    first = host.attach(kernel)
    assert first["generation"] == 1
    folder = kernel.ask(wire.HELLO, **HELLO)["session_dir"]
    kernel.run("one = _send({'type': 'dsh_tools.call', 'name': 'slow_sleep', 'arguments': {'seconds': 60.0}})")
    old = kernel.run("", "_k.session.session")
    kernel.restart()
    hello = kernel.ask(wire.HELLO, **HELLO)
    assert (hello["session"], hello["generation"], hello["session_dir"]) == (first["session"], 2, folder)
    again = host.attach(kernel)
    assert (again["session"], again["generation"]) == (first["session"], 2)
    # What the process before had under way carries its header session: it is stale.
    late = kernel.run(f"late = _send({{'type': 'memory.ping'}}, header={{'session': {old!r}}})", "_wait(late)")
    assert late["code"] == "STALE_GENERATION"
    assert kernel.ask(wire.PING) == {"status": "ok"}
    kernel.restart()
    assert host.attach(kernel)["generation"] == 3
    until(lambda: attached(host)[0]["pid"] == kernel.pid, "the host knows the new process")


def test_a_kernel_that_is_gone_is_noticed_and_leaves_only_what_is_the_users(
    start_host: Callable[..., HostProcess], start_kernel: Callable[..., RawKernel]
) -> None:
    """Its calls end at once; with its connection file gone the attachment and an empty session folder go too."""
    host, kernel, other = start_host(command=SLOW_HOST), start_kernel(), start_kernel("other")
    session = host.attach(kernel)["session"]
    kept = host.state_root / "sessions" / host.attach(other)["session"] / "exports" / "kept.txt"
    kept.write_text("mine")
    other.manager.shutdown_kernel(now=True)
    kernel.run("one = _send({'type': 'dsh_tools.call', 'name': 'slow_sleep', 'arguments': {'seconds': 60.0}})")
    calls = host.state_root / "logs" / "calls.jsonl"
    until(lambda: calls.exists() and '"call"' in calls.read_text(), "the call runs")
    os.kill(kernel.pid, signal.SIGKILL)
    until(lambda: '"CANCELLED"' in calls.read_text(), "the call ends with its kernel", 10)
    Path(kernel.connection_file).unlink()
    until(lambda: not attached(host), "the attachment goes")
    assert not entries(host)
    until(lambda: not (host.state_root / "sessions" / session).exists(), "the empty folder goes")
    assert kept.read_text() == "mine"


def test_a_host_that_was_killed_takes_its_kernels_up_again(
    start_host: Callable[..., HostProcess], start_kernel: Callable[..., RawKernel]
) -> None:
    """Same session, same generation, nobody attached anew; the entry holds no key."""
    host, kernel = start_host(), start_kernel()
    first = host.attach(kernel)
    kernel.ask(wire.PING)
    key = json.loads(Path(kernel.connection_file).read_text())["key"]
    assert key not in json.dumps(entries(host))
    host.end(signal.SIGKILL)
    assert wire.socket_path(host.state_root).exists()
    again = start_host()
    hello = kernel.ask(wire.HELLO, **HELLO)
    assert (hello["session"], hello["generation"]) == (first["session"], 1)
    assert attached(again)[0]["pid"] == kernel.pid


def test_a_kernel_that_restarted_while_no_host_ran_keeps_its_session(
    start_host: Callable[..., HostProcess], start_kernel: Callable[..., RawKernel]
) -> None:
    """The entry of the dead process is not taken up, but the kernel that attaches again goes on with it."""
    host, kernel = start_host(), start_kernel()
    first = host.attach(kernel)
    host.end(signal.SIGKILL)
    kernel.restart()
    again = start_host()
    assert attached(again) == []
    second = again.attach(kernel)
    assert (second["session"], second["generation"]) == (first["session"], 2)


def test_entries_of_kernels_that_are_gone_are_dropped(start_host: Callable[..., HostProcess]) -> None:
    """A dead kernel, garbage and a left-over temp file do not keep a host from starting."""
    host = start_host()
    host.end()
    folder = host.state_root / "attachments"
    (folder / "garbage.json").write_text("{")
    (folder / ".x.json.1.tmp").write_text("half")
    entry = {
        "connection_file": "/nowhere/kernel.json", "fingerprint": "0" * 32, "pid": 1, "started": 1,
        "session": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "generation": 1, "cwd": "/", "extension": "0",
    }  # fmt: skip
    (folder / "dead.json").write_text(json.dumps(entry))
    again = start_host()
    assert attached(again) == []
    assert list(folder.iterdir()) == []


def test_two_hosts_race_for_one_kernel_and_one_wins(
    start_host: Callable[..., HostProcess], start_kernel: Callable[..., RawKernel]
) -> None:
    """The lease is taken by exactly one; when that host dies, the other may have it."""
    hosts, kernel = [start_host("a"), start_host("b")], start_kernel()
    answers: list[dict[str, Any]] = [{}, {}]

    def attach(index: int) -> None:
        answers[index] = hosts[index].attach(kernel)

    threads = [threading.Thread(target=attach, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer["status"] for answer in answers) == ["error", "ok"]
    winner = next(index for index, answer in enumerate(answers) if answer["status"] == "ok")
    assert answers[1 - winner]["code"] == "KERNEL_LEASED"
    assert kernel.ask(wire.HELLO, **HELLO)["session"] == answers[winner]["session"]
    hosts[winner].end(signal.SIGKILL)
    assert hosts[1 - winner].attach(kernel)["status"] == "ok"


def test_one_host_per_state_root(start_host: Callable[..., HostProcess]) -> None:
    """The second says who holds it and ends with 2; the first is unharmed."""
    first = start_host()
    second = start_host(listening=False)
    assert second.process.wait(30) == 2
    assert f"a host already runs for this state root (pid {first.process.pid})" in second.output.read_text()
    assert first.say({"type": "status"})["pid"] == first.process.pid


def test_a_state_root_that_was_removed_lets_no_second_host_in_and_ends_the_first(
    start_host: Callable[..., HostProcess],
) -> None:
    """Deleting the lock's file does not give the lock away; the first host notices, says so and ends."""
    first = start_host()
    first.process.send_signal(signal.SIGSTOP)
    shutil.rmtree(first.state_root)
    second = start_host(listening=False)
    assert second.process.wait(30) == 2
    assert f"a host already runs for this state root (pid {first.process.pid})" in second.output.read_text()
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(30) == 0
    assert "its state root was removed or replaced" in first.output.read_text()
    assert start_host().say({"type": "status"})["health"] == "active"


def test_stop_names_the_process_of_a_host_that_does_not_answer(start_host: Callable[..., HostProcess]) -> None:
    """A host that is halted cannot be asked: the command says which process it is; the host obeys once it goes on."""
    host = start_host()
    host.process.send_signal(signal.SIGSTOP)
    command = [sys.executable, "-m", "rlm_memory_host", "host", "stop", "--state-root", str(host.state_root)]
    told = subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)
    host.process.send_signal(signal.SIGCONT)
    assert told.returncode == 2
    assert f"a host (pid {host.process.pid}) listens but does not answer" in told.stderr
    assert host.process.wait(30) == 0


@pytest.mark.parametrize(("by", "obedient"), [("SIGTERM", False), ("stop", True)])
def test_shutdown_is_bounded_while_a_tool_runs(
    start_host: Callable[..., HostProcess],
    start_kernel: Callable[..., RawKernel],
    tmp_path: Path,
    by: str,
    obedient: bool,
) -> None:
    """Whether or not the tool looks at its flag: the caller is answered, the socket goes, the lock is free."""
    settings = "[host]\nshutdown_seconds = 3\n"
    host, kernel = start_host(command=SLOW_HOST, settings=settings), start_kernel()
    host.attach(kernel)
    mark = tmp_path / "mark"
    arguments = {"seconds": 600.0, "mark": str(mark), "obedient": obedient}
    kernel.run(f"one = _send({{'type': 'dsh_tools.call', 'name': 'slow_sleep', 'arguments': {arguments!r}}})")
    until(mark.exists, "the tool runs")
    if by == "stop":
        assert host.say({"type": "stop"})["status"] == "ok"
        assert host.process.wait(20) == 0
    else:
        assert host.end(getattr(signal, by)) == 0
    assert kernel.run("", "_wait(one)")["code"] == "REQUEST_SCOPE_CLOSED"
    assert not wire.socket_path(host.state_root).exists()
    assert start_host().process.poll() is None


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_do_not_depend_on_the_umask(
    start_host: Callable[..., HostProcess], start_kernel: Callable[..., RawKernel], umask: int
) -> None:
    """Folders 0700, files and the socket 0600; what the store publishes is read-only for us alone."""
    host, kernel = start_host(umask=umask), start_kernel()
    host.attach(kernel)
    hello = kernel.ask(wire.HELLO, **HELLO)
    (Path(hello["session_dir"]) / "exports" / "r").write_bytes(b"r")
    recorded = kernel.call(
        "memory_artifact_record", source_path=f"{hello['session_dir']}/exports/r", title="t", summary="s",
        query_fingerprint="0" * 64, source="s", source_version="1",
    )  # fmt: skip
    assert recorded["isError"] is False
    (Path(hello["session_dir"]) / "exports" / "r").unlink()
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [host.state_root, *host.state_root.rglob("*")]}
    assert all(mode == 0o700 for path, mode in modes.items() if path.is_dir())
    assert all(mode in {0o600, 0o400} for path, mode in modes.items() if not path.is_dir()), modes


def test_a_looser_folder_of_its_own_is_tightened(start_host: Callable[..., HostProcess]) -> None:
    """An older or careless set-up is put right at start."""
    host = start_host()
    host.end()
    for path in (host.state_root, host.state_root / "run", host.state_root / "sessions"):
        path.chmod(0o777)
    start_host()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (host.state_root, host.state_root / "run")} == {0o700}


def test_a_host_of_a_kernel_ends_when_idle_and_survives_its_starter(start_host: Callable[..., HostProcess]) -> None:
    """Only the one that a kernel started ends by itself."""
    mine = start_host("mine", settings="[host]\nidle_exit_minutes = 0.001\n")
    options = {"settings": "[host]\nidle_exit_minutes = 0.001\n", "arguments": ("--from-kernel",)}
    theirs = start_host("theirs", listening=False, **options)
    assert theirs.process.wait(30) == 0
    assert "ended (idle)" in theirs.output.read_text()
    assert mine.say({"type": "status"})["idle_exit_seconds"] is None


def test_the_host_is_unreadable_to_processes_of_its_own_user(tmp_path: Path) -> None:
    """Before `harden` an unprivileged process of the same user reads its environment; after it nothing of it."""
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    tmp_path.chmod(0o755)
    ended = subprocess.run([sys.executable, str(probe)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.split() == ["before:", "read", "after:", "refused", "refused", "refused"], ended.stderr


STRANGER = """
import json, os, socket, sys, time
peer = socket.socket(socket.AF_UNIX); peer.settimeout(20)
folder = os.open(sys.argv[1], os.O_RDONLY); peer.connect(f"/proc/self/fd/{folder}/host.sock")
line = json.loads(sys.argv[2])
if line.get("pid") == "mine": line["pid"] = os.getpid()
peer.sendall(json.dumps(line).encode() + b"\\n")
print(peer.makefile().readline())
"""


def stranger(host: HostProcess, kernel: RawKernel, **changes: Any) -> dict[str, Any]:
    """What the host answers to another process of the same user that speaks of the kernel's connection file."""
    line = {"type": "attach", "protocol": 1, "connection_file": kernel.connection_file, "cwd": "/tmp", **changes}
    folder = str(wire.socket_path(host.state_root).parent)
    command = [sys.executable, "-c", STRANGER, folder, json.dumps(line)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def told(kernel: RawKernel) -> dict[str, Any]:
    """What the hello says of the kernel; the epoch and the direct channel are the host's own and end with it."""
    said = kernel.ask(wire.HELLO, **HELLO)
    assert wire.parse_offer(said["direct"]) is not None
    return {name: value for name, value in said.items() if name not in ("epoch", "direct")}


def test_a_stranger_cannot_take_a_living_kernels_place(
    start_host: Callable[..., HostProcess], start_kernel: Callable[..., RawKernel]
) -> None:
    """Whatever it claims, the kernel keeps process, generation and folder, also in a host that starts again."""
    host, kernel = start_host(), start_kernel()
    early = stranger(host, kernel, pid="mine", extension="")
    assert (early["status"], early.get("code")) == ("error", "PEER_REFUSED")
    assert attached(host) == []
    first = host.attach(kernel)
    before = told(kernel)
    for _ in range(2):
        (known,) = entries(host)
        assert stranger(host, kernel, pid="mine", extension="")["code"] == "PEER_REFUSED"
        assert stranger(host, kernel, pid=kernel.pid, extension="x")["generation"] == 1
        assert stranger(host, kernel, pid=None, extension="x")["generation"] == 1
        assert stranger(host, kernel, type="prepare")["code"] == "PEER_REFUSED"
        assert entries(host) == [known]
        assert kernel.ask(wire.PING) == {"status": "ok"}
        assert told(kernel) == before
        assert attached(host)[0]["pid"] == kernel.pid
        host.end(signal.SIGKILL)
        host = start_host()
    assert host.attach(kernel)["session"] == first["session"]


def test_a_kernel_wins_its_place_back(
    start_host: Callable[..., HostProcess], start_kernel: Callable[..., RawKernel]
) -> None:
    """An entry in which another process stands for the kernel is put right by the kernel's own attach."""
    host, kernel = start_host(), start_kernel()
    first = host.attach(kernel)
    kernel.ask(wire.PING)
    host.end(signal.SIGKILL)
    (path,) = (host.state_root / "attachments").glob("*.json")
    entry = json.loads(path.read_text())
    own = identify(os.getpid())
    assert own is not None
    taken = {"pid": own.pid, "started": own.started, "generation": 2, "current": None, "past": [entry["current"]]}
    path.write_text(json.dumps({**entry, **taken}))
    again = start_host()
    assert kernel.ask(wire.PING, seconds=10)["code"] == "STALE_GENERATION"
    answer = again.attach(kernel)
    assert (answer["session"], answer["generation"]) == (first["session"], 3)
    assert kernel.ask(wire.PING) == {"status": "ok"}
