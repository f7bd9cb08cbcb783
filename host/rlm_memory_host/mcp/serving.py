"""The two transports: standard input and output, and streamable HTTP on the loopback behind a token.

Owns: running a server until its client is gone or the process is asked to end; who may speak over HTTP. Does not own:
what is served (`server`).

Over HTTP each client speaks for the one project of this process. The address may leak (an environment variable reaches
a model's shell), so every request needs the token (`bearer`); the library refuses foreign Host and
Origin headers besides.

Source: design page "DeepSeek Harness and MCP", Secrets and places.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import uvicorn
from mcp.server.stdio import stdio_server

from rlm_memory_host.bearer import SHORTEST_TOKEN, Guarded, kept_token, token_path
from rlm_memory_host.errors import SettingsError
from rlm_memory_host.mcp.asking import Asking, Guest
from rlm_memory_host.mcp.server import build

ADDRESS: Final = "127.0.0.1"
PATH: Final = "/mcp"
TOKEN_VARIABLE: Final = "RLM_MEMORY_MCP_TOKEN"
TOKEN_NAME: Final = "mcp"

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


def token_of(state_root: Path) -> tuple[str, Path | None]:
    """The token from the environment, else one that is made once and kept in a private file (whose path is given).

    Raises SettingsError where the variable holds too short a one.
    """
    named = os.environ.get(TOKEN_VARIABLE)
    if named is not None:
        if len(named) < SHORTEST_TOKEN or not named.isascii() or not named.isprintable():
            raise SettingsError(f"{TOKEN_VARIABLE}: at least {SHORTEST_TOKEN} printable ASCII characters are needed")
        return named, None
    return kept_token(state_root, TOKEN_NAME), token_path(state_root, TOKEN_NAME)
