"""`memory.experiments`: the public methods, blocking, and their async twins.

Owns: the two objects, their completions and pickling. Does not own: what the methods do (`operations.py`, `reuse.py`).

Source: design page "Exact results"; "Kernel <-> host", Snapshots.
"""

from __future__ import annotations

from typing import Any, Final

from rlm_memory import operations, reuse
from rlm_memory.kept import kept, state
from rlm_memory.references import known_ids
from rlm_memory.results import Resolved, Reuse
from rlm_memory.twins import awaited, blocking

_NAMES: Final = ("get", "last_reuse", "load", "preview", "record", "resolve", "search")


@kept
class Experiments:
    """Exact results: record once, find again in any later session, get the same bytes back.

    Holds nothing: it may be copied, pickled and used from any thread.
    """

    record = blocking(operations.record)
    search = blocking(operations.search)
    resolve = blocking(operations.resolve)
    load = blocking(operations.load)
    preview = blocking(operations.preview)
    get = blocking(reuse.get)

    @property
    def last_reuse(self) -> Reuse | None:
        """Why the last `get` of this kernel reused a result, or why not."""
        return reuse.last_reuse()

    def __getitem__(self, ref: str) -> Resolved:
        """`memory.experiments["exp_…"]`, with Tab: the same as `resolve`."""
        return self.resolve(ref)

    def _ipython_key_completions_(self) -> list[str]:
        return known_ids()

    def __dir__(self) -> list[str]:
        return sorted(_NAMES)

    def __repr__(self) -> str:
        return "memory.experiments: record, search, resolve, load, preview, get"

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _experiments, ()


@kept
class AsyncExperiments:
    """The async twins of `memory.experiments`: the same methods and arguments, to be awaited."""

    record = awaited(operations.record)
    search = awaited(operations.search)
    resolve = awaited(operations.resolve)
    load = awaited(operations.load)
    preview = awaited(operations.preview)
    get = awaited(reuse.get)

    def __dir__(self) -> list[str]:
        return sorted(name for name in _NAMES if name != "last_reuse")

    def __repr__(self) -> str:
        return "memory.aio.experiments: the async twins of memory.experiments"

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _async_experiments, ()


def _experiments() -> Experiments:
    return state().setdefault("experiments", Experiments())


def _async_experiments() -> AsyncExperiments:
    return state().setdefault("async_experiments", AsyncExperiments())


experiments = _experiments()
async_experiments = _async_experiments()
