"""How a kernel finds its host: each step, each failure with its words, foreign hosts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlm_memory import attaching, errors, finding, localsocket, wire
from rlm_memory.testing import FakeHost

pytestmark = [pytest.mark.kernel, pytest.mark.compat]


def test_a_host_that_attached_by_itself_is_used_as_it_is(
    make_host: Callable[..., FakeHost], start_kernel: Callable[..., Any]
) -> None:
    """With RLM_MEMORY_HOST=comm nothing is dialled; the host on the kernel's own channels answers."""
    host = make_host()
    kernel = start_kernel(RLM_MEMORY_HOST="comm")
    host.attach(kernel.manager.connection_file)
    kernel.run("%load_ext rlm_memory").ok()
    assert kernel.run("print(memory.experiments.load(memory.experiments.record('x y', title='t')))").ok() == "x y\n"


def test_without_any_host_the_hello_step_is_named(start_kernel: Callable[..., Any]) -> None:
    """RLM_MEMORY_HOST=comm and nobody there: NO_HOST says what was tried and what to do."""
    kernel = start_kernel(RLM_MEMORY_HOST="comm")
    kernel.run("%load_ext rlm_memory").ok()
    error = kernel.run("memory.experiments.search('x')").error or ""
    assert error.startswith("HostUnavailable: no host answered the hello on this kernel's own channels within 3 s")
    assert "rlm-memory attach --existing" in error


