"""The local socket and the command line: who may speak, what garbage does, what operators see."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from host_harness import HostProcess, say, until
from rlm_memory import wire
from rlm_memory_host.attach import door
from rlm_memory_host.attach.peer import credentials
from rlm_memory_host.errors import SettingsError
from rlm_memory_host.process import (
    FileLock,
    ProcessId,
    claim_state_root,
    host_lock,
    identify,
    open_private,
    private_folder,
    refuse_unsupported_platform,
)

pytestmark = pytest.mark.fronts


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rlm_memory_host", *arguments],
        capture_output=True, text=True, timeout=60, cwd=cwd, check=False, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.kernel
def test_garbage_on_the_socket_is_refused_and_survived(start_host: Callable[..., HostProcess], tmp_path: Path) -> None:
    """Each bad line has its code, no value comes back, and the next peer is served."""
    host = start_host()
    good: dict[str, Any] = {
        "type": "attach", "protocol": 1, "connection_file": str(tmp_path / "no.json"), "pid": os.getpid(),
        "cwd": str(tmp_path), "extension": "0",
    }  # fmt: skip
    for line, code in (
        (b"\n", "INVALID_REQUEST"),
        (b"planted\n", "INVALID_REQUEST"),
        (b"\xff\xfe\n", "INVALID_REQUEST"),
        (b"[" * 500_000 + b"\n", "INVALID_REQUEST"),
        (b"[]\n", "UNSUPPORTED_REQUEST"),
        (b'{"type": "planted"}\n', "UNSUPPORTED_REQUEST"),
        (b'{"type": ["attach"]}\n', "UNSUPPORTED_REQUEST"),
        (b"x" * (wire.MAX_LINE_BYTES + 10) + b"\n", "PAYLOAD_TOO_LARGE"),
        ({"type": "status", "verbose": "planted"}, "INVALID_REQUEST"),
        ({"type": "stop", "force": True}, "INVALID_REQUEST"),
        ({**good, "project": "planted"}, "INVALID_REQUEST"),
        ({**good, "pid": "1"}, "INVALID_REQUEST"),
        ({**good, "pid": -1}, "INVALID_REQUEST"),
        ({**good, "pid": 1 << 22}, "INVALID_ARGUMENT"),
        ({**good, "protocol": 2}, "UNSUPPORTED_VERSION"),
        ({**good, "cwd": "relative"}, "INVALID_REQUEST"),
        ({**good, "connection_file": "relative.json"}, "INVALID_REQUEST"),
        ({**good, "connection_file": "/etc/passwd"}, "INVALID_REQUEST"),
        (good, "INVALID_REQUEST"),
    ):
        answer = host.say(line)
        assert (answer["status"], answer["code"]) == ("error", code), str(line)[:60]
        assert "planted" not in json.dumps(answer)
    with host.dial() as silent, host.dial() as half:
        half.sendall(b'{"type": ')
        half.close()
        silent.close()
        assert host.say({"type": "status"})["status"] == "ok"
    crowd = [host.dial() for _ in range(100)]
    assert host.say({"type": "status"})["status"] == "ok"
    for peer in crowd:
        peer.close()
    assert host.process.poll() is None


@pytest.mark.kernel
def test_a_peer_that_says_nothing_is_let_go(start_host: Callable[..., HostProcess]) -> None:
    """Holding connections open without a line costs the peer its connection, not the host its service."""
    host = start_host()
    with host.dial() as peer:
        assert json.loads(peer.recv(4096))["code"] == "INVALID_REQUEST"
        assert peer.recv(10) == b""


@pytest.mark.kernel
def test_another_users_process_is_refused(start_host: Callable[..., HostProcess]) -> None:
    """First by the modes; and where those were opened by mistake, by the peer's uid."""
    if os.geteuid() != 0:
        # Only root can become another user; the pure check below holds everywhere.
        return
    host = start_host()
    path = wire.socket_path(host.state_root)
    code = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "peer = socket.socket(socket.AF_UNIX)\n"
        "try: peer.connect(sys.argv[1])\n"
        "except PermissionError: print('no entry'); sys.exit()\n"
        'try: peer.sendall(b\'{"type": "stop"}\\n\')\n'
        "except BrokenPipeError: pass\n"
        "print(peer.recv(4096).decode())\n"
    )

    def other_user() -> str:
        ended = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=False
        )
        return ended.stdout.strip() or ended.stderr

    assert other_user() == "no entry"
    for folder in [path.parent, *path.parent.parents]:
        if folder != Path(folder.anchor) and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    path.chmod(0o666)
    assert json.loads(other_user())["code"] == "PEER_REFUSED"
    assert host.say({"type": "status"})["status"] == "ok"


