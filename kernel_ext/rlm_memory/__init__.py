"""The kernel side of rlm-memory: `%load_ext rlm_memory` puts `memory` into the namespace, a script calls `connect()`.

It holds no credential. Importing it starts nothing, reads nothing and loads no data package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm_memory.facade import memory
    from rlm_memory.scripts import connect

__all__ = ["connect", "load_ipython_extension", "memory", "unload_ipython_extension"]
__version__ = "0.1.0"


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext rlm_memory`."""
    from rlm_memory import extension

    extension.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by `%unload_ext rlm_memory`."""
    from rlm_memory import extension

    extension.unload(shell)


def __getattr__(name: str) -> Any:
    # Lazily: importing the package alone loads nothing.
    if name == "memory":
        from rlm_memory.facade import memory

        globals()["memory"] = memory
        return memory
    if name == "connect":
        from rlm_memory.scripts import connect

        globals()["connect"] = connect
        return connect
    raise AttributeError(f"module 'rlm_memory' has no attribute {name!r}")
