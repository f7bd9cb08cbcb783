"""Requests already seen, by comm id: what makes a retransmission harmless. Pure, no I/O.

Owns: which ids are running, which replies are kept for replay, and the bounds. A reply that was dropped for room
leaves its id behind, so that a late duplicate is refused rather than run twice. A table dies with its host; `epoch`
names it, so that a request first sent to an earlier one is told from a new one. Does not own: running or sending.

Source: design page "Kernel <-> host", Host side: de-duplicated by comm_id, the stored reply is replayed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Literal

from rlm_memory import wire

from rlm_memory_host.contracts.ids import new_ulid

MAX_REPLIES: Final = 1024
MAX_REPLY_BYTES: Final = 16 << 20
MAX_IDS: Final = 65_536


class Replies:
    """The table of one kernel generation. Belongs to one thread."""

    def __init__(self, replies: int = MAX_REPLIES, size: int = MAX_REPLY_BYTES, ids: int = MAX_IDS) -> None:
        self.epoch = new_ulid()
        self._most, self._most_bytes, self._most_ids = replies, size, ids
        self._running: set[str] = set()
        self._kept: OrderedDict[str, tuple[Mapping[str, Any], int]] = OrderedDict()
        self._bytes = 0
        self._forgotten: OrderedDict[str, None] = OrderedDict()

    def admit(self, comm_id: str) -> Literal["new", "running"] | Mapping[str, Any]:
        """`new` (now running), `running` (wait for it), or the reply to send again."""
        if comm_id in self._running:
            return "running"
        if (kept := self._kept.get(comm_id)) is not None:
            return kept[0]
        if comm_id in self._forgotten:
            return wire.error(wire.REQUEST_SCOPE_CLOSED, "this request was answered before; its reply is gone")
        self._running.add(comm_id)
        return "new"

    def finish(self, comm_id: str, reply: Mapping[str, Any], size: int) -> None:
        """Keep the reply of a request that ran; `size` is its bytes on the wire."""
        self._running.discard(comm_id)
        self._kept[comm_id] = (reply, size)
        self._bytes += size
        while self._kept and (len(self._kept) > self._most or self._bytes > self._most_bytes):
            oldest, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= dropped
            self._forgotten[oldest] = None
        while len(self._forgotten) > self._most_ids:
            self._forgotten.popitem(last=False)

    def running(self) -> int:
        """How many requests run now."""
        return len(self._running)
