"""A session of one's own at the host, for programs of the host package that are no kernel: the MCP server, say.

Owns: dialling (a host is started where none runs), the direct channel from the client's end, dialling again after a
host's death. Does not own: the host's end (`guests`, `direct`), the kernel side's client (`rlm_memory.direct`).

    async with open_guest(state_root, Path.cwd(), "mcp") as guest:
        answer = await guest.call("memory_search", {"query": "cohorts"})

A call that was under way when the host died ends with HOST_LOST, since nobody knows whether it was finished; the next
call has a new host and a new session. A cancelled call is cancelled at the host too.

Source: design page "Kernel <-> host", Direct channel.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

import zmq
from rlm_memory import wire

from rlm_memory_host.attach import dial
from rlm_memory_host.attach.watched import Watched
from rlm_memory_host.contracts.ids import new_ulid
from rlm_memory_host.errors import HostError, ToolDenied, ToolError

LOOK_SECONDS: Final = 1.0
"""How often a waiting call looks whether the host is still there, and tells its progress."""
LOST_TEXT: Final = (
    "the host stopped answering, so this call ended; whether the host had finished it is not known. "
    "The next call finds or starts a host again"
)

OnProgress = Callable[[float], None]
"""Called about every second while a call waits, with the seconds since it began."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool gave: its structured value, and the text that stands alone without it."""

    value: Any
    text: str


def open_guest(
    state_root: Path, cwd: Path, label: str, *, eager: bool = True, environ: Mapping[str, str] = os.environ
) -> GuestSession:
    """A guest session, to be entered with `async with`.

    Args:
        state_root: whose host; one is started there, with `environ`, where none runs.
        cwd: the folder that tells the project, absolute.
        label: what the host's status shows, at most 64 printable ASCII characters.
        eager: dial on entering; otherwise the first call does.

    Raises (on entering, or from the first call): HostError with its code, NO_HOST where none can be started.
    """
    return GuestSession(state_root, cwd, label, eager, environ)


