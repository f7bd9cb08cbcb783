"""The official client of the Model Context Protocol against `rlm-memory mcp`, over either transport."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

SCRIPT = str(Path(sys.executable).parent / "rlm-memory")
TOKEN = "a-token-for-tests-only-" + "0" * 12
END_SECONDS = 20.0
ENDED_BY_CTRL_C = (0, 130, -signal.SIGINT)


def parameters(folder: Path) -> StdioServerParameters:
    """How a client starts the server for a project's folder, in the environment of this test."""
    return StdioServerParameters(command=SCRIPT, args=["mcp"], cwd=folder, env=dict(os.environ))


class HttpServer:
    """`rlm-memory mcp --http 0` in a folder; `url` is where it listens."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [SCRIPT, "mcp", "--http", "0", *arguments],
            cwd=folder,
            env={**os.environ, "RLM_MEMORY_MCP_TOKEN": TOKEN, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.url = self.said.split(" ")[0]

    def end(self) -> int:
        """Ask it to end as Ctrl-C does; its exit code."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(END_SECONDS)


@contextlib.asynccontextmanager
async def client_of(transport: str, folder: Path, mode: str = "auto") -> AsyncGenerator[Client]:
    """A connected client; the server ends with it."""
    if transport == "stdio":
        async with Client(parameters(folder), mode=mode) as client:
            yield client
        return
    server = HttpServer(folder)
    try:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60, trust_env=False) as http,
            Client(streamable_http_client(server.url, http_client=http), mode=mode) as client,
        ):
            yield client
    finally:
        assert server.end() in ENDED_BY_CTRL_C
