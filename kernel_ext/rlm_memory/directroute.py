"""The direct route: a DEALER to the host's ROUTER, authenticated by CURVE.

Owns: the socket, the thread that reads it, noticing that the connection was refused or lost. Does not own: who waits
for what, timers, ids (`channel.py`), nor where the token comes from (`opening.py`, `attaching.py`).

A ZeroMQ socket is no thread's friend: every use is under the lock, and the reader waits on the socket's descriptor
without it. The descriptor tells of a change only once and a send may use the telling up, so whoever sends looks, and
wakes the reader where something has come. The reader closes the sockets when it ends.

Source: design page "Kernel <-> host", Direct channel.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from rlm_memory import errors, wire
from rlm_memory.route import IsOurs, OnReply

LINGER_MILLISECONDS: Final = 200
"""What was handed over before a close, a cancellation say, gets that long to leave."""
JOIN_SECONDS: Final = 2.0
TRIES: Final = 3
"""Connections that end before they are authenticated: then the host's key is another one, since it is another host."""
EVENTS: Final = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)  # fmt: skip
REFUSED: Final = (
    "the host refused the token: the session that it was given for has ended, or it is another host's; "
    "whoever shared it has to share it again"
)
GONE: Final = (
    "the host's end of the connection is gone, so this call ended; whether the host had finished it is not known. "
    "The next call connects again"
)


