"""Who is at the other end of the local socket, as the system knows it and not as it says.

Owns: the peer's credentials. Does not own: what a peer may do (`door` for the user, `kernels` for a kernel).
"""

from __future__ import annotations

import socket
import struct
import sys


def credentials(peer: socket.socket) -> tuple[int | None, int]:
    """The pid and the uid of the process that connected; the pid is None where the system does not tell it."""
    if sys.platform.startswith("linux"):
        pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return (pid or None), uid
    # SOL_LOCAL is 0; LOCAL_PEERCRED 1 on macOS and the BSDs gives struct xucred (version, uid, ...), and LOCAL_PEERPID
    # 2 on macOS the pid.
    uid = struct.unpack("2I", peer.getsockopt(0, 1, 76)[:8])[1]
    if sys.platform != "darwin":
        return None, uid
    return peer.getsockopt(0, 2) or None, uid
