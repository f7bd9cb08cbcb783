"""One caller's requests: admitted once, run within bounds, cancelled, answered. Whatever way they came.

Owns: de-duplication, bounds on what one caller may have running, cancellation and its verdict, the size of replies.
Does not own: what requests mean (`requests`), who the caller is and how a reply travels (`attachment`, `direct`).

Tasks: every request is a task of the group that the transport gives; the transport ends them before the group.

Source: design page "Kernel <-> host", Host side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from rlm_memory import wire

from rlm_memory_host.attach import requests
from rlm_memory_host.attach.replies import Replies

MAX_RUNNING: Final = 4 * wire.WINDOW
"""Requests of one caller that may run or wait at once; a caller that keeps the window never meets it."""
MAX_CALLS: Final = 4
"""Tool calls of one session that run at once; the others wait, so that one session cannot take every thread."""
LOST_TEXT: Final = (
    "the host was started again while this call waited; whether it had finished is not known: "
    "look whether it took effect before you repeat it"
)


Reply = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Sends a request's id and its answer to whoever asked."""


@dataclass(slots=True)
class _Running:
    reply: Reply
    """How its answer travels: the way that it was last asked for."""
    task: asyncio.Task[None] | None = None
    verdict: tuple[str, str] | None = None
    """Code and text to answer with, once somebody cancelled the request."""
    silent: bool = False
    begun: bool = False
    """Whether the task has taken its first step. Cancelled before that it would never answer: it is left to say so."""


class Serving:
    """The requests of one caller. Belongs to the event loop."""

    def __init__(
        self,
        services: requests.Services,
        caller: Callable[[str], requests.Caller],
        reply: Reply,
        *,
        calls: asyncio.Semaphore | None = None,
        replies: Callable[[], Replies] = Replies,
    ) -> None:
        """`caller` makes the scope of one request from the epoch; `reply` sends what a request that ran came to.

        `calls` bounds the tool calls at once, where several share it.
        """
        self.group: asyncio.TaskGroup | None = None
        self._services = services
        self._caller = caller
        self._reply = reply
        self._calls = calls or asyncio.Semaphore(MAX_CALLS)
        self._table = replies
        self._replies = replies()
        self._running: dict[str, _Running] = {}
        self._closing = False

    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self._running

    def admit(
        self,
        request_id: str,
        request: wire.Request | dict[str, Any],
        repeat_of: str | None,
        reply: Reply | None = None,
    ) -> dict[str, Any] | None:
        """Take a request, or the reply that refuses it. Gives what to answer at once; None where an answer comes later.

        `repeat_of` is the epoch that a repetition was first sent to, None for a first transmission. `reply` is how the
        answer travels where the request came another way than the caller's usual one.
        """
        if self._closing:
            return wire.error(wire.REQUEST_SCOPE_CLOSED, "the host is shutting down")
        if isinstance(request, wire.Request) and request.type == wire.PING:
            # Neither counted nor kept: a ping must come back whatever else runs.
            return wire.ok()
        if len(self._running) >= MAX_RUNNING and request_id not in self._running:
            return wire.error(wire.HOST_REQUEST_FAILED, f"more than {MAX_RUNNING} requests of this caller are running")
        admitted = self._replies.admit(request_id)
        if admitted == "running":
            if (running := self._running.get(request_id)) is not None:
                running.reply = reply or self._reply
            return None
        if admitted != "new":
            return dict(admitted)
        if (
            isinstance(request, wire.Request)
            and repeat_of not in (None, self._replies.epoch)
            and not requests.is_repeatable(request, self._services)
        ):
            request = wire.error(wire.HOST_LOST, LOST_TEXT)
        entry = self._running[request_id] = _Running(reply or self._reply)
        if self.group is not None:
            entry.task = self.group.create_task(self._serve(request_id, request, entry, self._replies))
        return None

    def end(self, request_id: str, code: str, text: str, *, silent: bool = False) -> None:
        """Cancel a request, which is then answered with `code`; `silent` where nobody is left to hear it."""
        entry = self._running.get(request_id)
        if entry is not None and entry.verdict is None and entry.task is not None:
            entry.verdict, entry.silent = (code, text), silent
            if entry.begun:
                entry.task.cancel()
            else:
                del self._running[request_id]

    def end_all(self, code: str, text: str, *, silent: bool = False) -> None:
        """Cancel everything."""
        for request_id in list(self._running):
            self.end(request_id, code, text, silent=silent)

    def renew(self) -> None:
        """Forget what was answered: another process asks from now on."""
        self._replies = self._table()

    async def close(self, seconds: float) -> None:
        """Admit nothing more, cancel what runs, and wait for its answers to leave, at most `seconds`."""
        self._closing = True
        tasks = [entry.task for entry in self._running.values() if entry.task is not None]
        self.end_all(wire.REQUEST_SCOPE_CLOSED, "the host is shutting down")
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _serve(
        self, request_id: str, request: wire.Request | dict[str, Any], entry: _Running, replies: Replies
    ) -> None:
        entry.begun = True
        try:
            if entry.verdict is not None:
                reply = wire.error(*entry.verdict)
            elif isinstance(request, dict):
                reply = request
            elif request.type in {wire.CALL, wire.ANNOTATE, wire.SCAN}:
                async with self._calls:
                    reply = await requests.answer(request, self._caller(self._replies.epoch), self._services)
            else:
                reply = await requests.answer(request, self._caller(self._replies.epoch), self._services)
        except asyncio.CancelledError:
            if entry.verdict is None:
                raise
            reply = wire.error(*entry.verdict)
        finally:
            if self._running.get(request_id) is entry:
                del self._running[request_id]
        size = wire.encoded_size(reply)
        if size > wire.MAX_INLINE_BYTES:
            reply = wire.error(wire.HOST_REQUEST_FAILED, "the reply is too large for one message")
        replies.finish(request_id, reply, size)
        if not entry.silent:
            await entry.reply(request_id, reply)


def parsed(data: object, *, oversized: bool = False) -> wire.Request | dict[str, Any]:
    """The request that a message's data holds, or the reply that refuses it."""
    if oversized:
        return wire.error(
            wire.PAYLOAD_TOO_LARGE,
            f"the request is over {wire.MAX_INLINE_BYTES:,} bytes; write large values to a file and record that",
        )
    try:
        return wire.parse_request(data)
    except wire.WireError as error:
        return wire.error(error.code, str(error))
