"""Homes of both lines of DeepSeek Harness, a model for them, and a host that serves the bridge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harnesses import LINES, Harness, Line, environments
from stub_model import Model, running_model


@pytest.fixture(scope="session")
def dsh_environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the two environments."""
    return environments(tmp_path_factory.mktemp("dsh-environments"))


@pytest.fixture
def model() -> Iterator[Model]:
    """The model that both lines ask."""
    with running_model() as running:
        yield running


@pytest.fixture(params=LINES)
def harness(request: pytest.FixtureRequest, dsh_environments: Path, tmp_path: Path, model: Model) -> Harness:
    """A home without the bridge, of each line in turn."""
    line: Line = request.param
    return Harness.made(line, dsh_environments, tmp_path / "home", model.url)


@pytest.fixture
def rlm_memory() -> Callable[..., str]:
    """`rlm_memory("dsh", "install", …)` runs the command on this test's state root and gives what it printed."""

    def run(*arguments: str) -> str:
        command = [str(Path(sys.executable).with_name("rlm-memory")), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run
