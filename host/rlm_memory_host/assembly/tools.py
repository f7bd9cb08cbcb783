"""The tools of a host: one list for each way it may be set up.

Owns: which tools there are. Does not own: any tool, who may call it (`tools.policy`).

| | text memory on | off |
|---|---|---|
| profile `default` | the six, `memory_status` | section 14's five: search, recall, record, correct, status |
| profile `riko`, `runtime`, `plugin` | that document's own table | as above |

With artifacts on, `memory_artifact_record` and `memory_artifact_resolve` besides, in every case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rlm_memory_host.contracts.cards import CardSearch
from rlm_memory_host.contracts.memory import Profile
from rlm_memory_host.contracts.remote import RemoteMemory
from rlm_memory_host.errors import LayerUnavailable
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.tools.artifacts import ArtifactPort, artifact_tools
from rlm_memory_host.tools.hybrid import CardSources
from rlm_memory_host.tools.memories import memory_tools, with_text_status
from rlm_memory_host.tools.memory_arguments import MemoryCorrectArguments, MemoryRecordArguments, RecallArguments
from rlm_memory_host.tools.notes import Check, NoteServices, note_tools
from rlm_memory_host.tools.profiles import plugin_tools, runtime_tools
from rlm_memory_host.tools.riko import riko_tools
from rlm_memory_host.tools.status import Feature, Report, status_tool
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult


@dataclass(frozen=True, slots=True)
class Served:
    """What the tools of one host work with."""

    artifacts: ArtifactPort | None
    text: TextServices | None
    remote: RemoteMemory | None
    cards: CardSearch | None
    metrics: Metrics
    check: Check
    profile: Profile
    text_fault: str
    """Why there is no text memory although it is switched on; "" where there is nothing to say."""
    kernels: Callable[[], int]
    features: Callable[[], Mapping[str, Feature]]
    outbox: Callable[[], Mapping[str, Any] | None]


def build_tools(served: Served) -> list[Tool]:
    """Every tool of this host, in the order in which they are listed."""
    store = served.artifacts
    status = status_tool(report_of(store), served.kernels, served.features, served.outbox)
    records = artifact_tools(store) if store is not None else []
    cards = None if store is None else CardSources(store, served.cards, served.metrics)
    if served.text is None:
        notes = note_tools(NoteServices(cards, served.remote, served.check))
        return [*(_told(tool, served.text_fault) for tool in notes), *records, status]
    status = with_text_status(status, served.text)
    text = replace(served.text, cards=cards)
    if served.profile == "runtime":
        return [*runtime_tools(text), *records]
    if served.profile == "riko":
        return [*riko_tools(text), *records]
    if served.profile == "plugin":
        return [*plugin_tools(text, status), *records]
    return [*memory_tools(text), *records, status]


def report_of(store: ArtifactPort | None) -> Report | None:
    """The artifact store's counts for a status; None where artifacts are off."""
    return None if store is None else lambda call: store.status(call.scope)


_WRITES: Final[Mapping[str, type[Arguments]]] = {
    "memory_record": MemoryRecordArguments,
    "memory_correct": MemoryCorrectArguments,
    "memory_recall": RecallArguments,
}


def _told(tool: Tool, fault: str) -> Tool:
    """A tool that needs the text memory, where that is broken: it says so, and sends nothing past it."""
    if not fault or tool.name not in _WRITES:
        return tool

    def run(_arguments: Any, _call: Call) -> ToolResult:
        raise LayerUnavailable(
            f"the text memory cannot be opened ({fault}); exact results work. An operator finds more with "
            "`rlm-memory memory validate` and in the host's log"
        )

    return replace(tool, arguments=_WRITES[tool.name], run=run)
