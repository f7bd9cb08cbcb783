"""One attached kernel: its generation, its requests, its end.

Owns: which generation a message belongs to, and when the kernel counts as gone. Does not own: running and answering
requests (`serving`), what they mean (`requests`), sockets (`link`), the set of kernels and what is written to disk
(`kernels`).

Tasks: `run` is one task of the host's group; the readers, the watch and every request are tasks of a group inside it,
so nothing outlives the attachment.

Generation: the host's own count, because ports and key survive a restart under Jupyter. It rises when another process
answers behind the same connection file, told by another `session` in its message headers or by an attach from another
pid. Requests of an earlier process are answered STALE_GENERATION.

Source: design page "Kernel <-> host", Host side.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rlm_memory import wire

from rlm_memory_host.attach import requests
from rlm_memory_host.attach.direct import Direct
from rlm_memory_host.attach.link import Link, Message
from rlm_memory_host.attach.liveness import wait_exit
from rlm_memory_host.attach.project import Project
from rlm_memory_host.attach.serving import Serving, parsed
from rlm_memory_host.contracts.ids import new_ulid
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import ProtocolError
from rlm_memory_host.logs import LOGGER, short_hash
from rlm_memory_host.process import ProcessId, identify

READ_AT_ONCE: Final = 1024
"""Messages that may be read before what they ask for gets its turn."""
RESTART_SECONDS: Final = 120.0
"""How long a kernel that ended is waited for: Jupyter restarts behind the same connection file."""
FILE_GONE_SECONDS: Final = 10.0
"""The same once the connection file is gone, which is how a kernel shut down for good looks."""
PID_SECONDS: Final = 3.0
WATCH_SECONDS: Final = 1.0
PAST_KEPT: Final = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """What an attachment knows about its kernel; replaced as a whole when the kernel restarts."""

    connection_file: Path
    session: str
    generation: int
    process: ProcessId | None
    origin: str | None
    """The header session of the current process, None until its first message."""
    past: tuple[str, ...]
    cwd: Path
    extension: str
    project: Project
    session_dir: Path

    def is_past(self, origin: str) -> bool:
        """Whether a message with that header session comes from an earlier process."""
        return origin in self.past

    def raised(self, *, origin: str | None, process: ProcessId | None) -> Identity:
        """The identity after a restart: one generation up, the old process in the past."""
        past = (*self.past, *([self.origin] if self.origin else []))[-PAST_KEPT:]
        return replace(self, generation=self.generation + 1, origin=origin, process=process, past=past)


def after_message(identity: Identity, origin: str) -> Identity | None:
    """The identity that a message's header session leads to; None for a message of an earlier process. Pure."""
    if identity.is_past(origin):
        return None
    if identity.origin == origin:
        return identity
    if identity.origin is None:
        return replace(identity, origin=origin)
    return identity.raised(origin=origin, process=None)


def after_attach(identity: Identity, process: ProcessId | None, origin: str | None = None) -> Identity:
    """The identity that an attach by `process` leads to; `origin` where the kernel itself confirmed it. Pure.

    A generation that a message already raised has no process yet: the attach completes it and raises nothing. A
    confirmed header session is not in the past, whatever was believed before.
    """
    if origin is not None and origin != identity.origin and identity.origin is not None:
        found = identity.raised(origin=origin, process=process)
    elif identity.process is None or process is None or identity.process == process:
        found = replace(identity, process=process or identity.process)
    elif origin is not None and origin == identity.origin:
        found = replace(identity, process=process)
    else:
        found = identity.raised(origin=origin, process=process)
    return replace(found, past=tuple(item for item in found.past if item != origin))


