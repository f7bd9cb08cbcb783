"""Listening: the loopback API inside a running host.

Owns: the socket on 127.0.0.1, where its address is told (`run/loopback.json`), the end. Does not own: routes (`api`),
the token (`bearer`).

It is served while its token is there: `rlm-memory dsh install` makes it and `dsh remove` takes it away, a running host
notices either within a second or two. `loopback.enabled` true makes a token at the start, false never serves.

Source: design page "DeepSeek Harness and MCP", Ways in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlm_memory_host.attach.requests import Services
from rlm_memory_host.bearer import existing_token, kept_token
from rlm_memory_host.logs import LOGGER
from rlm_memory_host.loopback.callers import Callers
from rlm_memory_host.loopback.limits import Rates
from rlm_memory_host.process import write_private
from rlm_memory_host.settings import LoopbackSettings

if TYPE_CHECKING:
    from rlm_memory_host.loopback.api import Served, Sessions
    from rlm_memory_host.loopback.listening import Server

ADDRESS: Final = "127.0.0.1"
TOKEN_NAME: Final = "loopback"
LOOK_SECONDS: Final = 1.0
PORT_SECONDS: Final = 10.0
"""Pause before a port that was taken is tried again."""
BACKLOG: Final = 128


def address_path(state_root: Path) -> Path:
    """Where the address of a serving host lies, for bridges."""
    return state_root / "run" / "loopback.json"


class Loopback:
    """The API of one host. `run` is a task of the host's group; `close` ends the listening and what still runs."""

    def __init__(
        self,
        state_root: Path,
        settings: LoopbackSettings,
        services: Services,
        sessions: Sessions | None,
        callers: Callers,
    ) -> None:
        self._root, self._settings = state_root, settings
        self._services, self._sessions, self._callers = services, sessions, callers
        self._server: Server | None = None
        self._closed = asyncio.Event()
        self.idle_since = time.monotonic()

    async def run(self) -> None:
        """Serve while there is a token, until closed. Raises SettingsError where none can be made."""
        with contextlib.suppress(OSError):
            # A host that was killed left it, and its port may be somebody else's by now.
            address_path(self._root).unlink()
        if self._settings.enabled is False:
            return
        if self._settings.enabled:
            await asyncio.to_thread(kept_token, self._root, TOKEN_NAME)
        while not self._closed.is_set():
            token = existing_token(self._root, TOKEN_NAME)
            pause = LOOK_SECONDS if token is None or await self._serve(token) else PORT_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closed.wait()

    def close(self) -> None:
        """Take no more requests; those that run get a second to end."""
        self._closed.set()
        if self._server is not None:
            self._server.should_exit = True

    def _touched(self) -> None:
        self.idle_since = time.monotonic()

    def _served(self) -> Served:
        from rlm_memory_host.loopback.api import Served

        services, settings = self._services, self._settings
        rates = Rates(settings.requests_per_minute, settings.burst, time.monotonic)
        return Served(services.dispatcher, self._sessions, self._callers.scope, services.pool, rates, self._touched)

    async def _serve(self, token: str) -> bool:
        """Serve until the token is another one or the end; False where the port cannot be had."""
        from rlm_memory_host.loopback.listening import Server

        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((ADDRESS, self._settings.port))
            except OSError as error:
                LOGGER.error("loopback_port_taken port=%d errno=%s", self._settings.port, error.errno)
                return False
            listener.listen(BACKLOG)
            server = self._server = Server(self._served(), token)
            url = f"http://{ADDRESS}:{listener.getsockname()[1]}"
            write_private(address_path(self._root), json.dumps({"url": url, "pid": os.getpid()}).encode() + b"\n")
            LOGGER.info("loopback_listening")
            serving = asyncio.ensure_future(server.listen(listener))
            try:
                while not serving.done() and existing_token(self._root, TOKEN_NAME) == token:
                    await asyncio.wait({serving}, timeout=LOOK_SECONDS)
                server.should_exit = True
                await serving
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
                with contextlib.suppress(OSError):
                    address_path(self._root).unlink()
                self._server = None
            return True
