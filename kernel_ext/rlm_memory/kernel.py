"""The connection of this process: made once, kept over reloads, closed at unload; a forked child gets its own.

Owns: finding the kernel, the one `Connection`, what becomes of it in a fork. Does not own: names in the namespace
(`extension.py`), how a process without a kernel asks for one (`scripts.py`).

Source: design page "Kernel <-> host", Kernel side, Direct channel.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from rlm_memory import errors
from rlm_memory.attaching import KernelConnection
from rlm_memory.channel import HostChannel
from rlm_memory.finding import Connection
from rlm_memory.kept import state
from rlm_memory.upgraded import KernelRoute

LATER: Final = (
    "codecs", "computations", "experiments", "fingerprints", "opening", "progress", "recording", "results",
    "surroundings", "textmemory",
)  # fmt: skip
"""What calls import when they are first made."""

_making = threading.Lock()


def connection() -> Connection:
    """The connection of this process: a kernel's own, the one that `connect()` made, or that of a token in the
    environment. Raises HostUnavailable where there is none of these.
    """
    kept: Connection | None = state().get("connection")
    return kept if kept is not None else hold(_found)


def hold(make: Callable[[], Connection]) -> Connection:
    """The connection of this process, made by `make` where there is none."""
    with _making:
        if "connection" not in state():
            state()["connection"] = make()
        return state()["connection"]


def close() -> None:
    """Restore the kernel's handlers and let the host go."""
    kept: Connection | None = state().pop("connection", None)
    if kept is not None:
        kept.close()


def _found() -> Connection:
    kernel = running_kernel()
    if kernel is not None:
        route = KernelRoute(kernel)
        return KernelConnection(HostChannel(route), route=route)
    from rlm_memory.opening import SessionConnection, shared_offer

    offer = shared_offer()
    if offer is not None:
        return SessionConnection(offer=offer)
    raise errors.HostUnavailable(
        "memory works inside a Jupyter kernel (ipykernel), after rlm_memory.connect(), and where whoever started this "
        "process shared its session (memory.share()); from a terminal use the rlm-memory command"
    )


def shell() -> Any:
    """The running InteractiveShell, or None."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def running_kernel() -> Any:
    """The ipykernel of this process, or None. A forked child has its parent's object, and refuses later by its pid."""
    kernel = getattr(shell(), "kernel", None)
    return kernel if kernel is not None and hasattr(kernel, "control_handlers") else None


def before_fork() -> None:
    """In the parent: nothing of ours is left half imported, whose lock no thread of the child would ever give back."""
    if "connection" in state():
        for name in LATER:
            importlib.import_module(f"rlm_memory.{name}")


def after_fork() -> None:
    """In a child: no lock that another thread held at the moment of the fork, no socket of the parent's."""
    global _making
    _making = threading.Lock()
    kept: Connection | None = state().get("connection")
    own = kept.for_child() if kept is not None else None
    if own is not None:
        state()["connection"] = own


os.register_at_fork(before=before_fork, after_in_child=after_fork)
