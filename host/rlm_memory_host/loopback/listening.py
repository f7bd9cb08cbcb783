"""The HTTP server of the loopback API in the host's own loop. Loaded when there is something to serve.

Owns: the library's server and its bounds. Does not own: the socket (`serving`), routes (`api`).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator
from typing import Final

import uvicorn

from rlm_memory_host.bearer import Guarded
from rlm_memory_host.loopback.api import Served, application

CONNECTIONS: Final = 256
GRACE_SECONDS: Final = 1
"""What requests that run may take when it ends."""


class Server(uvicorn.Server):
    """Serves on a listening socket until `should_exit`. The host has its own signals; the library's stay out."""

    def __init__(self, served: Served, token: str) -> None:
        super().__init__(
            uvicorn.Config(
                Guarded(application(served), token),
                log_config=None,
                access_log=False,
                ws="none",
                lifespan="off",
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=GRACE_SECONDS,
                server_header=False,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Nothing."""
        yield

    async def listen(self, listener: socket.socket) -> None:
        """Serve until asked to end."""
        await self.serve(sockets=[listener])
