"""`%load_ext rlm_memory`: names into the namespace, handlers around the kernel's, and both back at `%unload_ext`.

Owns: the names, the one IPython callback, when the magics (`magics.py`) come and go, the order of loading. Loading
twice changes nothing; loading never fails for want of a host (the first call says so), and says hello so that an
attached host has answered by then.

`%reset -f` takes the names away while IPython still counts the extension as loaded. So a cell that mentions
`rlm_memory` (`import rlm_memory`, `%load_ext rlm_memory`, `%reload_ext rlm_memory`) gets them back before it runs.

Source: design page "Kernel <-> host", Kernel side; case G2-09.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Final

from rlm_memory import errors, kernel, magics
from rlm_memory.attaching import KernelConnection
from rlm_memory.dshtools import DshTools, dsh_tools
from rlm_memory.facade import Memory, memory
from rlm_memory.kept import state

_MENTION: Final = re.compile(r"\brlm_memory\b")


def load(shell: Any) -> None:
    """Take a shell into use. Idempotent; a kernel without comm channels only gets the names."""
    if state().get("loaded_in") is not shell:
        shell.events.register("pre_run_cell", _before_cell())
        state()["loaded_in"] = shell
    put_names(shell)
    magics.add(shell)
    if kernel.running_kernel() is None or "connection" in state():
        return
    try:
        connection = kernel.connection()
        if isinstance(connection, KernelConnection):
            connection.begin()
    except errors.MemoryFault:
        pass  # said by the first call that needs a host


def unload(shell: Any) -> None:
    """Undo `load`: our names go, if they are still ours, the callback and the handlers too."""
    if state().get("loaded_in") is not None:
        shell.events.unregister("pre_run_cell", _before_cell())
        state()["loaded_in"] = None
    for name, value in (("memory", memory), ("dsh_tools", dsh_tools)):
        if shell.user_ns.get(name) is value:
            del shell.user_ns[name]
            shell.user_ns_hidden.pop(name, None)
    magics.remove(shell)
    kernel.close()


def put_names(shell: Any) -> None:
    """`memory`, and `dsh_tools` where absent. A name that is taken by something else stays, with one warning."""
    names = shell.user_ns
    for name, value, ours in (("memory", memory, Memory), ("dsh_tools", dsh_tools, DshTools)):
        if name not in names or isinstance(names[name], ours):
            shell.push({name: value}, interactive=False)
        elif name == "memory" and not state().get("warned_of_name"):
            state()["warned_of_name"] = True
            warnings.warn(
                "the name 'memory' is taken, so rlm_memory leaves it alone; use `from rlm_memory import memory`",
                stacklevel=2,
            )


def _before_cell() -> Any:
    """The one callback, the same object over reloads, so that it can be unregistered."""
    return state().setdefault("before_cell", _BeforeCell())


class _BeforeCell:
    def __call__(self, info: Any) -> None:
        shell = state().get("loaded_in")
        if shell is not None and _MENTION.search(getattr(info, "raw_cell", None) or ""):
            put_names(shell)
