"""The fake on a real socket of the loopback: uvicorn in a thread, or in the foreground for `rlm-memory fake-honcho`.

Owns: listening, ending a connection on the fake's word. Does not own: answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlm_memory_host.honcho.fake.app import DROP, FakeHoncho, Message, Receive, Send

START_SECONDS: Final = 30.0
HOST: Final = "127.0.0.1"


class _Connections:
    """ASGI middleware that lets the application end the connection that a request came by."""

    def __init__(self, fake: FakeHoncho) -> None:
        self.fake = fake
        self.transports: dict[Any, asyncio.BaseTransport] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        def drop() -> None:
            transport = self.transports.get(tuple(scope["client"] or ()))
            if isinstance(transport, asyncio.Transport):
                transport.abort()

        scope["extensions"] = {**scope.get("extensions", {}), DROP: drop}
        await self.fake(scope, receive, send)

    def protocol(self) -> type[H11Protocol]:
        """A protocol class that tells us of its transports."""
        transports = self.transports

        class Protocol(H11Protocol):
            def connection_made(self, transport: Any) -> None:
                transports[tuple(transport.get_extra_info("peername"))] = transport
                super().connection_made(transport)

        return Protocol


def build(fake: FakeHoncho, port: int = 0) -> uvicorn.Server:
    """A server for `fake` on the loopback; port 0 takes a free one."""
    connections = _Connections(fake)
    config = uvicorn.Config(
        connections,
        host=HOST,
        port=port,
        http=connections.protocol(),
        loop="asyncio",
        ws="none",
        log_config=None,
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def address(server: uvicorn.Server) -> str:
    """The base URL of a started server."""
    return f"http://{HOST}:{server.servers[0].sockets[0].getsockname()[1]}"


@dataclass(frozen=True, slots=True)
class Served:
    """A running fake: its base URL and itself."""

    url: str
    fake: FakeHoncho
    call: Callable[[Callable[[], Any]], Any]
    """Runs something in the server's loop and gives its result."""


@contextmanager
def serving(fake: FakeHoncho | None = None, port: int = 0) -> Generator[Served]:
    """A fake that listens in a thread of its own while the context is open."""
    fake = fake or FakeHoncho()
    server = build(fake, port)
    loop: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loop.append(asyncio.get_running_loop())
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="fake-honcho")
    thread.start()
    try:
        _wait_started(server, thread)

        def call(function: Callable[[], Any]) -> Any:
            async def run() -> Any:
                return function()

            return asyncio.run_coroutine_threadsafe(run(), loop[0]).result(START_SECONDS)

        yield Served(address(server), fake, call)
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(START_SECONDS)


def _wait_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    pause = threading.Event()
    waited = 0.0
    while not server.started:
        if not thread.is_alive() or waited > START_SECONDS:
            raise OSError("the fake server did not start")
        pause.wait(0.005)
        waited += 0.005
