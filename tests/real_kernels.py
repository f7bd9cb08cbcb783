"""Real kernels that tests drive cell by cell. Owns: starting one, running a cell, ending it. Fixtures are elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
REPLY_SECONDS = 60.0


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

        # A kernel that just ended a cell with an error answers "aborted" to what it finds queued, without running it.
        while self._execute(code, timeout, take)["content"]["status"] == "aborted":
            pass
        return outcome

    def _execute(self, code: str, timeout: float, take: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        return self.client.execute_interactive(
            code, timeout=timeout, output_hook=take, stdin_hook=lambda _message: None
        )


@contextmanager
def running_kernel(cwd: Path, kernel_name: str = "python3", **environment: str) -> Generator[Kernel]:
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
