"""Tool tables of other documents over the same core: `runtime` (DSH memory runtime) and `plugin` (DSH memory plugin).

Owns: those documents' names, parameters and results. Does not own: gates: a profile is never looser than the gate
table. A profile replaces the whole table. Where its document has no `quote`, the host looks for the text itself among
the user's captured sentences. `memory_consolidate` is a dry run; `memory_habits` only reads.

Source: DSH memory runtime, Quick Start; DSH memory plugin, Tool interface and Minimal usage example; design page
"Recall, resident text, guard, audit, health, tools", Tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from rlm_memory_host.contracts.memory import Kind, LayerKind, default_layer
from rlm_memory_host.recall.service import Query
from rlm_memory_host.textmemory import review
from rlm_memory_host.textmemory.correcting import Correction, correct
from rlm_memory_host.textmemory.forgetting import forget
from rlm_memory_host.textmemory.notes import Note, Recorded
from rlm_memory_host.textmemory.quotes import verify
from rlm_memory_host.textmemory.service import narrowed
from rlm_memory_host.tools.artifacts import FALLIBLE
from rlm_memory_host.tools.memory_values import FORGOTTEN, forgotten, item_value
from rlm_memory_host.tools.reading import read_items
from rlm_memory_host.tools.schema import output
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult

_Short = Annotated[str, StringConstraints(max_length=1024)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=65_536)]
AUTO_CONFIDENCE: Final = 0.8
Run = Callable[[Any, Call], ToolResult]


class _Camel(Arguments):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        validate_by_name=True,
        validate_by_alias=True,
    )


def _tool(name: str, text: str, model: type[Arguments], shape: dict[str, Any], run: Run) -> Tool:
    return Tool(name, f"{text} {FALLIBLE}", model, shape, run)


def _own_words(services: TextServices, call: Call, content: str) -> str:
    """The content as a quote where it is whole sentences of the user's latest message, else nothing."""
    message = services.memory.message(services.caller(call))
    return content if message is not None and verify(message.text, content).verified else ""


# -- runtime -----------------------------------------------------------------------------------------------------------
_RuntimeScope = Literal["workspace", "global"]


class RuntimeSearch(Arguments):
    """Of `memory_search`."""

    query: Annotated[str, Field(max_length=4096, description="Words to search for")]
    scope: Annotated[_RuntimeScope | None, Field(description="workspace by default")] = None
    topic: Annotated[_Short | None, Field(description="This topic first")] = None


class RuntimeRead(Arguments):
    """Of `memory_read`."""

    memory_id: Annotated[_Short, Field(description="Stable id of a memory")]


class RuntimePropose(Arguments):
    """Of `memory_propose`. `source_text` is accepted and not looked at: the host uses what it captured itself."""

    content: Annotated[_Text, Field(description="The durable fact, constraint or preference")]
    title: Annotated[str | None, Field(max_length=4096, description="A short title")] = None
    topic: Annotated[str | None, Field(max_length=4096, description="The topic it is filed under")] = None
    kind: Annotated[
        Literal["fact", "decision", "procedure", "preference"] | None, Field(description="fact by default")
    ] = None
    tags: Annotated[list[_Short] | None, Field(max_length=64, description="Words to find it by")] = None
    confidence: Annotated[float, Field(ge=0, le=1, strict=False, description="Under 0.8 a person decides")] = 0.8
    scope: Annotated[_RuntimeScope | None, Field(description="global needs the user's own words")] = None
    source_text: Annotated[str | None, Field(max_length=65_536, description="Not used")] = None


class RuntimeList(Arguments):
    """Of `memory_list`."""

    scope: Annotated[_RuntimeScope | None, Field(description="workspace by default")] = None
    topic: Annotated[_Short | None, Field(description="Only this topic")] = None


def _layer(scope: str | None) -> LayerKind | None:
    return LayerKind.GLOBAL if scope == "global" else None


