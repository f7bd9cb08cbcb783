"""A host and a kernel of the demo's own: started, driven, killed.

Owns: both processes from start to end, whatever happens. Does not own: what the kernel runs. Kernels are plain
ipykernels of this interpreter, started without any kernelspec, and the host is started first, as a service would.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.errors import HostError

START_SECONDS: Final = 30.0
CELL_SECONDS: Final = 60.0
_TICK_SECONDS: Final = 0.05
_OTHERS: Final = ("RLM_MEMORY_CONFIG", "RLM_MEMORY_HOST", "RLM_SESSION_DIR", "PYTHONSTARTUP")
"""Settings of the user's that would lead away from the demo's own place."""


@dataclass(frozen=True, slots=True)
class Session:
    """One running kernel with its host."""

    kernel: subprocess.Popen[bytes]
    host: subprocess.Popen[bytes]
    client: Any

    def run(self, code: str) -> str:
        """Run one cell; what it printed. Raises HostError with the cell's own error."""
        printed: list[str] = []
        failed: list[str] = []

        def take(message: Mapping[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                printed.append(content["text"])
            elif message["msg_type"] == "error":
                failed.append(f"{content['ename']}: {content['evalue']}")

        try:
            self.client.execute_interactive(code, timeout=CELL_SECONDS, output_hook=take, allow_stdin=False)
        except (TimeoutError, RuntimeError) as error:
            raise HostError(f"a cell got no answer within {CELL_SECONDS:.0f} s: {_first_line(code)}") from error
        if failed:
            raise HostError(f"a cell failed ({_first_line(code)}): {failed[0]}")
        return "".join(printed)

    def kill(self) -> None:
        """SIGKILL both, the host first: neither gets a chance to write anything more."""
        for process in (self.host, self.kernel):
            process.kill()
            process.wait()


@contextlib.contextmanager
def session(place: Path) -> Generator[Session]:
    """Start a host and a kernel in `place`; at the end both are gone, if need be by SIGKILL."""
    environment = _environment(place)
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(
            _started([sys.executable, "-m", "rlm_memory_host", "host", "run"], place, environment)
        )
        _wait_listening(place, host)
        connection = _connection_file(place)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", str(connection)]
        kernel = stack.enter_context(_started(command, place, environment))
        client = _client(connection)
        _wait_heartbeat(client, place, kernel)
        client.start_channels()
        stack.callback(client.stop_channels)
        try:
            client.wait_for_ready(timeout=START_SECONDS)
        except RuntimeError as error:
            raise HostError(f"the kernel did not start: {_last_line(place / 'output.log')}") from error
        yield Session(kernel, host, client)


def _environment(place: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _OTHERS}
    # The kernel ends by itself, should the demo be killed; the user's IPython start-up files stay out.
    return environment | {
        "RLM_MEMORY_STATE_ROOT": str(place / "state"),
        "IPYTHONDIR": str(place / "ipython"),
        "JPY_PARENT_PID": str(os.getpid()),
    }


@contextlib.contextmanager
def _started(command: list[str], place: Path, environment: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    project = place / "project"
    project.mkdir(exist_ok=True)
    with (place / "output.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=project,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_listening(place: Path, host: subprocess.Popen[bytes]) -> None:
    from rlm_memory_host.attach import dial

    for _ in range(int(START_SECONDS / _TICK_SECONDS)):
        if dial.ask(place / "state", {"type": "status"}) is not None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.wait(_TICK_SECONDS)
            break
    raise HostError(f"the host did not start: {_last_line(place / 'output.log')}")


def _connection_file(place: Path) -> Path:
    from jupyter_client.connect import write_connection_file

    folder = place / "runtime"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"kernel-{len(list(folder.iterdir()))}.json"
    write_connection_file(str(path), key=os.urandom(32).hex().encode())
    return path


def _client(connection: Path) -> Any:
    from jupyter_client.blocking.client import BlockingKernelClient

    client: Any = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    return client


def _wait_heartbeat(client: Any, place: Path, kernel: subprocess.Popen[bytes]) -> None:
    """Wait until the kernel's ports are open: the client takes a heart that does not beat yet for a dead kernel."""
    for _ in range(int(START_SECONDS / _TICK_SECONDS)):
        with contextlib.suppress(OSError), socket.create_connection((client.ip, client.hb_port), _TICK_SECONDS):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            kernel.wait(_TICK_SECONDS)
            break
    raise HostError(f"the kernel did not start: {_last_line(place / 'output.log')}")


def _first_line(code: str) -> str:
    return code.strip().splitlines()[0][:80] if code.strip() else "an empty cell"


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1][:200] if lines else "it said nothing"
