"""Why a result was not reused: which component of the computation differs from the nearest earlier record.

Owns: the comparison of components, the choice of the nearest record, the words. Decides without I/O; asking the host
for candidates and their notes is `reuse.py`'s.

Source: design page "Exact results", Resolve; DeepSeek Honcho specification, section 27.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from rlm_memory import display

NAMED: Final = 5
"""Changes that are named in a sentence; `Reuse.changed` holds all of them."""


@dataclass(frozen=True)
class Earlier:
    """A recorded result of the same title or source, as far as its notes say what it was computed from."""

    experiment_id: str
    short_id: str
    source_version: str
    components: Mapping[str, str]


def components_of(notes: Mapping[str, Any]) -> dict[str, str]:
    """The component digests among the notes beside a card; what is not text is left out."""
    lineage = notes.get("lineage")
    kept: object = cast("Mapping[str, object]", lineage).get("components") if isinstance(lineage, Mapping) else None
    found = cast("Mapping[object, object]", kept) if isinstance(kept, Mapping) else dict[object, object]()
    return {name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, str)}


def changed(earlier: Earlier, components: Mapping[str, str], source_version: str) -> tuple[str, ...]:
    """The names of what differs, sorted, `source_version` last."""
    names = {*earlier.components, *components}
    found = sorted(name for name in names if earlier.components.get(name) != components.get(name))
    return (*found, *(["source_version"] if earlier.source_version != source_version else []))


def nearest(candidates: Iterable[Earlier], components: Mapping[str, str], source_version: str) -> Earlier | None:
    """The candidate that differs in the fewest components; of equals the first, which is the newest."""
    told = [candidate for candidate in candidates if candidate.components]
    return min(told, key=lambda one: len(changed(one, components, source_version)), default=None)


def words(earlier: Earlier, components: Mapping[str, str], source_version: str) -> str:
    """One clause: `params['year'] changed since art_…`."""
    clauses: list[str] = []
    for name in changed(earlier, components, source_version):
        if name == "source_version":
            old, new = (display.clean(repr(version)) for version in (earlier.source_version, source_version))
            clauses.append(f"source_version changed from {old} to {new}")
        elif name not in components:
            clauses.append(f"{display.clean(name)} is gone")
        elif name not in earlier.components:
            clauses.append(f"{display.clean(name)} is new")
        else:
            clauses.append(f"{display.clean(name)} changed")
    more = [f"{len(clauses) - NAMED} more changes"] if len(clauses) > NAMED else []
    return f"{', '.join([*clauses[:NAMED], *more])} since {earlier.short_id}"
