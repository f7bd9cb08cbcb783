"""`dsh_tools` for kernels whose host put none there: the host's tools by name.

Source: design page "Kernel <-> host", Wire; DeepSeek Honcho specification, section 30.3 (where the call is awaited).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_memory.kept import kept, state
from rlm_memory.steps import Steps
from rlm_memory.tools import here, list_tools, tool
from rlm_memory.twins import awaited, blocking


def call(name: str, arguments: Mapping[str, Any] | None = None) -> Steps[Any]:
    """Call a tool of the host and return its value.

    The call blocks and the value is here when it returns; awaiting the value gives it once more, so `await
    dsh_tools.call(...)`, as RLM code writes it, works too. `dsh_tools.aio.call` leaves the event loop free.
    """
    return here((yield from tool(name, arguments or {})))


def list_() -> Steps[Any]:
    """The tools that this caller may use: name, description, parameters. May be awaited, as `call` may."""
    return here((yield from list_tools()))


@kept
class DshTools:
    """The host's tools: `call(name, arguments)`, `list()`, and both as coroutines in `aio`."""

    call = blocking(call)
    list = blocking(list_)

    @property
    def aio(self) -> AsyncDshTools:
        """Coroutines that leave the event loop free while they wait."""
        return state().setdefault("aio_dsh_tools", AsyncDshTools())

    def __repr__(self) -> str:
        return "dsh_tools: call(name, arguments), list(), aio"

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _dsh_tools, ()


@kept
class AsyncDshTools:
    """`dsh_tools.aio`."""

    call = awaited(call)
    list = awaited(list_)

    def __repr__(self) -> str:
        return "dsh_tools.aio: call(name, arguments), list()"


def _dsh_tools() -> DshTools:
    return state().setdefault("dsh_tools", DshTools())


dsh_tools = _dsh_tools()
