"""The questions of the evaluation: each with what has to be there and what must not, as outcomes only.

Owns: the register, the shape of a case and of its checks. Does not own: the cases of text memory (`conversation`) and
of artifacts (`results`), running them (`runner`).

A check is positive (memory has to bring something about) or negative (something must not happen); every case has both
kinds, so that neither remembering nothing nor showing everything passes. All content is synthetic and none of it is in
a result: a check is a name and a yes or no.

Source: DeepSeek Honcho specification, sections 22 and 34.2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from rlm_memory_host.evaluation.stand import Service, Stand, Wanted, fresh
from rlm_memory_host.honcho.fake import Served

Theme = Literal[
    "preference", "isolation", "correction", "freshness", "sparse", "injection", "child", "outage", "bounds",
    "discovery", "exactness", "integrity", "recovery", "quota", "baseline",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """One outcome. `theme` says which gate it counts for."""

    name: str
    positive: bool
    passed: bool


@dataclass(slots=True)
class Measures:
    """Numbers of one case."""

    injected_characters: list[int] = field(default_factory=list[int])
    text_characters: list[int] = field(default_factory=list[int])
    card_characters: list[int] = field(default_factory=list[int])
    stale_right: int = 0
    stale_asked: int = 0
    exact_right: int = 0
    exact_asked: int = 0
    resolve_seconds: dict[int, list[float]] = field(default_factory=dict[int, list[float]])


class Bench(Protocol):
    """What a case gets: places to work in and the service to work against. Implementation: `runner.Room`."""

    measures: Measures

    @contextmanager
    def stand(self, wanted: Wanted | None = None, *, folder: Path | None = None) -> Generator[Stand]:
        """A host's services; the same `folder` again is a restart, none is a new machine."""
        ...

    def folder(self) -> Path:
        """A new machine's folder."""
        ...

    @property
    def service(self) -> Service:
        """The service that the case works against."""
        ...

    @property
    def fake(self) -> Served | None:
        """The fake behind the service; None against a real one."""
        ...


@dataclass(slots=True)
class Trial:
    """Collects the checks of a case while it runs."""

    bench: Bench
    checks: list[Check] = field(default_factory=list[Check])

    def has(self, name: str, outcome: object) -> None:
        """A positive check: this has to be."""
        self.checks.append(Check(name, True, bool(outcome)))

    def lacks(self, name: str, outcome: object) -> None:
        """A negative check: this must not be."""
        self.checks.append(Check(name, False, not outcome))


@dataclass(frozen=True, slots=True)
class Case:
    """One case: `id` is its number in the specification (22.1, 34.2.1)."""

    id: str
    title: str
    theme: Theme
    run: Callable[[Trial], None]
    needs_fake: bool = False
    """It breaks the service on purpose, so it runs against the fake only."""


REGISTER: Final[dict[str, Case]] = {}


def case(
    number: str, title: str, theme: Theme, *, needs_fake: bool = False
) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Put a function into the register."""

    def register(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        if number in REGISTER:
            raise ValueError(f"two cases are called {number}")
        REGISTER[number] = Case(number, title, theme, run, needs_fake)
        return run

    return register


def all_cases() -> list[Case]:
    """Every case, in the order of their numbers."""
    # Their modules register them when they are imported.
    from rlm_memory_host.evaluation import conversation, results  # noqa: F401  # pyright: ignore[reportUnusedImport]

    return sorted(REGISTER.values(), key=lambda item: [int(part) for part in item.id.split(".")])


def shown(value: Any) -> str:
    """Everything that an answer shows a model, as one text to look things up in."""
    return repr(value)


__all__ = ["REGISTER", "Bench", "Case", "Check", "Measures", "Trial", "all_cases", "case", "fresh", "shown"]
