"""The two sockets to one kernel: SUB on its iopub for requests, DEALER on its control channel for replies.

Owns: sockets, signatures, sizes, the proof that the subscription is live. Does not own: what requests mean
(`attachment`). Everything that arrives is untrusted: whoever holds the kernel's key can sign, everyone on the machine
can try to connect. A message that is unsigned, forged, malformed or repeated is dropped and counted.

High-water marks are off: with the defaults a slow reader lost 1,791 of 5,000 requests, with these none. The kernel
filters by topic, so only comm messages (`comm-<id>`) reach us, not its output.

Source: design page "Kernel <-> host", Host side.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import zmq
import zmq.asyncio
from jupyter_client.session import DELIM, Session
from rlm_memory import wire

from rlm_memory_host.attach.connection import Connection
from rlm_memory_host.logs import LOGGER, where

COMM_TOPIC: Final = b"comm-"
MAX_MESSAGE_BYTES: Final = 32 << 20
"""A larger message closes the connection (libzmq reconnects by itself); up to it an answer with a code is possible."""
MAX_HEADER_BYTES: Final = 64 << 10
MAX_COMM_ID: Final = 128
SIGNATURES_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Message:
    """One authentic message of the kernel that concerns us.

    `origin` is the `session` of its header: one per kernel process. `data` is None for an oversized request, which is
    not parsed. `repeat_of` is the epoch that a repeated request was first sent to, None for a first transmission.
    """

    kind: Literal["open", "close", "welcome"]
    origin: str
    comm_id: str = ""
    data: object = None
    oversized: bool = False
    repeat_of: str | None = None


class Link:
    """Sockets to one kernel. Belongs to the event loop; `close` may be called twice."""

    def __init__(self, context: zmq.asyncio.Context, connection: Connection) -> None:
        self._session: Any = Session(
            key=connection.key,
            signature_scheme=connection.scheme,
            username="rlm-memory-host",
            check_pid=False,
            digest_history_size=SIGNATURES_KEPT,
        )
        self._sub = _socket(context, zmq.SUB, connection)
        self._control: Any = _socket(context, zmq.DEALER, connection)
        self._sub.setsockopt(zmq.RCVHWM, 0)
        self._sub.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._control.setsockopt(zmq.SNDHWM, 0)
        self._control.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._proof = (b"", asyncio.Event())
        self._pids: dict[str, asyncio.Future[tuple[int, str] | None]] = {}
        self.dropped = 0
        self._sub.connect(connection.iopub)
        self._control.connect(connection.control)
        self._sub.subscribe(COMM_TOPIC)

    async def prove(self, seconds: float) -> bool:
        """Wait until the kernel says that it took a subscription made now; False when it did not within `seconds`.

        ipykernel 7 welcomes every subscription (JEP 65), and libzmq sends subscriptions in order, so the welcome of a
        fresh topic proves the earlier one. ipykernel 6 never says: there the caller's hello is the proof. `messages`
        must be running.
        """
        topic = b"rlm-memory-" + secrets.token_hex(8).encode()
        self._proof = (topic, asyncio.Event())
        self._sub.subscribe(topic)
        try:
            async with asyncio.timeout(seconds):
                await self._proof[1].wait()
        except TimeoutError:
            return False
        finally:
            self._sub.unsubscribe(topic)
        return True

    async def messages(self) -> AsyncIterator[Message]:
        """The kernel's messages for ever, until the link is closed or the task cancelled."""
        while True:
            frames = await self._sub.recv_multipart()
            message = self._read(frames)
            if message is None:
                self.dropped += 1
                LOGGER.debug("message_dropped bytes=%d", sum(map(len, frames)))
            elif message.kind == "welcome" and message.data == self._proof[0].decode():
                self._proof[1].set()
                yield message
            else:
                yield message

    def _read(self, frames: list[bytes]) -> Message | None:
        try:
            split = frames.index(DELIM)
            topic, parts = frames[:split], frames[split + 1 :]
            if len(topic) != 1 or len(parts) < 5 or max(map(len, parts[1:4])) > MAX_HEADER_BYTES:
                return None
            if len(parts[4]) > wire.MAX_INLINE_BYTES + 4096:
                return self._oversized(topic[0], parts)
            return _understood(self._session.deserialize(parts))
        except Exception as error:
            # Deliberately broad: hostile input takes every shape, and the kernel's other requests must go on.
            LOGGER.debug("message_refused %s", where(error))
            return None

    def _oversized(self, topic: bytes, parts: list[bytes]) -> Message | None:
        """An authentic request that is too large is answered, so the topic stands for the unparsed comm id."""
        if not hmac.compare_digest(parts[0], self._session.sign(parts[1:5])) or not topic.startswith(COMM_TOPIC):
            return None
        header = self._session.unpack(parts[1])
        if header["msg_type"] != "comm_open":
            return None
        comm_id = _comm_id(topic.removeprefix(COMM_TOPIC).decode("ascii"))
        return Message("open", str(header["session"])[:MAX_COMM_ID], comm_id, None, True) if comm_id else None

    async def reply(self, comm_id: str, data: dict[str, Any]) -> None:
        """Send the one `comm_msg` of a request."""
        message = self._session.msg("comm_msg", content={"comm_id": comm_id, "data": data})
        await self._control.send_multipart(self._session.serialize(message))

    async def ask_pid(self, seconds: float) -> int | None:
        """The kernel's own word on its pid, None when it gives none in time."""
        told = await self.ask_process(seconds)
        return told[0] if told is not None else None

    async def ask_process(self, seconds: float) -> tuple[int, str] | None:
        """The kernel's own word on its pid (`usage_request`), and the header session that it speaks with."""
        message = self._session.msg("usage_request", content={})
        answer: asyncio.Future[tuple[int, str] | None] = asyncio.get_running_loop().create_future()
        self._pids[message["header"]["msg_id"]] = answer
        try:
            await self._control.send_multipart(self._session.serialize(message))
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._pids.pop(message["header"]["msg_id"], None)

    async def answers(self) -> None:
        """Read the control channel for ever; only answers to `ask_pid` matter."""
        while True:
            frames = await self._control.recv_multipart()
            try:
                split = frames.index(DELIM)
                message = self._session.deserialize(frames[split + 1 :])
                waiting = self._pids.get(message["parent_header"].get("msg_id", ""))
                if waiting is not None and not waiting.done() and message["msg_type"] == "usage_reply":
                    pid, origin = message["content"].get("pid"), message["header"].get("session")
                    known = type(pid) is int and isinstance(origin, str) and 0 < len(origin) <= MAX_COMM_ID
                    waiting.set_result((pid, origin) if known else None)
            except Exception as error:
                self.dropped += 1
                LOGGER.debug("answer_refused %s", where(error))

    def close(self) -> None:
        """Close both sockets; replies already handed over get a second to leave."""
        for socket in (self._sub, self._control):
            if not socket.closed:
                socket.close(linger=1000)