def runtime_tools(services: TextServices) -> list[Tool]:
    """The five tools of the memory runtime."""

    def search(arguments: RuntimeSearch, call: Call) -> ToolResult:
        query = Query(arguments.query, topic=arguments.topic or "", scope=_layer(arguments.scope), limit=5)
        page = services.recall.search(services.caller(call), query)
        items = services.recall.give(services.caller(call), page.items).items
        return ToolResult({"results": [item_value(item) for item in items], "total": page.total}, FALLIBLE)

    def read(arguments: RuntimeRead, call: Call) -> ToolResult:
        _, values, warnings = read_items(services, services.caller(call), [arguments.memory_id])
        return ToolResult({"items": values, "warnings": warnings}, FALLIBLE)

    def propose(arguments: RuntimePropose, call: Call) -> ToolResult:
        note = Note(
            arguments.content,
            arguments.title or "",
            arguments.topic or "",
            Kind(arguments.kind or "fact"),
            tuple(arguments.tags or ()),
            _own_words(services, call, arguments.content),
            _layer(arguments.scope),
            confidence=arguments.confidence,
        )
        unsure = arguments.confidence < AUTO_CONFIDENCE
        done = services.memory.record(services.caller(call), note, background=unsure, tool="memory_propose")
        value = {
            "memory_id": done.id,
            "relation": done.relation,
            "state": done.state,
            "scope": done.scope,
            "scope_note": done.scope_note,
            "version": done.version,
            "warnings": [item for item in done.warnings if item],
        }
        return ToolResult(value, f"{done.relation}: {done.state}. {FALLIBLE}")

    def listing(arguments: RuntimeList, call: Call) -> ToolResult:
        query = Query(topic=arguments.topic or "", scope=_layer(arguments.scope), limit=50)
        page = services.recall.search(services.caller(call), query)
        return ToolResult({"results": [item_value(item) for item in page.items], "total": page.total}, FALLIBLE)

    def drop(arguments: RuntimeRead, call: Call) -> ToolResult:
        done = forget(services.memory, services.caller(call), memory_id=arguments.memory_id, tool="memory_forget")
        return forgotten(done)

    hits = output(results="array", total="integer")
    return [
        _tool(
            "memory_search", "Search active memories of this workspace, or global ones.", RuntimeSearch, hits, search
        ),
        _tool("memory_read", "Read one memory by its id.", RuntimeRead, output(items="array", warnings="array"), read),
        _tool(
            "memory_propose",
            "Propose a durable fact. Preferences and facts about people wait for a person unless the user said them.",
            RuntimePropose,
            output(
                memory_id="string",
                relation="string",
                state="string",
                scope="string",
                scope_note="string",
                version="integer",
                warnings="array",
            ),
            propose,
        ),
        _tool("memory_list", "List memories by scope and topic.", RuntimeList, hits, listing),
        _tool("memory_forget", "Archive a memory when the user asks for it.", RuntimeRead, FORGOTTEN, drop),
    ]


# -- plugin ------------------------------------------------------------------------------------------------------------
class PluginRemember(Arguments):
    """Of `memory_remember`. `priority` is a person's: accepted and not used."""

    title: Annotated[str, Field(min_length=1, max_length=4096, description="A short title")]
    content: Annotated[_Text, Field(description="What to remember")]
    tags: Annotated[list[_Short] | None, Field(max_length=64, description="Words to find it by")] = None
    layer: Annotated[
        Literal["session", "project", "global", "habit"] | None, Field(description="project by default")
    ] = None
    priority: Annotated[Literal["P0", "P1", "P2", "P3"] | None, Field(description="Set by a person only")] = None


class PluginRecall(_Camel):
    """Of `memory_recall`."""

    query: Annotated[str, Field(max_length=4096, description="Words to search for")]
    allow_repeat: Annotated[bool, Field(alias="allowRepeat", description="Also what was shown before")] = False
    layer: Annotated[Literal["session", "project", "global"] | None, Field(description="Only this layer")] = None


class PluginExpand(Arguments):
    """Of `memory_expand`."""

    id: Annotated[_Short, Field(description="Id of a memory")]


class PluginConsolidate(_Camel):
    """Of `memory_consolidate`."""

    dry_run: Annotated[bool, Field(alias="dryRun", description="Always true here")] = True


class PluginFeedback(Arguments):
    """Of `memory_feedback`."""

    id: Annotated[_Short, Field(description="Id of a memory")]
    verdict: Annotated[Literal["useful", "wrong", "stale"], Field(description="Orders reviews only")]


class PluginNothing(Arguments):
    """Of `memory_habits`: none."""


