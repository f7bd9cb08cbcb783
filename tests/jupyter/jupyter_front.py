"""A real Jupyter server for the tests of the front ends, and the kernels' view of it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from hosts import host_says

PATIENCE_SECONDS = 60.0
TOKEN = "for-these-tests-only"


def eventually(look: Callable[[], Any], what: str) -> Any:
    """Poll for an outcome; the test fails with `what` where it does not come."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.05)
    return found


def kernels_of(root: Path) -> list[dict[str, Any]]:
    """What the host of a state root says of its kernels; empty where none runs."""
    status = host_says(root, {"type": "status"})
    return status["kernels"] if status else []


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def environment_of(pid: int) -> dict[str, str]:
    return psutil.Process(pid).environ()


class JupyterServer:
    """A jupyter_server as an operator runs it, asked over its REST interface."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.output = (folder.parent / "jupyter.out").open("ab")
        command = [sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser"]
        options = [
            f"--ServerApp.port={self.port}",
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={folder}",
        ]
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            env={**os.environ, **environment},
        )
        eventually(self._answers, "the Jupyter server answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.said()
        try:
            return bool(self.ask("GET", "api/status"))
        except urllib.error.URLError:
            return False

    def said(self) -> str:
        return Path(self.output.name).read_text()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            error.add_note(self.said()[-4000:])
            raise
        return json.loads(text) if text else None

    def start(self, name: str = "rlm-memory") -> str:
        return self.ask("POST", "api/kernels", {"name": name})["id"]

    def delete(self, kernel_id: str) -> None:
        """Shut a kernel down; while jupyter_client itself restarts a dead one it answers 500, and a user asks again."""

        def is_deleted() -> bool:
            try:
                self.ask("DELETE", f"api/kernels/{kernel_id}")
            except urllib.error.HTTPError as error:
                if error.code != 500 or "InvalidStateError" not in self.said():
                    raise
                return False
            return True

        eventually(is_deleted, "the server deletes the kernel")

    def client(self, kernel_id: str) -> Any:
        """A client of the kernel's own channels, by its connection file, once the kernel answers."""
        from jupyter_client.blocking.client import BlockingKernelClient

        client = BlockingKernelClient(connection_file=str(self.connection_file(kernel_id)))
        client.load_connection_file()
        # A client takes a heart that does not beat yet for a dead kernel.
        eventually(lambda: is_open(client.hb_port), "the kernel opens its ports")
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE_SECONDS)
        return client

    def connection_file(self, kernel_id: str) -> Path:
        return Path(os.environ["JUPYTER_RUNTIME_DIR"]) / f"kernel-{kernel_id}.json"

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)
        self.output.close()


def run(client: Any, code: str) -> str:
    """Run one cell and give what it printed; the test fails where the cell does."""
    printed: list[str] = []

    def take(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "error":
            raise AssertionError(f"{content['ename']}: {content['evalue']}")
        if message["msg_type"] == "stream":
            printed.append(content["text"])

    client.execute_interactive(code, timeout=PATIENCE_SECONDS, output_hook=take, allow_stdin=False)
    return "".join(printed)
