"""What is given up first when room is short: a fixed order, visible. Pure.

Owns: the ladder. First the tier of the resident text, then how many and how long items are, then all but P0 and the
sure ones, then a single line, then none.

Source: design page "Recall", Resident text; DSH memory plugin, Degradation order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlm_memory_host.recall.budget import Bounds
from rlm_memory_host.recall.resident import Tier


@dataclass(frozen=True, slots=True)
class Step:
    """One level of pressure and what it leaves."""

    tier: Tier
    bounds: Bounds
    reason: str


LADDER: Final = (
    Step("full", Bounds(), ""),
    Step("compact", Bounds(), "resident-compact"),
    Step("compact", Bounds(items=3, item_chars=600, call_chars=2_000), "fewer-and-shorter"),
    Step("minimal", Bounds(items=3, item_chars=600, call_chars=2_000), "important-only"),
    Step("single", Bounds(items=1, item_chars=300, call_chars=300), "single-line"),
    Step("none", Bounds(items=0, item_chars=0, call_chars=0), "none"),
)


def at(level: int) -> tuple[Step, tuple[str, ...]]:
    """The step of a level (0 is none) and the reasons of all steps up to it."""
    level = max(0, min(level, len(LADDER) - 1))
    return LADDER[level], tuple(step.reason for step in LADDER[1 : level + 1])
