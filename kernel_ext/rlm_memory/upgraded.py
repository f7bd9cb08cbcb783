"""A kernel's route: its own channels, and once the host offers it and the handshake is done, the direct channel.

Owns: which of the two a message takes. Does not own: either of them (`route.py`, `directroute.py`), when there is an
offer (`attaching.py`). A request and its cancellation stay on the way that the request first took, so that its reply
comes to whoever reads there; after a loss everything that is in flight is asked for again over the kernel's channels,
where the host knows the ids, since it keeps one table for both ways.

Source: design page "Kernel <-> host", Direct channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from rlm_memory import errors, wire
from rlm_memory.directroute import GONE, DirectRoute
from rlm_memory.route import CommRoute, IsOurs, OnReply


class KernelRoute:
    """The two ways of a kernel behind one interface. The kernel's own channels are always there."""

    def __init__(self, kernel: Any) -> None:
        self._comm = CommRoute(kernel)
        self._origin = str(kernel.session.session)
        self._direct: DirectRoute | None = None
        self._by_comm: set[str] = set()
        """What went over the kernel's channels while a direct one was being made, and waits for its reply."""
        self._on_reply: OnReply = lambda _request_id, _data: False

    def open(self, on_reply: OnReply, is_ours: IsOurs) -> None:
        self._on_reply = on_reply
        self._comm.open(self._from_comm, is_ours)

    def upgrade(self, offer: wire.Offer, on_lost: Callable[[], None]) -> bool:
        """Use the offered channel as soon as its handshake is done; whether it is tried.

        `on_lost` is called on a thread of the route's own when the channel is over, and not after `downgrade`.
        """
        if self._direct is not None or not wire.is_name(self._origin):
            return False

        def lost(route: DirectRoute, _fault: errors.MemoryFault) -> None:
            if route is self._direct:
                self._direct = None
                on_lost()

        direct = DirectRoute(offer, lost, origin=self._origin)
        self._direct = direct
        try:
            direct.open(self._from_direct, lambda _request_id: False)
        except errors.MemoryFault:
            self._direct = None
            return False
        return True

    def downgrade(self) -> None:
        """Go back to the kernel's own channels, at once."""
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.give_up(errors.HostUnavailable(GONE, wire.HOST_LOST))

    def is_direct(self) -> bool:
        """Whether the next request takes the direct channel."""
        return self._ready() is not None

    def send(self, request_id: str, data: Mapping[str, Any], repeat_of: str | None = None) -> None:
        direct = self._ready()
        if direct is not None and request_id not in self._by_comm:
            direct.send(request_id, data, repeat_of)
            return
        self._by_comm.add(request_id)
        self._comm.send(request_id, data, repeat_of)

    def cancel(self, request_id: str) -> None:
        direct = self._ready()
        if direct is not None and request_id not in self._by_comm:
            direct.cancel(request_id)
            return
        self._by_comm.discard(request_id)
        self._comm.cancel(request_id)

    def wait(self, answered: Future[Any], seconds: float) -> bool:
        return (self._ready() or self._comm).wait(answered, seconds)

    def attended(self) -> AbstractContextManager[None]:
        direct = self._ready()
        return nullcontext() if direct is None else direct.attended()

    def refusal(self) -> errors.MemoryFault | None:
        return self._comm.refusal()

    def close(self) -> None:
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()
        self._comm.close()

    def _ready(self) -> DirectRoute | None:
        direct = self._direct
        return direct if direct is not None and direct.is_open() else None

    def _from_comm(self, request_id: str, data: object) -> bool:
        self._by_comm.discard(request_id)
        ours = self._on_reply(request_id, data)
        direct = self._direct
        if ours and direct is not None:
            direct.wake()  # its driver may wait for what came another way
        return ours

    def _from_direct(self, request_id: str, data: object) -> bool:
        """A reply; but that the session of the token is over is the channel's end, not the request's."""
        direct = self._direct
        if _code(data) == wire.REQUEST_SCOPE_CLOSED and direct is not None:
            direct.give_up(errors.HostUnavailable(GONE, wire.HOST_LOST))
            return True
        return self._on_reply(request_id, data)


def _code(data: object) -> object:
    return cast("dict[str, object]", data).get("code") if isinstance(data, dict) else None
