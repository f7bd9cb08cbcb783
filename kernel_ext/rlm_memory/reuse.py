"""Exact reuse: a recorded result of the same computation on the same source version, or the reason why there is none.

Owns: the decision which candidate may be reused, where the last decision is kept, what reuse has saved. Does not own:
freshness, which the host says; the words for what changed (`explain.py`).

A decision is kept for the thread or task that made it, and as the last one of the kernel for all others: parallel
calls do not read each other's.

Source: design page "Exact results", Resolve (`get` returns only what resolve calls fresh); "Overview", Decisions.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, cast

from rlm_memory import errors, explain, fingerprints, wire
from rlm_memory.finding import Host
from rlm_memory.fingerprints import Described
from rlm_memory.kept import state
from rlm_memory.operations import notes_of, resolve, search, text
from rlm_memory.recording import UNKNOWN, describe
from rlm_memory.results import Resolved, Reuse, Saved, SearchResults
from rlm_memory.steps import Meet, Steps

PAGE: Final = 50
COMPARED: Final = 12
"""Earlier records whose notes are read to say what changed; one request each."""
NOTHING_SAID: Final = (
    "nothing was given of the computation (no fingerprint, query, params or inputs), so nothing can be the same"
)
NO_NOTES: Final = (wire.WireError, errors.MemoryFault)


def get(
    *,
    source_version: Any = None,
    fingerprint: str | None = None,
    query: Any = None,
    params: Any = None,
    inputs: Any = None,
    title: str | None = None,
    source: str | None = None,
) -> Steps[Resolved | None]:
    """The newest recorded result with this fingerprint that is fresh for `source_version`, verified; else None.

    `memory.experiments.last_reuse` says why. Give `fingerprint=`, or `query=`, `params=`, `inputs=` as for `record`.
    `title` and `source` decide nothing: where nothing can be reused, the nearest earlier record with that title and
    source is compared to say what changed. Raises Invalid for both or a malformed fingerprint; a damaged candidate
    raises Integrity.
    """
    described = yield from describe(fingerprint, query, params, inputs)
    found, reuse = yield from decide(described, source_version, title, source)
    say(reuse)
    return found


def decide(
    described: Described, source_version: Any, title: str | None, source: str | None
) -> Steps[tuple[Resolved | None, Reuse]]:
    """The result to reuse, or None, and why."""
    if fingerprints.says_nothing(described.digest):
        return None, Reuse(False, NOTHING_SAID)
    if source_version is None or source_version == UNKNOWN:
        return None, Reuse(False, "no source_version was given, so freshness cannot be told and nothing is reused")
    if not isinstance(source_version, str) or not source_version:
        raise errors.Invalid(f"source_version must be text that is not empty, not {source_version!r}")
    for name, said in (("title", title), ("source", source)):
        if said is not None:
            text(name, said)
    versions: dict[str, int] = {}
    cursor: str | None = None
    while True:
        page = yield from search(described.digest, limit=PAGE, cursor=cursor)
        for hit in page:
            if hit.query_fingerprint != described.digest:
                continue
            versions[hit.source_version] = versions.get(hit.source_version, 0) + 1
            if hit.source_version != source_version or not hit.local_available:
                continue
            resolved = yield from resolve(hit, source_version)
            if resolved.freshness == "fresh":
                seconds = yield from _seconds(resolved)
                why = "same fingerprint, same source version, bytes verified"
                return resolved, Reuse(True, why, sum(versions.values()), nearest=hit.short_id, seconds_saved=seconds)
        cursor = page.cursor
        if cursor is None:
            break
    if versions:
        gone = () if source_version in versions else ("source_version",)
        return None, Reuse(False, _other_versions(versions, source_version), sum(versions.values()), gone)
    return None, (yield from _what_changed(described, source_version, title, source))


def _other_versions(versions: dict[str, int], wanted: str) -> str:
    if wanted in versions:
        return f"recorded for source version {wanted!r}, but its bytes are not here"
    named = ", ".join(repr(version) for version in sorted(versions)[:5])
    return f"recorded for source version {named}, not for {wanted!r}"


def _what_changed(described: Described, version: str, title: str | None, source: str | None) -> Steps[Reuse]:
    """Compare with the nearest earlier record of the same title and source, where there is something to compare."""
    nothing = "no recorded result has this fingerprint"
    host: Host = yield Meet()
    if (title is None and source is None) or not described.components or not host.ours:
        return Reuse(False, nothing)
    page: SearchResults = yield from search(title or "", source=source, limit=PAGE)
    hits = [hit for hit in page if title in (None, hit.title) and source in (None, hit.source)]
    same = " and ".join(name for name, value in (("title", title), ("source", source)) if value is not None)
    if not hits:
        return Reuse(False, f"nothing was recorded with this {same}")
    candidates: list[explain.Earlier] = []
    for hit in sorted(hits, key=lambda hit: hit.updated_at, reverse=True)[:COMPARED]:
        notes = yield from _notes(hit.experiment_id)
        components = explain.components_of(notes)
        candidates.append(explain.Earlier(hit.experiment_id, hit.short_id, hit.source_version, components))
    earlier = explain.nearest(candidates, described.components, version)
    if earlier is None:
        return Reuse(False, f"{nothing}; what has this {same} does not say what it was computed from")
    return Reuse(
        False,
        explain.words(earlier, described.components, version),
        changed=explain.changed(earlier, described.components, version),
        nearest=earlier.short_id,
    )


def _notes(identity: str) -> Steps[Mapping[str, Any]]:
    """Notes are a help, never a condition: where they cannot be read there are none."""
    try:
        return (yield from notes_of(identity))
    except NO_NOTES:
        return {}


def _seconds(resolved: Resolved) -> Steps[float | None]:
    host: Host = yield Meet()
    if not host.ours:
        return None
    notes = yield from _notes(resolved.experiment_id)
    kept = notes.get("statistics")
    told = cast("Mapping[str, Any]", kept).get("compute_seconds") if isinstance(kept, Mapping) else None
    return float(told) if isinstance(told, (int, float)) and not isinstance(told, bool) and told >= 0 else None


_mine: ContextVar[Reuse | None] = state().setdefault("reuse_here", ContextVar("rlm_memory_reuse", default=None))
_lock: threading.Lock = state().setdefault("reuse_lock", threading.Lock())


def say(reuse: Reuse) -> None:
    """Keep a decision as the last of this thread or task and of this kernel, and count what it saved."""
    _mine.set(reuse)
    with _lock:
        state()["last_reuse"] = reuse
        if reuse.reused:
            before = saved()
            state()["saved"] = Saved(before.hits + 1, before.seconds + (reuse.seconds_saved or 0.0))


def last_reuse() -> Reuse | None:
    """The last decision of this thread or task, else of this kernel; None before the first."""
    return _mine.get() or state().get("last_reuse")


def saved() -> Saved:
    """How many results this kernel reused, and the seconds of computing that this saved."""
    return state().get("saved") or Saved()
