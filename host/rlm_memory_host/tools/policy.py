"""Who may call what: a pure function from tool, caller and switches to a decision with its reason.

Owns: visibility and permission. Does not own: arguments, running, logging.

Source: design page "Style", house rule 3; DeepSeek Honcho specification, section 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Switches:
    """What the operator switched on: the artifact store, and each tool by name (absent means on)."""

    artifacts: bool
    tools: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class Decision:
    """`visible`: the tool is listed for this caller; an invisible one answers as if it did not exist.

    `allowed` with `reason`: whether the call may run, and if not, a sentence for the caller.
    """

    visible: bool
    allowed: bool
    reason: str


def decide(tool: Tool, scope: Scope, switches: Switches) -> Decision:
    """The decision for one caller. No I/O, no clock."""
    if not switches.tools.get(tool.name, True):
        return Decision(False, False, "the operator switched this tool off")
    if "artifacts" in tool.needs and not switches.artifacts:
        return Decision(False, False, "artifact memory is switched off")
    if "write" in tool.needs and scope.session_dir is None:
        return Decision(True, False, "this caller has no session folder, so there is nothing to record from")
    return Decision(True, True, "allowed")
