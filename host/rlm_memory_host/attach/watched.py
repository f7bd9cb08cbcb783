"""A ZeroMQ socket that the event loop reads by its descriptor: an asyncio socket costs a request 0.1 ms more.

The descriptor tells of a change only once. So all that is there is read each time, and after a send, which may use the
telling up, it is looked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import zmq

from rlm_memory_host.logs import LOGGER

# Plain numbers: an operation on pyzmq's enumerations costs as much as a call of libzmq.
EVENTS, NOBLOCK, MORE, READABLE = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.SNDMORE), int(zmq.POLLIN)
READ_AT_ONCE: Final = 256
"""Messages that are read before anything else on the loop gets its turn."""


class Watched:
    """One socket, and what takes its messages. Belongs to the event loop; `close` may be called twice."""

    def __init__(self, context: zmq.Context[Any], kind: int, take: Callable[[list[bytes], zmq.Frame], None]) -> None:
        """`take` is given a message's frames, and its last one as libzmq gave it, which knows who sent it."""
        self.socket: Any = context.socket(kind, socket_class=zmq.Socket)
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.Handle | None = None
        self._reading = False

    def start(self) -> None:
        """Read from now on; the socket is bound or connected by then."""
        self._loop.add_reader(self.socket.fileno(), self._read)
        self._again = self._loop.call_soon(self._read)

    def send(self, frames: list[bytes]) -> bool:
        """Send now or not at all; whether it was."""
        if self.socket.closed:
            return False
        try:
            for frame in frames[:-1]:
                self.socket.send(frame, NOBLOCK | MORE)
            self.socket.send(frames[-1], NOBLOCK)
        except zmq.ZMQError as error:
            LOGGER.debug("direct_not_sent errno=%s", error.errno)
            return False
        finally:
            if not self._reading and self._again is None and self.socket.getsockopt(EVENTS) & READABLE:
                self._again = self._loop.call_soon(self._read)
        return True

    def close(self) -> None:
        """Stop reading and close the socket; its own linger says how long it sends on."""
        if self.socket.closed:
            return
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self.socket.fileno())
        self.socket.close()

    def _read(self) -> None:
        self._again = None
        self._reading = True
        try:
            for _ in range(READ_AT_ONCE):
                if self.socket.closed or not self.socket.getsockopt(EVENTS) & READABLE:
                    return
                frames = [self.socket.recv(NOBLOCK, copy=False)]
                while frames[-1].more:
                    frames.append(self.socket.recv(NOBLOCK, copy=False))
                self._take([frame.bytes for frame in frames], frames[-1])
        finally:
            self._reading = False
        if self._again is None:
            self._again = self._loop.call_soon(self._read)