class DirectRoute:
    """One connection with one token, from one process. After a fork the child's copy only knows how to refuse."""

    def __init__(self, offer: wire.Offer, on_lost: Callable[[DirectRoute, errors.MemoryFault], None]) -> None:
        """`on_lost` is called once, on the reader's thread, when the connection is refused or over."""
        self._offer, self._on_lost = offer, on_lost
        self._origin = uuid.uuid4().hex
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._closed = False
        self._authenticated = False
        self._tries = 0
        self._on_reply: OnReply = _nobody
        self._context: zmq.Context[Any] | None = None
        self._socket: Any = None
        self._monitor: Any = None
        self._bell = self._ear = -1
        self._reader = threading.Thread(target=self._read, name="rlm-memory-direct", daemon=True)

    def open(self, on_reply: OnReply, is_ours: IsOurs) -> None:
        """Connect and read from now on; the handshake goes on behind."""
        del is_ours  # nobody else's messages come this way
        self._on_reply = on_reply
        self._context = zmq.Context()
        self._socket = peer = self._context.socket(zmq.DEALER)
        secret = self._offer.token.encode()
        try:
            peer.curve_secretkey, peer.curve_publickey = secret, zmq.curve_public(secret)
            peer.curve_serverkey = self._offer.server_key.encode()
            peer.setsockopt(zmq.LINGER, LINGER_MILLISECONDS)
            peer.setsockopt(zmq.SNDHWM, 0)
            peer.setsockopt(zmq.MAXMSGSIZE, wire.MAX_FRAME_BYTES)
            self._monitor = peer.get_monitor_socket(EVENTS)
            self._ear, self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else _pipe()
            peer.connect(self._offer.address)
        except (zmq.ZMQError, ValueError) as error:
            self._end()
            raise errors.HostUnavailable(
                f"the token or the address to connect with cannot be used ({type(error).__name__}); share it again"
            ) from error
        self._reader.start()

    def send(self, request_id: str, data: Mapping[str, Any], repeat_of: str | None = None) -> None:
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
        self._hand_over(wire.Frames(wire.DIRECT_OPEN, self._origin, request_id, repeat_of, body))

    def cancel(self, request_id: str) -> None:
        self._hand_over(wire.Frames(wire.DIRECT_CLOSE, self._origin, request_id))

    def refusal(self) -> errors.MemoryFault | None:
        if os.getpid() != self._pid:
            return errors.Forked("this connection is the parent process's; call `memory` itself in the child")
        return None

    def close(self) -> None:
        """End the reader, which closes the sockets; twice is once. Returns when it has, unless it is the reader."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._ring()
        if self._reader.is_alive() and self._reader is not threading.current_thread():
            self._reader.join(JOIN_SECONDS)

    def _hand_over(self, frames: wire.Frames) -> None:
        with self._lock:
            if self._closed or self._socket is None:
                return
            try:
                self._socket.send_multipart(frames.encode(), zmq.NOBLOCK)
                if self._socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                    self._ring()
            except zmq.ZMQError:
                pass  # what does not leave is sent again by the channel

    def _ring(self) -> None:
        try:
            os.write(self._bell, b"!")
        except OSError:  # full: the reader wakes anyway
            pass

    # -- the reader's thread -----------------------------------------------------------------------------------------
    def _read(self) -> None:
        watch = select.poll()
        for descriptor in (self._socket.fileno(), self._monitor.fileno(), self._ear):
            watch.register(descriptor, select.POLLIN)
        fault: errors.MemoryFault | None = None
        while fault is None and not self._closed:
            for frames in self._drained(self._socket):
                self._deliver(frames)
            fault = self._told()
            if fault is None:
                watch.poll()
                self._hush()
        with self._lock:
            self._closed = True
            self._end()
        if fault is not None:
            self._on_lost(self, fault)

    def _drained(self, peer: Any) -> list[list[bytes]]:
        found: list[list[bytes]] = []
        with self._lock:
            try:
                while not self._closed:
                    found.append(peer.recv_multipart(zmq.NOBLOCK))
            except zmq.ZMQError:
                pass
        return found

    def _deliver(self, frames: list[bytes]) -> None:
        data: object = None
        try:
            data = json.loads(frames[1])
        except (ValueError, IndexError):
            pass  # a reply that cannot be read; the channel says so
        self._on_reply(frames[0].decode("ascii", "replace"), data)

    def _told(self) -> errors.MemoryFault | None:
        """What the connection came to, where it is over."""
        for frames in self._drained(self._monitor):
            event = parse_monitor_message(frames)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._authenticated = True
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                return errors.HostUnavailable(REFUSED, wire.REQUEST_SCOPE_CLOSED)
            elif self._authenticated:
                return errors.HostUnavailable(GONE, wire.HOST_LOST)
            elif event == zmq.EVENT_DISCONNECTED:
                self._tries += 1
                if self._tries >= TRIES:
                    return errors.HostUnavailable(REFUSED, wire.REQUEST_SCOPE_CLOSED)
        return None

    def _hush(self) -> None:
        try:
            while os.read(self._ear, 4096):
                pass
        except OSError:
            pass

    def _end(self) -> None:
        if self._socket is not None:
            if self._monitor is not None:
                self._socket.disable_monitor()
                self._monitor.close()
            self._socket.close()
        for descriptor in (self._bell, self._ear):
            if descriptor >= 0:
                os.close(descriptor)
        self._bell = self._ear = -1
        if self._context is not None:
            self._context.term()


class Unopened:
    """The route before a connection: nothing leaves. The channel needs one from the first."""

    def open(self, on_reply: OnReply, is_ours: IsOurs) -> None: ...

    def send(self, request_id: str, data: Mapping[str, Any], repeat_of: str | None = None) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def refusal(self) -> errors.MemoryFault | None:
        return None

    def close(self) -> None: ...


def is_reachable(address: str) -> bool:
    """Whether something listens at an endpoint of this machine. Never waits for more than the system's own answer."""
    scheme, _, rest = address.partition("://")
    try:
        if scheme == "ipc":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.setblocking(False)
                probe.connect(rest)
        else:
            name, _, port = rest.rpartition(":")
            with socket.create_connection((name, int(port)), 1.0):
                pass
    except BlockingIOError:
        return True  # more callers than it takes in at once
    except (OSError, ValueError):
        return False
    return True


def _nobody(_request_id: str, _data: object) -> bool:
    return False


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends
