"""The two transports: standard input and output, and streamable HTTP on the loopback behind a token.

Owns: running a server until its client is gone or the process is asked to end; who may speak over HTTP. Does not own:
what is served (`server`).

Over HTTP each client speaks for the one project of this process. The address may leak (an environment variable reaches
a model's shell), so every request needs the token, compared in constant time; the library refuses foreign Host and
Origin headers besides.

Source: design page "DeepSeek Harness and MCP", Secrets and places.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import uvicorn
from mcp.server.stdio import stdio_server
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from rlm_memory_host.errors import SettingsError
from rlm_memory_host.mcp.asking import Asking, Guest
from rlm_memory_host.mcp.server import build
from rlm_memory_host.process import claim_state_root, private_folder, write_private

ADDRESS: Final = "127.0.0.1"
PATH: Final = "/mcp"
TOKEN_VARIABLE: Final = "RLM_MEMORY_MCP_TOKEN"
SHORTEST_TOKEN: Final = 20

Opened = AbstractAsyncContextManager[Guest]
"""A guest session that is not entered yet."""


async def over_stdio(guest: Opened) -> None:
    """Serve one client on standard input and output until it closes them."""
    async with guest as session, stdio_server() as (read, write):
        server = build(Asking(session))
        await server.run(read, write, server.create_initialization_options())


async def over_http(guest: Opened, port: int, token: str, started: Callable[[str], None]) -> None:
    """Serve clients on the loopback until SIGTERM or SIGINT; `started` gets the URL.

    Raises SettingsError where the port cannot be had.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
        except OSError as error:
            raise SettingsError(f"--http: port {port} cannot be had ({error.strerror}); name another, or 0") from error
        async with guest as session:
            application = Guarded(build(Asking(session)).streamable_http_app(streamable_http_path=PATH), token)
            config = uvicorn.Config(
                application, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=2
            )
            started(f"http://{ADDRESS}:{listener.getsockname()[1]}{PATH}")
            await uvicorn.Server(config).serve(sockets=[listener])


class Guarded:
    """ASGI: only requests with the token reach the application."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_allowed(scope):
            refusal = PlainTextResponse(
                "DENIED: every request needs the header 'Authorization: Bearer <token>'",
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._application(scope, receive, send)

    def _is_allowed(self, scope: Any) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)


def token_of(state_root: Path) -> tuple[str, Path | None]:
    """The token from the environment, else one that is made once and kept in a private file (whose path is given).

    Raises SettingsError where the variable holds too short a one.
    """
    named = os.environ.get(TOKEN_VARIABLE)
    if named is not None:
        if len(named) < SHORTEST_TOKEN or not named.isascii() or not named.isprintable():
            raise SettingsError(f"{TOKEN_VARIABLE}: at least {SHORTEST_TOKEN} printable ASCII characters are needed")
        return named, None
    path = private_folder(claim_state_root(state_root) / "run") / "mcp.token"
    try:
        kept = path.read_text("ascii").strip()
    except FileNotFoundError:
        kept = ""
    if len(kept) < SHORTEST_TOKEN:
        kept = secrets.token_urlsafe(32)
        write_private(path, kept.encode() + b"\n")
    return kept, path
