"""Start a host in the background for a kernel that found none, and know why one did not start.

Owns: the command, its detachment, where its first words go. Does not own: dialling (`localsocket.py`). The host is in a
session of its own, so that neither the kernel's interrupts nor its end reach it.

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from rlm_memory import errors, wire
from rlm_memory.kept import state

LOG_NAME: Final = "host-start.log"
LOG_TAIL_BYTES: Final = 2000


def command(state_root: Path) -> list[str]:
    """How to run a host here: this interpreter's own package, else the command on PATH. Raises HostUnavailable."""
    arguments = ["host", "run", "--from-kernel", "--state-root", str(state_root)]
    if importlib.util.find_spec("rlm_memory_host") is not None:
        return [sys.executable, "-m", "rlm_memory_host", *arguments]
    found = shutil.which("rlm-memory")
    if found is None:
        raise errors.HostUnavailable(
            "no host runs, and rlm-memory-host is not installed where this kernel could start one: "
            "pip install rlm-memory-host, or start one elsewhere with `rlm-memory host run`"
        )
    return [found, *arguments]


def start(state_root: Path) -> subprocess.Popen[bytes]:
    """Start a host for `state_root`; what it says while starting goes to `run/host-start.log` there."""
    run = state_root / "run"
    try:
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = os.open(run / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise errors.HostUnavailable(
            f"no host runs and none can be started: the state folder cannot be written ({error.strerror}); "
            "set RLM_MEMORY_STATE_ROOT to a folder of yours"
        ) from error
    try:
        process = subprocess.Popen(  # the command is ours, without a shell
            command(state_root),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=state_root,
            start_new_session=True,
            # A token of whoever starts it is no business of a host's.
            env={name: value for name, value in os.environ.items() if name not in wire.TOKEN_VARIABLES},
        )
    finally:
        os.close(log)
    # Kept for `reap`.
    state().setdefault("started_hosts", []).append(process)
    return process


def reap() -> None:
    """Collect those of our hosts that ended, so that none stays behind as a zombie."""
    running: list[subprocess.Popen[bytes]] = state().get("started_hosts", [])
    running[:] = [process for process in running if process.poll() is None]


def last_words(state_root: Path) -> str:
    """The last line that a host said while starting; empty when it said nothing."""
    try:
        text = (state_root / "run" / LOG_NAME).read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
