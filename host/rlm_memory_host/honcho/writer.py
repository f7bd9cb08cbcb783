"""What the outbox needs of the service, over the client. Implements the port `RemoteWriter`.

Owns: provisioning by policy, the session's own metadata, the look-up by delivery id, the check of what was stored. Does
not own: retries and order (`delivery`).

Provisioning: the workspace is never created unless the operator says so; peers and sessions are. A peer or session that
is there keeps its metadata: the service replaces metadata as a whole, so ours is merged into what a get-or-create
without metadata answers. The assistant is not observed by default.

Source: DeepSeek Honcho specification, sections 10.2, 12.2, 16; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from rlm_memory_host.contracts.delivery import SOURCE, DeliveryMessage, DeliveryScope
from rlm_memory_host.contracts.delivery_ports import RemoteRow
from rlm_memory_host.errors import RemoteError, RemoteRejected, RemoteUnavailable, RemoteUnknownOutcome, SettingsError
from rlm_memory_host.honcho.client import NOT_FOUND, HonchoClient

WORKSPACE_MISSING: Final = "REMOTE_WORKSPACE_MISSING"
PEER_MISSING: Final = "REMOTE_PEER_MISSING"
SESSION_MISSING: Final = "REMOTE_SESSION_MISSING"
SESSION_FOREIGN: Final = "REMOTE_SESSION_FOREIGN"
MAX_PAGES: Final = 10


@dataclass(frozen=True, slots=True)
class Provisioning:
    """What may be made at the service where it is not there (section 16), and whether the assistant is observed."""

    create_workspace: bool = False
    create_peers: bool = True
    create_sessions: bool = True
    observe_assistant: bool = False


class HonchoWriter:
    """`RemoteWriter` over a client. What is known to be there is remembered until a call says otherwise."""

    def __init__(self, client: HonchoClient, provisioning: Provisioning | None = None) -> None:
        self._client = client
        self._policy = provisioning or Provisioning()
        self._has_workspace = False
        self._peers: set[str] = set()
        self._sessions: set[str] = set()

    async def check(self) -> None:
        """Make sure that the workspace is there: a start's check. Raises SettingsError where it is not, RemoteError."""
        try:
            await self._ensure_workspace()
        except RemoteUnavailable as error:
            if error.code == WORKSPACE_MISSING:
                raise SettingsError(
                    "honcho.workspace: the service has no such workspace; create it there, or set "
                    "honcho.create_workspace = true"
                ) from None
            raise

    async def ensure(self, scope: DeliveryScope) -> None:
        """See `RemoteWriter.ensure`."""
        if scope.workspace_id != self._client.workspace_id:
            raise RemoteRejected("the delivery is for another workspace than the configured one", "FOREIGN_WORKSPACE")
        if scope.honcho_session_id in self._sessions:
            return
        await self._ensure_workspace()
        peers = self._members(scope)
        for peer in peers:
            await self._ensure_peer(peer)
        await self._ensure_session(scope, peers)
        self._sessions.add(scope.honcho_session_id)

    async def find(self, scope: DeliveryScope, delivery_id: str) -> tuple[RemoteRow, ...]:
        """See `RemoteWriter.find`. Each row is checked again: a filter of the service is no proof."""
        rows: list[RemoteRow] = []
        filters = {"metadata": {"delivery_id": delivery_id}}
        for page in range(1, MAX_PAGES + 1):
            items, pages = await self._guarded(
                self._client.list_messages(scope.honcho_session_id, filters, page=page), scope
            )
            rows += [row for row in map(_row, items) if row.metadata.get("delivery_id") == delivery_id]
            if page >= pages:
                break
        return tuple(rows)

    async def add(self, scope: DeliveryScope, messages: Sequence[DeliveryMessage]) -> None:
        """See `RemoteWriter.add`. An answer that does not name every message leaves the outcome unknown."""
        sent = [
            {
                "content": message.content,
                "peer_id": message.peer_id,
                "metadata": {**message.metadata, "role": message.role},
                "created_at": message.created_at,
            }
            for message in messages
        ]
        stored = await self._guarded(self._client.add_messages(scope.honcho_session_id, sent), scope)
        if [_row(item).fingerprint for item in stored] != [message.fingerprint for message in messages]:
            raise RemoteUnknownOutcome("the service's answer does not name what it was given")

    def renew_credential(self) -> bool:
        """See `RemoteWriter.renew_credential`."""
        return self._client.renew_key()

    async def _guarded(self, call: Any, scope: DeliveryScope) -> Any:
        try:
            return await call
        except RemoteError as error:
            if error.code == NOT_FOUND:
                # Removed at the service since we looked: look again before the next attempt.
                self._has_workspace = False
                self._peers.clear()
                self._sessions.discard(scope.honcho_session_id)
            raise

    def _members(self, scope: DeliveryScope) -> dict[str, dict[str, bool]]:
        members: dict[str, dict[str, bool]] = {}
        if scope.agent_kind == "root":
            members[scope.user_peer_id] = {"observe_me": True, "observe_others": False}
        if scope.assistant_peer_id is not None:
            members[scope.assistant_peer_id] = {"observe_me": self._policy.observe_assistant, "observe_others": False}
        return members

    async def _ensure_workspace(self) -> None:
        if self._has_workspace:
            return
        if not await self._client.exists("", self._client.workspace_id):
            if not self._policy.create_workspace:
                raise RemoteUnavailable("the service has no such workspace", WORKSPACE_MISSING)
            await self._client.create_workspace()
        self._has_workspace = True

    async def _ensure_peer(self, peer: str) -> None:
        if peer in self._peers:
            return
        if self._policy.create_peers:
            await self._client.create_peer(peer)
        elif not await self._client.exists("peers", peer):
            raise RemoteUnavailable("a peer is not there and may not be created", PEER_MISSING)
        self._peers.add(peer)

    async def _ensure_session(self, scope: DeliveryScope, peers: Mapping[str, Any]) -> None:
        name = scope.honcho_session_id
        if not self._policy.create_sessions and not await self._client.exists("sessions", name):
            raise RemoteUnavailable("a session is not there and may not be created", SESSION_MISSING)
        held = await self._client.create_session(name, peers=peers)
        owner = held.get("dsh_session_id")
        if owner is None:
            ours = {"source": SOURCE, "dsh_session_id": scope.dsh_session_id, "project_id": scope.project_id}
            await self._client.create_session(name, metadata={**held, **ours})
        elif owner != scope.dsh_session_id:
            raise RemoteRejected("the session at the service belongs to another session here", SESSION_FOREIGN)


def _row(item: Mapping[str, Any]) -> RemoteRow:
    metadata: Any = item.get("metadata")
    return RemoteRow(
        str(item.get("id", "")),
        str(item.get("peer_id", "")),
        str(item.get("content", "")),
        cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {},
    )
