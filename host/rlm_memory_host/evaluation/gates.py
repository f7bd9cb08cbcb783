"""Which promotions a run allows: one line a gate, decided from the run alone. Pure functions.

Owns: the gates of sections 22 and 34.3. Does not own: the cases, the report. What only a person can say (approved
retention, a rating of usefulness, a look with one's own eyes) is `not evaluated`, never assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rlm_memory_host.evaluation.conversation import MAX_INJECTED_CHARACTERS, STEP_SECONDS
from rlm_memory_host.evaluation.results import CARD_CHARACTERS
from rlm_memory_host.evaluation.runner import Outcome, Run, Setting

State = Literal["holds", "fails", "not evaluated"]
BY_A_PERSON: Final = "a person decides"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: `why` names numbers, never content."""

    section: str
    name: str
    state: State
    why: str = ""


def gates_of(run: Run) -> list[Gate]:
    """Every gate, in the order of the specification."""
    return [
        _zero("22", "no leakage between people, workspaces and projects", _failed_negatives(run, ("isolation",))),
        _all("22", "corrections, freshness, injections and outages all right", run, _STRICT),
        _probed("22", "no secret and no tool output captured (by machine)", run),
        Gate("22", "no secret and no tool output captured (looked at by a person)", "not evaluated", BY_A_PERSON),
        _first_step(run),
        _injected(run),
        _improves("22", "better than without memory", run, "no-memory", None),
        Gate("22", "retention and deletion approved by an operator", "not evaluated", BY_A_PERSON),
        Gate("8.3", "usefulness rated by a user", "not evaluated", BY_A_PERSON),
        _zero("34.3", "no read across projects or of any path", _failed_negatives(run, ("isolation", "quota"))),
        _zero("34.3", "nothing damaged passes as whole", _damaged(run)),
        _probed("34.3", "no copy of artifact bytes or resolved paths in captured memory", run),
        _all("34.3", "recovery after restart and ambiguous success", run, ("recovery",)),
        _all("34.3", "record, search and resolve while the service is away", run, ("recovery", "discovery")),
        _cards(run),
        _improves("34.3", "exact reuse better than with texts alone", run, "no-artifacts", ("exactness",)),
    ]


_STRICT: Final = ("correction", "freshness", "injection", "outage")


def _of(run: Run, themes: Sequence[str] | None, setting: Setting = "everything") -> list[Outcome]:
    outcomes = run.outcomes.get(setting, [])
    return [item for item in outcomes if not item.skipped and (themes is None or item.case.theme in themes)]


def _failed_negatives(run: Run, themes: Sequence[str]) -> int | None:
    """Checks of what must not be that failed, a case in error counting as one; None where none of them ran."""
    outcomes = _of(run, themes)
    return None if not outcomes else _wrong(outcomes)


def _wrong(outcomes: Iterable[Outcome]) -> int:
    return sum(bool(item.fault) + sum(not c.passed and not c.positive for c in item.checks) for item in outcomes)


def _damaged(run: Run) -> int | None:
    found = _failed_negatives(run, ("integrity",))
    return None if found is None else found + run.measures.exact_asked - run.measures.exact_right


def _zero(section: str, name: str, found: int | None) -> Gate:
    if found is None:
        return Gate(section, name, "not evaluated", "no such case ran")
    return Gate(section, name, "holds" if found == 0 else "fails", f"{found} found")


def _all(section: str, name: str, run: Run, themes: Sequence[str]) -> Gate:
    outcomes = _of(run, themes)
    if not outcomes:
        return Gate(section, name, "not evaluated", "no such case ran")
    right = sum(item.passed for item in outcomes)
    return Gate(section, name, "holds" if right == len(outcomes) else "fails", f"{right} of {len(outcomes)} cases")


def _probed(section: str, name: str, run: Run) -> Gate:
    if not run.probe:
        return Gate(section, name, "not evaluated", "planted texts are looked for against the fake only")
    right = sum(run.probe.values())
    return Gate(section, name, "holds" if right == len(run.probe) else "fails", f"{right} of {len(run.probe)} looks")


def _first_step(run: Run) -> Gate:
    name = f"p95 of what a first step waits within {STEP_SECONDS * 1000:.0f} ms"
    waits = sorted(run.spent_seconds.get("inject", ()))
    if not waits:
        return Gate("22", name, "not evaluated", "no first step ran")
    found = quantile(waits, 0.95)
    return Gate("22", name, "holds" if found <= STEP_SECONDS else "fails", f"{len(waits)} steps")


def _injected(run: Run) -> Gate:
    return _bounded(
        "22", "injected context within its budget", run.measures.injected_characters, MAX_INJECTED_CHARACTERS
    )


def _cards(run: Run) -> Gate:
    return _bounded("34.3", "what a card costs a model is bounded", run.measures.card_characters, CARD_CHARACTERS)


def _bounded(section: str, name: str, found: Sequence[int], most: int) -> Gate:
    if not found:
        return Gate(section, name, "not evaluated", "nothing of it was shown")
    state: State = "holds" if max(found) <= most else "fails"
    return Gate(section, name, state, f"at most {max(found):,} of {most:,} characters")


def _improves(section: str, name: str, run: Run, other: Setting, themes: Sequence[str] | None) -> Gate:
    if other not in run.outcomes:
        return Gate(section, name, "not evaluated", f"the setting {other} did not run")
    mine, theirs = success(_of(run, themes)), success(_of(run, themes, other))
    if mine is None or theirs is None:
        return Gate(section, name, "not evaluated", "no such case ran")
    return Gate(section, name, "holds" if mine > theirs else "fails", f"{mine:.0%} against {theirs:.0%} of the tasks")


def success(outcomes: Iterable[Outcome]) -> float | None:
    """The part of the tasks that were done; None where there was none."""
    tasks = [item for item in outcomes if item.case.theme != "baseline" and not item.skipped]
    return sum(item.did_the_task for item in tasks) / len(tasks) if tasks else None


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value at a part of an ascending, non-empty sequence (nearest rank)."""
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))]
