"""What every folder of tests shares: hygiene, the no-skip rule, and a state root, kernels and a host that clean up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hosts import host_says, stop_host

pytest_plugins = ["hygiene", "no_skips"]

START_SECONDS = 60.0
REPLY_SECONDS = 60.0
SCRIPTS = Path(sys.executable).parent


@dataclass
class Outcome:
    """What one cell gave: its printed text, its display data by MIME type, and the error it ended with, if any."""

    text: str = ""
    data: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    """`ExceptionName: message`."""

    def ok(self) -> str:
        """The printed text, or the last plain representation; fails the test where the cell failed."""
        assert self.error is None, self.error
        return self.text or (self.data[-1].get("text/plain", "") if self.data else "")


class Kernel:
    """A real kernel that a test drives cell by cell."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self.client = manager, client

    @property
    def pid(self) -> int:
        return self.manager.provisioner.pid

    def run(self, code: str, timeout: float = REPLY_SECONDS) -> Outcome:
        outcome = Outcome()

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    outcome.text += content["text"]
                case "execute_result" | "display_data":
                    outcome.data.append(content["data"])
                case "error":
                    outcome.error = f"{content['ename']}: {content['evalue']}"
                case _:
                    pass

        self.client.execute_interactive(code, timeout=timeout, output_hook=take, stdin_hook=lambda _message: None)
        return outcome


@pytest.fixture
def state_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty state root that kernels and hosts of this test find; a host that still runs there is stopped."""
    root = tmp_path / "state"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("RLM_MEMORY_STATE_ROOT", str(root))
    yield root
    stop_host(root)


@contextmanager
def running_kernel(cwd: Path, kernel_name: str = "python3", **environment: str) -> Iterator[Kernel]:
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name=kernel_name)
    manager.start_kernel(cwd=str(cwd), env={**os.environ, **environment})
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=START_SECONDS)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@pytest.fixture
def start_kernel(tmp_path: Path, state_root: Path) -> Iterator[Callable[..., Kernel]]:
    """`start_kernel(kernel_name="python3", cwd=..., **environment)` starts a kernel on this test's state root."""
    with ExitStack() as stack:

        def start(kernel_name: str = "python3", cwd: Path | None = None, **environment: str) -> Kernel:
            return stack.enter_context(running_kernel(cwd or tmp_path, kernel_name, **environment))

        yield start


@pytest.fixture
def start_host(state_root: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`start_host(*arguments)` runs `rlm-memory host run` on this test's state root and waits until it listens."""
    with ExitStack() as stack:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            command = [str(SCRIPTS / "rlm-memory"), "host", "run", *arguments]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            wait_listening(state_root, process)
            return process

        yield start


def wait_listening(root: Path, process: subprocess.Popen[bytes]) -> None:
    """Return once the host of `root` answers; fail where it ended or took longer than `START_SECONDS`."""
    for _ in range(int(START_SECONDS / 0.1)):
        if host_says(root, {"type": "status"}) is not None:
            return
        try:
            code = process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"the host ended with exit code {code} before it listened")
    pytest.fail(f"the host does not listen after {START_SECONDS:.0f} s")
