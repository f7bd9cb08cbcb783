"""From whatever a caller holds to an experiment id.

Owns: results as references, and short ids. A short id is the start of an experiment id (`exp_` and 8 characters or
more) or of an artifact id (`art_`), looked up among the project's own results. Does not own: whether the id exists;
any other text goes to the host as it is, whose one answer for malformed, unknown and foreign references is NotFound.

Source: design page "Kernel <-> host", Wire (references).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from rlm_memory import errors
from rlm_memory.kept import state
from rlm_memory.steps import Steps
from rlm_memory.tools import tool

FULL_CHARACTERS: Final = 52
SHORTEST: Final = 8
PAGE: Final = 50
KNOWN_IDS: Final = 200
_ID: Final = re.compile(r"(exp|art)_([a-z2-7]+)")


def experiment_id(reference: Any) -> Steps[str]:
    """The experiment id of a result, a full id or a short one. Raises Invalid (not a reference, ambiguous)."""
    ref: object = reference
    held = _held(reference, "experiment_id")
    if isinstance(held, str) and held:
        return held
    if not isinstance(ref, str):
        raise errors.Invalid(
            f"a reference is what record or search returned, or an experiment id, not {type(reference).__name__}"
        )
    text = ref.strip()
    parts = _ID.fullmatch(text)
    is_whole = parts is not None and parts[1] == "exp" and len(parts[2]) == FULL_CHARACTERS
    if parts is None or is_whole or not SHORTEST <= len(parts[2]) <= FULL_CHARACTERS:
        return text
    return (yield from _by_prefix(text, "experiment_id" if parts[1] == "exp" else "artifact_id"))


def remember(*ids: str) -> None:
    """Keep the last ids that this kernel saw, for Tab completion only."""
    known = cast("dict[str, None]", state().setdefault("known_ids", {}))
    for identity in ids:
        known.pop(identity, None)
        known[identity] = None
    for old in list(known)[:-KNOWN_IDS]:
        known.pop(old, None)


def known_ids() -> list[str]:
    """The ids kept by `remember`, newest first."""
    return list(reversed(state().get("known_ids", {})))


def title_of(ref: Any) -> str:
    """The title that a result carries; empty for a bare id."""
    title = _held(ref, "title")
    return title if isinstance(title, str) and not isinstance(ref, str) else ""


def _held(reference: Any, name: str) -> object:
    """What a result, or a mapping that was one, holds under a name. Raises Invalid where looking at it fails."""
    ref: object = reference
    try:
        if isinstance(ref, Mapping):
            return cast("Mapping[str, Any]", ref).get(name)
        return getattr(ref, name, None)
    except Exception as error:
        raise errors.Invalid(
            f"a reference of type {type(reference).__name__} fails where its {name} is read ({type(error).__name__})"
        ) from error


def _by_prefix(prefix: str, field: str) -> Steps[str]:
    """Look through the project's results; several experiments with the same bytes are one artifact, so any will do."""
    found: dict[str, Mapping[str, Any]] = {}
    cursor: str | None = None
    while True:
        arguments: dict[str, Any] = {"query": "", "kind": "experiment-card", "limit": PAGE}
        page: Mapping[str, Any] = yield from tool("memory_search", arguments | ({"cursor": cursor} if cursor else {}))
        for row in cast("list[Mapping[str, Any]]", page.get("results") or []):
            if str(row.get(field)).startswith(prefix):
                found.setdefault(str(row.get(field)), row)
        cursor = page.get("cursor")
        if not cursor:
            break
    if len(found) > 1:
        named = ", ".join(f"{name} ({row.get('title')!r})" for name, row in sorted(found.items())[:5])
        raise errors.Invalid(f"{prefix!r} is the start of {len(found)} ids; give more of one: {named}")
    # An unknown short id gets the host's own NotFound.
    return str(next(iter(found.values())).get("experiment_id")) if found else prefix