@dataclass(slots=True)
class Attachment:
    """A kernel that this host serves. `changed` is called after every change of identity (to persist it)."""

    identity: Identity
    link: Link
    services: requests.Services
    changed: Callable[[Attachment], None]
    direct: Direct
    _serving: Serving = field(init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _final: bool = False
    _granted: tuple[bytes, wire.Offer] | None = None

    def __post_init__(self) -> None:
        self._serving = Serving(self.services, self._caller, self.link.reply)

    # -- life --------------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Serve until the kernel is gone for good or the task is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._serving.group = group
                readers = [group.create_task(self._read()), group.create_task(self.link.answers())]
                await self._watch()
                LOGGER.info("kernel_gone session=%s", short_hash(self.identity.session))
                for reader in readers:
                    reader.cancel()
                self._serving.end_all(wire.STALE_GENERATION, "the kernel ended", silent=True)
        finally:
            self._serving.group = None
            self._revoke()
            self.link.close()

    async def close(self, seconds: float) -> None:
        """Admit nothing more, cancel what runs, and wait for its answers to leave, at most `seconds`."""
        await self._serving.close(seconds)

    async def is_answering(self) -> bool:
        """Whether the kernel's process is known, waiting for the kernel's own word where it is not."""
        until = time.monotonic() + 2 * PID_SECONDS
        while self.identity.process is None and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return self.identity.process is not None

    def let_go(self) -> None:
        """Whoever started the kernel will not restart it: once its process ends, it is gone."""
        self._final = True

    async def accept(self, process: ProcessId, *, own: bool, starter: bool) -> None:
        """Take an attach that names `process`. Raises PEER_REFUSED and changes nothing where it is not this kernel's.

        The kernel's word counts, and it can give it while cells run. Until it answers (it is just starting), only the
        named process (`own`) and whoever starts the kernel (`starter`) are believed, and only while no process that we
        know lives; the kernel's own attach puts that right.
        """
        current = self.identity.process
        healthy = current == process and (self.identity.origin is not None or not self.identity.past)
        if healthy:
            return
        lives = current is not None and current != process and current.is_alive()
        told = None if starter and not lives else await self.link.ask_process(PID_SECONDS)
        if told is not None and told[0] == process.pid:
            self._become(after_attach(self.identity, process, told[1]), "the kernel was restarted")
        elif told is None and not lives and (own or starter):
            self._become(after_attach(self.identity, process), "the kernel was restarted")
        elif self.identity.process != process:
            raise ProtocolError("pid: that process is not the kernel behind the connection file", "PEER_REFUSED")

    def placed(self, *, cwd: Path, project: Project, extension: str) -> None:
        """Take what the kernel itself, or whoever starts it, says about where it runs."""
        self._become(replace(self.identity, cwd=cwd, project=project, extension=extension), "")

    def _become(self, identity: Identity, why: str) -> None:
        before, self.identity = self.identity, identity
        if identity.generation != before.generation:
            LOGGER.info("generation_raised session=%s generation=%d", short_hash(identity.session), identity.generation)
            gone = before.process is not None and not before.process.is_alive()
            self._serving.end_all(wire.STALE_GENERATION, why, silent=gone)
            self._serving.renew()
            self._revoke()
        if identity != before:
            self._moved.set()
            self.changed(self)

    async def _watch(self) -> None:
        """Return when the kernel is gone: its process ended and no other took its place."""
        while True:
            process = self.identity.process
            if process is None:
                process = await self._find_process()
            if process is not None:
                self._moved.clear()
                if self.identity.process == process:
                    await self._until_exit_or_move(process)
                if self.identity.process != process or process.is_alive():
                    continue
                self._serving.end_all(wire.STALE_GENERATION, "the kernel ended", silent=True)
            if not await self._is_replaced(process):
                return

    async def _until_exit_or_move(self, process: ProcessId) -> None:
        exits = asyncio.ensure_future(wait_exit(process))
        moves = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait({exits, moves}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            exits.cancel()
            moves.cancel()
            await asyncio.gather(exits, moves, return_exceptions=True)

    async def _find_process(self) -> ProcessId | None:
        generation = self.identity.generation
        pid = await self.link.ask_pid(PID_SECONDS)
        process = identify(pid) if pid is not None else None
        if self.identity.generation == generation and self.identity.process is None and process is not None:
            self._become(replace(self.identity, process=process), "")
        return self.identity.process

    async def _is_replaced(self, ended: ProcessId | None) -> bool:
        """Wait for another process behind the same connection file; False when the time for it is over."""
        since = missing = time.monotonic()
        origin = self.identity.origin
        while time.monotonic() - since < RESTART_SECONDS or ended is None:
            if self._final and ended is not None:
                return False
            if self.identity.process != ended or self.identity.origin != origin:
                return True
            if self.identity.connection_file.exists():
                missing = time.monotonic()
            elif time.monotonic() - missing > FILE_GONE_SECONDS:
                return False
            if ended is None and await self._find_process() is not None:
                return True
            await asyncio.sleep(WATCH_SECONDS)
        return False

    # -- requests ----------------------------------------------------------------------------------------------------
    async def _read(self) -> None:
        """Everything that is there is read before any of it runs, so that what was withdrawn meanwhile never does."""
        read = 0
        async for message in self.link.messages():
            read += 1
            if read % READ_AT_ONCE == 0:
                await asyncio.sleep(0)
            identity = after_message(self.identity, message.origin)
            if identity is None:
                if message.kind == "open":
                    await self.link.reply(
                        message.comm_id, wire.error(wire.STALE_GENERATION, "this kernel was restarted since")
                    )
                continue
            self._become(identity, "the kernel was restarted")
            if message.kind == "close":
                self._serving.end(message.comm_id, wire.CANCELLED, "the caller cancelled the request")
            elif message.kind == "open":
                await self._admit(message)

    async def _admit(self, message: Message) -> None:
        request = parsed(message.data, oversized=message.oversized)
        answer = self._serving.admit(message.comm_id, request, message.repeat_of)
        if answer is not None:
            await self.link.reply(message.comm_id, answer)

    def _offer(self) -> wire.Offer:
        """The token of this generation, made when it is first asked for."""
        if self._granted is None:
            self._granted = self.direct.grant(self._by_token, self._own)
        return self._granted[1]

    def _revoke(self) -> None:
        granted, self._granted = self._granted, None
        if granted is not None:
            self.direct.revoke(granted[0])

    def _own(self, origin: str) -> Serving | None:
        """The kernel's own requests, which come either way; workers and children that it shares its token with have
        channels of other names."""
        return self._serving if origin == self.identity.origin else None

    def _by_token(self, epoch: str) -> requests.Caller:
        return replace(self._caller(epoch), offer=None)

    def _caller(self, epoch: str) -> requests.Caller:
        identity = self.identity
        scope = Scope(
            project_id=identity.project.id,
            session_id=identity.session,
            session_dir=identity.session_dir,
            call_id=new_ulid(),
            project_told=identity.project.told,
        )
        return requests.Caller(scope, identity.generation, identity.project.told, epoch, self._offer)
