"""All attached kernels of a host: attaching, taking up again after a start, letting go.

Owns: the set of attachments, their leases, session folders and roster entries, sessions promised to a
provisioner. Does not own: one kernel's requests (`attachment`), the socket that asks for attaching (`door`).

Order: lease, sockets and subscription, proof, roster entry, answer. A crash before the entry leaves a kernel that dials
again; after it, a host that starts again takes the kernel up by itself.

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq.asyncio
from rlm_memory import wire

from rlm_memory_host.attach import connection, folders, requests
from rlm_memory_host.attach.attachment import PID_SECONDS, Attachment, Identity
from rlm_memory_host.attach.connection import Connection
from rlm_memory_host.attach.direct import Direct
from rlm_memory_host.attach.lease import lease
from rlm_memory_host.attach.link import Link
from rlm_memory_host.attach.project import Project
from rlm_memory_host.attach.roster import Entry, Roster
from rlm_memory_host.contracts.ids import new_ulid
from rlm_memory_host.errors import HostError, ProtocolError
from rlm_memory_host.logs import LOGGER, short_hash, where
from rlm_memory_host.process import FileLock, ProcessId, identify

MAX_KERNELS: Final = 256
PROOF_SECONDS: Final = 1.0
"""Wait for ipykernel 7's welcome; ipykernel 6 gives none and the kernel's repeated hello does instead."""


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """A kernel that asks to be served. `cwd` is its folder, `peer` the process that asks.

    Any process of this user can ask, so what it says about a kernel counts only as far as the kernel bears it out.
    Without a `pid` the kernel is asked for it, and must answer.
    """

    connection_file: Path
    pid: int | None
    cwd: Path
    extension: str
    peer: int | None


@dataclass(slots=True)
class Promise:
    """The session of a kernel that a provisioner starts.

    `owners` are the lines whose connections are the lifelines, with the processes that sent them: one, unless a second
    process asks too, which then cannot end what the first one holds. `generation` is the last one that this kernel
    had, 0 before its first start.
    """

    owners: list[tuple[object, int | None]]
    session: str
    generation: int


@dataclass(slots=True)
class _Held:
    attachment: Attachment
    connection: Connection
    lease: FileLock
    task: asyncio.Task[None]


class Kernels(Mapping[Path, Attachment]):
    """The attachments by canonical connection file. Belongs to the event loop."""

    def __init__(
        self,
        services: requests.Services,
        roster: Roster,
        sessions_root: Path,
        group: asyncio.TaskGroup,
        context: zmq.asyncio.Context,
        direct: Direct,
        project_of: Callable[[Path], Project],
        ended: Callable[[str], None] = lambda _session: None,
    ) -> None:
        """`project_of` gives the project of a kernel's folder and may block, `ended` hears which session is over."""
        self._services = services
        self._roster = roster
        self._sessions_root = sessions_root
        self._group = group
        self._context = context
        self._direct = direct
        self._project_of = project_of
        self._ended = ended
        self._held: dict[Path, _Held] = {}
        self._busy: dict[Path, asyncio.Lock] = {}
        self._promised: dict[Path, Promise] = {}
        self._closing = False
        self.idle_since = time.monotonic()

    def __getitem__(self, path: Path) -> Attachment:
        return self._held[path].attachment

    def __iter__(self) -> Iterator[Path]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    async def attach(self, request: AttachRequest) -> Attachment:
        """Serve a kernel from now on; asking twice is asking once. Raises HostError with a code."""
        process = identify(request.pid) if request.pid is not None else None
        if process is None and request.pid is not None:
            raise ProtocolError("pid: no such process of this user", wire.INVALID_ARGUMENT)
        path = request.connection_file
        lock = self._busy.setdefault(path, asyncio.Lock())
        try:
            async with lock:
                return await self._attach(path, process, request)
        finally:
            if not lock.locked() and path not in self._held:
                self._busy.pop(path, None)

    async def prepare(self, path: Path, cwd: Path, owner: object, peer: int | None) -> tuple[Promise, Path, Project]:
        """The session that the kernel of a connection file will have, its folder made, and its project.

        `owner` stands for the line whose connection is the lifeline, `peer` is the process that sent it.

        A kernel that is served, known from the roster or promised before keeps its session. Raises HostError.
        """
        described, project = await self._look(path, cwd)
        held = self._held.get(path)
        if held is not None and await _is_running(held.attachment):
            raise ProtocolError("connection_file: its kernel runs already", "PEER_REFUSED")
        known, before = self._roster.get(path), self._promised.get(path)
        owners = [*(before.owners if before is not None else []), (owner, peer)]
        if held is not None:
            promise = Promise(owners, held.attachment.identity.session, held.attachment.identity.generation)
        elif before is not None:
            promise = Promise(owners, before.session, before.generation)
        elif known is not None and known.fingerprint == described.fingerprint:
            promise = Promise(owners, known.session, known.generation)
        else:
            promise = Promise(owners, new_ulid(), 0)
        folder = folders.make(self._sessions_root / promise.session)
        self._promised[path] = promise
        return promise, folder, project

    def released(self, path: Path, owner: object) -> None:
        """The lifeline of a provisioner ended: its kernel is not started again. Twice is once."""
        promise = self._promised.get(path)
        if promise is None:
            return
        promise.owners = [item for item in promise.owners if item[0] is not owner]
        if promise.owners:
            return
        del self._promised[path]
        held = self._held.get(path)
        if held is not None:
            held.attachment.let_go()
        elif not path.exists():
            self._forget(path, promise.session)

    async def _attach(self, path: Path, process: ProcessId | None, request: AttachRequest) -> Attachment:
        described, project = await self._look(path, request.cwd)
        held = self._held.get(path)
        if held is not None and held.connection.fingerprint != described.fingerprint:
            # Relative IPC paths depend on the folder, and the peer's word on that must not end a kernel's attachment.
            now, _ = await self._look(path, held.attachment.identity.cwd)
            if held.connection.fingerprint != now.fingerprint:
                await self._drop(held)
                held = None
        if held is not None:
            await self._accept(held.attachment, process, project, request)
            await held.attachment.link.prove(PROOF_SECONDS)
            return held.attachment
        known = self._roster.get(path)
        if known is not None and known.fingerprint != described.fingerprint:
            known = None
        identity = self._fresh(path, None, project, request) if known is None else self._known(known, project)
        attachment = await self._hold(identity, described)
        try:
            await self._accept(attachment, process, project, request)
        except HostError:
            current = attachment.identity.process
            mine = self._held.get(path)
            if mine is not None and (known is None or current is None or not current.is_alive()):
                await self._drop(mine, forget=known is None)
            raise
        return attachment

    async def _accept(
        self, attachment: Attachment, process: ProcessId | None, project: Project, request: AttachRequest
    ) -> None:
        """Take the request as far as the asking process may speak for the kernel. Raises HostError."""
        promise = self._promised.get(request.connection_file)
        starter = (
            promise is not None and request.peer is not None and request.peer in {item[1] for item in promise.owners}
        )
        own = process is not None and request.peer in {process.pid, None}
        if process is not None:
            await attachment.accept(process, own=own, starter=starter)
        elif not await attachment.is_answering():
            raise ProtocolError("connection_file: no kernel answers behind it", wire.INVALID_ARGUMENT)
        if own or starter:
            attachment.placed(cwd=request.cwd, project=project, extension=request.extension)

    async def take_up(self) -> int:
        """Attach again to every kernel on the roster that still lives; how many. Dead ones are let go.

        The entry of an ended kernel stays as long as its connection file does: a restart under Jupyter comes back
        with it, and keeps its session.
        """
        return sum(await asyncio.gather(*(self._take_up(entry) for entry in self._roster.load())))

    async def _take_up(self, entry: Entry) -> bool:
        path = Path(entry.connection_file)
        try:
            described, project = await self._look(path, Path(entry.cwd))
            if described.fingerprint != entry.fingerprint:
                raise ProtocolError("another kernel uses that connection file now")
        except ProtocolError:
            self._forget(path, entry.session)
            return False
        if entry.process is None or not entry.process.is_alive():
            return False
        try:
            await self._hold(self._known(entry, project), described)
        except HostError as error:
            LOGGER.warning("take_up_failed session=%s code=%s", short_hash(entry.session), error.code)
            return False
        return True

    async def _look(self, path: Path, cwd: Path) -> tuple[Connection, Project]:
        """What the connection file and the kernel's folder say, read in a thread: either may lie on a slow disk."""
        return await asyncio.get_running_loop().run_in_executor(
            self._services.pool, lambda: (connection.read(path, cwd), self._project_of(cwd))
        )

    async def close(self, seconds: float) -> None:
        """Stop admitting, cancel, drain for at most `seconds`, let every kernel go. The roster stays."""
        self._closing = True
        held = list(self._held.values())
        await asyncio.gather(*(item.attachment.close(seconds) for item in held))
        for item in held:
            item.task.cancel()
        await asyncio.gather(*(item.task for item in held), return_exceptions=True)

    # -- one kernel --------------------------------------------------------------------------------------------------
    async def _hold(self, identity: Identity, described: Connection) -> Attachment:
        if self._closing:
            raise ProtocolError("the host is shutting down", wire.REQUEST_SCOPE_CLOSED)
        if len(self._held) >= MAX_KERNELS:
            raise ProtocolError(f"this host already serves {MAX_KERNELS} kernels", wire.HOST_REQUEST_FAILED)
        claim = lease(identity.connection_file)
        if not claim.acquire():
            raise ProtocolError(
                "another host of yours (another state root) serves this kernel; stop it with `rlm-memory host stop`",
                "KERNEL_LEASED",
            )
        try:
            folders.make(identity.session_dir)
            attachment = Attachment(identity, Link(self._context, described), self._services, self._save, self._direct)
        except BaseException:
            claim.release()
            raise
        held = _Held(attachment, described, claim, self._group.create_task(self._run(attachment, claim)))
        self._held[identity.connection_file] = held
        if not await attachment.link.prove(PROOF_SECONDS):
            LOGGER.info("no_welcome session=%s", short_hash(identity.session))
        self._save(attachment)
        LOGGER.info("attached session=%s generation=%d", short_hash(identity.session), attachment.identity.generation)
        return attachment

    async def _run(self, attachment: Attachment, claim: FileLock) -> None:
        path = attachment.identity.connection_file
        try:
            await attachment.run()
            self._ended(attachment.identity.session)
        except Exception as error:
            # One kernel's trouble must not end the others'; the kernel dials again.
            LOGGER.error("attachment_failed session=%s %s", short_hash(attachment.identity.session), where(error))
        finally:
            held = self._held.get(path)
            if held is not None and held.attachment is attachment:
                del self._held[path]
                self._busy.pop(path, None)
            claim.release()
            self.idle_since = time.monotonic()
            if not self._closing and not path.exists():
                self._forget(path, attachment.identity.session)

    async def _drop(self, held: _Held, *, forget: bool = True) -> None:
        """Let go of an attachment that stands for no kernel; without `forget` its session waits for the kernel."""
        await held.attachment.close(1.0)
        held.task.cancel()
        await asyncio.gather(held.task, return_exceptions=True)
        if forget:
            self._forget(held.attachment.identity.connection_file, held.attachment.identity.session)

    def _forget(self, path: Path, session: str) -> None:
        """Drop the roster entry, what a killed kernel was about to record, and the session folder where it is empty."""
        self._roster.remove(path)
        if path in self._promised:
            return
        folders.clear(self._sessions_root / session)

    def _fresh(self, path: Path, process: ProcessId | None, project: Project, request: AttachRequest) -> Identity:
        promise = self._promised.get(path)
        session = promise.session if promise is not None else new_ulid()
        return Identity(
            connection_file=path,
            session=session,
            generation=promise.generation + 1 if promise is not None else 1,
            process=process,
            origin=None,
            past=(),
            cwd=request.cwd,
            extension=request.extension,
            project=project,
            session_dir=self._sessions_root / session,
        )

    def _known(self, entry: Entry, project: Project) -> Identity:
        return Identity(
            connection_file=Path(entry.connection_file),
            session=entry.session,
            generation=entry.generation,
            process=entry.process,
            origin=entry.current,
            past=tuple(entry.past),
            cwd=Path(entry.cwd),
            extension=entry.extension,
            project=project,
            session_dir=self._sessions_root / entry.session,
        )

    def _save(self, attachment: Attachment) -> None:
        identity = attachment.identity
        held = self._held.get(identity.connection_file)
        if held is None:
            return
        if (promise := self._promised.get(identity.connection_file)) is not None:
            promise.generation = identity.generation
        process = identity.process
        try:
            self._roster.save(
                Entry(
                    connection_file=str(identity.connection_file),
                    fingerprint=held.connection.fingerprint,
                    pid=process.pid if process else None,
                    started=process.started if process else 0,
                    session=identity.session,
                    generation=identity.generation,
                    cwd=str(identity.cwd),
                    extension=identity.extension,
                    past=list(identity.past),
                    current=identity.origin,
                )
            )
        except OSError as error:
            # A full disk: this kernel is served, only a host that starts again will not know it.
            LOGGER.error("roster_not_saved session=%s %s", short_hash(identity.session), where(error))


async def _is_running(attachment: Attachment) -> bool:
    process = attachment.identity.process
    if process is None:
        return await attachment.link.ask_process(PID_SECONDS) is not None
    return process.is_alive()
