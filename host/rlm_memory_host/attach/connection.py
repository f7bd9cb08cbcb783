"""A kernel's connection file: read once, checked, never copied.

Owns: which files are accepted and what is taken from them. Does not own: sockets (`link`). The key stays in memory;
only a one-way fingerprint of it is ever written.

Source: design page "Kernel <-> host", Wire: loopback TCP or IPC, HMAC-SHA256, CURVE where the kernel offers it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory import wire

from rlm_memory_host.errors import ProtocolError

MAX_FILE_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a kernel's channels are and how its messages are signed."""

    iopub: str
    control: str
    key: bytes = field(repr=False)
    scheme: str
    curve_public: bytes | None = field(default=None, repr=False)
    curve_secret: bytes | None = field(default=None, repr=False)

    @property
    def fingerprint(self) -> str:
        """Tells this kernel's channels from others', and says nothing about the key."""
        text = b"\0".join([self.iopub.encode(), self.control.encode(), self.key])
        return hashlib.sha256(text).hexdigest()[:32]


def read(path: Path, cwd: Path) -> Connection:
    """Read a connection file. `cwd` is the kernel's folder, against which it resolves relative IPC paths.

    Raises ProtocolError; messages do not repeat the file's content.
    """
    if not path.is_absolute():
        raise ProtocolError("connection_file: the path must be absolute")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ProtocolError(f"connection_file: it cannot be opened ({error.strerror})") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ProtocolError("connection_file: it is not a regular file")
        if found.st_uid != os.geteuid():
            raise ProtocolError("connection_file: it belongs to another user")
        if found.st_mode & 0o022:
            raise ProtocolError("connection_file: other users can write it")
        # One read gives all of a regular file of this size.
        data = os.read(fd, MAX_FILE_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MAX_FILE_BYTES:
        raise ProtocolError(f"connection_file: it has over {MAX_FILE_BYTES:,} bytes")
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("connection_file: it is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolError("connection_file: it is not an object")
    return parse(cast("dict[str, Any]", document), cwd)


def parse(document: dict[str, Any], cwd: Path) -> Connection:
    """The connection that a file's JSON describes. Pure. Raises ProtocolError naming the field."""
    scheme, key = document.get("signature_scheme", "hmac-sha256"), document.get("key")
    if scheme not in {"hmac-sha256", "hmac-sha384", "hmac-sha512"}:
        raise ProtocolError("connection_file: 'signature_scheme' must be hmac-sha256 or stronger")
    if not isinstance(key, str) or len(key) < 16:
        raise ProtocolError("connection_file: 'key' is missing or too short; unsigned kernels are refused")
    public, secret = document.get("curve_publickey"), document.get("curve_secretkey")
    if (public is None) != (secret is None) or any(
        item is not None and not (isinstance(item, str) and len(item) == 40 and item.isascii())
        for item in (public, secret)
    ):
        raise ProtocolError("connection_file: the CURVE keys are incomplete")
    return Connection(
        iopub=_endpoint(document, "iopub_port", cwd),
        control=_endpoint(document, "control_port", cwd),
        key=key.encode(),
        scheme=scheme,
        curve_public=public.encode() if public else None,
        curve_secret=secret.encode() if secret else None,
    )


def _endpoint(document: dict[str, Any], field_name: str, cwd: Path) -> str:
    port, host = document.get(field_name), document.get("ip")
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise ProtocolError(f"connection_file: '{field_name}' is not a port")
    if not isinstance(host, str) or not host or "\0" in host:
        raise ProtocolError("connection_file: 'ip' is missing")
    transport = document.get("transport", "tcp")
    if transport == "ipc":
        return f"ipc://{cwd / host}-{port}"
    if transport != "tcp":
        raise ProtocolError("connection_file: 'transport' must be tcp or ipc")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ProtocolError("connection_file: 'ip' is not an address") from None
    if not address.is_loopback:
        raise ProtocolError("connection_file: only kernels on this machine's loopback can be attached")
    return f"tcp://[{address}]:{port}" if address.version == 6 else f"tcp://{address}:{port}"


def canonical(path: str) -> Path:
    """The one name of a connection file: its folder resolved, its last part as it is. Raises ProtocolError."""
    given = Path(path)
    if not given.is_absolute() or "\0" in path or len(path) > 4096:
        raise ProtocolError("connection_file: the path must be absolute", wire.INVALID_REQUEST)
    try:
        return given.parent.resolve() / given.name
    except (OSError, RuntimeError) as error:
        raise ProtocolError("connection_file: the path cannot be resolved") from error
