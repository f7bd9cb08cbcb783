"""`memory`: what `%load_ext rlm_memory` puts into the namespace.

Owns: the object, its async side, status. Holds no socket, credential, path or data; a pickle of it names a function.
What the methods need is imported when one is looked at: a notebook that only loads the extension pays for little.

Source: design page "Overview", In the notebook; "Kernel <-> host", Snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from rlm_memory import errors, kernel, later
from rlm_memory.finding import Host
from rlm_memory.kept import kept, state
from rlm_memory.scripts import share
from rlm_memory.steps import Meet, Steps
from rlm_memory.tools import tool
from rlm_memory.twins import awaited, blocking

_TEXTS: Final = ("search", "recall", "read", "record", "remember", "correct", "forget")

if TYPE_CHECKING:
    from rlm_memory.experiments import AsyncExperiments, Experiments
    from rlm_memory.results import Status
    from rlm_memory.textmemory import AsyncTextMethods, TextMethods
else:
    TextMethods = later.methods("rlm_memory.textmemory", "TextMethods", _TEXTS)
    AsyncTextMethods = later.methods("rlm_memory.textmemory", "AsyncTextMethods", _TEXTS)


def status() -> Steps[Status]:
    """Whether a host answers, which one, and its content-free counts. A missing host is told, not raised."""
    from rlm_memory.results import Status

    try:
        host: Host = yield Meet()
    except errors.HostUnavailable as error:
        return Status(False, "", str(error))
    if not host.ours:
        return Status(True, "a DSH host without memory's own requests", artifacts=True)
    details: Mapping[str, Any] = {}
    problem = ""
    try:
        value = yield from tool("memory_status", {})
        details = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    except errors.MemoryFault as error:
        problem = str(error)
    return Status(True, f"rlm-memory host {host.version or ''}".strip(), problem, host.artifacts, details)


NAMES = ("remember", "search", "recall", "read", "record", "correct", "forget", "status")
"""The methods that both sides have."""


@kept
class Memory(TextMethods):
    """Memory for this kernel: exact results in `experiments`, texts by `remember`, `recall` and so on.

    Beside them `status()`, `errors`, `fingerprint(...)`, and the async twins in `aio`.
    """

    errors = errors
    status = blocking(status)
    share = blocking(share)

    def close(self) -> None:
        """Let the host go; a session that `rlm_memory.connect()` opened ends. The next call needs a new one."""
        kernel.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def experiments(self) -> Experiments:
        """Exact results: record, search, resolve, load, preview, get."""
        from rlm_memory.experiments import experiments

        return experiments

    @property
    def aio(self) -> AsyncMemory:
        """The async twin of every method that waits."""
        return _aio()

    @property
    def fingerprint(self) -> Callable[..., str]:
        """`memory.fingerprint(query=, params=, inputs=)`: the digest that `record` and `get` make of them."""
        from rlm_memory import fingerprints

        return fingerprints.fingerprint

    def __dir__(self) -> list[str]:
        return sorted(["aio", "close", "errors", "experiments", "fingerprint", "share", *NAMES])

    def __repr__(self) -> str:
        return f"memory: experiments, {', '.join(f'{name}()' for name in NAMES)}, fingerprint(), errors, aio"

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _memory, ()


@kept
class AsyncMemory(AsyncTextMethods):
    """`memory.aio`: the same names, to be awaited."""

    status = awaited(status)
    share = awaited(share)

    @property
    def experiments(self) -> AsyncExperiments:
        """The async twins of `memory.experiments`."""
        from rlm_memory.experiments import async_experiments

        return async_experiments

    def __dir__(self) -> list[str]:
        return sorted(["experiments", "share", *NAMES])

    def __repr__(self) -> str:
        return f"memory.aio: experiments, {', '.join(f'{name}()' for name in NAMES)}"

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _aio, ()


def _memory() -> Memory:
    return state().setdefault("memory", Memory())


def _aio() -> AsyncMemory:
    return state().setdefault("aio", AsyncMemory())


memory = _memory()
