"""The ports around the outbox: what services use to send, and what its worker needs of the service.

Owns: these shapes. Does not own: the outbox (`rlm_memory_host.delivery`), the client (`rlm_memory_host.honcho`).

Source: DeepSeek Honcho specification, sections 9.1, 12; design page "Overview", Layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rlm_memory_host.contracts.delivery import DeliveryMessage, DeliveryRequest, DeliveryScope
from rlm_memory_host.contracts.delivery_ids import fingerprint

Outcome = Literal["delivered", "dead", "dropped"]
"""What became of a delivery that is done with."""
Place = Literal["pending", "dead", "absent"]
"""Where a delivery is: waiting, a dead letter, or neither (delivered, withdrawn, never admitted)."""
Watcher = Callable[[str, Outcome, str], None]
"""Told (delivery id, what became of it, code); called from any thread, must not block."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to an admission: the delivery is durable. `is_new` is False where it was already waiting."""

    delivery_id: str
    is_new: bool


class Admission(Protocol):
    """What services use to send: durable at return, never waits for the network. Thread-safe."""

    def admit(self, request: DeliveryRequest, *, first_time: bool = False) -> Admitted:
        """Take a delivery in; `first_time` promises that no earlier process can have admitted the same id.

        Raises StoreError where it cannot be made durable, Integrity where it is not valid or nothing is left of it
        after redaction.
        """
        ...

    def withdraw(self, delivery_id: str) -> bool:
        """Take a delivery back that was not sent yet; False where it is unknown, or may have been sent."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteRow:
    """A message as the service holds it."""

    row_id: str
    peer_id: str
    content: str
    metadata: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """See `DeliveryMessage.fingerprint`."""
        return fingerprint(self.peer_id, str(self.metadata.get("role")), self.content)


class RemoteWriter(Protocol):
    """What the outbox's worker needs of the service. Every call is bounded in time and raises RemoteError only."""

    async def ensure(self, scope: DeliveryScope) -> None:
        """Make sure that workspace, peers and session are there, as provisioning allows."""
        ...

    async def find(self, scope: DeliveryScope, delivery_id: str) -> tuple[RemoteRow, ...]:
        """The rows of a delivery, in the order of the session; empty where there are none."""
        ...

    async def add(self, scope: DeliveryScope, messages: Sequence[DeliveryMessage]) -> None:
        """Add the messages, all or none, in one call."""
        ...

    def renew_credential(self) -> bool:
        """Read the credential's source again; True where it gives another one than before."""
        ...
