"""Real hosts and real kernels for the tests of the host, without the kernel package: raw comm messages.

Owns: starting and ending both, the code that runs in the kernel. Every wait has a limit; everything is ended by id.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager
from rlm_memory import wire

PATIENCE = 30.0
"""Seconds that a step may take on a loaded machine before the test fails."""

IN_KERNEL = textwrap.dedent(
    """
    import json as _json, os as _os, threading as _threading, uuid as _uuid
    from ipykernel.kernelapp import IPKernelApp as _App
    _k = _App.instance().kernel
    _waiting, _replies, _everything = {}, {}, []

    def _on_reply(stream, ident, parent):
        content = parent["content"]
        _everything.append(_json.dumps(content))
        _replies.setdefault(content["comm_id"], []).append(content["data"])
        if content["comm_id"] in _waiting:
            _waiting[content["comm_id"]].set()

    _k.control_handlers["comm_msg"] = _on_reply

    def _send(data, comm_id=None, msg_type="comm_open", target="host.request", header=None):
        comm_id = comm_id or "dsh-" + str(_uuid.uuid4())
        _waiting.setdefault(comm_id, _threading.Event())
        content = {"comm_id": comm_id, "data": data, "target_name": target, "target_module": None}
        message = _k.session.msg(msg_type, content=content)
        message["header"].update(header or {})
        _k.session.send(_k.iopub_socket, message, ident=("comm-" + comm_id).encode())
        return comm_id

    def _wait(comm_id, seconds=20):
        return _replies[comm_id][0] if _waiting[comm_id].wait(seconds) else {"status": "silence"}

    def _ask(type, seconds=20, **payload):
        return _wait(_send({"type": type, **payload}), seconds)

    def _ask_again(type, seconds=20, **payload):
        # As the extension does: the same comm id until an answer comes, since ipykernel 6 does not prove subscriptions.
        comm_id = _send({"type": type, **payload})
        for _ in range(int(seconds * 2)):
            if _waiting[comm_id].wait(0.5):
                return _replies[comm_id][0]
            _send({"type": type, **payload}, comm_id)
        return {"status": "silence"}
    """
)


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Poll for an outcome; the test fails with `what` when it does not come."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {seconds:g} s: {what}")
        time.sleep(0.02)


class HostProcess:
    """A host of its own state root, as an operator runs it."""

    def __init__(
        self,
        state_root: Path,
        *,
        settings: str = "",
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        umask: int = 0o022,
        command: tuple[str, ...] = ("-m", "rlm_memory_host"),
    ) -> None:
        self.state_root = state_root
        self.config = state_root.parent / f"{state_root.name}.toml"
        self.config.write_text(settings)
        self.config.chmod(0o600)
        self.output = state_root.parent / f"{state_root.name}.out"
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, *command, "host", "run", "--config", str(self.config)),
                    *("--state-root", str(state_root), *arguments),
                ],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                umask=umask,
                env={**os.environ, **(environment or {})},
            )

    def wait_listening(self) -> HostProcess:
        pid = self.process.pid
        until(
            lambda: f"listening (pid {pid})" in self.output.read_text() or self.process.poll() is not None,
            "the host listens",
        )
        assert self.process.poll() is None, self.output.read_text()
        return self

    def dial(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(PATIENCE)
        folder = os.open(wire.socket_path(self.state_root).parent, os.O_RDONLY)
        try:
            peer.connect(f"/proc/self/fd/{folder}/host.sock")
        finally:
            os.close(folder)
        return peer

    def say(self, line: object) -> dict[str, Any]:
        """One line, one answer, and the connection closed again."""
        with self.dial() as peer:
            return say(peer, line)

    def attach(self, kernel: RawKernel, **changes: Any) -> dict[str, Any]:
        line = {
            "type": "attach",
            "protocol": 1,
            "connection_file": kernel.connection_file,
            "pid": kernel.pid,
            "cwd": str(kernel.cwd),
            "extension": "0.1.0",
        }
        return self.say({**line, **changes})

    def log(self) -> str:
        return (self.state_root / "logs" / "host.log").read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def say(peer: socket.socket, line: object) -> dict[str, Any]:
    peer.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    data = b""
    while not data.endswith(b"\n"):
        chunk = peer.recv(65536)
        if not chunk:
            raise ConnectionError("closed without an answer")
        data += chunk
    return json.loads(data)


class RawKernel:
    """An ipykernel with the raw comm code in it."""

    def __init__(
        self,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        configure: Callable[[KernelManager], None] = lambda manager: None,
    ) -> None:
        self.cwd = cwd
        self.environment = {**os.environ, **(environment or {})}
        self.manager = KernelManager(connection_file=str(cwd / f"kernel-{os.urandom(4).hex()}.json"))
        self.manager.kernel_spec.argv[0] = sys.executable
        configure(self.manager)
        self.manager.start_kernel(cwd=str(cwd), env=self.environment)
        self._connect()

    def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.run(IN_KERNEL)

    @property
    def connection_file(self) -> str:
        return self.manager.connection_file

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)

    def run(self, code: str, expression: str = "None", seconds: float = 60) -> Any:
        """Execute `code`, then give the value of `expression` (JSON types)."""
        expressions = {"r": f"__import__('json').dumps({expression})"}
        request = self.client.execute(code, silent=False, user_expressions=expressions)
        reply = self._reply(request, seconds)
        assert reply["status"] == "ok", reply
        answer = reply["user_expressions"]["r"]
        assert answer["status"] == "ok", answer
        return json.loads(ast.literal_eval(answer["data"]["text/plain"]))

    def _reply(self, request: str, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            message = self.client.get_shell_msg(timeout=max(0.1, end - time.monotonic()))
            if message["parent_header"].get("msg_id") == request:
                return message["content"]

    def ask(self, type: str, seconds: float = 20, **payload: Any) -> dict[str, Any]:
        """Send a request as the extension would and give the reply's data."""
        return self.run("", f"_ask_again({type!r}, {seconds}, **{payload!r})", seconds + 30)

    def ask_once(self, data: Any, seconds: float = 20) -> dict[str, Any]:
        """Send any data once."""
        return self.run(f"_id = _send({data!r})", f"_wait(_id, {seconds})", seconds + 30)

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask(wire.CALL, name=name, arguments=arguments)

    def restart(self) -> None:
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self._connect()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        with contextlib.suppress(Exception):
            self.manager.context.destroy(linger=0)
