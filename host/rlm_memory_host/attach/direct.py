"""The direct channel: a ROUTER with CURVE for callers that hold a token, on this machine only.

Owns: the socket, which keys may enter (the host's answer to ZAP), the keys' callers, one `Serving` for each channel
that speaks. Does not own: who gets a token (`guests`, `kernels`), what requests mean (`requests`).

A token is a client's secret CURVE key and is never sent: the handshake proves it, and the public half that ZeroMQ then
puts on every frame (`User-Id`) is the only thing that says whose request it is. A key that is unknown or was revoked
fails the handshake; a connection that was made before is answered REQUEST_SCOPE_CLOSED. Ids are kept apart by `origin`,
a name that a client gives its channel, because its connection may break and come back. Whatever a peer sends, the
others are served on: sizes, peers of a key, requests of a peer are bounded, rubbish is dropped and counted.

Source: design page "Kernel <-> host", Direct channel.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import zmq
from rlm_memory import wire
from zmq.utils import z85

from rlm_memory_host.attach import requests
from rlm_memory_host.attach.replies import Replies
from rlm_memory_host.attach.serving import MAX_CALLS, Serving, parsed
from rlm_memory_host.attach.watched import Watched
from rlm_memory_host.logs import LOGGER, where

SOCKET_NAME: Final = "direct.sock"
MAX_PEERS: Final = 256
"""Channels of one token; the one that was silent longest makes room, and a busy one never."""
PEER_REPLIES: Final = 256
PEER_REPLY_BYTES: Final = 1 << 20
"""What is kept of one channel's replies. It is bounded twice: a channel has at most `wire.WINDOW` requests open."""
QUEUED_REPLIES: Final = 2048
"""Replies that may wait for a peer that does not read; more are dropped, and come again when it asks again."""
BACKLOG: Final = 512
ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"
ENDED: Final = "the session of this token has ended"


@dataclass(slots=True)
class Grant:
    """What a token stands for: `caller` makes a request's scope from the epoch of its channel.

    `own` gives the requests of whoever the token was made for, by the name of its channel: they are in one table with
    those that it sends another way. Other channels of the token have tables of their own.
    """

    caller: Callable[[str], requests.Caller]
    own: Callable[[str], Serving | None] = lambda _origin: None
    calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CALLS))
    peers: OrderedDict[str, _Peer] = field(default_factory=OrderedDict[str, "_Peer"])


@dataclass(slots=True)
class _Peer:
    """One channel. `route` is the connection that it spoke over last."""

    route: bytes
    serving: Serving


