"""`with memory.experiments.computation(...) as c:` reuse a recorded result, or compute and record one.

Owns: the block: what happens at its start and at its end, and the value in between. Does not own: the decision
(`reuse.py`), recording (`operations.py`). Order: the decision at the start; `c.set(value)` in the block; the record at
its end. A block that ends with an exception records nothing, and the exception goes on.

Python cannot skip the body of a `with`, so the body asks: `if not c.reused: c.set(...)`.

Source: design page "Overview", In the notebook.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from rlm_memory import display, errors, reuse
from rlm_memory.fingerprints import Described
from rlm_memory.kept import kept
from rlm_memory.kernel import connection
from rlm_memory.operations import load
from rlm_memory.recording import Keeping, check_labels, describe, keep, kept_tags, lineage_notes, parents_of
from rlm_memory.results import Recorded, Resolved, Reuse
from rlm_memory.steps import Steps, run, run_async


@dataclass(frozen=True)
class Asked:
    """What was said of a computation before it ran."""

    query: Any
    params: Any
    inputs: Any
    source: Any
    source_version: Any
    title: str
    summary: str | None = None
    tags: Iterable[str] | None = None
    derived_from: Any = ()
    lossy: bool = False
    refresh: bool = False


@dataclass(frozen=True)
class Decided:
    """The decision on one computation: its fingerprint, the result to reuse, if any, and why."""

    described: Described
    found: Resolved | None
    reuse: Reuse


def begin(asked: Asked) -> Steps[Decided]:
    """Check everything that would fail a record later, then look for a result to reuse."""
    check_labels(asked.title, asked.summary, asked.source, asked.source_version, asked.tags)
    described = yield from describe(None, asked.query, asked.params, asked.inputs)
    if asked.refresh:
        decision = Reuse(False, "refresh=True asked to compute again")
        reuse.say(decision)
        return Decided(described, None, decision)
    found, decision = yield from reuse.decide(described, asked.source_version, asked.title, str(asked.source))
    reuse.say(decision)
    return Decided(described, found, decision)


def finish(asked: Asked, decided: Decided, value: Any, seconds: float) -> Steps[Recorded]:
    """Record a computed value under the fingerprint that was looked for, whatever its inputs are by now."""
    labels = check_labels(asked.title, asked.summary, asked.source, asked.source_version, asked.tags)
    notes = lineage_notes(decided.described, (yield from parents_of(asked.derived_from, asked.inputs)), seconds)
    # A computed value is a value: text is never taken for the name of a file.
    path = value if isinstance(value, Path) else None
    return (yield from keep(value, path, labels, decided.described.digest, notes, Keeping(lossy=asked.lossy)))


@kept
class Computation:
    """One `with` block (or `async with`, from `memory.aio.experiments.computation`).

    `reused`, `why` and `reuse` say what was decided at the start; `value` is the recorded or the computed value;
    `ref` is the reused result, or after the block the recorded one.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._decided: Decided | None = None
        self._value: list[Any] = []
        self._ref: Resolved | Recorded | None = None
        self._started = self._seconds = 0.0

    @property
    def reuse(self) -> Reuse:
        """The decision, as `memory.experiments.last_reuse`, but of this block only."""
        return self._known().reuse

    @property
    def reused(self) -> bool:
        """True where a recorded result is reused: the block has nothing to compute."""
        return self._known().reuse.reused

    @property
    def why(self) -> str:
        """Why it was reused, or what changed."""
        return self._known().reuse.why

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the computation."""
        return self._known().described.digest

    @property
    def ref(self) -> Resolved | Recorded | None:
        """The result, as a reference for any other call; None until it is recorded."""
        return self._ref

    @property
    def value(self) -> Any:
        """The value: read from the record when first asked for, or what `set` was given. Raises Invalid before."""
        if not self._value:
            self._value = [run(self._load(), connection())]
        return self._value[0]

    async def load(self) -> Any:
        """`value` without blocking the event loop."""
        if not self._value:
            self._value = [await run_async(self._load(), connection())]
        return self._value[0]

    def set(self, value: Any) -> Any:
        """Give the computed value, which is recorded when the block ends; returns it.

        In a block that reuses a result the recorded value stays, with a warning: `if not c.reused:` is missing.
        """
        if self.reused:
            warnings.warn(
                "this result is reused, so what the block computed is not recorded; write `if not c.reused:` before it",
                stacklevel=2,
            )
            return value
        self._seconds = time.monotonic() - self._started
        self._value = [value]
        return value

    def __enter__(self) -> Computation:
        self._start(run(begin(self._asked), connection()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.reused:
            self._ref = run(self._finish(), connection())

    async def __aenter__(self) -> Computation:
        self._start(await run_async(begin(self._asked), connection()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.reused:
            self._ref = await run_async(self._finish(), connection())

    def _start(self, decided: Decided) -> None:
        self._decided, self._ref, self._value = decided, decided.found, []
        self._started = time.monotonic()

    def _known(self) -> Decided:
        if self._decided is None:
            raise errors.Invalid("the computation has not begun; use it as `with memory.experiments.computation(...)`")
        return self._decided

    def _load(self) -> Steps[Any]:
        self._known()
        if self._ref is None:
            raise errors.Invalid("there is no value yet: nothing is reused, and c.set(value) was not called")
        return load(self._ref, full=True)

    def _finish(self) -> Steps[Recorded]:
        if not self._value:
            raise errors.Invalid("the block ended without c.set(value), so there is nothing to record")
        return finish(self._asked, self._known(), self._value[0], self._seconds)

    def __getstate__(self) -> dict[str, Any]:
        # A snapshot of the namespace holds the reference; the value is read again where it is asked for.
        asked = replace(self._asked, query=None, params=None, inputs=None, derived_from=())
        return {**vars(self), "_asked": asked, **({"_value": []} if self._ref is not None else {})}

    def __repr__(self) -> str:
        title = display.clean(self._asked.title, 80)
        return f"Computation({title!r}, {'not begun' if self._decided is None else self._decided.reuse})"


def computation(
    query: Any,
    params: Any = None,
    *,
    title: str,
    source: Any = "unspecified",
    source_version: Any = None,
    inputs: Any = None,
    summary: str | None = None,
    tags: Iterable[str] | None = None,
    derived_from: Any = (),
    lossy: bool = False,
    refresh: bool = False,
) -> Computation:
    """Reuse the recorded result of a computation, or compute and record it in the block.

        with memory.experiments.computation(sql, {"year": 2026}, title="…", source="w", source_version=v) as c:
            if not c.reused:
                c.set(warehouse.query(sql, year=2026))
        c.value

    Args:
        query: code, SQL or a function; with `params` and `inputs` it makes the fingerprint, as for `record`.
        title, source, source_version, summary, tags, derived_from, lossy: as for `record`. Without a source_version the
            result is recorded and never reused.
        refresh: compute and record again, whatever is recorded.

    An exception in the block records nothing. Raises Invalid at the end of a block that neither reused nor set a value.
    """
    asked = Asked(
        query=query,
        params=params,
        inputs=inputs,
        source=source,
        source_version=source_version,
        title=title,
        summary=summary,
        tags=kept_tags(tags),
        derived_from=derived_from,
        lossy=lossy,
        refresh=refresh,
    )
    return Computation(asked)
