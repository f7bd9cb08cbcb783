"""Kernels in a bubblewrap sandbox: what they can still do, what they cannot, and that none starts without."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_front import eventually, kernels_of

CODE = """
import os, pathlib, socket
def tried(attempt):
    try:
        attempt()
        return "possible"
    except OSError:
        return "refused"
root = pathlib.Path(os.environ["RLM_MEMORY_STATE_ROOT"])
session = pathlib.Path(os.environ["RLM_SESSION_DIR"])
[found] = root.glob("artifacts/projects/*/objects/*/*")
print("home", tried(lambda: (pathlib.Path.home() / "planted").touch()))
print("cwd", tried(lambda: pathlib.Path("planted").touch()))
print("session", tried(lambda: (session / "exports" / "mine").write_text("x")))
(session / "exports" / "mine").unlink()
print("network", tried(lambda: socket.create_connection(("127.0.0.1", PORT), 5)))
print("host socket", tried(lambda: socket.socket(socket.AF_UNIX).connect(str(root / "run" / "host.sock"))))
print("cards", tried(lambda: os.listdir(found.parent.parent.parent / "cards")))
print("object", tried(lambda: os.chmod(found, 0o600)))
print("others", any(int(p) == HOST for p in os.listdir("/proc") if p.isdigit()))
"""


@pytest.fixture
def sandboxed(tmp_path: Path, state_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = tmp_path / "given.toml"
    config.write_text(f'state_root = "{state_root}"\n[kernel]\nsandbox = "bubblewrap"\n')
    config.chmod(0o600)
    monkeypatch.setenv("RLM_MEMORY_CONFIG", str(config))
    return state_root


@pytest.mark.fronts
@pytest.mark.kernel
def test_a_sandboxed_kernel_records_and_finds_and_reaches_nothing_else(
    sandboxed: Path, tmp_path: Path, start_kernel: Callable[..., Any]
) -> None:
    """Memory works over the kernel's channels; home, folder, network, the host's socket and other objects do not."""
    import socket

    work = tmp_path / "work"
    work.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        kernel = start_kernel("rlm-memory", cwd=work)
        first = (
            "%load_ext rlm_memory\nr = memory.experiments.record({'a': 1}, title='from inside', source_version='v')\n"
            "print(memory.experiments.load(r))"
        )
        assert kernel.run(first).ok() == "{'a': 1}\n"
        [served] = kernels_of(sandboxed)
        code = CODE.replace("PORT", str(server.getsockname()[1])).replace("HOST", str(served["pid"]))
        told = dict(line.rsplit(" ", 1) for line in kernel.run(code).ok().splitlines())
    assert told == {
        "home": "refused",
        "cwd": "refused",
        "session": "possible",
        "network": "refused",
        "host socket": "refused",
        "cards": "refused",
        "object": "refused",
        "others": "False",
    }
    kernel.client.stop_channels()
    kernel.manager.restart_kernel(now=True)
    kernel.client = kernel.manager.blocking_client()
    kernel.client.start_channels()
    kernel.client.wait_for_ready(timeout=60)
    assert (
        kernel.run("%load_ext rlm_memory\nprint(memory.experiments.search('inside')[0].title)").ok() == "from inside\n"
    )
    [again] = kernels_of(sandboxed)
    assert (again["session"], again["generation"]) == (served["session"], 2)
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    eventually(lambda: not kernels_of(sandboxed), "the host lets the kernel go")
    eventually(lambda: not list((sandboxed / "sessions").iterdir()), "the session folder is gone")


@pytest.mark.fronts
@pytest.mark.kernel
def test_an_interrupt_reaches_the_cell_and_not_the_sandbox(
    sandboxed: Path, tmp_path: Path, start_kernel: Callable[..., Any]
) -> None:
    """The cell ends with KeyboardInterrupt and the kernel goes on."""
    kernel = start_kernel("rlm-memory", cwd=tmp_path)

    def interrupt_once_running(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            kernel.manager.interrupt_kernel()
        elif message["msg_type"] == "error":
            seen.append(message["content"]["ename"])

    seen: list[str] = []
    code = "import time\nprint('running', flush=True)\ntime.sleep(600)"
    kernel.client.execute_interactive(code, timeout=60, output_hook=interrupt_once_running, allow_stdin=False)
    assert seen == ["KeyboardInterrupt"]
    assert kernel.run("print(6 * 7)").ok() == "42\n"


def test_without_bwrap_no_kernel_starts(sandboxed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel never runs without the sandbox that was asked for; the refusal says what to install."""
    from jupyter_client.manager import KernelManager

    monkeypatch.setenv("PATH", str(tmp_path))
    manager = KernelManager(kernel_name="rlm-memory")
    with pytest.raises(RuntimeError, match=r"kernel\.sandbox.*install bubblewrap"):
        manager.start_kernel(cwd=str(tmp_path), env=dict(os.environ))
    assert not manager.has_kernel
    assert kernels_of(sandboxed) == []
