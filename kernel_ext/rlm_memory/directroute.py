"""The direct route: a DEALER to the host's ROUTER, authenticated by CURVE.

Owns: the socket, the thread that reads it, noticing that the connection was refused or lost. Does not own: who waits
for what, timers, ids (`channel.py`), nor where the token comes from (`opening.py`, `attaching.py`).

Threads. A ZeroMQ socket is no thread's friend: every use is under `_lock`, and waiting is done on its descriptor
without it. The descriptor tells of a change only once and a send may use the telling up: who sends while others wait
looks and rings where something has come, and who begins to wait looks first. One thread at a time drives: it waits on
the descriptor and hands out what comes. A caller that blocks drives itself, since handing its reply from thread to
thread would double what a call takes; the reader thread meanwhile only listens for the bell. It drives where nobody
does that others wait for: coroutines, and threads that found a driver already. It closes the sockets when it ends.

Source: design page "Kernel <-> host", Direct channel.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from rlm_memory import errors, wire
from rlm_memory.route import IsOurs, OnReply, wait_done

LINGER_MILLISECONDS: Final = 200
"""What was handed over before a close, a cancellation say, gets that long to leave."""
JOIN_SECONDS: Final = 2.0
TRIES: Final = 3
"""Connections that end before they are authenticated: then the host's key is another one, since it is another host."""
# Plain numbers: in every one of its uses, an operation on pyzmq's enumerations would cost as much as a call of libzmq.
EVENTS, NOBLOCK, READABLE = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.POLLIN)
TOLD: Final = (
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

    def __init__(
        self,
        offer: wire.Offer,
        on_lost: Callable[[DirectRoute, errors.MemoryFault], None],
        *,
        origin: str | None = None,
    ) -> None:
        """`on_lost` is called once, on the reader's thread, when the connection is refused or over.

        `origin` names the channel at the host, by default with a name of its own.
        """
        self._offer, self._on_lost = offer, on_lost
        self._origin = origin or uuid.uuid4().hex
        self._pid = os.getpid()
        self._lock: Any = threading.RLock()
        self._closed = False
        self._authenticated = False
        self._tries = 0
        self._on_reply: OnReply = _nobody
        self._context: zmq.Context[Any] | None = None
        self._socket: Any = None
        self._monitor: Any = None
        self._descriptors: tuple[int, ...] = ()
        self._bell, self._nudge = _Bell(), _Bell()
        """The reader's, and the driving caller's."""
        # Re-entrant: a signal handler of the user's may call in while its thread drives.
        self._driving = threading.RLock()
        self._drivers = self._followers = 0
        self._watches: list[select.poll] = []
        """What no driver waits on just now."""
        self._arrived: deque[bytes] = deque()
        self._fault: errors.MemoryFault | None = None
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
            self._monitor = peer.get_monitor_socket(TOLD)
            self._descriptors = (peer.fileno(), self._monitor.fileno())
            peer.connect(self._offer.address)
        except (zmq.ZMQError, ValueError) as error:
            self._end()
            raise errors.HostUnavailable(
                f"the token or the address to connect with cannot be used ({type(error).__name__}); share it again"
            ) from error
        self._reader.start()

    def send(self, request_id: str, data: Mapping[str, Any], repeat_of: str | None = None) -> None:
        body = wire.compact(data)
        self._hand_over(wire.Letter(wire.DIRECT_OPEN, self._origin, request_id, repeat_of, body))

    def cancel(self, request_id: str) -> None:
        self._hand_over(wire.Letter(wire.DIRECT_CLOSE, self._origin, request_id))

    def wait(self, answered: Future[Any], seconds: float) -> bool:
        """Drive until the future is done, or wait for it where another thread drives."""
        inside = self._lock._is_owned()
        with self._lock:
            self._followers += 1
        try:
            if inside:
                # A signal handler that runs in the middle of its thread's own use of the socket: nobody else can drive.
                self._drive(answered, seconds)
                return answered.done()
            if not self._driving.acquire(blocking=False):
                return wait_done(answered, seconds)
            try:
                self._drive(answered, seconds)
            finally:
                self._driving.release()
        finally:
            with self._lock:
                self._followers -= 1
                if self._followers or self._fault is not None:
                    self._bell.ring()
        return answered.done() or wait_done(answered, 0 if self._fault is None else seconds)

    @contextmanager
    def attended(self) -> Generator[None]:
        """Have the reader drive while the context is open and nobody else does."""
        with self._lock:
            self._followers += 1
            self._bell.ring()
        try:
            yield
        finally:
            with self._lock:
                self._followers -= 1

    def is_open(self) -> bool:
        """Whether the handshake is done and nothing has ended the connection since."""
        return self._authenticated and self._fault is None and not self._closed

    def wake(self) -> None:
        """Have whoever drives look whether what it waits for is done."""
        with self._lock:
            if self._drivers and not self._closed:
                self._nudge.ring()

    def give_up(self, fault: errors.MemoryFault) -> None:
        """End the route as if its connection were lost. Never waits, so that it may be called while driving."""
        with self._lock:
            if not self._closed and self._fault is None:
                self._fault = fault
                self._bell.ring()
                self._nudge.ring()

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
                self._bell.ring()
                self._nudge.ring()
        if self._reader.is_alive() and self._reader is not threading.current_thread():
            self._reader.join(JOIN_SECONDS)

    def _hand_over(self, letter: wire.Letter) -> None:
        with self._lock:
            if self._closed or self._socket is None:
                return
            try:
                self._socket.send(letter.encode(), NOBLOCK)
                if (self._drivers or self._followers) and self._socket.getsockopt(EVENTS) & READABLE:
                    (self._nudge if self._drivers else self._bell).ring()
            except zmq.ZMQError:
                pass  # what does not leave is sent again by the channel

    # -- the driver, whoever that is ---------------------------------------------------------------------------------
    def _drive(self, answered: Future[Any], seconds: float) -> None:
        """Hand out what comes until the future is done or the time is over."""
        end = time.monotonic() + seconds
        with self._lock:
            if self._closed:
                return
            watch = self._watches.pop() if self._watches else self._watch(self._nudge)
            self._drivers += 1
        try:
            self._hand_out()
            while not (answered.done() or self._closed or self._fault is not None):
                left = end - time.monotonic()
                if left <= 0:
                    return
                for descriptor, _ in watch.poll(left * 1e3):
                    if descriptor == self._nudge.fileno():
                        self._nudge.hush()
                    elif descriptor == self._descriptors[1]:
                        self._look()
                self._hand_out()
        finally:
            with self._lock:
                self._drivers -= 1
                self._watches.append(watch)

    def _hand_out(self) -> None:
        """Deliver what is there. Called by the driver."""
        self._take_in()
        while self._arrived:
            try:
                frame = self._arrived.popleft()
            except IndexError:
                break  # a signal handler's own call was faster
            self._on_reply(*wire.parse_reply_frame(frame))

    def _look(self) -> None:
        """See what became of the connection. Called by the driver."""
        if self._fault is None:
            self._fault = self._told()

    def _read(self) -> None:
        """The reader's thread: drive while it is wanted, end the route when it is over."""
        watch, bell_only, parked = self._watch(self._bell), select.poll(), False
        bell_only.register(self._bell, select.POLLIN)
        while not self._closed and self._fault is None:
            if self._driving.acquire(blocking=False):
                try:
                    self._hand_out()
                    self._look()
                finally:
                    self._driving.release()
            else:
                parked = True
            if self._fault is None and not self._closed:
                (bell_only if parked else watch).poll()
                rang = self._bell.hush()
                parked = parked and not rang
        with self._lock:
            self._closed = True
        with self._driving, self._lock:
            self._end()
        if self._fault is not None:
            self._on_lost(self, self._fault)

    def _watch(self, bell: _Bell) -> select.poll:
        """What a driver waits on; one of its own while it waits, since a signal handler may begin another within it."""
        watch = select.poll()
        for descriptor in (*self._descriptors, bell.fileno()):
            watch.register(descriptor, select.POLLIN)
        return watch

    def _take_in(self) -> None:
        with self._lock:
            while not self._closed and self._socket.getsockopt(EVENTS) & READABLE:
                try:
                    self._arrived.append(self._socket.recv(NOBLOCK))
                except zmq.Again:
                    return  # as above

    def _events(self) -> list[int]:
        found: list[int] = []
        with self._lock:
            while not self._closed and self._monitor.getsockopt(EVENTS) & READABLE:
                found.append(parse_monitor_message(self._monitor.recv_multipart(NOBLOCK))["event"])
        return found

    def _told(self) -> errors.MemoryFault | None:
        """What the connection came to, where it is over."""
        for event in self._events():
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

    def _end(self) -> None:
        if self._socket is not None:
            if self._monitor is not None:
                self._socket.disable_monitor()
                self._monitor.close()
            self._socket.close()
        self._bell.close()
        self._nudge.close()
        if self._context is not None:
            self._context.term()


class _Bell:
    """A pipe that wakes a thread out of `poll`. A closed one rings for nobody."""

    def __init__(self) -> None:
        self._ear, self._rope = _pipe()

    def fileno(self) -> int:
        return self._ear

    def ring(self) -> None:
        try:
            os.write(self._rope, b"!")
        except OSError:  # full: whoever listens wakes anyway
            pass

    def hush(self) -> bool:
        """Take the rings; whether there were any."""
        try:
            return bool(os.read(self._ear, 4096))
        except OSError:
            return False

    def close(self) -> None:
        for end in (self._ear, self._rope):
            if end >= 0:
                os.close(end)
        self._ear = self._rope = -1


class Unopened:
    """The route before a connection: nothing leaves. The channel needs one from the first."""

    def open(self, on_reply: OnReply, is_ours: IsOurs) -> None: ...

    def send(self, request_id: str, data: Mapping[str, Any], repeat_of: str | None = None) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def wait(self, answered: Future[Any], seconds: float) -> bool:
        return wait_done(answered, seconds)

    def attended(self) -> AbstractContextManager[None]:
        return nullcontext()

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
