"""The composition root: from settings to a running host, and back down in order.

Owns: start and shutdown, what the local socket answers. Does not own: how a part is made (`assembly`), any part.

Start: lock, folders, log, artifacts, outbox, text memory, socket, kernels from the roster. Shutdown, whatever asked for
it (SIGTERM, SIGINT, the stop command, idleness): stop admitting (socket closed and removed), cancel what runs and
answer it, send what the outbox still can, all within `host.shutdown_seconds`; close the store, release the lock.

Tasks: one group holds the door, every kernel and what follows the harness's logs; the outbox's worker is a task of its
own that ends before it. Threads: one pool runs tools and reads logs; a thread that does not look at its stop flag
cannot hold the process up (`cli.host` ends it once `run` returned; the store's order of writes makes that safe).

Source: DeepSeek Honcho specification, sections 19 and 33; design page "Style", house rule 8.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import zmq.asyncio
from rlm_memory import wire

from rlm_memory_host import logs
from rlm_memory_host.assembly.guarded import scanning
from rlm_memory_host.assembly.parts import Assembled, assemble
from rlm_memory_host.assembly.sessions import Sessions
from rlm_memory_host.attach import connection, folders
from rlm_memory_host.attach.direct import Direct
from rlm_memory_host.attach.door import (
    AttachLine,
    Door,
    Line,
    OfferLine,
    OpenLine,
    OutboxLine,
    PrepareLine,
    StatusLine,
    TailLine,
)
from rlm_memory_host.attach.guests import Guests
from rlm_memory_host.attach.kernels import AttachRequest, Kernels
from rlm_memory_host.attach.requests import Services
from rlm_memory_host.attach.roster import Roster
from rlm_memory_host.contracts.judging import JudgeModel
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.contracts.version import version
from rlm_memory_host.dsh.following import Following
from rlm_memory_host.errors import ProtocolError
from rlm_memory_host.logs import LOGGER
from rlm_memory_host.loopback.callers import Callers
from rlm_memory_host.loopback.serving import Loopback
from rlm_memory_host.loopback.tailing import following_of
from rlm_memory_host.process import FileLock, claim_state_root, host_lock, place_lock, private_folder
from rlm_memory_host.settings import Settings
from rlm_memory_host.storage.paths import ProjectLayout
from rlm_memory_host.tools.calllog import CallLog, LineSink
from rlm_memory_host.tools.dispatcher import Dispatcher
from rlm_memory_host.tools.policy import Switches
from rlm_memory_host.tools.tool import Registry, Tool

THREADS: Final = 16
IDLE_LOOK_SECONDS: Final = 1.0
CLOSING_SECONDS: Final = 0.5
"""Kept back from the outbox's drain for closing what is open."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a host ended. `drained` is False when something still ran when the time was over."""

    reason: str
    drained: bool


