"""Guest sessions: scripts, workers and servers that are no kernel, each with a session, a folder and a token.

Owns: the set of guests, their folders and what their scope is. Does not own: the socket that asks (`door`), the channel
that they speak over (`direct`). A guest lives as long as the connection that opened it: with that end, or with the
host, its token is worth nothing. The project comes from the folder that it named, as a kernel's does.

Source: design page "Kernel <-> host", Direct channel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlm_memory import wire

from rlm_memory_host.attach import folders, requests
from rlm_memory_host.attach.direct import Direct
from rlm_memory_host.attach.project import Project
from rlm_memory_host.contracts.ids import new_ulid
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import ProtocolError
from rlm_memory_host.logs import LOGGER, short_hash

MAX_GUESTS: Final = 256


@dataclass(frozen=True, slots=True)
class Guest:
    """One guest. `pid` is that of the process that asked, None where the system does not tell it."""

    session: str
    session_dir: Path
    project: Project
    label: str
    pid: int | None
    owner: object
    """The line whose connection is the lifeline."""
    key: bytes


class Guests(Mapping[str, Guest]):
    """The guests by session. Belongs to the event loop."""

    def __init__(
        self,
        services: requests.Services,
        direct: Direct,
        sessions_root: Path,
        project_of: Callable[[Path], Project],
        over: Callable[[str], None] = lambda _session: None,
    ) -> None:
        """`project_of` gives the project of a folder; it may block. `over` hears of a session that ended."""
        self._services = services
        self._direct = direct
        self._sessions_root = sessions_root
        self._project_of = project_of
        self._over = over
        self._held: dict[str, Guest] = {}
        self._opening = 0
        self.idle_since = time.monotonic()

    def __getitem__(self, session: str) -> Guest:
        return self._held[session]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    async def open(self, cwd: Path, label: str, owner: object, peer: int | None) -> tuple[Guest, wire.Offer]:
        """A new session, its folder made, and its token. Raises ProtocolError where there are too many."""
        if len(self._held) + self._opening >= MAX_GUESTS:
            raise ProtocolError(f"this host already has {MAX_GUESTS} guests", wire.HOST_REQUEST_FAILED)
        self._opening += 1
        try:
            project = await asyncio.get_running_loop().run_in_executor(self._services.pool, self._project_of, cwd)
            session = new_ulid()
            folder = folders.make(self._sessions_root / session, guest=True)
        finally:
            self._opening -= 1

        def caller(epoch: str) -> requests.Caller:
            scope = Scope(
                project_id=project.id,
                session_id=session,
                session_dir=folder,
                call_id=new_ulid(),
                agent_kind="none",
                project_told=project.told,
            )
            return requests.Caller(scope, 1, project.told, epoch)

        key, offer = self._direct.grant(caller)
        guest = Guest(session, folder, project, label, peer, owner, key)
        self._held[session] = guest
        LOGGER.info("guest_opened session=%s", short_hash(session))
        return guest, offer

    def ended(self, owner: object) -> None:
        """The lifeline of a guest is over: its session and its token end. Twice is once."""
        guest = next((item for item in self._held.values() if item.owner is owner), None)
        if guest is None:
            return
        del self._held[guest.session]
        self._direct.revoke(guest.key)
        folders.clear(guest.session_dir)
        self.idle_since = time.monotonic()
        self._over(guest.session)
        LOGGER.info("guest_ended session=%s", short_hash(guest.session))
