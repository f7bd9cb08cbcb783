"""A running host that serves the loopback API, and a client of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from loopback_client import Client


@pytest.fixture
def serve(
    state_root: Path, tmp_path: Path, start_host: Callable[..., subprocess.Popen[bytes]]
) -> Callable[..., Client]:
    """`serve(line, ...)` starts a host whose settings hold these lines of `[loopback]`, and gives a client."""

    def started(*lines: str) -> Client:
        config = tmp_path / "rlm-memory.toml"
        config.write_text("\n".join(["[loopback]", "enabled = true", *lines, ""]))
        config.chmod(0o600)
        start_host("--config", str(config))
        return Client(state_root)

    return started