def plugin_tools(services: TextServices, status: Tool) -> list[Tool]:
    """The eight tools of the memory plugin; `status` is `memory_status` as this host has it."""
    return [
        _tool("memory_remember", "Remember a fact.", PluginRemember, _REMEMBERED, _remember(services)),
        _tool(
            "memory_recall",
            "Recall memories about a query, within a budget.",
            PluginRecall,
            output(
                items="array", tier="string", spentChars="integer", sessionSpentChars="integer", dedupedIds="array",
                degradationReasons="array",
            ),
            _plugin_recall(services),
        ),
        _tool(
            "memory_expand", "Read one memory whole.", PluginExpand, output(items="array", warnings="array"),
            _expand(services),
        ),
        _tool("memory_forget", "Archive a memory when the user asks.", PluginExpand, FORGOTTEN, _drop(services)),
        _tool(
            "memory_consolidate", "Say what ageing would move; changes nothing.", PluginConsolidate,
            output(dryRun="boolean", steps="array", held="boolean"), _consolidate(services),
        ),
        status,
        _tool(
            "memory_feedback", "Say whether a memory was useful, wrong or stale.", PluginFeedback,
            output(ok="boolean", id="string"), _feedback(services),
        ),
        _tool(
            "memory_habits", "List habits and candidates; only a person changes them.", PluginNothing,
            output(habits="array"), _habits(services),
        ),
    ]  # fmt: skip


_REMEMBERED: Final = output(
    ok="boolean",
    id="string",
    version="integer",
    layer="string",
    deduped="boolean",
    state="string",
    warnings="array",
)


def _remember(services: TextServices) -> Run:
    def run(arguments: PluginRemember, call: Call) -> ToolResult:
        note = Note(
            arguments.content,
            arguments.title,
            tags=tuple(arguments.tags or ()),
            quote=_own_words(services, call, arguments.content),
            layer=LayerKind(arguments.layer) if arguments.layer else None,
        )
        done: Recorded = services.memory.record(services.caller(call), note, tool="memory_remember")
        value = {
            "ok": done.state in ("active", "duplicate", "candidate", "signal"),
            "id": done.id,
            "version": done.version,
            "layer": done.scope,
            "deduped": done.state == "duplicate",
            "state": done.state,
            "warnings": [item for item in done.warnings if item],
        }
        return ToolResult(value, f"{done.state}. {FALLIBLE}")

    return run


def _plugin_recall(services: TextServices) -> Run:
    def run(arguments: PluginRecall, call: Call) -> ToolResult:
        caller = services.caller(call)
        page = services.recall.search(caller, Query(arguments.query, scope=narrowed(arguments.layer), limit=20))
        choice = services.recall.give(caller, page.items, force=arguments.allow_repeat)
        value = {
            "items": [
                {"id": item.id, "title": item.title, "excerpt": item.text, "chars": len(item.text)}
                for item in choice.items[:5]
            ],
            "tier": choice.tier,
            "spentChars": choice.spent,
            "sessionSpentChars": choice.session_spent,
            "dedupedIds": list(choice.repeated),
            "degradationReasons": [*choice.reasons, *page.degraded],
        }
        return ToolResult(value, FALLIBLE)

    return run


def _expand(services: TextServices) -> Run:
    def run(arguments: PluginExpand, call: Call) -> ToolResult:
        _, values, warnings = read_items(services, services.caller(call), [arguments.id])
        return ToolResult({"items": values, "warnings": warnings}, FALLIBLE)

    return run


def _drop(services: TextServices) -> Run:
    def run(arguments: PluginExpand, call: Call) -> ToolResult:
        return forgotten(forget(services.memory, services.caller(call), memory_id=arguments.id, tool="memory_forget"))

    return run


def _consolidate(services: TextServices) -> Run:
    def run(_arguments: PluginConsolidate, call: Call) -> ToolResult:
        layer = default_layer(services.caller(call), services.memory.parts.profile)
        plan = review.consolidate(services.memory, layer, dry_run=True)
        steps = [{"id": step.id, "kind": step.kind, "reason": step.reason} for step in plan.steps]
        return ToolResult({"dryRun": True, "steps": steps, "held": plan.held}, f"{len(steps)} would move. {FALLIBLE}")

    return run


def _feedback(services: TextServices) -> Run:
    def run(arguments: PluginFeedback, call: Call) -> ToolResult:
        wanted = Correction("", arguments.id, verdict=arguments.verdict)
        correct(services.memory, services.caller(call), wanted, tool="memory_feedback")
        return ToolResult({"ok": True, "id": arguments.id}, FALLIBLE)

    return run


def _habits(services: TextServices) -> Run:
    def run(_arguments: PluginNothing, call: Call) -> ToolResult:
        preset = services.caller(call).preset or ""
        rows = [
            {"id": habit.id, "pattern": habit.pattern, "state": habit.state, "sessions": len(habit.sessions)}
            for habit in services.memory.habits()
            if habit.preset in ("", preset)
        ]
        return ToolResult({"habits": rows}, FALLIBLE)

    return run
