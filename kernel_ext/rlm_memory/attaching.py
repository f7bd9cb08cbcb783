"""A kernel's way to its host: hello over the comm route, else the local socket, where the host is asked to attach.

Owns: the order of the steps. Does not own: what every process does (`finding.py`), the messages (`channel.py`).

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from rlm_memory import errors, wire
from rlm_memory.channel import HostChannel, Pending
from rlm_memory.finding import EXTENSION_VERSION, Connection, Host, dial, read_hello, state_root
from rlm_memory.upgraded import KernelRoute

SHORT_HELLO_SECONDS: Final = 0.25
"""A host that is attached already answers a hello in a few milliseconds; nobody launched us, so no longer than this."""
MODES: Final = ("auto", "comm", "none")
ROUTES: Final = ("auto", "comm")
LEASED: Final = "KERNEL_LEASED"
"""What a host answers that was asked to attach to a kernel which another host serves."""


class KernelConnection(Connection):
    """A kernel's relation to its host."""

    def __init__(
        self, channel: HostChannel, environ: Mapping[str, str] = os.environ, *, route: KernelRoute | None = None
    ) -> None:
        """`route` where the channel's may be upgraded."""
        super().__init__(channel, environ)
        self._route = route
        self._hello: Pending | None = None
        self._hello_sent = 0.0
        self._offer: wire.Offer | None = None
        """What the host offered last; still good where only a connection broke."""

    def begin(self) -> None:
        """Send the hello without waiting, so that an attached host has answered by the time of the first call."""
        if self._mode() != "none":
            self._say_hello()

    def for_child(self) -> Connection | None:
        """In a forked child: the session over a socket of the child's own, where the host offers that."""
        offer = self._offer
        if self._lifeline is not None:
            self._lifeline.close()
        if offer is None:
            return None
        from rlm_memory.opening import SessionConnection

        return SessionConnection(self._environ, offer=offer)

    def forget(self) -> None:
        """The host is lost: the next call looks for one again, over the kernel's own channels."""
        if self._route is not None:
            self._route.downgrade()
        self._offer = None
        super().forget()

    # -- the steps -------------------------------------------------------------------------------------------------

    def _mode(self) -> str:
        return self._told("RLM_MEMORY_HOST", MODES)

    def _told(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self._environ.get(name) or "auto"
        if value not in allowed:
            raise errors.HostUnavailable(f"{name} is {value!r}; it may be {', '.join(allowed)}")
        return value

    def _connect(self) -> Host:
        mode, route = self._mode(), self._told("RLM_MEMORY_ROUTE", ROUTES)
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
        host = self._read_hello(reply)
        self._offer = host.offer
        if host.offer is not None and "comm" not in (mode, route):
            self._upgrade(host.offer)
        return host

    def _upgrade(self, offer: wire.Offer) -> None:
        """Take the direct channel that the hello offers, where it can be reached from here: a sandbox hides it."""
        from rlm_memory.directroute import is_reachable

        if self._route is not None and is_reachable(offer.address):
            self._route.upgrade(offer, self._direct_lost)

    def _direct_lost(self) -> None:
        """On the direct channel's thread: what waits is asked for again the other way, the next call says hello."""
        self._host = None
        if self._route is not None:
            self.channel.switch(self._route, opened=True)

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
        return read_hello(reply.fields, told)

    def _attach(self) -> socket.socket:
        """Hand our connection file to the host of this user and state root, starting one where none runs."""
        message = {
            "type": wire.ATTACH,
            "protocol": wire.PROTOCOL,
            "connection_file": connection_file(),
            "pid": os.getpid(),
            "cwd": os.getcwd(),  # noqa: PTH109 - what `open` uses, a string as the wire wants it
            "extension": EXTENSION_VERSION,
        }
        return dial(state_root(self._environ), message)[0]


def connection_file() -> str:
    """Absolute path of this kernel's connection file. Raises HostUnavailable when it has none on disk."""
    from ipykernel.connect import get_connection_file

    try:
        path = Path(get_connection_file()).absolute()
    except (RuntimeError, OSError) as error:
        raise errors.HostUnavailable("this kernel has no connection file that a host could attach to") from error
    return str(path)
