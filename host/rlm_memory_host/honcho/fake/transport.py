"""The fake without a socket: an httpx transport in the caller's own loop, where time can be simulated.

Owns: carrying one request to the application; a dropped line becomes the error that httpx raises for it. Does not own:
anything of the answers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from rlm_memory_host.honcho.fake.app import DROP, FakeHoncho, Message


class FakeTransport(httpx.AsyncBaseTransport):
    """`httpx.AsyncClient(transport=FakeTransport(fake))`. A caller that gives up does not stop what it asked for."""

    def __init__(self, fake: FakeHoncho) -> None:
        self._fake = fake
        self.is_unreachable = False
        """Whether connecting fails."""
        self.knocked: list[float] = []
        """When connecting failed, by the running loop's clock."""
        self._running: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry one request."""
        if self.is_unreachable:
            self.knocked.append(asyncio.get_running_loop().time())
            raise httpx.ConnectError("unreachable", request=request)
        dropped = asyncio.Event()
        body = await request.aread()
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "path": request.url.path,
            "raw_path": request.url.raw_path,
            "query_string": request.url.query,
            "root_path": "",
            "scheme": "http",
            "server": ("fake", 80),
            "client": ("fake", 1),
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "extensions": {DROP: dropped.set},
        }
        given = iter([{"type": "http.request", "body": body, "more_body": False}])
        status, headers, parts = 500, list[tuple[bytes, bytes]](), list[bytes]()

        async def receive() -> Message:
            return next(given, {"type": "http.disconnect"})

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message["headers"])
            else:
                parts.append(message.get("body", b""))

        task = asyncio.ensure_future(self._fake(scope, receive, send))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)
        if dropped.is_set() and not headers:
            raise httpx.RemoteProtocolError("the connection was closed without an answer", request=request)
        return httpx.Response(status, headers=headers, content=b"".join(parts), request=request)
