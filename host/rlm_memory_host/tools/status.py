"""`memory_status` and the health behind it: what works, what is off, what is degraded, without content.

Owns: the tri-state and how features add up to it. Does not own: measuring a feature (each service reports its own).

Source: design page "Recall, resident text, guard, audit, health, tools", Health; DeepSeek Honcho specification,
sections 18 and 33.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlm_memory_host.contracts.version import version
from rlm_memory_host.errors import HostError
from rlm_memory_host.logs import LOGGER, where
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult

State = Literal["on", "off", "degraded", "unavailable"]
Health = Literal["active", "degraded", "unavailable"]


@dataclass(frozen=True, slots=True)
class Feature:
    """How one feature is: `code` and `hint` say why and what to do when it is not `on` or `off`."""

    state: State
    code: str | None = None
    hint: str | None = None

    def to_value(self) -> dict[str, Any]:
        """JSON types only."""
        return {"state": self.state} | {
            name: item for name, item in (("code", self.code), ("hint", self.hint)) if item is not None
        }


def overall(features: Mapping[str, Feature]) -> Health:
    """`off` never lowers it; storage out of reach takes everything down, anything else degrades."""
    states = {name: feature.state for name, feature in features.items()}
    if states.get("storage") == "unavailable":
        return "unavailable"
    return "degraded" if {"degraded", "unavailable"} & set(states.values()) else "active"


class StatusArguments(Arguments):
    """Of `memory_status`: none."""


def status_tool(report: Callable[[Call], Mapping[str, Any]] | None, kernels: Callable[[], int]) -> Tool:
    """The tool. `report` gives the artifact store's content-free counts, None when artifacts are off."""
    return Tool(
        name="memory_status",
        description="Health and counts of memory: what is on, off or degraded, with codes. Shows no content.",
        arguments=StatusArguments,
        output={
            "type": "object",
            "properties": {
                "status": {"type": "string"},
                "features": {"type": "object"},
                "artifacts": {"type": ["object", "null"]},
                "host": {"type": "object"},
                "warnings": {"type": "array"},
            },
            "required": ["status", "features", "artifacts", "host", "warnings"],
        },
        run=lambda _arguments, call: _status(call, report, kernels),
    )


def _status(call: Call, report: Callable[[Call], Mapping[str, Any]] | None, kernels: Callable[[], int]) -> ToolResult:
    counts, features = survey(call, report)
    health = overall(features)
    value: dict[str, Any] = {
        "status": health,
        "features": {name: feature.to_value() for name, feature in features.items()},
        "artifacts": counts,
        "host": {"version": version(), "kernels": kernels()},
        "warnings": [],
    }
    lines = [f"Memory is {health}."]
    lines += [
        f"- {name}: {item.state}" + (f" ({item.code}): {item.hint}" if item.code else "")
        for name, item in features.items()
    ]
    return ToolResult(value, "\n".join(lines))


def survey(
    call: Call, report: Callable[[Call], Mapping[str, Any]] | None
) -> tuple[dict[str, Any] | None, dict[str, Feature]]:
    """The store's counts and every feature's state; a store that fails to report is a finding, not an error."""
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
