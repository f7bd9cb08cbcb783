"""The host's local socket as the kernel side uses it: dial, say one line, read one line, keep the connection.

Owns: long paths, the peer's user, limits. Does not own: starting a host (`launch.py`) or deciding when (`connect.py`).

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory import errors, wire

ANSWER_SECONDS: Final = 10.0
"""How long a host may take to attach to our channels and answer."""


class NotListening(Exception):
    """Nobody listens there: no socket, or a left-over one."""


def dial(path: Path, message: Mapping[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
    """Send `message` to the host that listens at `path`; the open connection is a lifeline for both sides.

    Raises NotListening, HostUnavailable (another user's host, no answer), and what the host refused.
    """
    connection = _connect(path)
    try:
        _check_peer(connection, path)
        connection.settimeout(wire.TICK_SECONDS)
        connection.sendall(json.dumps(message).encode("utf-8") + b"\n")
        answer = _read_line(connection)
    except OSError as error:
        connection.close()
        raise NotListening(error.strerror or type(error).__name__) from error
    except BaseException:
        connection.close()
        raise
    if answer.get("status") != "ok":
        connection.close()
        raise errors.from_code(str(answer.get("code") or wire.NO_HOST), f"the host refused: {answer.get('error')}")
    connection.setblocking(False)
    return connection, answer


def is_gone(connection: socket.socket) -> bool:
    """Whether the other side closed a lifeline. Never waits."""
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = None
    try:
        address = str(path)
        if len(os.fsencode(address)) > wire.SOCKET_PATH_BYTES and Path("/proc/self/fd").is_dir():
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            address = f"/proc/self/fd/{folder}/{path.name}"
        connection.connect(address)
    except OSError as error:
        connection.close()
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)):
            raise NotListening(error.strerror) from error
        raise errors.HostUnavailable(f"the host's socket cannot be opened: {error.strerror or error}") from error
    except BaseException:
        connection.close()
        raise
    finally:
        if folder is not None:
            os.close(folder)
    return connection


def _check_peer(connection: socket.socket, path: Path) -> None:
    """A host of another user could read what we hand over: refuse it."""
    if hasattr(socket, "SO_PEERCRED"):
        size = struct.calcsize("3i")
        _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    else:  # macOS: the socket's owner is the next best thing; its folder is 0700
        uid = path.stat().st_uid
    if uid != os.getuid():
        raise errors.HostUnavailable(
            f"the host's socket belongs to another user (uid {uid}); nothing was sent. "
            "Set RLM_MEMORY_STATE_ROOT to a folder of yours"
        )


def _read_line(connection: socket.socket) -> dict[str, Any]:
    """One JSON line, read in ticks so that an interrupt lands."""
    received = b""
    end = time.monotonic() + ANSWER_SECONDS
    while not received.endswith(b"\n"):
        if time.monotonic() > end:
            raise errors.HostUnavailable(
                "a host listens on its socket but does not answer; restart it (rlm-memory host stop)"
            )
        try:
            part = connection.recv(65536)
        except TimeoutError:
            continue
        if not part:
            raise ConnectionResetError("closed without an answer")
        received += part
        if len(received) > wire.MAX_LINE_BYTES:
            raise errors.HostUnavailable("the host's answer is over 1 MiB; is that socket rlm-memory's?")
    try:
        answer = json.loads(received)
    except ValueError as error:
        raise errors.HostUnavailable("the host's answer is not JSON; is that socket rlm-memory's?") from error
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
