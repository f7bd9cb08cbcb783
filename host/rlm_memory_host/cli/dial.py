"""Asking a running host over its local socket. Standard library only, one question a call."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Final

from rlm_memory import wire

from rlm_memory_host.errors import HostError

ANSWER_SECONDS: Final = 10.0


def ask(state_root: Path, question: dict[str, Any]) -> dict[str, Any] | None:
    """The host's answer, None when no host listens. Raises HostError when it refuses or is silent."""
    path = wire.socket_path(state_root)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(ANSWER_SECONDS)
        if not _connect(peer, path):
            return None
        try:
            peer.sendall(json.dumps(question).encode() + b"\n")
            data = b""
            while not data.endswith(b"\n") and len(data) <= wire.MAX_LINE_BYTES:
                chunk = peer.recv(65_536)
                if not chunk:
                    break
                data += chunk
        except TimeoutError as error:
            raise HostError("a host listens but does not answer; end its process if that lasts") from error
        except ConnectionError:
            return None
    try:
        answer: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise HostError("the host ended while it answered") from error
    if answer.get("status") != "ok":
        raise HostError(str(answer.get("error")), str(answer.get("code")))
    return answer


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
    except PermissionError as error:
        raise HostError("the host's socket belongs to another user") from error
    return True