def test_a_host_that_cannot_start_says_its_last_words(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """The exit code and the last line of its start are in the error, within the bound."""
    kernel = start_kernel()
    kernel.run(
        "%load_ext rlm_memory\nfrom rlm_memory import launch\nimport sys\n"
        "launch.command = lambda root: [sys.executable, '-c', \"import sys; print('the disk is full'); sys.exit(3)\"]"
    ).ok()
    error = kernel.run("memory.experiments.search('x')").error or ""
    assert error.startswith("HostUnavailable: no host ran, so one was started, but it ended with exit code 3")
    assert "the disk is full" in error


def test_the_wait_for_a_starting_host_can_be_interrupted(start_kernel: Callable[..., Any], tmp_path: Path) -> None:
    """A host that never listens: the interrupt ends the cell, and the kernel goes on."""
    from kernel_patience import eventually

    kernel = start_kernel()
    started = tmp_path / "started"
    sleeper = f"import pathlib, time; pathlib.Path({str(started)!r}).touch(); time.sleep(20)"
    kernel.run(
        "%load_ext rlm_memory\nfrom rlm_memory import launch\nimport sys\n"
        f"launch.command = lambda root: [sys.executable, '-c', {sleeper!r}]"
    ).ok()
    kernel.client.execute("memory.experiments.search('x')")
    assert eventually(started.exists)
    kernel.manager.interrupt_kernel()
    content = kernel.client.get_shell_msg(timeout=10)["content"]
    assert content["ename"] == "KeyboardInterrupt"
    ended = "from rlm_memory.kept import state\nfor p in state()['started_hosts']: p.kill(); p.wait()\nprint('on')"
    assert kernel.run(ended).ok() == "on\n"


FOREIGN_TOOLS = "mcp__memory__"


def test_a_plain_dsh_host_serves_with_its_two_requests_alone(
    make_host: Callable[..., FakeHost], start_kernel: Callable[..., Any]
) -> None:
    """No hello, no notes, names with an MCP prefix and wrapped values: record, search, resolve and load all work."""
    host = make_host(foreign=True)

    def wrapped(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda arguments: {"content": [{"type": "text", "text": "…"}], "structuredContent": run(arguments)}

    host.tools = {FOREIGN_TOOLS + name: wrapped(run) for name, run in host.tools.items()}
    kernel = start_kernel(RLM_SESSION_DIR=str(host.session_dir))
    host.attach(kernel.manager.connection_file)
    kernel.run("%load_ext rlm_memory").ok()
    code = (
        "r = memory.experiments.record({'a': 1}, title='t', source_version='v')\n"
        "hit = memory.experiments.search('t')[0]\n"
        "print(memory.experiments.load(hit), memory.experiments.resolve(r, 'v').freshness)\n"
        "print(r.warnings, (await dsh_tools.call('memory_status', {}))['cards'], memory.status())"
    )
    assert kernel.run(code).ok().splitlines() == [
        "{'a': 1} fresh",
        "() 1 memory: a DSH host without memory's own requests",
    ]
    assert wire.ANNOTATE not in host.kinds()
    error = kernel.run("memory.experiments.preview(r)").error or ""
    assert error.startswith("Unsupported: this host keeps no previews")


def test_a_tool_call_to_a_foreign_host_is_never_repeated(
    make_host: Callable[..., FakeHost], start_kernel: Callable[..., Any]
) -> None:
    """It does not promise to know a repeated id, so a slow tool must not run twice."""
    runs: list[int] = []
    host = make_host(
        foreign=True,
        tools={"slow": lambda arguments: {"n": len(runs)} if runs.append(1) is None else {}},
        script=lambda seen: 5.0 if seen.kind == wire.CALL else 0.0,
    )
    kernel = start_kernel(RLM_SESSION_DIR=str(host.session_dir))
    host.attach(kernel.manager.connection_file)
    kernel.run("%load_ext rlm_memory").ok()
    assert kernel.run("print(dsh_tools.call('slow', {})['n'])").ok() == "1\n"
    assert len(runs) == 1


def test_a_value_of_any_kind_can_be_used_and_awaited(
    make_host: Callable[..., FakeHost], state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """`dsh_tools.call` with and without await: objects, lists, text, numbers, nothing."""
    values = {"object": {"a": 1}, "list": [1], "text": "t", "number": 3, "no": False}
    host = make_host(tools={name: (lambda _arguments, value=value: value) for name, value in values.items()})
    host.listen(state_root)
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory").ok()
    code = (
        f"values = {values!r}\n"
        "print([dsh_tools.call(n, {}) == v and (await dsh_tools.call(n, {})) == v for n, v in values.items()])"
    )
    assert kernel.run(code).ok() == f"{[True] * len(values)}\n"


def answer_once(door: socket.socket, line: bytes) -> None:
    def serve() -> None:
        visitor, _address = door.accept()
        with visitor:
            visitor.makefile("rb").readline()
            visitor.sendall(line)

    threading.Thread(target=serve, daemon=True).start()


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A listening socket at `host.sock` in the current folder, whose full path is over 107 bytes."""
    folder = tmp_path / ("d" * 60) / ("e" * 60)
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind("host.sock")
        listening.listen()
        yield listening, folder / "host.sock"


def test_a_long_path_is_dialled_through_its_folder(door: tuple[socket.socket, Path]) -> None:
    """Paths over 107 bytes do not fit a socket address, and work all the same; the end of the host is seen."""
    listening, path = door
    answer_once(listening, b'{"status": "ok", "session": "s"}\n')
    connection, answer = localsocket.dial(path, {"type": "attach"})
    with connection:
        assert answer["session"] == "s"
        while not localsocket.is_gone(connection):
            threading.Event().wait(0.01)


def test_a_host_of_another_user_is_refused_before_anything_is_sent(
    door: tuple[socket.socket, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer's uid decides, not the name of the file."""
    monkeypatch.setattr(localsocket.os, "getuid", lambda: 4_000_000)
    with pytest.raises(errors.HostUnavailable, match="belongs to another user"):
        localsocket.dial(door[1], {"type": "attach"})


def test_what_the_host_refuses_is_raised_as_its_code_says(door: tuple[socket.socket, Path]) -> None:
    """And an answer that is no JSON is named as such."""
    listening, path = door
    answer_once(listening, b'{"status": "error", "code": "ADAPTER_DISABLED", "error": "artifacts are off"}\n')
    with pytest.raises(errors.Denied, match="artifacts are off"):
        localsocket.dial(path, {"type": "attach"})
    answer_once(listening, b"hello\n")
    with pytest.raises(errors.HostUnavailable, match="not JSON"):
        localsocket.dial(path, {"type": "attach"})


def test_the_state_root_is_the_environments_then_the_operators_never_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration in the current folder changes nothing."""
    project, user = tmp_path / "project", tmp_path / "user" / "rlm-memory"
    project.mkdir()
    user.mkdir(parents=True)
    (project / "rlm-memory.toml").write_text('state_root = "/tmp/evil"')
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("RLM_MEMORY_STATE_ROOT", raising=False)
    assert finding.state_root({}) == tmp_path / "data" / "rlm-memory"
    (user / "rlm-memory.toml").write_text('state_root = "/srv/a"')
    assert finding.state_root({}) == Path("/srv/a")
    own = tmp_path / "own.toml"
    own.write_text(f'state_root = "{tmp_path / "state"}"')
    assert finding.state_root({"RLM_MEMORY_CONFIG": str(own)}) == tmp_path / "state"
    assert finding.state_root({"RLM_MEMORY_CONFIG": str(own), "RLM_MEMORY_STATE_ROOT": "/srv/b"}) == Path("/srv/b")
    for odd in ("state", "~/state", ""):
        own.write_text(f'state_root = "{odd}"')
        with pytest.raises(errors.HostUnavailable, match="must be an absolute path"):
            finding.state_root({"RLM_MEMORY_CONFIG": str(own)})
    own.write_text("state_root = ")
    with pytest.raises(errors.HostUnavailable, match="cannot be read"):
        finding.state_root({"RLM_MEMORY_CONFIG": str(own)})


def test_an_unknown_mode_is_named() -> None:
    """A typo in RLM_MEMORY_HOST is not taken for auto."""

    class Silent:
        def check_caller(self) -> None: ...

    connection = attaching.KernelConnection(Silent(), {"RLM_MEMORY_HOST": "atuo"})  # type: ignore[arg-type]
    with pytest.raises(errors.HostUnavailable, match="'atuo'; it may be auto, comm, none"):
        connection.ensure()
