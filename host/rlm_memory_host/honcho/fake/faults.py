"""Scripted faults: which request, and what happens to it.

Owns: the plan and its counting. Does not own: carrying faults out (`app`, and `server` or `transport` for a dropped
line).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Self


@dataclass(slots=True)
class Fault:
    """One scripted fault. Without `commit` the request is not carried out.

    `route` is searched (a regular expression) in "METHOD /path". `times` is how often it strikes, None: always;
    `per_path` counts that for every path apart; `after` lets so many matching requests pass first. `probability` is
    that of striking when it could.
    """

    route: str = ""
    times: int | None = 1
    per_path: bool = False
    after: int = 0
    probability: float = 1.0
    commit: bool = False
    """Carry the request out, although the answer will be another one, late or none."""
    commit_after: float = 0.0
    """Seconds until it is carried out, whether or not the caller still waits."""
    wait: float = 0.0
    """Seconds before the answer."""
    status: int | None = None
    """Answer with this status and `body` instead of what the request gave."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    drop: bool = False
    """End the connection without an answer."""
    reset_after: bool = False
    """End the connection right after the answer, as the service does after a 500: the pooled line is dead."""
    drip: float = 0.0
    """Seconds between the bytes of the answer."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """A fault from its JSON; ValueError names an unknown key."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
        return cls(**data)


class Plan:
    """The faults to come, first match first. Not thread-safe: the server's loop reads it; add before you ask."""

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        self._faults = list(faults)
        self._matched: Counter[tuple[int, str]] = Counter()
        self._struck: Counter[tuple[int, str]] = Counter()
        self._random = random.Random(seed)

    def add(self, *faults: Fault) -> None:
        """Add faults behind the others."""
        self._faults.extend(faults)

    def clear(self) -> None:
        """No faults any more."""
        self._faults.clear()
        self._matched.clear()
        self._struck.clear()

    def strike(self, method: str, path: str) -> Fault | None:
        """The fault for this request, counted; None when it goes well."""
        name = f"{method} {path}"
        for fault in self._faults:
            if not re.search(fault.route, name):
                continue
            key = (id(fault), path if fault.per_path else "")
            self._matched[key] += 1
            if self._matched[key] <= fault.after:
                continue
            if fault.times is not None and self._struck[key] >= fault.times:
                continue
            if self._random.random() >= fault.probability:
                continue
            self._struck[key] += 1
            return fault
        return None
