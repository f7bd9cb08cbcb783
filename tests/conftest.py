"""What every folder of tests shares: hygiene, the no-skip rule, and a state root, kernels and a host that clean up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hosts import host_says, stop_host
from real_kernels import START_SECONDS, Kernel, running_kernel

pytest_plugins = ["hygiene", "no_skips", "reruns"]

SCRIPTS = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def umask_of_before() -> Iterator[None]:
    """A command of the host that runs in the test's own process tightens the umask; the next test gets its own back."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def state_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty state root that kernels and hosts of this test find; a host that still runs there is stopped."""
    root = tmp_path / "state"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("RLM_MEMORY_STATE_ROOT", str(root))
    yield root
    stop_host(root)


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
