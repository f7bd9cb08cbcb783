"""Talking to the host of a state root through its local socket, as tests need it: ask, stop, wait for its end."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import psutil
from rlm_memory.wire import socket_path

STOP_SECONDS = 15.0


def host_says(root: Path, message: dict[str, Any]) -> dict[str, Any] | None:
    """One line to the host of a state root and its answer; None where no host listens."""
    path = socket_path(root)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(STOP_SECONDS)
            # A socket address holds 107 bytes and pytest's folders are long: go through the folder's descriptor.
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
            connection.sendall(json.dumps(message).encode() + b"\n")
            return json.loads(connection.makefile("rb").readline() or b"null")
    except (FileNotFoundError, ConnectionError):
        return None
    finally:
        os.close(folder)


def stop_host(root: Path) -> None:
    """Stop the host of a state root, if any, and wait until it is gone."""
    status = host_says(root, {"type": "status"})
    if status is None:
        return
    host_says(root, {"type": "stop"})
    pid = status.get("pid")
    if isinstance(pid, int) and pid != os.getpid():
        end(pid)


def end(pid: int) -> None:
    """Wait for a process to end by itself; kill it where it does not."""
    try:
        process = psutil.Process(pid)
        process.wait(STOP_SECONDS)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
