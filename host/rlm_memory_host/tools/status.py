"""`memory_status` and the health behind it: what works, what is off, what is degraded, without content.

Owns: the tri-state and how features add up to it. Does not own: measuring a feature (each service reports its own).

Source: design page "Recall, resident text, guard, audit, health, tools", Health; DeepSeek Honcho specification,
sections 18 and 33.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from rlm_memory_host.contracts.version import version
from rlm_memory_host.errors import HostError
from rlm_memory_host.logs import LOGGER, where
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult

State = Literal["on", "off", "degraded", "unavailable"]
Health = Literal["active", "degraded", "unavailable"]
TOLD: Final[Mapping[str, str]] = {
    "configured": "the one that the settings name",
    "linked": "the one that an operator linked this folder's repository to",
    "git": "this repository, with all its worktrees",
    "path": "this folder, which is in no repository",
}
NO_HINT: Final = "the host's log says more"


@dataclass(frozen=True, slots=True)
class Feature:
    """How one feature is: `code` and `hint` say why and what to do when it is not `on` or `off`."""

    state: State
    code: str | None = None
    hint: str | None = None
    since: str | None = None

    def to_value(self) -> dict[str, Any]:
        """JSON types only."""
        return {"state": self.state} | {
            name: item
            for name, item in (("code", self.code), ("hint", self.hint), ("since", self.since))
            if item is not None
        }


def overall(features: Mapping[str, Feature]) -> Health:
    """`off` never lowers it; storage out of reach takes everything down, anything else degrades."""
    states = {name: feature.state for name, feature in features.items()}
    if states.get("storage") == "unavailable":
        return "unavailable"
    return "degraded" if {"degraded", "unavailable"} & set(states.values()) else "active"


class StatusArguments(Arguments):
    """Of `memory_status`: none."""


Report = Callable[[Call], Mapping[str, Any]]
Others = Callable[[], Mapping[str, Feature]]


def _no_others() -> Mapping[str, Feature]:
    return {}


def status_tool(
    report: Report | None,
    kernels: Callable[[], int],
    others: Others = _no_others,
    outbox: Callable[[], Mapping[str, Any] | None] = lambda: None,
) -> Tool:
    """The tool. `report` gives the artifact store's content-free counts, None when artifacts are off.

    `others` gives the features of the other services, `outbox` what waits to be sent (None without one).
    """
    return Tool(
        name="memory_status",
        description="Health and counts of memory: what is on, off or degraded, with codes. Shows no content.",
        arguments=StatusArguments,
        output={
            "type": "object",
            "properties": {
                "status": {"type": "string"},
                "scope": {"type": "object"},
                "features": {"type": "object"},
                "artifacts": {"type": ["object", "null"]},
                "outbox": {"type": ["object", "null"]},
                "host": {"type": "object"},
                "warnings": {"type": "array"},
            },
            "required": ["status", "scope", "features", "artifacts", "outbox", "host", "warnings"],
        },
        run=lambda _arguments, call: _status(call, report, kernels, others, outbox()),
        repeatable=True,
    )


def _status(
    call: Call, report: Report | None, kernels: Callable[[], int], others: Others, outbox: Mapping[str, Any] | None
) -> ToolResult:
    counts, features = survey(call, report, others)
    health = overall(features)
    value: dict[str, Any] = {
        "status": health,
        "scope": {
            "project": call.scope.project_told or None,
            "agent": call.scope.agent_kind,
            "preset": call.scope.preset is not None,
        },
        "features": {name: feature.to_value() for name, feature in features.items()},
        "artifacts": counts,
        "outbox": outbox,
        "host": {"version": version(), "kernels": kernels()},
        "warnings": [],
    }
    lines = [f"Memory is {health}."]
    if call.scope.project_told:
        lines.append(f"- project: {TOLD[call.scope.project_told]}")
    lines += [
        f"- {name}: {item.state}" + (f" ({item.code}): {item.hint or NO_HINT}" if item.code else "")
        for name, item in features.items()
    ]
    return ToolResult(value, "\n".join(lines))


def survey(
    call: Call, report: Report | None, others: Others = _no_others
) -> tuple[dict[str, Any] | None, dict[str, Feature]]:
    """The store's counts and every feature's state; a service that fails to report is a finding, not an error."""
    counts, features = _artifacts(call, report)
    try:
        return counts, merged(features, others())
    except Exception as error:
        LOGGER.error("status_failed %s", where(error))
        return counts, merged(features, {"recall": Feature("degraded", "STORE_UNAVAILABLE")})


def merged(features: Mapping[str, Feature], others: Mapping[str, Feature]) -> dict[str, Feature]:
    """Both together; of a feature that both have the worse state counts."""
    order = ("off", "on", "degraded", "unavailable")
    found = dict(features)
    for name, feature in others.items():
        if name not in found or order.index(feature.state) > order.index(found[name].state):
            found[name] = feature
    return found


def _artifacts(call: Call, report: Report | None) -> tuple[dict[str, Any] | None, dict[str, Feature]]:
    if report is None:
        return None, {"storage": Feature("on"), "artifact": Feature("off")}
    try:
        counts = dict(report(call))
    except HostError as error:
        return None, _broken(error.code)
    except Exception as error:
        LOGGER.error("status_failed %s", where(error))
        return None, _broken("STORE_UNAVAILABLE")
    artifact = Feature("on")
    if counts.get("skipped"):
        artifact = Feature("degraded", "VALIDATION", "some cards are malformed and were left out of search")
    return counts, {"storage": Feature("on"), "artifact": artifact, "index": Feature("on")}


def _broken(code: str) -> dict[str, Feature]:
    hint = "the artifact root cannot be used; see the host's log and the disk"
    return {"storage": Feature("unavailable", code, hint), "artifact": Feature("unavailable", code, hint)}
