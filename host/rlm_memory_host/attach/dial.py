"""The host's local socket as the host's own programs use it: the command line, the provisioner, the doctor.

Owns: dialling, one line each way, starting a host in the background where none listens, knowing why one did not start.
Does not own: the listening side (`door`), how kernels dial (`rlm_memory.localsocket`), what is asked.

A connection that is kept open is a lifeline: each side sees the other's end as the end of the connection.

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rlm_memory import wire

from rlm_memory_host.errors import HostError
from rlm_memory_host.process import claim_state_root, host_lock, open_private, private_folder

ANSWER_SECONDS: Final = 10.0
START_SECONDS: Final = 30.0
"""How long a host that we start may take until its socket answers."""
AFTER_EXIT_SECONDS: Final = 1.0
"""When the host that we started ends at once, another one may have been first: look that long."""
LOOK_SECONDS: Final = 0.05
LOG_NAME: Final = "host-start.log"

_started: list[subprocess.Popen[bytes]] = []
"""Hosts that this process started, kept so that one that ended is reaped and no zombie stays."""


def open_line(state_root: Path, question: Mapping[str, Any]) -> tuple[socket.socket, dict[str, Any]] | None:
    """Ask the host and keep the connection open; None when no host listens.

    Raises HostError when it refuses or is silent. The caller closes the connection.
    """
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        peer.settimeout(ANSWER_SECONDS)
        if not _connect(peer, wire.socket_path(state_root)):
            return None
        try:
            peer.sendall(json.dumps(question).encode() + b"\n")
            data = _read_line(peer)
        except TimeoutError as error:
            pid = host_lock(state_root).holder()
            who = f"a host (pid {pid})" if pid else "a host"
            raise HostError(f"{who} listens but does not answer; end its process if that lasts") from error
        except ConnectionError:
            return None
        try:
            answer: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise HostError("the host ended while it answered") from error
        if answer.get("status") != "ok":
            raise HostError(str(answer.get("error")), str(answer.get("code")))
        peer.setblocking(False)
        stack.pop_all()
        return peer, answer


def ask(state_root: Path, question: Mapping[str, Any]) -> dict[str, Any] | None:
    """The host's answer, None when no host listens. Raises HostError when it refuses or is silent."""
    line = open_line(state_root, question)
    if line is None:
        return None
    line[0].close()
    return line[1]


def open_line_starting(
    state_root: Path, question: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[socket.socket, dict[str, Any]]:
    """As `open_line`, but start a host in the background where none listens. Blocks, at most `START_SECONDS`.

    The host is detached and ends by itself when it is idle. Raises HostError with its last words when it cannot start.
    """
    line = open_line(state_root, question)
    if line is not None:
        return line
    process = _start(state_root, environ)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        line = open_line(state_root, question)
        if line is not None:
            return line
        if process.poll() is not None:
            end = min(end, time.monotonic() + AFTER_EXIT_SECONDS)
        time.sleep(LOOK_SECONDS)
    why = f"it ended with exit code {process.returncode}" if process.poll() is not None else "it does not answer"
    raise HostError(
        f"a host was started, but {why}{_last_words(state_root)}. `rlm-memory doctor` says more", wire.NO_HOST
    )


def is_gone(line: socket.socket) -> bool:
    """Whether the host closed a lifeline. Never waits."""
    try:
        return line.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _start(state_root: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    _started[:] = [process for process in _started if process.poll() is None]
    run = private_folder(claim_state_root(state_root) / "run")
    log = open_private(run / LOG_NAME, os.O_WRONLY | os.O_TRUNC)
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rlm_memory_host", "host", "run", "--from-kernel"),
                *("--state-root", str(state_root)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=state_root,
            env=dict(environ),
            start_new_session=True,
        )
    finally:
        os.close(log)
    _started.append(process)
    return process


def _last_words(state_root: Path) -> str:
    try:
        text = (state_root / "run" / LOG_NAME).read_text("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f" and said: {lines[-1][:300]}" if lines else ""


def _read_line(peer: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) <= wire.MAX_LINE_BYTES:
        chunk = peer.recv(65_536)
        if not chunk:
            break
        data += chunk
    return data


def _connect(peer: socket.socket, path: Path) -> bool:
    try:
        if len(os.fsencode(path)) <= wire.SOCKET_PATH_BYTES:
            peer.connect(str(path))
            return True
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            peer.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        return False
    except BlockingIOError as error:
        raise HostError("the host has more callers waiting than it can hold; try again") from error
    except PermissionError as error:
        raise HostError("the host's socket belongs to another user") from error
    return True
