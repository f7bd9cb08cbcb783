"""`pytest --nbval notebooks` runs under the same hygiene as the tests: a state root of its own, no process left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

pytest_plugins = ["hygiene", "no_skips"]


def pytest_sessionfinish() -> None:
    """Stop the host that the first notebook started, before hygiene looks for processes left behind."""
    from hosts import stop_host

    stop_host(Path(os.environ["RLM_MEMORY_STATE_ROOT"]))
