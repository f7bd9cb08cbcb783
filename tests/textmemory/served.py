"""Hosts and a fake memory service as processes of their own, for tests that kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hosts import host_says

PATIENCE = 40.0
"""Seconds that a step may take on a loaded machine before the test fails."""
LOAD = "%load_ext rlm_memory"


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Poll for an outcome; the test fails with `what` when it does not come."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.05)
    return found


def honcho_settings(url: str, more: str = "") -> str:
    """Settings with Honcho at `url`, quick to retry."""
    return f"""
[project]
id = "trial-7"
[honcho]
url = "{url}"
workspace = "space"
user_peer = "alex"
assistant_peer = "assistant"
{more}
[outbox]
backoff_seconds = 0.1
backoff_cap_seconds = 0.5
settle_seconds = 0.5
circuit_cooldown_seconds = 0.2
drain_seconds = 2
"""


class Process:
    """A process that is ended by its id."""

    def __init__(self, command: list[str], output: Path, environment: dict[str, str] | None = None) -> None:
        self.output = output
        with output.open("ab") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def says(self, text: str) -> Process:
        def has_said() -> bool:
            assert self.process.poll() is None, self.output.read_text()
            return text in self.output.read_text()

        until(has_said, f"the process says {text!r}")
        return self

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def host(state_root: Path, settings: str, *, listens: bool = True, **environment: str) -> Iterator[Process]:
    """A feeding host with these settings."""
    config = state_root.parent / "host.toml"
    config.write_text(settings)
    config.chmod(0o600)
    script = Path(__file__).with_name("feeding_host.py")
    output = state_root.parent / f"host-{time.monotonic_ns()}.out"
    process = Process([sys.executable, str(script), str(config), str(state_root)], output, environment)
    try:
        if listens:
            process.says("listening")
        yield process
    finally:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)


@contextmanager
def fake_honcho(folder: Path, port: int) -> Iterator[Process]:
    """The shipped fake as a process, with the workspace `space`."""
    arguments = ["fake-honcho", "--port", str(port), "--workspace", "space"]
    output = folder / f"fake-{time.monotonic_ns()}.out"
    process = Process([sys.executable, "-m", "rlm_memory_host", *arguments], output)
    try:
        yield process.says("fake honcho")
    finally:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)


def outbox_of(root: Path) -> dict[str, Any]:
    """The host's own word on its outbox."""
    told = host_says(root, {"type": "status"})
    assert told is not None
    return told["outbox"]


def feature(root: Path, name: str) -> dict[str, Any]:
    """A feature's state as the host's status shows it."""
    told = host_says(root, {"type": "status"})
    assert told is not None
    return told["features"][name]
