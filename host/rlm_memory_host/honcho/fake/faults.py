"""Scripted faults: which request, and what happens to it.

Owns: the plan and its counting. Does not own: carrying faults out (`app`, and `server` or `transport` for a dropped
line).
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self, cast


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
        """A fault from its JSON; TypeError for no object, ValueError names the unknown key or that of a wrong value."""
        if not isinstance(data, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("a fault is a JSON object")
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
        fault = cls(**data)
        for name, is_right in _CHECKS.items():
            if not is_right(getattr(fault, name)):
                raise ValueError(f"the value of {name!r} is not one that it takes")
        return fault

    @classmethod
    def all_from_json(cls, data: Any) -> list[Self]:
        """The faults of a plan; TypeError and ValueError say what is wrong."""
        if not isinstance(data, list):
            raise TypeError("a plan is a JSON list of faults")
        return [cls.from_json(item) for item in cast("list[Any]", data)]


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(re.compile(value))
    except re.error:
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_headers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(text, str) and text.isascii() and text.isprintable()
        for pair in cast("dict[Any, Any]", value).items()
        for text in pair
    )


_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "route": _is_pattern,
    "times": lambda value: value is None or _is_count(value),
    "per_path": lambda value: isinstance(value, bool),
    "after": _is_count,
    "probability": lambda value: _is_seconds(value) and value <= 1,
    "commit": lambda value: isinstance(value, bool),
    "commit_after": _is_seconds,
    "wait": _is_seconds,
    "status": lambda value: value is None or (_is_count(value) and 200 <= value <= 599),
    "headers": _is_headers,
    "drop": lambda value: isinstance(value, bool),
    "reset_after": lambda value: isinstance(value, bool),
    "drip": _is_seconds,
}


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
