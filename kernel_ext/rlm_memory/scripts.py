"""`rlm_memory.connect()`: memory in plain Python. And `memory.share()`, which lets other processes in.

Owns: the public calls. Does not own: the connection (`opening.py`, `kernel.py`).

Source: design page "Kernel <-> host", Direct channel.
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any

from rlm_memory import errors, kernel, wire
from rlm_memory.finding import Host
from rlm_memory.opening import SessionConnection, default_label, shared_offer, variables
from rlm_memory.steps import Meet, Steps


def connect(state_root: str | os.PathLike[str] | None = None) -> Any:
    """Connect this process to its host and return `memory`, the same as in a notebook.

        import rlm_memory

        with rlm_memory.connect() as memory:
            memory.experiments.search("cohorts")

    Args:
        state_root: whose host; one is started where none runs. By default the token in the environment is used where
            there is one (`memory.share()`), else the user's own state root. In a kernel the kernel's own connection is
            used, and only None fits.

    The project is told by the current folder, the session ends with `memory.close()` or with the process. Connecting
    again is the same connection. Raises HostUnavailable with what to do; Invalid for another state root meanwhile, and
    for a path that names none.
    """
    from rlm_memory.facade import memory

    root = None if state_root is None else _folder(state_root)
    if kernel.running_kernel() is not None:
        if root is not None:
            raise errors.Invalid(
                "state_root: a kernel's host is told by its environment; set RLM_MEMORY_STATE_ROOT before it starts"
            )
    else:
        held = kernel.hold(lambda: _connection(root))
        if root is not None and not (isinstance(held, SessionConnection) and held.root == root):
            raise errors.Invalid("state_root: this process is connected already; call memory.close() first")
        atexit.unregister(kernel.close)
        atexit.register(kernel.close)
    try:
        kernel.connection().ensure()
    except BaseException:
        if kernel.running_kernel() is None:
            kernel.close()
        raise
    return memory


def _folder(named: str | os.PathLike[str]) -> Path:
    """The state root that a caller names. Nothing is taken for the current folder: a host would write into it."""
    if not os.fspath(named) or "\0" in os.fspath(named):
        raise errors.Invalid("state_root: it names no folder; leave it out for your own state root")
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError as error:
        raise errors.Invalid("state_root: there is no user of that name; give the folder's whole path") from error


def _connection(root: Path | None) -> SessionConnection:
    offer = shared_offer() if root is None else None
    return SessionConnection(root=root, offer=offer, label=default_label())


def share() -> Steps[dict[str, str]]:
    """The environment variables with which other processes on this machine use this session.

    Give them to workers before they start: `os.environ.update(memory.share())` for joblib, multiprocessing and local
    clusters, `env=` for a subprocess. There `memory` works as it is. One of them is a secret: whoever reads it can act
    for this session until it ends, so it belongs in an environment, not in a file or an argument.

    Raises Unsupported where the host has no direct channel.
    """
    host: Host = yield Meet()
    if host.offer is None:
        raise errors.Unsupported(
            "this host offers no direct channel, so other processes cannot use this session; "
            "return their data to this process and record it here",
            wire.UNSUPPORTED_REQUEST,
        )
    return variables(host.offer)
