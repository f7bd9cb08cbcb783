"""`memory.experiments`: the public methods, blocking, and their async twins.

Owns: the two objects, their completions and pickling. Does not own: what the methods do (`operations.py`,
`recording.py`, `reuse.py`, `computations.py`, `cached.py`, `lineage.py`).

Source: design page "Exact results"; "Kernel <-> host", Snapshots.
"""

from __future__ import annotations

from typing import Any, Final

from rlm_memory import operations, recording, reuse
from rlm_memory.cached import cached
from rlm_memory.computations import computation
from rlm_memory.kept import kept, state
from rlm_memory.lineage import lineage
from rlm_memory.references import known_ids
from rlm_memory.results import Resolved, Reuse, Saved
from rlm_memory.twins import awaited, blocking

_WAIT: Final = ("compare", "get", "lineage", "load", "open", "preview", "record", "resolve", "search")
_SHOWN: Final = ("record", "search", "resolve", "load", "preview", "get", "computation", "cached", "lineage", "compare")
_NAMES: Final = (*_WAIT, "cached", "computation", "last_reuse", "saved")


@kept
class Experiments:
    """Exact results: record once, find again in any later session, get the same bytes back.

    Holds nothing: it may be copied, pickled and used from any thread.
    """

    record = blocking(recording.record)
    search = blocking(operations.search)
    resolve = blocking(operations.resolve)
    load = blocking(operations.load)
    preview = blocking(operations.preview)
    get = blocking(reuse.get)
    open = blocking(operations.open_)
    compare = blocking(operations.compare)
    lineage = blocking(lineage)
    computation = staticmethod(computation)
    cached = staticmethod(cached)

    @property
    def last_reuse(self) -> Reuse | None:
        """Why the last `get`, `computation`, `cached` call or `%%experiment` reused a result, or why not.

        That of this thread or task; where it made none, the last of this kernel.
        """
        return reuse.last_reuse()

    @property
    def saved(self) -> Saved:
        """How many results this kernel reused, and the seconds of computing that this saved."""
        return reuse.saved()

    def __getitem__(self, ref: str) -> Resolved:
        """`memory.experiments["exp_…"]`, with Tab: the same as `resolve`."""
        return self.resolve(ref)

    def _ipython_key_completions_(self) -> list[str]:
        return known_ids()

    def __dir__(self) -> list[str]:
        return sorted(_NAMES)

    def __repr__(self) -> str:
        return f"memory.experiments: {', '.join(_SHOWN)}"

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _experiments, ()


@kept
class AsyncExperiments:
    """The async twins of `memory.experiments`: the same methods and arguments, to be awaited."""

    record = awaited(recording.record)
    search = awaited(operations.search)
    resolve = awaited(operations.resolve)
    load = awaited(operations.load)
    preview = awaited(operations.preview)
    get = awaited(reuse.get)
    open = awaited(operations.open_)
    compare = awaited(operations.compare)
    lineage = awaited(lineage)
    computation = staticmethod(computation)

    def __dir__(self) -> list[str]:
        return sorted((*_WAIT, "computation"))

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
