"""The connection of this process: made once for the running kernel, kept over reloads, closed at unload.

Owns: finding the kernel and the one `Connection`. Does not own: names in the namespace (`extension.py`).

Source: design page "Kernel <-> host", Kernel side.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from rlm_memory import errors
from rlm_memory.channel import HostChannel
from rlm_memory.connect import Connection
from rlm_memory.kept import state
from rlm_memory.route import CommRoute

_making = threading.Lock()


def connection() -> Connection:
    """The connection of this process. Raises HostUnavailable outside a kernel, Forked in a forked child."""
    kept: Connection | None = state().get("connection")
    if kept is not None:
        return kept
    kernel = running_kernel()
    if kernel is None:
        raise errors.HostUnavailable(
            "memory works inside a Jupyter kernel (ipykernel), and this process is none; "
            "from a terminal use the rlm-memory command"
        )
    with _making:
        if "connection" not in state():
            state()["connection"] = Connection(HostChannel(CommRoute(kernel)))
        return state()["connection"]


def close() -> None:
    """Restore the kernel's handlers and let the host go."""
    kept: Connection | None = state().pop("connection", None)
    if kept is not None:
        kept.close()


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


def forget_after_fork() -> None:
    """A child must not hold the lock that another thread held at the moment of the fork."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=forget_after_fork)
