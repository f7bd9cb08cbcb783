"""Methods from step lists: the blocking one and its async twin, with one signature and one documentation.

Owns: binding a step list to the connection of this process. Source: design page "Overview", In the notebook.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from rlm_memory.kernel import connection
from rlm_memory.steps import Steps, run, run_async

P = ParamSpec("P")
T = TypeVar("T")


def blocking(steps: Callable[P, Steps[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that blocks until the result is here; works in a cell, a coroutine and a thread."""

    def call(_self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(steps(*args, **kwargs), connection())

    return _dressed(call, steps)


def awaited(steps: Callable[P, Steps[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same as a coroutine; several of them run at once."""

    async def call(_self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_async(steps(*args, **kwargs), connection())

    return _dressed(call, steps)


def _dressed(call: Any, steps: Callable[..., Any]) -> Any:
    """The step list's name, documentation and parameters, as a method has them."""
    signature = inspect.signature(steps)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__signature__ = signature.replace(
        parameters=[own, *signature.parameters.values()], return_annotation=inspect.Signature.empty
    )
    call.__name__ = call.__qualname__ = getattr(steps, "__name__", "call")
    call.__doc__ = steps.__doc__
    return call
