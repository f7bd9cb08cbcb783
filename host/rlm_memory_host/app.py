"""The composition root: from settings to a running host, and back down in order.

Owns: which services and tools there are, start and shutdown, the health that `status` shows. Does not own: any of the
parts.

Start: lock, folders, log, store, socket, kernels from the roster. Shutdown, whatever asked for it (SIGTERM, SIGINT, the
stop command, idleness): stop admitting (socket closed and removed), cancel what runs and answer it, drain for at most
`host.shutdown_seconds`, close the store, release the lock.

Tasks: one group holds the door and every kernel. Threads: one pool runs tools; a thread that does not look at its stop
flag cannot hold the process up (`cli.host` ends the process once `run` returned; the store's order of writes makes that
safe).

Source: DeepSeek Honcho specification, sections 19 and 33; design page "Style", house rule 8.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import zmq.asyncio
from rlm_memory import wire

from rlm_memory_host import logs
from rlm_memory_host.attach import connection
from rlm_memory_host.attach.door import AttachLine, Door, Line, PrepareLine, StatusLine
from rlm_memory_host.attach.kernels import AttachRequest, Kernels
from rlm_memory_host.attach.requests import Services
from rlm_memory_host.attach.roster import Roster
from rlm_memory_host.contracts.records import Bounds
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.contracts.version import version
from rlm_memory_host.errors import ProtocolError
from rlm_memory_host.logs import LOGGER
from rlm_memory_host.process import claim_state_root, host_lock, private_folder
from rlm_memory_host.settings import Settings
from rlm_memory_host.storage.paths import ProjectLayout
from rlm_memory_host.tools.artifacts import ArtifactPort, artifact_tools
from rlm_memory_host.tools.calllog import CallLog, LineSink
from rlm_memory_host.tools.dispatcher import Dispatcher
from rlm_memory_host.tools.policy import Switches
from rlm_memory_host.tools.status import overall, status_tool, survey
from rlm_memory_host.tools.tool import Call, Registry, Tool

THREADS: Final = 16
IDLE_LOOK_SECONDS: Final = 1.0


def bounds_of(settings: Settings) -> Bounds:
    """The store's bounds that the settings ask for."""
    artifacts = settings.artifacts
    return Bounds(
        artifact_bytes=artifacts.max_artifact_bytes,
        project_bytes=artifacts.max_project_bytes,
        cards=artifacts.max_cards,
        title=artifacts.max_title_chars,
        summary=artifacts.max_summary_chars,
        tags=artifacts.max_tags,
        tag=artifacts.max_tag_chars,
        columns=artifacts.max_columns,
        column=artifacts.max_column_chars,
        search_results=artifacts.max_search_results,
        raised=artifacts.allow_larger,
    )


def build_tools(store: ArtifactPort | None, kernels: Callable[[], int]) -> list[Tool]:
    """Every tool of this host, in the order in which they are listed."""
    return [
        *(artifact_tools(store) if store is not None else []),
        status_tool(None if store is None else lambda call: store.status(call.scope), kernels),
    ]


