"""Starting, stopping and killing the counting host of a test, and reading what its tools did."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from hosts import host_says
from kernel_patience import eventually

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

    def runs(self) -> Counter[int]:
        """How often each `n` ran, over every host of this state root."""
        return Counter(int(line) for line in self.effects_file.read_text().splitlines())

    def kernels(self) -> list[dict[str, Any]]:
        status = host_says(self.state_root, {"type": "status"})
        return status["kernels"] if status else []

    def wait_runs(self, most: int) -> None:
        """Return once `most` different requests have run."""
        assert eventually(lambda: len(self.runs()) >= most)
