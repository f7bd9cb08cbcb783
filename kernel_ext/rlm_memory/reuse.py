"""Exact reuse: a recorded result of the same computation on the same source version, or the reason why there is none.

Owns: the decision which candidate may be reused, and its words. Does not own: freshness, which the host says.

Source: design page "Exact results", Resolve (`get` returns only what resolve calls fresh); "Overview", Decisions.
"""

from __future__ import annotations

from typing import Any, Final

from rlm_memory import errors, fingerprints
from rlm_memory.kept import state
from rlm_memory.operations import UNKNOWN, resolve, search
from rlm_memory.results import Resolved, Reuse
from rlm_memory.steps import Steps, Work

PAGE: Final = 50


def get(
    *,
    source_version: Any = None,
    fingerprint: str | None = None,
    query: Any = None,
    params: Any = None,
    inputs: Any = None,
) -> Steps[Resolved | None]:
    """The newest recorded result with this fingerprint that is fresh for `source_version`, verified; else None.

    `memory.experiments.last_reuse` says why. Give `fingerprint=`, or `query=`, `params=`, `inputs=` as for `record`.
    Raises Invalid for both or a malformed fingerprint; a damaged candidate raises Integrity.
    """
    if fingerprint is not None and any(part is not None for part in (query, params, inputs)):
        raise errors.Invalid("give fingerprint= or query=/params=/inputs=, not both")
    digest: str = (
        fingerprints.check(fingerprint)
        if fingerprint is not None
        else (yield Work(lambda: fingerprints.fingerprint(query, params, inputs)))
    )
    if digest == fingerprints.NOTHING_GIVEN:
        return _none(
            "nothing was given of the computation (no fingerprint, query, params or inputs), so nothing can be the same"
        )
    if source_version is None or source_version == UNKNOWN:
        return _none("no source_version was given, so freshness cannot be told and nothing is reused")
    if not isinstance(source_version, str) or not source_version:
        raise errors.Invalid(f"source_version must be text that is not empty, not {source_version!r}")
    versions: dict[str, int] = {}
    cursor: str | None = None
    while True:
        page = yield from search(digest, limit=PAGE, cursor=cursor)
        for hit in page:
            if hit.query_fingerprint != digest:
                continue
            versions[hit.source_version] = versions.get(hit.source_version, 0) + 1
            if hit.source_version != source_version or not hit.local_available:
                continue
            resolved = yield from resolve(hit, source_version)
            if resolved.freshness == "fresh":
                _say(Reuse(True, "same fingerprint, same source version, bytes verified", sum(versions.values())))
                return resolved
        cursor = page.cursor
        if cursor is None:
            return _none(_why_not(versions, source_version), sum(versions.values()))


def _why_not(versions: dict[str, int], wanted: str) -> str:
    if not versions:
        return "no recorded result has this fingerprint"
    if wanted in versions:
        return f"recorded for source version {wanted!r}, but its bytes are not here"
    named = ", ".join(repr(version) for version in sorted(versions)[:5])
    return f"recorded for source version {named}, not for {wanted!r}"


def _none(why: str, candidates: int = 0) -> None:
    _say(Reuse(False, why, candidates))


def _say(reuse: Reuse) -> None:
    state()["last_reuse"] = reuse


def last_reuse() -> Reuse | None:
    """What the last `get` of this kernel decided; None before the first."""
    return state().get("last_reuse")
