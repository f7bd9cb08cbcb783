"""Fixtures of the front ends' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_front import JupyterServer


@pytest.fixture
def jupyter(tmp_path: Path, state_root: Path) -> Iterator[Callable[..., JupyterServer]]:
    """`jupyter(**environment)` starts a server on this test's state root."""
    servers: list[JupyterServer] = []

    def start(**environment: str) -> JupyterServer:
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        servers.append(JupyterServer(folder, {"RLM_MEMORY_STATE_ROOT": str(state_root), **environment}))
        return servers[-1]

    yield start
    for server in servers:
        server.end()
