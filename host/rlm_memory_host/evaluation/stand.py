"""A host's services in this process, for scopes of the caller's making, against a memory service.

Owns: an event loop in a thread, the services and the dispatcher in it, folders below one that it is given. Does not
own: the service (a fake, or a real one), what is asked. It is what `app` builds, without kernels, sockets and locks; so
whatever the tools do here they do in a host.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, cast

from rlm_memory_host.assembly.parts import Assembled, assemble
from rlm_memory_host.contracts.ids import new_ulid
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.settings import Settings
from rlm_memory_host.tools.calllog import CallLog, ListSink
from rlm_memory_host.tools.dispatcher import Dispatcher
from rlm_memory_host.tools.policy import Switches
from rlm_memory_host.tools.tool import Registry

PATIENCE_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 2.0
THREADS: Final = 8

T = TypeVar("T")
Agent = Literal["root", "child", "none"]


class Refused(Exception):
    """A tool answered with an error; `code` is its code, None for a policy's denial."""

    def __init__(self, code: str | None, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Service:
    """Where the memory service is and who asks it; `key` is a reference as in the settings."""

    url: str
    workspace: str = "evaluation"
    user_peer: str = "person"
    assistant_peer: str = "assistant"
    project: str = "evaluation"
    key: str | None = None
    create_workspace: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of memory is switched on. `bounds` are keys of `[artifacts]`."""

    service: Service | None = None
    text: bool = True
    artifacts: bool = True
    capture: bool = True
    cards: bool = True
    bounds: Mapping[str, Any] = field(default_factory=dict[str, Any])
    call_seconds: float = 10.0
    outbox: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Stand:
    """Use it as a context manager; closing and opening again is a restart. `folder` is absolute and private."""

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        self.folder = folder
        self.wanted = wanted
        self.calls = ListSink()
        self.spent_seconds: dict[str, list[float]] = {}
        self.pause_seconds = 0.0
        """How long a real service is given to make what it took searchable."""
        self._sequence = 0

    # -- life --------------------------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="stand")
        self._thread = threading.Thread(target=self._loop.run_forever, name="stand", daemon=True)
        self._thread.start()
        try:
            settings = settings_of(self.folder / "state", self.wanted)
            self.parts: Assembled = self._in_loop(assemble(settings, None, self._pool))
        except BaseException:
            self._end_loop()
            raise
        self.registry = Registry(self.parts.tools(lambda: 0))
        switches = Switches(self.parts.store is not None, settings.tools.model_dump())
        self._dispatcher = Dispatcher(
            self.registry, switches, CallLog(self.calls), self._pool, timeout_seconds=60.0, metrics=self.parts.metrics
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._in_loop(self.parts.sending.close(CLOSE_SECONDS))
            if self.parts.store is not None:
                self.parts.store.close()
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        self._pool.shutdown(wait=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    # -- asking ------------------------------------------------------------------------------------------------------
    def scope(self, project: str, session: str = "session-1", agent: Agent = "root") -> Scope:
        """A caller, as a transport that authenticated one would make it."""
        folder = self.folder / "sessions" / session
        (folder / "exports").mkdir(parents=True, exist_ok=True, mode=0o700)
        return Scope(project, session, folder, agent, call_id=f"call-{session}")

    def tools(self, scope: Scope) -> list[str]:
        """The names that a caller sees."""
        return [item["name"] for item in self._dispatcher.list(scope)]

    def call(self, tool: str, scope: Scope, **arguments: Any) -> dict[str, Any]:
        """The value of a tool call, with its text as `_text`. Raises Refused."""
        began = time.monotonic()
        envelope = self._in_loop(self._dispatcher.call(tool, arguments, scope))
        self.spent_seconds.setdefault(tool, []).append(time.monotonic() - began)
        if envelope.get("isError"):
            error: Any = envelope.get("error") or {}
            info: Any = error.get("info") or {}
            raise Refused(info.get("code"), str(error.get("message", "")))
        parts = cast("list[dict[str, Any]]", envelope.get("content", []))
        text = "".join(str(part.get("text", "")) for part in parts)
        return {**envelope["value"], "_text": text}

    def record(self, scope: Scope, data: bytes, *, name: str = "result.bin", **card: Any) -> dict[str, Any]:
        """Record bytes through the session's `exports/`."""
        assert scope.exports is not None
        path = scope.exports / name
        path.write_bytes(data)
        return self.call("memory_artifact_record", scope, source_path=str(path), **card)

    def feed(self, scope: Scope, *turns: tuple[str, str], agent: Agent = "root", end: str = "completed") -> None:
        """Let a session say so many turns (user, assistant), each at its end."""
        rows: list[dict[str, Any]] = [{"type": "session", "agent": agent}]
        for number, (user, assistant) in enumerate(turns, 1):
            rows += [
                {"type": "user/message", "turn": number, "content": user},
                {"type": "assistant/message", "turn": number, "content": assistant},
                {"type": "turn/end", "turn": number, "reason": end},
            ]
        assert self.parts.text is not None
        lines: list[str] = []
        for row in rows:
            lines.append(json.dumps({"session": scope.session_id, "seq": self._sequence, **row}))
            self._sequence += 1
        self.parts.text.sessions.replay(scope, lines)

    def inject(self, scope: Scope) -> str:
        """What would go before the first step of a turn; "" without text memory."""
        began = time.monotonic()
        text = "" if self.parts.text is None else self.parts.text.sessions.inject(scope).text
        self.spent_seconds.setdefault("inject", []).append(time.monotonic() - began)
        return text

    def outbox(self) -> Mapping[str, Any]:
        """The outbox's counts; empty where nothing is sent."""
        return self.parts.sending.status() or {}

    def settle(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait until everything that waits is delivered and the cards say so; False where it takes longer."""
        done = self.until(lambda: not self.outbox().get("pending") and not self._awaited(), seconds)
        time.sleep(self.pause_seconds)
        return done

    def _awaited(self) -> int:
        indexing: Any = None
        if self.parts.store is not None:
            indexing = self.parts.store.status(self.scope("any")).get("indexing")
        return indexing["awaited"] if indexing else 0

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for an outcome; whether it came."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True


def settings_of(state_root: Path, wanted: Wanted) -> Settings:
    """The settings of a stand: quick retries, everything else as a host has it."""
    state_root.mkdir(parents=True, exist_ok=True, mode=0o700)
    table: dict[str, Any] = {
        "state_root": state_root,
        "memory": {"enabled": wanted.text},
        "artifacts": {"enabled": wanted.artifacts, **wanted.bounds},
    }
    service = wanted.service
    if service is not None:
        table["honcho"] = {
            "url": service.url,
            "workspace": service.workspace,
            "user_peer": service.user_peer,
            "assistant_peer": service.assistant_peer,
            "project": service.project,
            "key": service.key,
            "create_workspace": service.create_workspace,
            "capture": wanted.capture,
            "index_cards": wanted.cards,
            "index_interval_seconds": 1.0,
            "call_seconds": wanted.call_seconds,
        }
        table["outbox"] = {
            "backoff_seconds": 0.1,
            "backoff_cap_seconds": 0.5,
            "settle_seconds": 0.5,
            "circuit_cooldown_seconds": 0.2,
            "drain_seconds": 1.0,
            **wanted.outbox,
        }
    return Settings.model_validate(table)


def fresh(folder: Path, name: str) -> Path:
    """A new private folder below another."""
    made = folder / f"{name}-{new_ulid()}"
    made.mkdir(mode=0o700, parents=True)
    return made


def texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The contents of a service's rows."""
    return [str(row["content"]) for row in rows]
