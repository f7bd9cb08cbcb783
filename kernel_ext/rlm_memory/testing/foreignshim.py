"""A kernel's side as others write it: one Comm per request, the reply awaited on control, and nothing else.

    from rlm_memory.testing.foreignshim import ask
    ask("dsh_tools.call", name="memory_search", arguments={"query": ""})["value"]

Owns: the two requests of the shared contract, from cells, threads and coroutines, with Jupyter's own comm package. It
says no hello, sends no ping and repeats nothing, and nothing of the extension is loaded. Does not own: looking for a
host; one has to be attached to the kernel's channels.

Source: design page "Kernel <-> host", Wire.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Final, cast

from comm import create_comm, get_comm_manager
from IPython.core.getipython import get_ipython

from rlm_memory.wire import TARGET

TICK_SECONDS: Final = 0.1
"""A wait without end would not see an interrupt."""


class Refused(Exception):
    """The host answered with an error; `code` is its code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


def ask(kind: str, *, seconds: float = 60.0, **payload: Any) -> dict[str, Any]:
    """Send one request and wait for its reply's fields. Raises Refused, or TimeoutError after `seconds`."""
    answered = threading.Event()
    reply: list[dict[str, Any]] = []

    def take(message: dict[str, Any]) -> None:
        # On the kernel's control thread, so that a busy cell hears of it.
        reply.append(cast("dict[str, Any]", message["content"]["data"]))
        answered.set()

    _hear_control()
    comm = create_comm(target_name=TARGET, data={**payload, "type": kind})
    comm.on_msg(take)
    until = time.monotonic() + seconds
    while not answered.wait(TICK_SECONDS):
        if time.monotonic() > until:
            raise TimeoutError(f"no reply to {kind} within {seconds:g} s")
    if reply[0].get("status") != "ok":
        raise Refused(str(reply[0].get("code")), str(reply[0].get("error")))
    return reply[0]


def _hear_control() -> None:
    """Comm messages reach their Comm from the control channel too; ipykernel passes on only those of the shell."""
    kernel: Any = cast("Any", get_ipython()).kernel
    kernel.control_handlers.setdefault("comm_msg", get_comm_manager().comm_msg)


async def ask_soon(kind: str, **payload: Any) -> dict[str, Any]:
    """The same from a coroutine."""
    return await asyncio.to_thread(ask, kind, **payload)