def open_store(settings: Settings) -> ArtifactPort | None:
    """The artifact store, None where it is switched off."""
    if not settings.artifacts.enabled:
        return None
    from rlm_memory_host.artifacts import ArtifactStore

    return ArtifactStore(
        private_folder(settings.artifact_root), bounds_of(settings), integrity=settings.artifacts.integrity
    )


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
    ) -> None:
        self.settings = settings
        self._idle_exit = idle_exit_seconds
        self._hardened = hardened
        self._more_tools = more_tools
        self._stop = asyncio.Event()
        self._reason = "stopped"
        self._began = time.monotonic()
        self._kernels: Kernels | None = None
        self._store: ArtifactPort | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tool")

    def stop(self, reason: str) -> None:
        """Ask for shutdown; from the loop's thread. The first reason counts."""
        if not self._stop.is_set():
            self._reason = reason
            self._stop.set()

    async def run(self, started: Callable[[], None] = lambda: None) -> Ended:
        """Serve until stopped. Raises AlreadyRunning, SettingsError, StoreError before `started` is called."""
        root = claim_state_root(self.settings.state_root)
        with host_lock(root):
            return await self._locked(root, started)

    async def _locked(self, root: Path, started: Callable[[], None]) -> Ended:
        for name in ("run", "logs", "sessions", "attachments"):
            private_folder(root / name)
        handler = logs.start(root / "logs", self.settings.host.log_level)
        calls = logs.JsonLines(root / "logs" / "calls.jsonl")
        context = zmq.asyncio.Context()
        try:
            self._store = open_store(self.settings)
            LOGGER.info("host_started version=%s hardened=%s", version(), self._hardened)
            drained = await self._serve(root, context, calls, started)
            LOGGER.info("host_ended reason=%s drained=%s", self._reason, drained)
            return Ended(self._reason, drained)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            context.destroy(linger=500)
            calls.close()
            logs.stop(handler)

    async def _serve(
        self,
        root: Path,
        context: zmq.asyncio.Context,
        calls: LineSink,
        started: Callable[[], None],
    ) -> bool:
        services = self._services(calls)
        async with asyncio.TaskGroup() as group, _signals(self.stop):
            kernels = self._kernels = Kernels(
                services,
                Roster(root / "attachments"),
                self.settings.sessions_root,
                group,
                context,
                self.settings.project.id,
            )
            taken = await kernels.take_up()
            door = Door(root, self._answer, self._line_ended)
            try:
                listening = group.create_task(door.run())
                LOGGER.info("listening taken_up=%d", taken)
                started()
                await self._until_stopped(kernels)
            finally:
                door.close()
            return await self._down(kernels, listening)

    async def _down(self, kernels: Kernels, listening: asyncio.Task[None]) -> bool:
        try:
            async with asyncio.timeout(self.settings.host.shutdown_seconds):
                await kernels.close(self.settings.host.shutdown_seconds / 2)
                if self._store is not None:
                    await asyncio.get_running_loop().run_in_executor(self._pool, self._store.close)
                return True
        except TimeoutError:
            return False
        finally:
            listening.cancel()

    async def _until_stopped(self, kernels: Kernels) -> None:
        kernels.idle_since = time.monotonic()
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_LOOK_SECONDS):
                    await self._stop.wait()
            idle = time.monotonic() - kernels.idle_since
            if self._idle_exit is not None and not kernels and idle > self._idle_exit:
                self.stop("idle")

    def _services(self, calls: LineSink) -> Services:
        registry = Registry(
            [*build_tools(self._store, lambda: len(self._kernels or ())), *self._more_tools],
        )
        switches = Switches(self._store is not None, self.settings.tools.model_dump())
        dispatcher = Dispatcher(
            registry, switches, CallLog(calls), self._pool, timeout_seconds=self.settings.host.tool_timeout_seconds
        )
        limits = {
            "inline_bytes": wire.MAX_INLINE_BYTES,
            "annotation_bytes": wire.MAX_ANNOTATION_BYTES,
            "window": wire.WINDOW,
            "artifact_bytes": self.settings.artifacts.max_artifact_bytes,
        }
        return Services(dispatcher, self._store.annotate if self._store else None, self._pool, limits)

    # -- the local socket --------------------------------------------------------------------------------------------
    async def _answer(self, line: Line) -> dict[str, Any]:
        if self._stop.is_set() or self._kernels is None:
            raise ProtocolError("the host is shutting down", wire.REQUEST_SCOPE_CLOSED)
        if isinstance(line, AttachLine):
            return await self._attach(line, self._kernels)
        if isinstance(line, PrepareLine):
            return await self._prepare(line, self._kernels)
        if isinstance(line, StatusLine):
            return await self._status(self._kernels)
        self.stop("stop command")
        return wire.ok(pid=os.getpid())

    def _line_ended(self, line: Line) -> None:
        if isinstance(line, PrepareLine) and self._kernels is not None and not self._stop.is_set():
            self._kernels.released(connection.canonical(line.connection_file), line)

    async def _prepare(self, line: PrepareLine, kernels: Kernels) -> dict[str, Any]:
        _same_protocol(line.protocol)
        promise, folder, project = await kernels.prepare(
            connection.canonical(line.connection_file), Path(line.cwd), line
        )
        objects = None
        if line.objects and self._store is not None:
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

    async def _attach(self, line: AttachLine, kernels: Kernels) -> dict[str, Any]:
        _same_protocol(line.protocol)
        attachment = await kernels.attach(
            AttachRequest(connection.canonical(line.connection_file), line.pid, Path(line.cwd), line.extension)
        )
        identity = attachment.identity
        return wire.ok(session=identity.session, generation=identity.generation, version=version(), pid=os.getpid())

    async def _status(self, kernels: Kernels) -> dict[str, Any]:
        health, features = await asyncio.get_running_loop().run_in_executor(self._pool, self._health)
        return wire.ok(
            version=version(),
            pid=os.getpid(),
            protocol=wire.PROTOCOL,
            uptime_seconds=round(time.monotonic() - self._began),
            health=health,
            features=features,
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
        )

    def _health(self) -> tuple[str, Mapping[str, Any]]:
        store = self._store
        scope = Scope(project_id=self.settings.project.id or "host-status", session_id="", session_dir=None)
        _, features = survey(Call(scope), None if store is None else lambda call: store.status(call.scope))
        return overall(features), {name: item.to_value() for name, item in features.items()}


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