class Direct:
    """The socket and its tokens. Belongs to the event loop; `close` may be called twice."""

    def __init__(
        self, services: requests.Services, group: asyncio.TaskGroup, context: zmq.Context[Any], run_folder: Path
    ) -> None:
        self._services = services
        self._group = group
        self._grants: dict[bytes, Grant] = {}
        self._closing = False
        self.dropped = 0
        public, secret = zmq.curve_keypair()
        self._server_key = public.decode()
        self._zap = Watched(context, zmq.REP, self._vouch)
        self._zap.socket.bind(ZAP_ENDPOINT)
        self._router = Watched(context, zmq.ROUTER, self._take)
        socket = self._router.socket
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, b"rlm-memory")
        socket.setsockopt(zmq.MAXMSGSIZE, wire.MAX_FRAME_BYTES)
        socket.setsockopt(zmq.SNDHWM, QUEUED_REPLIES)
        socket.setsockopt(zmq.BACKLOG, BACKLOG)
        socket.setsockopt(zmq.LINGER, 500)
        try:
            self.address = _bind(socket, run_folder)
            self._zap.start()
            self._router.start()
        except BaseException:
            self.shut()
            raise

    def grant(
        self, caller: Callable[[str], requests.Caller], own: Callable[[str], Serving | None] | None = None
    ) -> tuple[bytes, wire.Offer]:
        """A new token for a caller: the key to revoke it by, and what whoever shall use it needs. See `Grant`."""
        public, secret = zmq.curve_keypair()
        self._grants[public] = Grant(caller) if own is None else Grant(caller, own)
        return public, wire.Offer(self.address, self._server_key, secret.decode())

    def revoke(self, key: bytes, code: str = wire.REQUEST_SCOPE_CLOSED, text: str = ENDED) -> None:
        """End a token: what runs is cancelled and answered with `code`, nothing more is served. Twice is once."""
        grant = self._grants.pop(key, None)
        for peer in grant.peers.values() if grant is not None else ():
            peer.serving.end_all(code, text)

    async def close(self, seconds: float) -> None:
        """Admit nothing more, cancel, and wait for the answers to leave, at most `seconds`."""
        self._closing = True
        peers = [peer for grant in self._grants.values() for peer in grant.peers.values()]
        await asyncio.gather(*(peer.serving.close(seconds) for peer in peers))
        self.shut()

    def shut(self) -> None:
        """Close the sockets; answers that were handed over get half a second to leave."""
        self._router.close()
        self._zap.close()

    # -- who may enter -----------------------------------------------------------------------------------------------
    def _vouch(self, frames: list[bytes], _last: zmq.Frame) -> None:
        """Answer one question of libzmq's (ZAP, RFC 27): is this key known?"""
        version, number, _domain, _address, _identity, mechanism, *credentials = frames
        key = z85.encode(credentials[0]) if mechanism == b"CURVE" and credentials else b""
        verdict = [b"200", b"OK", key] if key in self._grants else [b"400", b"unknown token", b""]
        self._zap.send([version, number, *verdict, b""])

    # -- messages ----------------------------------------------------------------------------------------------------
    def _take(self, frames: list[bytes], last: zmq.Frame) -> None:
        try:
            route, letter = frames
            self._understood(str(last.get("User-Id")).encode(), route, wire.parse_letter(letter))
        except Exception as error:
            # Deliberately broad: whoever holds a token may send anything, and the others' requests must go on.
            self.dropped += 1
            LOGGER.debug("direct_refused %s", where(error))

    def _understood(self, key: bytes, route: bytes, message: wire.Letter) -> None:
        grant = self._grants.get(key)
        if grant is None:
            self._answer(route, message.id, wire.error(wire.REQUEST_SCOPE_CLOSED, ENDED))
            return
        own = grant.own(message.origin)
        peer = _Peer(route, own) if own is not None else self._known(grant, message.origin, route)
        if peer is None:
            text = f"{MAX_PEERS} channels of this session are busy; close some, or call from fewer processes"
            self._answer(route, message.id, wire.error(wire.HOST_REQUEST_FAILED, text))
            return
        if message.kind == wire.DIRECT_CLOSE:
            peer.serving.end(message.id, wire.CANCELLED, "the caller cancelled the request")
            return
        reply = None if own is None else partial(self._answer_later, route)
        answer = peer.serving.admit(message.id, _request(message.data), message.repeat_of, reply)
        if answer is not None:
            self._answer(route, message.id, answer)

    def _known(self, grant: Grant, origin: str, route: bytes) -> _Peer | None:
        """The channel of that name, over the connection that it speaks over now."""
        peer = grant.peers.get(origin) or self._welcome(grant, origin, route)
        if peer is not None:
            peer.route = route
            grant.peers.move_to_end(origin)
        return peer

    def _welcome(self, grant: Grant, origin: str, route: bytes) -> _Peer | None:
        """Take a channel that speaks for the first time; None where every place is taken by a busy one."""
        if len(grant.peers) >= MAX_PEERS:
            silent = next((name for name, peer in grant.peers.items() if peer.serving.is_idle()), None)
            if silent is None:
                return None
            del grant.peers[silent]

        async def reply(request_id: str, data: dict[str, Any]) -> None:
            self._answer(peer.route, request_id, data)

        table = partial(Replies, PEER_REPLIES, PEER_REPLY_BYTES)
        peer = _Peer(route, Serving(self._services, grant.caller, reply, calls=grant.calls, replies=table))
        peer.serving.group = self._group
        grant.peers[origin] = peer
        return peer

    async def _answer_later(self, route: bytes, request_id: str, data: dict[str, Any]) -> None:
        self._answer(route, request_id, data)

    def _answer(self, route: bytes, request_id: str, data: dict[str, Any]) -> None:
        if not self._router.send([route, wire.reply_frame(request_id, data)]):
            self.dropped += 1


def _request(data: bytes) -> wire.Request | dict[str, Any]:
    if len(data) > wire.MAX_INLINE_BYTES + 4096:
        return parsed(None, oversized=True)
    try:
        return parsed(json.loads(data))
    except (ValueError, RecursionError):
        return wire.error(wire.INVALID_REQUEST, "the request's data is not JSON")


def _bind(socket: Any, run_folder: Path) -> str:
    """Listen below the run folder, whose mode keeps other users out, or where its path is too long on the loopback.

    There any user can knock, and has no key.
    """
    path = run_folder / SOCKET_NAME
    if len(os.fsencode(path)) <= wire.SOCKET_PATH_BYTES:
        socket.bind(f"ipc://{path}")
        path.chmod(0o600)
        return f"ipc://{path}"
    return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
