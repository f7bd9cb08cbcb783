"""Which host this kernel talks to: hello over the comm route, else the local socket, starting a host where none runs.

Owns: the order of the steps, the state root, what is known of the host, connecting again after a loss. Does not own:
the messages (`channel.py`), the socket (`localsocket.py`), the process (`launch.py`).

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from rlm_memory import errors, launch, localsocket, wire
from rlm_memory.channel import HostChannel, Pending
from rlm_memory.interrupts import prompt

EXTENSION_VERSION: Final = "0.1.0"
SHORT_HELLO_SECONDS: Final = 0.25
"""A host that is attached already answers a hello in a few milliseconds; nobody launched us, so no longer than this."""
START_SECONDS: Final = 15.0
"""How long a host that we start may take until its socket answers."""
AFTER_EXIT_SECONDS: Final = 1.0
"""When the host that we started ends at once, another kernel's may have been first: look that long."""
MODES: Final = ("auto", "comm", "none")
HOST_NAME: Final = "rlm-memory-host"
LEASED: Final = "KERNEL_LEASED"
"""What a host answers that was asked to attach to a kernel which another host serves."""


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


class Connection:
    """The kernel's relation to its host. Thread-safe: one caller connects, the others wait for it."""

    def __init__(self, channel: HostChannel, environ: Mapping[str, str] = os.environ) -> None:
        self.channel = channel
        self._environ = environ
        self._lock = threading.RLock()
        self._host: Host | None = None
        self._hello: Pending | None = None
        self._hello_sent = 0.0
        self._lifeline: socket.socket | None = None
        self.failures = 0
        """Attempts to connect that failed so far."""
        self._last_failure: errors.MemoryFault | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("the live connection to the host cannot be pickled; pickle `memory` itself, it connects again")

    def begin(self) -> None:
        """Send the hello without waiting, so that an attached host has answered by the time of the first call."""
        if self._mode() != "none":
            self._say_hello()

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

    def forget(self) -> None:
        """The host is lost: the next call looks for one again."""
        self._host = None
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            lifeline.close()
        launch.reap()

    def close(self) -> None:
        self.forget()
        self.channel.close()

    def _connect_once(self, failures: int) -> Host:
        """Connect, unless an attempt has failed since there were `failures`. Under the lock."""
        if self._last_failure is not None and self.failures != failures:
            raise type(self._last_failure)(str(self._last_failure), self._last_failure.code)
        try:
            return self._connect()
        except errors.MemoryFault as fault:
            self.failures += 1
            self._last_failure = fault
            raise

    # -- the steps -------------------------------------------------------------------------------------------------

    def _mode(self) -> str:
        mode = self._environ.get("RLM_MEMORY_HOST") or "auto"
        if mode not in MODES:
            raise errors.HostUnavailable(f"RLM_MEMORY_HOST is {mode!r}; it may be {', '.join(MODES)}")
        return mode

    def _connect(self) -> Host:
        mode = self._mode()
        if mode == "none":
            raise errors.HostUnavailable(
                "RLM_MEMORY_HOST=none keeps this kernel from any host; unset it and call again"
            )
        if self._hello is None or self._hello.future.done():
            self._say_hello()
        launched = bool(self._environ.get("RLM_SESSION_DIR"))
        patience = wire.HELLO_SECONDS if launched or mode == "comm" else SHORT_HELLO_SECONDS
        reply = self._await_hello(self._hello_sent + patience - time.monotonic())
        if reply is None and mode == "comm":
            self._give_up(
                "no host answered the hello on this kernel's own channels within 3 s, and RLM_MEMORY_HOST=comm allows "
                "no other way; attach one with `rlm-memory attach --existing CONNECTION_FILE`, or unset RLM_MEMORY_HOST"
            )
        if reply is None:
            reply = self._attach_and_hear()
        if reply is None:
            self._give_up(
                "the host attached to this kernel but did not answer the hello within 3 s; see `rlm-memory doctor`, "
                "or restart it with `rlm-memory host stop`"
            )
        self._hello = None
        self._host = self._read_hello(reply)
        return self._host

    def _attach_and_hear(self) -> wire.Reply | None:
        """Attach a host and wait for its hello. One that was faster than ours serves the kernel: then its hello."""
        leased: errors.MemoryFault | None = None
        try:
            try:
                self._lifeline = self._attach()
            except errors.MemoryFault as fault:
                if fault.code != LEASED:
                    raise
                leased = fault
            reply = self._await_hello(wire.HELLO_SECONDS)
            if reply is None and leased is not None:
                raise leased
        except BaseException:
            self._drop_hello()
            raise
        return reply

    def _say_hello(self) -> None:
        payload = {"protocol": wire.PROTOCOL, "extension": EXTENSION_VERSION}
        self._hello = self.channel.submit(wire.HELLO, payload, retransmit=False, watched=False)
        self._hello_sent = time.monotonic()

    def _await_hello(self, seconds: float) -> wire.Reply | None:
        """Wait for the hello, repeating it: a subscription that is still being made misses the first ones."""
        hello = self._hello
        assert hello is not None
        end, pause = time.monotonic() + seconds, 0.05
        while True:
            left = end - time.monotonic()
            try:
                return self.channel.wait(hello, max(0.0, min(pause, left)))
            except TimeoutError:
                if left <= pause:
                    return None
            self.channel.resend(hello)
            pause = min(pause * 2, 0.4)

    def _drop_hello(self) -> None:
        hello, self._hello = self._hello, None
        if hello is not None:
            self.channel.withdraw(hello)

    def _give_up(self, text: str) -> NoReturn:
        self._drop_hello()
        self.forget()
        raise errors.HostUnavailable(text)

    def _read_hello(self, reply: wire.Reply) -> Host:
        told = self._environ.get("RLM_SESSION_DIR")
        if reply.code == wire.UNSUPPORTED_REQUEST:
            return Host(False, session_dir=Path(told) if told else None)
        if reply.code is not None:
            self.forget()
            raise errors.from_code(reply.code, f"the host refused the hello: {reply.message}")
        fields = reply.fields
        folder = fields.get("session_dir") or told
        return Host(
            ours=fields.get("host") == HOST_NAME,
            version=str(fields.get("version") or "") or None,
            session_dir=Path(str(folder)) if folder else None,
            artifacts=bool(fields.get("artifacts", True)),
            limits=cast("Mapping[str, Any]", fields.get("limits") or {}),
            epoch=str(fields.get("epoch") or "") or None,
        )

    def _attach(self) -> socket.socket:
        """Hand our connection file to the host of this user and state root, starting one where none runs."""
        if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
            self._give_up("no host answered on this kernel's channels, and a local host needs Linux or macOS")
        root = state_root(self._environ)
        path = wire.socket_path(root)
        message = {
            "type": wire.ATTACH,
            "protocol": wire.PROTOCOL,
            "connection_file": connection_file(),
            "pid": os.getpid(),
            "cwd": os.getcwd(),  # noqa: PTH109 - what `open` uses, a string as the wire wants it
            "extension": EXTENSION_VERSION,
        }
        try:
            return localsocket.dial(path, message)[0]
        except localsocket.NotListening:
            process = launch.start(root)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                return localsocket.dial(path, message)[0]
            except localsocket.NotListening:
                if process.poll() is not None:
                    end = min(end, time.monotonic() + AFTER_EXIT_SECONDS)
            time.sleep(0.05)
        raise self._start_failed(root, process.poll())

    def _start_failed(self, root: Path, code: int | None) -> errors.HostUnavailable:
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


def connection_file() -> str:
    """Absolute path of this kernel's connection file. Raises HostUnavailable when it has none on disk."""
    from ipykernel.connect import get_connection_file

    try:
        path = Path(get_connection_file()).absolute()
    except (RuntimeError, OSError) as error:
        raise errors.HostUnavailable("this kernel has no connection file that a host could attach to") from error
    return str(path)
