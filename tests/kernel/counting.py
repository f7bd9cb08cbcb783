"""A counting host and a kernel on it: starting, stopping, killing the host, and reading what its tools did."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from hosts import host_says
from kernel_patience import eventually
from real_kernels import Kernel, running_kernel

PROGRAM = Path(__file__).with_name("counting_host.py")


class CountingHost:
    """One process; `start` once more after `kill` gives the next one on the same state root."""

    def __init__(self, state_root: Path) -> None:
        self.state_root = state_root
        self.effects_file = state_root.parent / "effects"
        self.effects_file.touch()
        self._config = state_root.parent / "counting.toml"
        self._config.touch(mode=0o600)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CountingHost:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def start(self) -> CountingHost:
        command = [sys.executable, str(PROGRAM), str(self._config), str(self.state_root), str(self.effects_file)]
        self._process = process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening")
        return self

    def kill(self) -> None:
        """SIGKILL, reaped; harmless when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def clear(self) -> None:
        """Forget what ran."""
        self.effects_file.write_text("")

    def runs(self) -> Counter[int]:
        """How often each `n` ran, over every host of this state root."""
        return Counter(int(line) for line in self.effects_file.read_text().splitlines())

    def kernels(self) -> list[dict[str, Any]]:
        status = host_says(self.state_root, {"type": "status"})
        return status["kernels"] if status else []

    def wait_runs(self, most: int) -> None:
        """Return once `most` different requests have run."""
        assert eventually(lambda: len(self.runs()) >= most)


@contextmanager
def counting_pair(folder: Path, **environment: str) -> Iterator[tuple[CountingHost, Kernel]]:
    """A counting host and a kernel that has met it, on a state root of their own."""
    state_root = folder / "state"
    state_root.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLM_MEMORY_STATE_ROOT", str(state_root))
        with CountingHost(state_root) as host, running_kernel(folder, **environment) as kernel:
            kernel.run("%load_ext rlm_memory").ok()
            kernel.run("memory.status()").ok()
            yield host, kernel


def start_cell(kernel: Kernel, code: str) -> Callable[[], dict[str, Any]]:
    """Run a cell; the function that is returned waits for its end and gives the reply's content."""
    request = kernel.client.execute(code)

    def wait() -> dict[str, Any]:
        while True:
            reply = kernel.client.get_shell_msg(timeout=100)
            if reply["parent_header"].get("msg_id") == request:
                return reply["content"]

    return wait
