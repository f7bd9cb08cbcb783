"""Callers of every kind, each with `memory` at hand: a kernel, a script, a worker that was given a token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from plain_python import Script, running_script

CONNECT = "import rlm_memory\nmemory = rlm_memory.connect()"


@pytest.fixture
def start_script(tmp_path: Path, state_root: Path) -> Iterator[Callable[..., Script]]:
    """`start_script(cwd=..., **environment)` starts a plain Python process on this test's state root."""
    with ExitStack() as stack:

        def start(cwd: Path | None = None, **environment: str) -> Script:
            return stack.enter_context(running_script(cwd or tmp_path, **environment))

        yield start


@pytest.fixture(params=["kernel", "kernel over comms", "script", "worker"])
def caller(request: pytest.FixtureRequest, start_host: Callable[..., Any], start_script: Callable[..., Script]) -> Any:
    """A caller with `memory` in its namespace; `caller.run(code)` gives what it printed."""
    start_host()
    if request.param.startswith("kernel"):
        route = "comm" if request.param.endswith("comms") else "auto"
        kernel = request.getfixturevalue("start_kernel")(RLM_MEMORY_ROUTE=route)
        kernel.run("%load_ext rlm_memory").ok()
        return kernel
    script = start_script()
    script.run(CONNECT).ok()
    if request.param == "script":
        return script
    shared = json.loads(script.run("import json\nprint(json.dumps(memory.share()))").ok())
    worker = start_script(**shared)
    worker.run("from rlm_memory import memory").ok()
    return worker
