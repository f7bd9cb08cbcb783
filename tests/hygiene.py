"""Pytest plugin: tests never touch a user's files and leave no process behind.

Owns: a home folder, XDG, Jupyter and state folders of the run's own, and the search for orphans at the end. Hosts
detach from whoever started them, so being a child is not enough to find one: every process of the run inherits a mark
in its environment. Where a run is spread over workers (pytest-xdist), each is a run within the run: a home and a longer
mark of its own, and it tells the first process what it found. Does not own: stopping what a test started, which is the
fixture's or the test's own work; what is found here is a failure of the run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

MARK = "RLM_MEMORY_TEST_RUN"
GRACE_SECONDS = float(os.environ.get("RLM_MEMORY_TEST_GRACE", "10"))
"""A stopped kernel or host may still be on its way out when the last test ends."""

_FOLDERS = {
    "HOME": ".",
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_RUNTIME_DIR": "run",
    "IPYTHONDIR": ".ipython",
    "JUPYTER_CONFIG_DIR": ".jupyter",
    "JUPYTER_DATA_DIR": ".local/share/jupyter",
    "JUPYTER_RUNTIME_DIR": ".local/share/jupyter/runtime",
    "MPLCONFIGDIR": ".config/matplotlib",
    "RLM_MEMORY_STATE_ROOT": "state",
}
_LEAKS = ("RLM_MEMORY_CONFIG", "RLM_MEMORY_HOST", "RLM_SESSION_DIR", "PYTHONSTARTUP", "JUPYTER_PATH")
_PRIVATE = 0o700


def _enter() -> Path:
    """Point this process, and so everything it starts, at folders of its own. Runs before any product module loads."""
    home = Path(tempfile.mkdtemp(prefix="rlm-memory-test-home-"))
    for name, below in _FOLDERS.items():
        folder = home / below
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        os.environ[name] = str(folder)
    for name in _LEAKS:
        os.environ.pop(name, None)
    os.environ[MARK] = f"{os.environ.get(MARK, 'run')}.{uuid.uuid4().hex[:12]}"
    return home


_HOME = _enter()


def leave() -> None:
    """Remove the folders again."""
    shutil.rmtree(_HOME, ignore_errors=True)


def _is_of_this_run(process: psutil.Process) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.environ().get(MARK, "").startswith(os.environ[MARK]) or str(_HOME) in " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return False


def orphans() -> list[psutil.Process]:
    """Live processes that this test run started, directly or through others, apart from the run itself."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for process in psutil.process_iter() if process.pid not in own and _is_of_this_run(process)]


def _await_end() -> list[psutil.Process]:
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := orphans()) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.2)
    return left


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run where it leaves processes, then end them: they are all its own."""
    left = _await_end()
    found = session.config.stash.setdefault(_FOUND, [])
    for process in left:
        with process.oneshot():
            found.append(f"orphan process {process.pid}: {' '.join(process.cmdline())[:300]}")
        process.kill()
    psutil.wait_procs(left, timeout=5)
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    told: dict[str, list[str]] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[_TOLD] = found
    leave()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker found; it comes before the first process's own end."""
    told: dict[str, list[str]] = getattr(node, "workeroutput", {})
    config: pytest.Config = node.config
    config.stash.setdefault(_FOUND, []).extend(told.get(_TOLD, []))


_FOUND = pytest.StashKey[list[str]]()
_TOLD = "rlm-memory-orphans"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = terminalreporter.config.stash.get(_FOUND, [])
    if found:
        terminalreporter.section("processes left behind (this fails the run)", red=True)
        for line in found:
            terminalreporter.line(line)