def test_the_peers_uid_comes_from_the_system() -> None:
    """Not from anything the peer says."""
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert credentials(here) == (os.getpid(), os.geteuid())


@pytest.mark.kernel
def test_the_lifeline_ends_with_the_host(start_host: Callable[..., HostProcess]) -> None:
    """A peer that keeps its connection sees the host go, whatever it sends meanwhile."""
    host = start_host()
    with host.dial() as peer:
        assert say(peer, {"type": "status"})["status"] == "ok"
        peer.sendall(b"noise\n" * 100)
        assert host.say({"type": "status"})["status"] == "ok"
        host.end(signal.SIGKILL)
        try:
            assert peer.recv(10) == b""
        except ConnectionResetError:
            pass  # the noise was not all read


@pytest.mark.kernel
def test_a_state_root_with_a_long_path_works(start_host: Callable[..., HostProcess], tmp_path: Path) -> None:
    """Socket addresses hold 107 bytes; the path may be longer."""
    name = "n" * 200
    host = start_host(name)
    shown = command("host", "status", "--state-root", str(tmp_path / name), "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["pid"] == host.process.pid
    ended = command("host", "stop", "--state-root", str(tmp_path / name), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "stopped\n")
    assert host.process.wait(10) == 0
    assert not wire.socket_path(host.state_root).exists()


@pytest.mark.kernel
def test_operators_see_and_stop_a_host(start_host: Callable[..., HostProcess], tmp_path: Path) -> None:
    """Status and stop for people and for programs, with their exit codes."""
    root = str(tmp_path / "state")
    none = command("host", "status", "--state-root", root, cwd=tmp_path)
    assert (none.returncode, "no host runs" in none.stdout) == (1, True)
    assert command("host", "stop", "--state-root", root, cwd=tmp_path).returncode == 0
    host = start_host()
    shown = command("host", "status", "--state-root", root, cwd=tmp_path)
    assert shown.returncode == 0
    assert f"pid {host.process.pid}, active" in shown.stdout
    ended = command("host", "stop", "--state-root", root, "--json", cwd=tmp_path)
    assert json.loads(ended.stdout) == {"stopped": True, "was_running": True}
    assert host.process.wait(10) == 0


def test_a_hung_host_is_told_from_none(tmp_path: Path) -> None:
    """A socket that nobody serves any more means that none runs."""
    private_folder(tmp_path / "state")
    door.listen(wire.socket_path(tmp_path / "state")).close()
    assert command("host", "status", "--state-root", str(tmp_path / "state"), cwd=tmp_path).returncode == 1


class TestCommandLine:
    def test_bad_use_is_two(self, tmp_path: Path) -> None:
        """Unknown commands and options, and settings that are refused: one line, no traceback."""
        bad = tmp_path / "bad.toml"
        bad.write_text("[artifacts]\nmax_cards = 'planted'\n")
        bad.chmod(0o600)
        for arguments in (
            ("hostt",),
            ("host", "walk"),
            ("host", "run", "--fast"),
            ("config", "show", "--config", str(bad)),
        ):
            ended = command(*arguments, cwd=tmp_path)
            assert ended.returncode == 2, arguments
            assert "Traceback" not in ended.stderr
            assert "planted" not in ended.stderr + ended.stdout
        assert "artifacts.max_cards" in command("host", "run", "--config", str(bad), cwd=tmp_path).stderr

    def test_version_and_help(self, tmp_path: Path) -> None:
        """Both end with 0 and load no server."""
        assert command("--version", cwd=tmp_path).stdout == "rlm-memory 0.1.0\n"
        assert "host" in command("--help", cwd=tmp_path).stdout
        code = (
            "import sys\nfrom rlm_memory_host.cli import main\nmain(['--version'])\n"
            "heavy = {'zmq', 'jupyter_client', 'tornado', 'asyncio', 'pandas', 'numpy'} & set(sys.modules)\n"
            "print(sorted(heavy))"
        )
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert shown.stdout.splitlines()[-1] == "[]"

    def test_config_show_round_trips(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is shown can be written into a file and means the same."""
        monkeypatch.delenv("RLM_MEMORY_STATE_ROOT", raising=False)
        root = str(tmp_path / "state")
        shown = command("config", "show", "--state-root", root, cwd=tmp_path)
        again = tmp_path / "again.toml"
        again.write_text(shown.stdout)
        again.chmod(0o600)
        one = json.loads(command("config", "show", "--json", "--state-root", root, cwd=tmp_path).stdout)
        two = json.loads(command("config", "show", "--json", "--config", str(again), cwd=tmp_path).stdout)
        assert one["settings"] == two["settings"]

    def test_a_project_file_that_reaches_too_far_stops_the_host(self, tmp_path: Path) -> None:
        """A host started in a hostile clone refuses, saying where the key belongs."""
        (tmp_path / "rlm-memory.toml").write_text(f"[artifacts]\nroot = '{tmp_path / 'theirs'}'\n")
        ended = command("host", "run", "--state-root", str(tmp_path / "state"), cwd=tmp_path)
        assert ended.returncode == 2
        assert "artifacts.root may not be set by a file in a project folder" in ended.stderr
        assert not (tmp_path / "state").exists()


class TestProcess:
    def test_windows_is_refused_by_name(self) -> None:
        """With what to do instead."""
        with pytest.raises(SettingsError, match="WSL"):
            refuse_unsupported_platform("win32")

    def test_a_shared_folder_is_not_taken_for_a_state_root(self, tmp_path: Path) -> None:
        """Tightening somebody's folder because of a typing error would lock others out."""
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        (shared / "foreign").touch()
        with pytest.raises(SettingsError, match="state_root"):
            claim_state_root(shared)
        assert stat.S_IMODE(shared.stat().st_mode) == 0o777

    def test_what_can_be_no_state_root_is_named_in_one_line(self, tmp_path: Path) -> None:
        """A file, something below a file, a link to itself, a place where no folder can be made."""
        (tmp_path / "file").touch()
        (tmp_path / "loop").symlink_to("loop")
        for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "loop", Path("/proc/none")):
            with pytest.raises(SettingsError, match=r"state_root|state root"):
                claim_state_root(place)

    def test_a_link_is_not_taken_for_a_folder_or_a_file(self, tmp_path: Path) -> None:
        """Something that can write the state root's parent cannot redirect the host."""
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(SettingsError, match="not a real folder"):
            private_folder(tmp_path / "run")
        (tmp_path / "log").symlink_to(tmp_path / "target")
        with pytest.raises(OSError, match="symbolic links"):
            open_private(tmp_path / "log", os.O_WRONLY)

    def test_files_are_private_under_any_umask(self, tmp_path: Path) -> None:
        """The mode is set, not hoped for; a looser file is tightened."""
        before = os.umask(0)
        try:
            (tmp_path / "loose").touch(0o666)
            for name in ("new", "loose"):
                os.close(open_private(tmp_path / name, os.O_WRONLY))
                assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
            os.umask(0o777)
            assert stat.S_IMODE(private_folder(tmp_path / "folder").stat().st_mode) == 0o700
            os.close(open_private(tmp_path / "newer", os.O_WRONLY))
            assert stat.S_IMODE((tmp_path / "newer").stat().st_mode) == 0o600
        finally:
            os.umask(before)

    def test_a_lock_is_exclusive_and_its_file_stays(self, tmp_path: Path) -> None:
        """The host's lock file is never deleted; it is free again after release."""
        with host_lock(tmp_path) as held:
            other = host_lock(tmp_path)
            assert not other.acquire()
            assert other.holder() == os.getpid()
        assert held.path.exists()
        assert other.acquire()
        other.release()

    def test_an_ephemeral_lock_never_has_two_holders(self, tmp_path: Path) -> None:
        """Its file goes on release, and whoever had it open does not hold the name."""
        path = tmp_path / "lease"
        first, second = FileLock(path, ephemeral=True), FileLock(path, ephemeral=True)
        assert first.acquire()
        fd = os.open(path, os.O_RDWR)
        first.release()
        assert not path.exists()
        assert second.acquire()
        assert path.stat().st_ino != os.fstat(fd).st_ino or path.stat().st_nlink == 1
        third = FileLock(path, ephemeral=True)
        assert not third.acquire()
        second.release()
        os.close(fd)

    def test_a_pid_that_was_given_away_is_another_process(self) -> None:
        """The start time tells them apart; nobody's pid is nobody."""
        me = identify(os.getpid())
        assert me is not None
        assert me.is_alive()
        assert not ProcessId(me.pid, me.started + 1).is_alive()
        assert identify(1 << 22) is None
        assert identify(-1) is None
        child = subprocess.Popen(["true"])
        until(lambda: identify(child.pid) is None, "a zombie does not count as alive")
        child.wait()