class GuestSession:
    """One guest. Its methods belong to the event loop that entered it; any number of calls may wait at once."""

    def __init__(self, state_root: Path, cwd: Path, label: str, eager: bool, environ: Mapping[str, str]) -> None:
        self._root, self._environ, self._eager = state_root, environ, eager
        self._question = {"type": wire.OPEN, "protocol": wire.PROTOCOL, "cwd": str(cwd), "label": label}
        self._link: _Link | None = None
        self._dialling = asyncio.Lock()
        self._context: zmq.Context[Any] = zmq.Context()

    async def __aenter__(self) -> Self:
        try:
            if self._eager:
                await self.connected()
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()

    @property
    def session(self) -> str:
        """The id of the current session; "" before the first one. Another one after a host's death."""
        return self._link.session if self._link is not None else ""

    @property
    def session_dir(self) -> Path | None:
        """The folder of the current session, with `exports/` in it; None before the first one."""
        return self._link.session_dir if self._link is not None else None

    async def connected(self) -> str:
        """Dial where there is no live session; the id of the one there is now. Raises HostError."""
        return (await self._linked()).session

    async def list(self) -> list[dict[str, Any]]:
        """The tools of this session: name, description, parameters. Raises HostError."""
        fields = await self.request(wire.LIST, {})
        return [dict(item) for item in cast("list[Mapping[str, Any]]", fields.get("tools") or [])]

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, on_progress: OnProgress | None = None
    ) -> Answer:
        """Call a tool. Raises ToolDenied, ToolError with the envelope's code, HostError with the bridge's."""
        payload = {"name": name, "arguments": dict(arguments or {})}
        try:
            envelope = wire.parse_envelope(await self.request(wire.CALL, payload, on_progress))
        except wire.WireError as error:
            raise HostError(str(error), error.code) from error
        if not envelope.is_error:
            return Answer(envelope.value, envelope.text)
        if envelope.code is None:
            raise ToolDenied(envelope.message)
        raise ToolError(envelope.message, envelope.code)

    async def request(
        self, kind: str, payload: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> Mapping[str, Any]:
        """The fields of the reply to any of the wire's requests. Raises HostError with the reply's code."""
        try:
            data = wire.request_data(kind, payload)
        except wire.WireError as error:
            raise HostError(str(error), error.code) from error
        link = await self._linked()
        reply = await link.ask(json.dumps(data, ensure_ascii=False).encode(), on_progress)
        if reply.code is None:
            return reply.fields
        if reply.code == wire.REQUEST_SCOPE_CLOSED:
            link.close(LOST_TEXT)
        raise HostError(reply.message, reply.code)

    async def _linked(self) -> _Link:
        async with self._dialling:
            if self._link is None or self._link.is_closed():
                self._link = await self._dial()
            return self._link

    async def _dial(self) -> _Link:
        """The blocking dial in a thread; where nobody waits for it any more, its connection is closed."""
        loop = asyncio.get_running_loop()
        dialled = loop.run_in_executor(None, dial.open_line_starting, self._root, self._question, self._environ)
        try:
            line, answer = await asyncio.shield(dialled)
        except asyncio.CancelledError:
            dialled.add_done_callback(_hang_up)
            raise
        offer = wire.parse_offer(answer.get("direct"))
        if offer is None:
            line.close()
            raise HostError("the host offers no direct channel; restart it (rlm-memory host stop)", wire.NO_HOST)
        return _Link(self._context, line, offer, str(answer["session"]), Path(str(answer["session_dir"])))

    def _end(self) -> None:
        if self._link is not None:
            self._link.close("the session was closed while this call waited")
        self._context.destroy(linger=0)


class _Link:
    """One session's lifeline and channel. Closed for good once either is lost."""

    def __init__(
        self, context: zmq.Context[Any], line: socket.socket, offer: wire.Offer, session: str, session_dir: Path
    ) -> None:
        self.session, self.session_dir = session, session_dir
        self._origin = new_ulid()
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Future[wire.Reply]] = {}
        self._window = asyncio.Semaphore(wire.WINDOW)
        self._heard = self._pinged = time.monotonic()
        self._channel = Watched(context, zmq.DEALER, self._take)
        peer = self._channel.socket
        secret = offer.token.encode()
        peer.curve_secretkey, peer.curve_publickey = secret, zmq.curve_public(secret)
        peer.curve_serverkey = offer.server_key.encode()
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.MAXMSGSIZE, wire.MAX_FRAME_BYTES)
        peer.connect(offer.address)
        self._channel.start()
        self._loop.add_reader(line.fileno(), self._line_told)

    def is_closed(self) -> bool:
        """Whether a new one is needed."""
        return self._channel.socket.closed or dial.is_gone(self._line)

    async def ask(self, data: bytes, on_progress: OnProgress | None) -> wire.Reply:
        """Send a request and wait for its reply. Raises HostError (HOST_LOST) when the host is gone."""
        began = time.monotonic()
        async with self._window:
            if self._channel.socket.closed:
                raise HostError(LOST_TEXT, wire.HOST_LOST)
            if not self._waiting:
                self._heard = time.monotonic()
            request_id = wire.COMM_PREFIX + new_ulid()
            answered = self._waiting[request_id] = self._loop.create_future()
            try:
                self._send(wire.DIRECT_OPEN, request_id, data)
                due, delay = time.monotonic() + wire.RETRANSMIT_SECONDS, wire.RETRANSMIT_SECONDS
                while not (await asyncio.wait({answered}, timeout=LOOK_SECONDS))[0]:
                    if time.monotonic() >= due:
                        self._send(wire.DIRECT_OPEN, request_id, data)
                        delay = min(2 * delay, wire.RETRANSMIT_MOST_SECONDS)
                        due = time.monotonic() + delay
                    self._look()
                    if on_progress is not None:
                        on_progress(time.monotonic() - began)
                return answered.result()
            finally:
                if self._waiting.pop(request_id, None) is not None:
                    answered.cancel()
                    self._send(wire.DIRECT_CLOSE, request_id, b"")

    def close(self, why: str) -> None:
        """End every wait with HOST_LOST and close both connections; twice is once."""
        if self._channel.socket.closed:
            return
        self._loop.remove_reader(self._line.fileno())
        self._channel.close()
        self._line.close()
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            if not answered.done():
                answered.set_exception(HostError(why, wire.HOST_LOST))

    def _look(self) -> None:
        """Ask a silent host for a sign of life, and give up one that gives none."""
        now = time.monotonic()
        if now - self._heard >= wire.LOST_SECONDS:
            self.close(LOST_TEXT)
        elif now - max(self._heard, self._pinged) >= wire.PING_SECONDS:
            self._pinged = now
            self._send(wire.DIRECT_OPEN, wire.COMM_PREFIX + new_ulid(), json.dumps({"type": wire.PING}).encode())

    def _send(self, kind: bytes, request_id: str, data: bytes) -> None:
        self._channel.send([wire.Letter(kind, self._origin, request_id, None, data).encode()])

    def _take(self, frames: list[bytes], _last: zmq.Frame) -> None:
        self._heard = time.monotonic()
        request_id, data = wire.parse_reply_frame(frames[0])
        answered = self._waiting.pop(request_id, None)
        if answered is None or answered.done():
            return
        try:
            answered.set_result(wire.parse_reply(data))
        except wire.WireError as error:
            answered.set_exception(HostError(f"the host's reply cannot be read: {type(error).__name__}"))

    def _line_told(self) -> None:
        if dial.is_gone(self._line):
            self.close(LOST_TEXT)
        else:
            self._line.recv(4096)


def _hang_up(dialled: asyncio.Future[tuple[socket.socket, dict[str, Any]]]) -> None:
    if not dialled.cancelled() and dialled.exception() is None:
        dialled.result()[0].close()