class Host:
    """One host of one state root. Make it, then `run` it once; the lock is held from the first to the last."""

    def __init__(
        self,
        settings: Settings,
        *,
        idle_exit_seconds: float | None = None,
        hardened: bool = False,
        more_tools: Sequence[Tool] = (),
        model: JudgeModel | None = None,
        tail_once: bool = False,
    ) -> None:
        """`model` may judge relations and propose candidates. `tail_once`: read the harness's logs, then end."""
        self.settings = settings
        self._idle_exit = idle_exit_seconds
        self._hardened = hardened
        self._more_tools = more_tools
        self._stop = asyncio.Event()
        self._reason = "stopped"
        self._began = time.monotonic()
        self._kernels: Kernels | None = None
        self._guests: Guests | None = None
        self._model = model
        self._once = (lambda: self.stop("the logs were read")) if tail_once else None
        self.tail: Following | None = None
        self._parts: Assembled | None = None
        self._lock: FileLock | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tool")
        self._looked: Future[None] = Future()
        self._looked.set_result(None)

    def stop(self, reason: str) -> None:
        """Ask for shutdown; from the loop's thread. The first reason counts."""
        if not self._stop.is_set():
            self._reason = reason
            self._stop.set()

    async def run(self, started: Callable[[], None] = lambda: None) -> Ended:
        """Serve until stopped. Raises AlreadyRunning, SettingsError, StoreError before `started` is called."""
        root = claim_state_root(self.settings.state_root)
        with host_lock(root) as lock, place_lock(root):
            self._lock = lock
            return await self._locked(root, started)

    async def _locked(self, root: Path, started: Callable[[], None]) -> Ended:
        for name in ("run", "logs", "sessions", "attachments"):
            private_folder(root / name)
        handler = logs.start(root / "logs", self.settings.host.log_level)
        calls = logs.JsonLines(root / "logs" / "calls.jsonl")
        context = zmq.asyncio.Context()
        try:
            parts = self._parts = await assemble(self.settings, self._model, self._pool)
            LOGGER.info("host_started version=%s hardened=%s", version(), self._hardened)
            try:
                drained = await self._serve(root, context, parts, calls, started)
            except BaseException:
                await parts.sending.close(0.0)
                raise
            LOGGER.info("host_ended reason=%s drained=%s", self._reason, drained)
            return Ended(self._reason, drained)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            context.destroy(linger=500)
            calls.close()
            logs.stop(handler)

    @property
    def sessions(self) -> Sessions | None:
        """Where transports feed captured events, and ask for what to inject; None before the start and without text."""
        return self._parts.text.sessions if self._parts is not None and self._parts.text is not None else None

    async def _serve(
        self,
        root: Path,
        context: zmq.asyncio.Context,
        parts: Assembled,
        calls: LineSink,
        started: Callable[[], None],
    ) -> bool:
        services = self._services(parts, calls)
        async with asyncio.TaskGroup() as group, _signals(self.stop):
            folders.clear_guests(self.settings.sessions_root)
            direct = Direct(services, group, context, root / "run")
            kernels = self._kernels = Kernels(
                services,
                Roster(root / "attachments"),
                self.settings.sessions_root,
                group,
                context,
                direct,
                parts.project_of,
                parts.ended,
            )
            callers = Callers(self.settings.sessions_root, self.settings.loopback.rlm_root, parts.project_of)
            loopback = Loopback(root, self.settings.loopback, services, self.sessions, callers)
            tail = self.tail = following_of(self.settings, self.sessions, callers, self._pool, self._once)
            guests = self._guests = Guests(services, direct, self.settings.sessions_root, parts.project_of, parts.ended)
            taken = await kernels.take_up()
            door = Door(root, self._answer, self._line_ended)
            try:
                listening = group.create_task(door.run())
                group.create_task(loopback.run())
                group.create_task(tail.run())
                LOGGER.info("listening taken_up=%d", taken)
                started()
                await self._until_stopped(kernels, guests, loopback)
            finally:
                door.close()
                loopback.close()
                tail.close()
            return await self._down(kernels, direct, parts, tail, listening)

    async def _down(
        self, kernels: Kernels, direct: Direct, parts: Assembled, tail: Following, listening: asyncio.Task[None]
    ) -> bool:
        seconds, loop = self.settings.host.shutdown_seconds, asyncio.get_running_loop()
        until = loop.time() + seconds
        try:
            async with asyncio.timeout(seconds):
                half = seconds / 2
                await asyncio.gather(kernels.close(half), direct.close(half), tail.wait_ended(half))
                spare = max(0.0, until - loop.time() - CLOSING_SECONDS)
                await parts.sending.close(min(self.settings.outbox.drain_seconds, spare))
                await loop.run_in_executor(self._pool, parts.close)
                return True
        except TimeoutError:
            return False
        finally:
            direct.shut()
            listening.cancel()

    async def _until_stopped(self, kernels: Kernels, guests: Guests, loopback: Loopback) -> None:
        kernels.idle_since = time.monotonic()
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_LOOK_SECONDS):
                    await self._stop.wait()
            if self._lock is not None and not self._lock.is_kept():
                LOGGER.error("state_root_gone")
                self.stop("its state root was removed or replaced")
            if self._parts is not None and self._looked.done():
                # One at a time: where tools hold every thread, looks must not pile up behind them.
                self._looked = self._pool.submit(self._parts.look)
            idle = time.monotonic() - max(kernels.idle_since, guests.idle_since, loopback.idle_since)
            if self._idle_exit is not None and not kernels and not guests and idle > self._idle_exit:
                self.stop("idle")

    def _services(self, parts: Assembled, calls: LineSink) -> Services:
        tools = parts.tools(lambda: len(self._kernels or ()))
        registry = Registry([*tools, *self._more_tools])
        switches = Switches(parts.store is not None, self.settings.tools.model_dump())
        dispatcher = Dispatcher(
            registry,
            switches,
            CallLog(calls),
            self._pool,
            timeout_seconds=self.settings.host.tool_timeout_seconds,
            metrics=parts.metrics,
        )
        limits = {
            "inline_bytes": wire.MAX_INLINE_BYTES,
            "annotation_bytes": wire.MAX_ANNOTATION_BYTES,
            "window": wire.WINDOW,
            "artifact_bytes": self.settings.artifacts.max_artifact_bytes,
        }
        annotate = parts.store.annotate if parts.store else None
        return Services(dispatcher, annotate, self._resident, self._pool, limits, scanning(parts.guard))

    def _resident(self, scope: Scope) -> dict[str, Any]:
        found = self.sessions.resident(scope) if self.sessions is not None else None
        return {
            "text": found.text if found is not None else "",
            "hash": found.hash if found is not None else "",
            "tier": found.tier if found is not None else "none",
        }

    # -- the local socket --------------------------------------------------------------------------------------------
    async def _answer(self, line: Line, peer: int | None) -> dict[str, Any]:
        if self._stop.is_set() or self._kernels is None or self._guests is None or self._parts is None:
            raise ProtocolError("the host is shutting down", wire.REQUEST_SCOPE_CLOSED)
        if isinstance(line, AttachLine):
            return await self._attach(line, peer, self._kernels)
        if isinstance(line, PrepareLine):
            return await self._prepare(line, peer, self._kernels, self._parts)
        if isinstance(line, OpenLine):
            return await _open(line, peer, self._guests)
        if isinstance(line, StatusLine):
            return await self._status(self._kernels, self._guests, self._parts)
        if isinstance(line, OutboxLine):
            return await _act(line, self._parts)
        if isinstance(line, OfferLine):
            return await self._offer(line, self._parts)
        if isinstance(line, TailLine):
            return wire.ok(dsh_log=self.tail.ask() if self.tail is not None else None)
        self.stop("stop command")
        return wire.ok(pid=os.getpid())

    async def _offer(self, line: OfferLine, parts: Assembled) -> dict[str, Any]:
        text = parts.text
        if text is not None:
            await asyncio.get_running_loop().run_in_executor(self._pool, text.offer, frozenset(line.memories))
        return wire.ok()

    def _line_ended(self, line: Line) -> None:
        if isinstance(line, PrepareLine) and self._kernels is not None and not self._stop.is_set():
            self._kernels.released(connection.canonical(line.connection_file), line)
        if isinstance(line, OpenLine) and self._guests is not None:
            self._guests.ended(line)

    async def _prepare(self, line: PrepareLine, peer: int | None, kernels: Kernels, parts: Assembled) -> dict[str, Any]:
        _same_protocol(line.protocol)
        promise, folder, project = await kernels.prepare(
            connection.canonical(line.connection_file), Path(line.cwd), line, peer
        )
        objects = None
        if line.objects and parts.store is not None:
            objects = ProjectLayout.of(self.settings.artifact_root, project.id).objects
            for part in (objects.parent.parent, objects.parent, objects):
                private_folder(part)
        return wire.ok(
            session=promise.session,
            session_dir=str(folder),
            generation=promise.generation,
            objects=None if objects is None else str(objects),
            version=version(),
            pid=os.getpid(),
        )

    async def _attach(self, line: AttachLine, peer: int | None, kernels: Kernels) -> dict[str, Any]:
        _same_protocol(line.protocol)
        attachment = await kernels.attach(
            AttachRequest(connection.canonical(line.connection_file), line.pid, Path(line.cwd), line.extension, peer)
        )
        identity = attachment.identity
        return wire.ok(session=identity.session, generation=identity.generation, version=version(), pid=os.getpid())

    async def _status(self, kernels: Kernels, guests: Guests, parts: Assembled) -> dict[str, Any]:
        health, features = await asyncio.get_running_loop().run_in_executor(self._pool, parts.health)
        return wire.ok(
            version=version(),
            pid=os.getpid(),
            protocol=wire.PROTOCOL,
            uptime_seconds=round(time.monotonic() - self._began),
            health=health,
            features=features,
            outbox=parts.sending.status(),
            identity=parts.sending.identity(),
            capture=None if parts.text is None else parts.text.sessions.counters(),
            dsh_log=None if self.tail is None else self.tail.status(),
            metrics=parts.metrics.snapshot(),
            hardened=self._hardened,
            idle_exit_seconds=self._idle_exit,
            kernels=[
                {
                    "session": item.identity.session,
                    "generation": item.identity.generation,
                    "pid": item.identity.process.pid if item.identity.process else None,
                    "project": item.identity.project.told,
                    "dropped_messages": item.link.dropped,
                }
                for item in kernels.values()
            ],
            guests=[
                {"session": item.session, "label": item.label, "pid": item.pid, "project": item.project.told}
                for item in guests.values()
            ],
        )


