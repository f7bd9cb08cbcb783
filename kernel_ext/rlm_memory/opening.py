"""The way to a host of a process that is no kernel: a session of its own, or a token that it was given.

Owns: opening a session over the local socket, the variables that a token travels in, the direct route's life. Does not
own: what every process does (`finding.py`), the route (`directroute.py`), the public calls (`scripts.py`).

A session that this process opened ends with it: the local socket's connection is its lifeline. A token speaks for the
session of whoever shared it, in the same project and folder; it ends with that session.

Source: design page "Kernel <-> host", Direct channel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from rlm_memory import errors, wire
from rlm_memory.channel import HostChannel
from rlm_memory.directroute import DirectRoute, Unopened, is_reachable
from rlm_memory.finding import EXTENSION_VERSION, Connection, Host, dial, read_hello, state_root

TOKEN, ADDRESS, SERVER_KEY = wire.TOKEN_VARIABLES
HELLO_SECONDS: Final = 10.0
"""The host is known to be there; with 64 processes at its door the handshake may still take a while."""
LABEL_CHARACTERS: Final = 64


class SessionConnection(Connection):
    """The relation of a script, a worker or a forked child to its host."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        *,
        root: Path | None = None,
        offer: wire.Offer | None = None,
        label: str = "",
    ) -> None:
        """With an `offer` its session is used; otherwise one is opened at the host of `root`."""
        super().__init__(HostChannel(Unopened()), environ)
        self.root = root
        self._given = offer
        self._label = label
        self._route: DirectRoute | None = None

    def forget(self) -> None:
        """The host is lost, or was closed: the next call connects again."""
        route, self._route = self._route, None
        super().forget()
        if route is not None:
            self.channel.switch(Unopened())
            route.close()

    def for_child(self) -> Connection | None:
        """In a forked child: the parent's session over a socket of the child's own, its lifeline left to the parent."""
        offer = self._given
        if offer is None and self._host is not None:
            offer = self._host.offer
        if self._lifeline is not None:
            self._lifeline.close()
        return SessionConnection(self._environ, root=self.root, offer=offer, label=self._label)

    def _connect(self) -> Host:
        self.forget()
        offer = self._given or self._open()
        if not is_reachable(offer.address):
            raise errors.HostUnavailable(
                "the host that the token is for does not run any more, or is on another machine; connect again there, "
                "or have whoever shared the token share it again"
            )
        route = self._route = DirectRoute(offer, self._lost)
        self.channel.switch(route)
        payload = {"protocol": wire.PROTOCOL, "extension": EXTENSION_VERSION}
        hello = self.channel.submit(wire.HELLO, payload, retransmit=False, watched=False)
        try:
            reply = self.channel.wait(hello, HELLO_SECONDS)
        except TimeoutError:
            self.channel.withdraw(hello)
            self.forget()
            raise errors.HostUnavailable(
                f"the host took the connection but did not answer the hello within {HELLO_SECONDS:.0f} s; "
                "see `rlm-memory doctor`, or restart it with `rlm-memory host stop`"
            ) from None
        except BaseException:
            self.forget()
            raise
        if reply.code is not None:
            self.forget()
            raise errors.from_code(reply.code, f"the host refused the hello: {reply.message}")
        return replace(read_hello(reply.fields, None), offer=offer)

    def _open(self) -> wire.Offer:
        message = {
            "type": wire.OPEN,
            "protocol": wire.PROTOCOL,
            "cwd": os.getcwd(),  # noqa: PTH109 - what `open` uses, a string as the wire wants it
            "label": self._label,
        }
        self._lifeline, answer = dial(self.root or state_root(self._environ), message)
        offer = wire.parse_offer(answer.get("direct"))
        if offer is None:
            self.forget()
            raise errors.Unsupported(
                "this host has no direct channel; install rlm-memory and rlm-memory-host of one release",
                wire.UNSUPPORTED_REQUEST,
            )
        return offer

    def _lost(self, route: DirectRoute, fault: errors.MemoryFault) -> None:
        """On the reader's thread: whoever waits is told at once."""
        if route is self._route:
            self._host = None
            self.channel.fail(fault)


def shared_offer(environ: Mapping[str, str] = os.environ) -> wire.Offer | None:
    """The token that this process was given in its environment; None where it was given none.

    Raises Invalid where only a part of it is there, or it is damaged.
    """
    if not environ.get(TOKEN):
        return None
    fields = {"address": environ.get(ADDRESS), "server_key": environ.get(SERVER_KEY), "token": environ.get(TOKEN)}
    offer = wire.parse_offer(fields)
    if offer is None:
        raise errors.Invalid(
            f"{TOKEN} is set, but it, {ADDRESS} and {SERVER_KEY} are not what memory.share() gives; "
            "pass all of them on as they are, or unset them"
        )
    return offer


def variables(offer: wire.Offer) -> dict[str, str]:
    """The environment that makes another process use an offer's session."""
    return {TOKEN: offer.token, ADDRESS: offer.address, SERVER_KEY: offer.server_key}


def default_label() -> str:
    """What the host's status shows of this process: its script's name."""
    name = Path(sys.argv[0] if sys.argv else "").name or "python"
    return "".join(letter if " " <= letter <= "~" else "?" for letter in name)[:LABEL_CHARACTERS]
