"""What the tools over the text memory work with, and how a write is told to the health board.

Owns: that bundle. Does not own: any tool (`memories`, `searching`, `reading`, `profiles`).

Source: design page "Recall, resident text, guard, audit, health, tools", Health and Tools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from rlm_memory_host.contracts.memory import Caller
from rlm_memory_host.contracts.remote import RemoteMemory
from rlm_memory_host.errors import FormatVersion, LockTimeout, StoreError, Unwritable
from rlm_memory_host.recall.service import Recall
from rlm_memory_host.textmemory.health import TextHealth
from rlm_memory_host.textmemory.service import TextMemory
from rlm_memory_host.tools.hybrid import CardSources
from rlm_memory_host.tools.tool import Call

T = TypeVar("T")
_DISK: Final = (Unwritable, LockTimeout, FormatVersion)
"""Refusals that say something of the store and not of the one text."""


@dataclass(frozen=True, slots=True)
class TextServices:
    """What these tools use. `cards` None: no experiment cards among the hits."""

    memory: TextMemory
    recall: Recall
    remote: RemoteMemory | None = None
    human_peer: str = "user"
    health: TextHealth | None = None
    cards: CardSources | None = None

    def caller(self, call: Call) -> Caller:
        """The caller of a call, as the transport authenticated it."""
        return Caller.of(call.scope, self.human_peer)

    def written(self, write: Callable[[], T]) -> T:
        """Run a write and tell the health board how it went: what a caller did wrong is no fault of the store."""
        try:
            done = write()
        except StoreError as error:
            if self.health is not None and isinstance(error, _DISK):
                self.health.failed(error)
            raise
        if self.health is not None:
            self.health.wrote()
        return done

    def warnings(self) -> list[str]:
        """What a reader of any result should know of the memory's health."""
        told = self.health.warning() if self.health is not None else ""
        return [told] if told else []
