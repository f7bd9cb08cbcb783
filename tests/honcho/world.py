"""A simulated world for delivery tests: time that jumps to the next timer, a fake service, an outbox and its worker."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlm_memory_host.contracts.delivery import DeliveryRequest, iso
from rlm_memory_host.delivery.compose import Labels, Part, compose, make_scope
from rlm_memory_host.delivery.outbox import Outbox
from rlm_memory_host.delivery.worker import DeliveryWorker, WorkerPolicy
from rlm_memory_host.honcho.client import HonchoClient
from rlm_memory_host.honcho.credentials import KeySource
from rlm_memory_host.honcho.fake import FakeHoncho, FakeTransport
from rlm_memory_host.honcho.writer import HonchoWriter
from rlm_memory_host.storage.files import FileLayer

EPOCH = 1_790_000_000.0
MESSAGES = "POST /v3/workspaces/space/sessions/[^/]*/messages$"


class _Jump(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Never waits: what is not ready now lets the clock jump to the next timer."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everything waits and no timer runs: a deadlock")
            self.loop.passed += timeout
        # A turn of a real loop takes a moment too; without it, two times that differ by a rounding never meet.
        self.loop.passed += 1e-6
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is simulated, starting at 1,000 s."""

    def __init__(self) -> None:
        self.passed = 1_000.0
        selector = _Jump()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.passed


def simulate(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run in simulated time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


async def inline(call: Callable[..., Any], /, *arguments: Any) -> Any:
    """Blocking calls in the loop itself: simulated time must not run ahead of a thread."""
    return call(*arguments)


def now() -> float:
    """Seconds since 1970 in the simulated world."""
    return EPOCH + asyncio.get_running_loop().time()


def keep(text: str) -> str:
    """A redactor that finds nothing."""
    return text


def exchange(session: str, turn: int, *texts: str, **scope: Any) -> DeliveryRequest:
    """A delivery of a user's and an assistant's message."""
    where = make_scope(
        workspace_id=scope.get("workspace", "space"),
        user_peer_id="person",
        assistant_peer_id="assistant",
        project_id="project",
        session_id=session,
    )
    moment = iso(EPOCH + turn)
    said = texts or (f"question {turn} of {session}", f"answer {turn} of {session}")
    roles = ("user", "assistant")
    parts = [Part(roles[n % 2], text, moment, sequence=turn * 10 + n) for n, text in enumerate(said)]
    return compose(where, parts, Labels(moment, "1.0", turn=turn), keep).request


class World:
    """An outbox on a real disk, a worker, and the service in the same loop."""

    def __init__(
        self,
        root: Path,
        *,
        fake: FakeHoncho | None = None,
        files: FileLayer | None = None,
        policy: WorkerPolicy | None = None,
        key: KeySource | None = None,
        call_seconds: float = 10.0,
        redact: Callable[[str], str] = keep,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.fake = fake or FakeHoncho(workspaces=["space"], now=now)
        self.transport = FakeTransport(self.fake)
        self.outbox = Outbox(root, redact=redact, files=files, now=now, monotonic=loop.time)
        self.client = HonchoClient(
            "http://fake", "space", key=key, transport=self.transport, now=now, call_seconds=call_seconds
        )
        self.writer = HonchoWriter(self.client)
        self.worker = DeliveryWorker(
            self.outbox, self.writer, policy, now=now, fraction=random.Random(7).random, offload=inline
        )
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> World:
        self.opened = self.outbox.open()
        with suppress(Exception):
            self.client.renew_key()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError):
                await self.task
        await self.client.close()
        self.outbox.close()

    def start(self) -> None:
        self.task = asyncio.ensure_future(self.worker.run())

    async def until(self, condition: Callable[[], bool], seconds: float = 3_600.0) -> float:
        """Let simulated time pass until the condition holds; how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not condition():
            assert loop.time() - began < seconds, f"not within {seconds:,.0f} simulated seconds"
            await asyncio.sleep(0.05)
        return loop.time() - began

    async def until_empty(self, seconds: float = 3_600.0) -> float:
        return await self.until(lambda: not self.outbox.waiting(), seconds)

    def sent(self) -> list[Any]:
        """The requests that add messages."""
        return [request for request in self.fake.requests if request.path.endswith("/messages")]


def check_exactly_once_in_order(fake: FakeHoncho, requests: list[DeliveryRequest]) -> None:
    """Every admitted message is there once, those of a session in the order of admission, and nothing else is."""
    expected: dict[str, list[str]] = {}
    for request in requests:
        expected.setdefault(request.scope.honcho_session_id, []).extend(m.content for m in request.messages)
    found: dict[str, list[str]] = {}
    for row in fake.rows():
        found.setdefault(row["session_id"], []).append(row["content"])
    doubles = {name: [text for text, n in Counter(rows).items() if n > 1] for name, rows in found.items()}
    assert not any(doubles.values()), doubles
    for name in sorted(set(found) | set(expected)):
        assert found.get(name, []) == expected.get(name, []), name


Awaiting = Awaitable[Any]
