"""`@memory.experiments.cached(source_version=...)`: a function whose results are recorded and reused.

Owns: the decorator, and how a call becomes a computation: the function's source, what it reads around it
(`surroundings.py`), and its arguments with the defaults filled in. Does not own: reuse and recording
(`computations.py`).

Source: design page "Overview", In the notebook.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar, cast

from rlm_memory import errors, fingerprints, surroundings
from rlm_memory.computations import Computation, computation
from rlm_memory.recording import kept_tags

F = TypeVar("F", bound=Callable[..., Any])


def cached(
    *,
    source_version: str,
    source: Any = "unspecified",
    title: str | None = None,
    summary: str | None = None,
    tags: Iterable[str] | None = None,
    ignore: Collection[str] = (),
    lossy: bool = False,
) -> Callable[[F], F]:
    """Reuse what a call of the function recorded before, in any session; else call it and record what it returns.

        @memory.experiments.cached(source="warehouse", source_version=v)
        def by_cohort(year): ...

    The fingerprint is made of the function's source, the plain globals and own functions that it reads, and its
    arguments: plain values, recorded results (by artifact), paths (by the file's bytes). A coroutine function stays
    one. An exception records nothing.

    Args:
        source_version: of the data that the function reads; "unknown" is never reused.
        title: by default the function's name.
        ignore: names of arguments and globals that do not count, such as a connection.
        source, summary, tags, lossy: as for `record`.

    Raises, at a call: Invalid for an argument or a global without a canonical form; what `record` raises.
    """
    if isinstance(ignore, str):
        raise errors.Invalid("ignore must be a list of names, not one text")
    if not isinstance(cast("object", ignore), Collection) or not all(
        isinstance(name, str) for name in cast("Iterable[object]", ignore)
    ):
        raise errors.Invalid("ignore must be a list of names, each a text")
    options: dict[str, Any] = {"source": source, "source_version": source_version, "summary": summary}
    options |= {"tags": kept_tags(tags), "lossy": lossy}

    def decorate(function: F) -> F:
        # Read now: a function without source is refused here, and one from a snapshot has none when it is called.
        code = fingerprints.normal_text(fingerprints.function_text(function))
        name = title or getattr(function, "__name__", "function")

        def asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Computation:
            found = _call(function, args, kwargs, ignore)
            params, inputs = found.params or None, found.inputs or None
            return computation(code, params, title=name, inputs=inputs, **options)

        return _reusing(function, asked)

    return decorate


def _reusing(function: F, asked: Callable[[tuple[Any, ...], dict[str, Any]], Computation]) -> F:
    """The function within the computation that `asked` makes of a call; a coroutine function stays one."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            async with asked(args, kwargs) as c:
                if not c.reused:
                    c.set(await function(*args, **kwargs))
            return await c.load()

        return cast("F", call_async)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with asked(args, kwargs) as c:
            if not c.reused:
                c.set(function(*args, **kwargs))
        return c.value

    return cast("F", call)


def _call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], ignore: Collection[str]
) -> surroundings.Surroundings:
    """The arguments with the defaults filled in, and what the function reads around it."""
    found = surroundings.of_function(function, ignore)
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    called = getattr(function, "__name__", "function")
    for name, value in bound.arguments.items():
        if name in ignore:
            continue
        said = f"{called}() is called with"
        # An argument hides a global of the same name, so it takes its place.
        found.params.pop(name, None)
        found.inputs.pop(name, None)
        surroundings.place(name, value, found, said)
    return found