async def _open(line: OpenLine, peer: int | None, guests: Guests) -> dict[str, Any]:
    _same_protocol(line.protocol)
    guest, offer = await guests.open(Path(line.cwd), line.label, line, peer)
    return wire.ok(
        session=guest.session,
        session_dir=str(guest.session_dir),
        generation=1,
        version=version(),
        pid=os.getpid(),
        direct=offer.fields(),
    )


async def _act(line: OutboxLine, parts: Assembled) -> dict[str, Any]:
    egress = parts.sending.egress
    if egress is None:
        raise ProtocolError("this host sends nothing: no memory service is configured", wire.ADAPTER_DISABLED)
    return wire.ok(**await egress.act(line.action, line.deliveries))


def _same_protocol(protocol: int) -> None:
    if protocol != wire.PROTOCOL:
        raise ProtocolError(
            f"this host speaks protocol {wire.PROTOCOL}; install rlm-memory and rlm-memory-host of one release",
            wire.UNSUPPORTED_VERSION,
        )


class _signals:
    """SIGTERM and SIGINT ask for shutdown while the context is open; a second one finds the default action."""

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._got, number)

    def _got(self, number: signal.Signals) -> None:
        self._stop(number.name)
        asyncio.get_running_loop().remove_signal_handler(number)

    async def __aexit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
