"""Which host a process talks to: what is known of it, one caller connects at a time, connecting again after a loss.

Owns: the common part of the two ways to a host, the state root, dialling the local socket and starting a host where
none listens. Does not own: the ways themselves (`attaching.py` for kernels, `opening.py` for every other process), the
messages (`channel.py`), the socket (`localsocket.py`), the process (`launch.py`).

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from rlm_memory import errors, launch, localsocket, wire
from rlm_memory.channel import HostChannel
from rlm_memory.interrupts import prompt

EXTENSION_VERSION: Final = "0.1.0"
START_SECONDS: Final = 15.0
"""How long a host that we start may take until its socket answers."""
AFTER_EXIT_SECONDS: Final = 1.0
"""When the host that we started ends at once, another process's may have been first: look that long."""
HOST_NAME: Final = "rlm-memory-host"


@dataclass(frozen=True)
class Host:
    """What the hello told. `ours` is False for a plain DSH RLM host, which knows only the two tool requests."""

    ours: bool
    version: str | None = None
    session_dir: Path | None = None
    artifacts: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    epoch: str | None = None
    """Which table of seen requests answers; another one after a restart of either side."""
    offer: wire.Offer | None = None
    """What it takes to open a direct channel for this session; None where the host offers none."""


class Connection(ABC):
    """The process's relation to its host. Thread-safe: one caller connects, the others wait for it."""

    def __init__(self, channel: HostChannel, environ: Mapping[str, str] = os.environ) -> None:
        self.channel = channel
        self._environ = environ
        self._lock = threading.RLock()
        self._host: Host | None = None
        self._lifeline: socket.socket | None = None
        self.failures = 0
        """Attempts to connect that failed so far."""
        self._last_failure: errors.MemoryFault | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("the live connection to the host cannot be pickled; pickle `memory` itself, it connects again")

    @abstractmethod
    def for_child(self) -> Connection | None:
        """Called in a forked child: the connection to use there; None where the parent's stays, which refuses."""

    @abstractmethod
    def _connect(self) -> Host:
        """Find the host, the slow way. Called under the lock."""

    def known_host(self) -> Host | None:
        """The host as last heard, without asking or waiting; None when there is none or its lifeline ended."""
        if self._lifeline is not None and localsocket.is_gone(self._lifeline):
            self.forget()
        return self._host

    def ensure(self, failures: int | None = None) -> Host:
        """The host, connecting first where needed. Blocks, at most about 30 s where a host must be started.

        Who waited while another caller tried and failed gets that failure too, rather than try one after the other;
        `failures` is what the attribute was when the caller began to wait, by default now.

        Raises HostUnavailable (NO_HOST) with the step that failed and what to do; Forked.
        """
        self.channel.check_caller()
        host = self.known_host()
        if host is not None:
            return host
        if failures is None:
            failures = self.failures
        with prompt():
            while not self._lock.acquire(timeout=wire.TICK_SECONDS):
                self.channel.tick()
            try:
                return self.known_host() or self._connect_once(failures)
            finally:
                self._lock.release()

    def lost(self, host: Host) -> None:
        """A call that went to that host found it lost. Where another caller has connected again, nothing happens."""
        if self._host is host:
            self.forget()

    def forget(self) -> None:
        """The host is lost: the next call looks for one again."""
        self._host = None
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            lifeline.close()
        launch.reap()

    def close(self) -> None:
        """Give everything back and end every wait."""
        self.forget()
        self.channel.close()

    def _connect_once(self, failures: int) -> Host:
        """Connect, unless an attempt has failed since there were `failures`. Under the lock."""
        if self._last_failure is not None and self.failures != failures:
            raise type(self._last_failure)(str(self._last_failure), self._last_failure.code)
        try:
            self._host = self._connect()
            return self._host
        except errors.MemoryFault as fault:
            self.failures += 1
            self._last_failure = fault
            raise


def read_hello(fields: Mapping[str, Any], session_dir: str | None) -> Host:
    """What a hello's answer says; `session_dir` stands in for a host that tells none."""
    folder = fields.get("session_dir") or session_dir
    return Host(
        ours=fields.get("host") == HOST_NAME,
        version=str(fields.get("version") or "") or None,
        session_dir=Path(str(folder)) if folder else None,
        artifacts=bool(fields.get("artifacts", True)),
        limits=cast("Mapping[str, Any]", fields.get("limits") or {}),
        epoch=str(fields.get("epoch") or "") or None,
        offer=wire.parse_offer(fields.get("direct")),
    )


def dial(root: Path, message: Mapping[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
    """Say a line to the host of a state root, starting one where none runs; the connection is a lifeline.

    Raises HostUnavailable with the step that failed, and what the host refused.
    """
    if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
        raise errors.HostUnavailable("a local host needs Linux or macOS, and no other host answered")
    path = wire.socket_path(root)
    try:
        return localsocket.dial(path, message)
    except localsocket.NotListening:
        process = launch.start(root)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            answered = localsocket.dial(path, message)
            launch.reap()  # one that was killed may have been on its way out still when its loss was noticed
            return answered
        except localsocket.NotListening:
            if process.poll() is not None:
                end = min(end, time.monotonic() + AFTER_EXIT_SECONDS)
        time.sleep(0.05)
    raise _start_failed(root, process.poll())


def _start_failed(root: Path, code: int | None) -> errors.HostUnavailable:
    ended = (
        f"it ended with exit code {code}"
        if code is not None
        else f"its socket did not answer within {START_SECONDS:.0f} s"
    )
    words = launch.last_words(root)
    said = f" and said: {words}" if words else ""
    return errors.HostUnavailable(
        f"no host ran, so one was started, but {ended}{said}. Run `rlm-memory host run` in a terminal to see why"
    )


def state_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the host of this user keeps its state: `RLM_MEMORY_STATE_ROOT`, else `state_root` in the operator's
    configuration, else the platform's data folder. A configuration file in the project folder may not set it: whoever
    owns a notebook's folder must not choose which socket its kernel trusts.
    """
    named = environ.get("RLM_MEMORY_STATE_ROOT")
    if named:
        return Path(named).expanduser().absolute()
    path = operator_config(environ)
    try:
        import tomllib

        told = tomllib.loads(path.read_text("utf-8")).get("state_root")
    except FileNotFoundError:
        told = None
    except (OSError, ValueError) as error:
        raise errors.HostUnavailable(
            f"the configuration {path.name} cannot be read ({type(error).__name__}); "
            "mend it, or set RLM_MEMORY_STATE_ROOT"
        ) from error
    if told is None:
        return wire.default_state_root().absolute()
    if not isinstance(told, str) or not Path(told).is_absolute():
        # As the host says it: a folder that depends on who reads the file would be two folders.
        raise errors.HostUnavailable("`state_root` in rlm-memory.toml must be an absolute path")
    return Path(told)


def operator_config(environ: Mapping[str, str] = os.environ) -> Path:
    """The operator's configuration file: `RLM_MEMORY_CONFIG`, else `rlm-memory.toml` in the user's config folder."""
    named = environ.get("RLM_MEMORY_CONFIG")
    if named:
        return Path(named).expanduser().absolute()
    from platformdirs import user_config_path

    return user_config_path("rlm-memory", appauthor=False) / "rlm-memory.toml"
