"""How one request leaves this kernel and its reply comes back: the small interface, and the comm route.

Owns: the messages on the kernel's own channels and the wrapping of its handlers. Does not own: who waits for what,
timers, ids (`channel.py`). There are no Comm objects: a front end that closes an unknown comm makes ipykernel 7 drop
the reply, and a comm's message fires execute hooks on the control thread.

Source: design page "Kernel <-> host", Wire, Kernel side, Direct channel.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

from rlm_memory import errors, wire

OnReply = Callable[[str, object], bool]
"""Called with a request id and the reply's data, from any thread; True when the id is one of ours."""
IsOurs = Callable[[str], bool]


ENDING: Final = "this kernel is shutting down, so no reply can come any more; record in a cell, not in an exit hook"


class Route(Protocol):
    """One way between a process and a host. `send` and `cancel` are thread-safe and never wait."""

    def open(self, on_reply: OnReply, is_ours: IsOurs) -> None: ...

    def send(self, request_id: str, data: Mapping[str, Any], repeat_of: str | None = None) -> None:
        """Send a request; `repeat_of` marks a repetition, see `wire.REPEAT_OF`."""
        ...

    def cancel(self, request_id: str) -> None: ...

    def wait(self, answered: Future[Any], seconds: float) -> bool:
        """Wait in this thread, at most `seconds`, until the future is done; whether it is. Interrupts land."""
        ...

    def attended(self) -> AbstractContextManager[None]:
        """Around a wait that no thread of its own does: replies arrive meanwhile by themselves."""
        ...

    def refusal(self) -> errors.MemoryFault | None:
        """Why the calling thread or process must not wait on this route; None when it may."""
        ...

    def close(self) -> None: ...


class CommRoute:
    """Requests as `comm_open` on iopub, replies as `comm_msg` on control (or shell, where a host has no control).

    Any thread may send: the kernel's iopub socket hands every message to its own I/O thread, and the lock keeps the
    session's message counter apart. After a fork the child's copy only knows how to refuse.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._hooks: list[_Hook] = []

    def open(self, on_reply: OnReply, is_ours: IsOurs) -> None:
        """Wrap `comm_msg` and `comm_close` of both channels: ours by id, everything else goes on as before."""
        for handlers in (self._kernel.control_handlers, self._kernel.shell_handlers):
            self._hooks.append(_Hook(handlers, "comm_msg", on_reply))
            # A front end closes comms that it does not know, ours among them; that says nothing about the host.
            self._hooks.append(_Hook(handlers, "comm_close", lambda request_id, _data: is_ours(request_id)))

    def send(self, request_id: str, data: Mapping[str, Any], repeat_of: str | None = None) -> None:
        content = {"comm_id": request_id, "target_name": wire.TARGET, "target_module": None, "data": dict(data)}
        self._publish("comm_open", request_id, content, {wire.REPEAT_OF: repeat_of} if repeat_of else {})

    def cancel(self, request_id: str) -> None:
        if self._is_ending():
            return
        self._publish("comm_close", request_id, {"comm_id": request_id, "data": {}}, {})

    def wait(self, answered: Future[Any], seconds: float) -> bool:
        return wait_done(answered, seconds)

    def attended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def refusal(self) -> errors.MemoryFault | None:
        if os.getpid() != self._pid:
            return errors.Forked(
                "this is a forked child, and its kernel had met no host that lets children in: return the data to the "
                "kernel process and record it there, or make a first call in the kernel before it forks"
            )
        thread, control, output = threading.current_thread(), self._thread("control"), self._thread("iopub")
        if thread is control:
            return errors.Forked(
                "this is the kernel's control thread, which must stay free for the reply; call from a cell or a thread"
            )
        if thread is output:
            return errors.Forked(
                "this is the kernel's output thread, which must stay free for the request; call from a cell or a thread"
            )
        if self._is_ending():
            return errors.HostUnavailable(ENDING, wire.REQUEST_SCOPE_CLOSED)
        return None

    def _is_ending(self) -> bool:
        """Whether one of the threads that carry messages has ended: nothing can be sent or heard any more."""
        threads = (self._thread("control"), self._thread("iopub"))
        return any(item is not None and item.ident is not None and not item.is_alive() for item in threads)

    def _thread(self, name: str) -> threading.Thread | None:
        found = getattr(self._kernel, f"{name}_thread", None)
        found = getattr(found, "thread", found)
        return found if isinstance(found, threading.Thread) else None

    def close(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _publish(self, message_type: str, request_id: str, content: dict[str, Any], metadata: dict[str, Any]) -> None:
        topic = f"comm-{request_id}".encode("ascii")
        with self._lock:
            self._kernel.session.send(
                self._kernel.iopub_socket, message_type, content, parent=self._parent(), ident=topic, metadata=metadata
            )

    def _parent(self) -> Any:
        """The cell that asks, so that front ends count the message to it; a thread may have none."""
        try:
            return self._kernel.get_parent("shell") or {}
        except (AttributeError, LookupError):
            return {}


def wait_done(answered: Future[Any], seconds: float) -> bool:
    """Wait for what another thread resolves; whether it is done."""
    return bool(wait([answered], seconds).done)


class _Hook:
    """One wrapped handler. Removing it restores the original, or goes silent under somebody else's wrapper."""

    def __init__(self, handlers: dict[str, Any], message_type: str, on_reply: OnReply) -> None:
        self._handlers = handlers
        self._type = message_type
        self._on_reply: OnReply | None = on_reply
        self._original = handlers.get(message_type)
        handlers[message_type] = self

    def __call__(self, stream: Any, ident: Any, message: Any) -> Any:
        content: dict[str, Any] = message.get("content") or {}
        request_id: object = content.get("comm_id")
        on_reply = self._on_reply
        if (
            on_reply is not None
            and isinstance(request_id, str)
            and request_id.startswith(wire.COMM_PREFIX)
            and on_reply(request_id, content.get("data"))
        ):
            return None
        return self._original(stream, ident, message) if self._original else None

    def remove(self) -> None:
        self._on_reply = None
        if self._handlers.get(self._type) is not self:
            return
        if self._original is None:
            del self._handlers[self._type]
        else:
            self._handlers[self._type] = self._original
