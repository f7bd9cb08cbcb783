"""The port `RemoteMemory` for a command: what it keeps is announced, and the host sends it.

Owns: that adapter. Does not own: announcements (`delivery.announced`), sending. A running host is asked to take the
announcement into its outbox at once; without one it waits for the next start, which offers what is on file as told.
A command asks a remote memory nothing: recall at a terminal is local.

Source: design page "Recall, resident text, guard, audit, health, tools"; DeepSeek Honcho specification, section 12.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rlm_memory_host.attach import dial
from rlm_memory_host.cli import outbox
from rlm_memory_host.contracts.remote import Offered, Queued, RemoteAnswer
from rlm_memory_host.delivery.announced import Announced
from rlm_memory_host.delivery.compose import normalise
from rlm_memory_host.errors import HostError


class Announcing:
    """Over one state root; `redact` gives the text that may leave."""

    def __init__(self, state_root: Path, redact: Callable[[str], str]) -> None:
        self._root = state_root
        self._announced = Announced(state_root)
        self._redact = redact
        self._kept = False

    def announce(self, note: Offered) -> None:
        """As the port says. Where it cannot be written, the memory is kept all the same, and `offer` says so."""
        self._kept = False
        with suppress(HostError, OSError):
            (self._root / "outbox").mkdir(mode=0o700, exist_ok=True)
            self._announced.keep(replace(note, text=self._redact(normalise(note.text))))
            self._kept = True

    def retract(self, note: Offered) -> None:
        """As the port says."""
        with suppress(HostError):
            self._announced.drop(note)

    def offer(self, note: Offered) -> Queued:
        """As the port says: announced is as good as queued, since a start offers it."""
        if not self._kept:
            return Queued(False, "", "OUTBOX_UNWRITABLE")
        with suppress(HostError, OSError):
            dial.ask(self._root, {"type": "offer", "memories": [note.memory_id]})
        return Queued(True, note.delivery_id)

    def withdraw(self, memory_id: str) -> int:
        """As the port says, of the host that works on the outbox."""
        return outbox.take_back(self._root, {memory_id})

    def recall(self, query: str, *, project: str, limit: int, deadline_seconds: float) -> RemoteAnswer:
        """Nothing: a command searches what is here."""
        del query, project, limit, deadline_seconds
        return RemoteAnswer()

    def answer(self, question: str, *, project: str, deadline_seconds: float) -> RemoteAnswer:
        """Nothing."""
        del question, project, deadline_seconds
        return RemoteAnswer()
