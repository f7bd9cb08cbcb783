"""The two delivery ports without disk and network: for tests of what uses them, and for a host without a service.

Owns: nothing durable. `InMemoryOutbox` takes deliveries in like the outbox and keeps them in a list; `InMemoryRemote`
keeps rows like the service and, like it, takes the same delivery twice.

Source: DeepSeek Honcho specification, section 9.1; design page "Style", house rule 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlm_memory_host.contracts.delivery import DeliveryMessage, DeliveryRequest, DeliveryScope
from rlm_memory_host.contracts.delivery_ports import Admitted, RemoteRow


class InMemoryOutbox:
    """`Admission` that keeps what it took in `requests`, in order. Redaction is the real outbox's."""

    def __init__(self) -> None:
        self.requests: dict[str, DeliveryRequest] = {}

    def admit(self, request: DeliveryRequest, *, first_time: bool = False) -> Admitted:  # noqa: ARG002 - the port's
        """Take it in, once."""
        is_new = request.delivery_id not in self.requests
        self.requests.setdefault(request.delivery_id, request)
        return Admitted(request.delivery_id, is_new)

    def withdraw(self, delivery_id: str) -> bool:
        """Take it back."""
        return self.requests.pop(delivery_id, None) is not None


class InMemoryRemote:
    """`RemoteWriter` that keeps rows by session; `failures` are raised, one a call, before anything is kept."""

    def __init__(self) -> None:
        self.rows: dict[str, list[RemoteRow]] = {}
        self.failures: list[Exception] = []
        self.calls: list[str] = []

    async def ensure(self, scope: DeliveryScope) -> None:
        """Sessions are there when they are needed."""

    async def find(self, scope: DeliveryScope, delivery_id: str) -> tuple[RemoteRow, ...]:
        """Rows by delivery id."""
        self._called("find")
        rows = self.rows.get(scope.lane, [])
        return tuple(row for row in rows if row.metadata.get("delivery_id") == delivery_id)

    async def add(self, scope: DeliveryScope, messages: Sequence[DeliveryMessage]) -> None:
        """Keep all of them."""
        self._called("add")
        rows = self.rows.setdefault(scope.lane, [])
        for message in messages:
            metadata = {**message.metadata, "role": message.role}
            rows.append(RemoteRow(f"row-{len(rows)}", message.peer_id, message.content, metadata))

    def renew_credential(self) -> bool:
        """There is none."""
        return False

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.failures:
            raise self.failures.pop(0)