def _socket(context: zmq.asyncio.Context, kind: int, connection: Connection) -> zmq.asyncio.Socket:
    socket = context.socket(kind)
    socket.setsockopt(zmq.IPV6, 1)
    if connection.curve_public is not None:
        # As jupyter_client does: the kernel's own pair serves both ends.
        socket.curve_serverkey = connection.curve_public
        socket.curve_publickey = connection.curve_public
        socket.curve_secretkey = connection.curve_secret
    return socket


def _understood(message: dict[str, Any]) -> Message | None:
    """What a deserialised message means to us; None when nothing."""
    header, content = message["header"], message["content"]
    origin = header.get("session")
    if not isinstance(origin, str) or not origin or len(origin) > MAX_COMM_ID or not isinstance(content, dict):
        return None
    fields = cast("dict[str, Any]", content)
    if message["msg_type"] == "iopub_welcome":
        return Message("welcome", origin, data=fields.get("subscription"))
    comm_id = _comm_id(fields.get("comm_id"))
    if comm_id is None:
        return None
    if message["msg_type"] == "comm_close":
        return Message("close", origin, comm_id)
    if message["msg_type"] == "comm_open" and fields.get("target_name") == wire.TARGET:
        metadata = cast("dict[str, Any]", message["metadata"])
        repeat_of = metadata.get(wire.REPEAT_OF)
        known = isinstance(repeat_of, str) and 0 < len(repeat_of) <= MAX_COMM_ID
        return Message("open", origin, comm_id, fields.get("data"), repeat_of=repeat_of if known else None)
    return None


def _comm_id(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    return value if 0 < len(value) <= MAX_COMM_ID and value.isascii() and value.isprintable() else None
