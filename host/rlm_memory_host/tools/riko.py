"""The tool table of profile `riko`: its document's six names and parameters over the same core.

Owns: names, parameters, the one shape that all six answer in. Does not own: gates (never looser than the table), which
layer a caller has (`contracts.memory`: its preset's alone, and without a preset every call fails).

Stricter than the tools of the other profiles: what is remembered, and what replaces a text, is whole sentences of the
user's latest message, else the call is refused and nothing is proposed. A deletion, a suppression and a restoration
need the user's own cue, as everywhere.

Source: DSH Riko memory, Tools; design page "Recall, resident text, guard, audit, health, tools", Tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from rlm_memory_host.contracts.memory import Kind, Sensitivity, default_layer
from rlm_memory_host.errors import ToolDenied
from rlm_memory_host.textmemory.commands import Action
from rlm_memory_host.textmemory.correcting import Correction, correct
from rlm_memory_host.textmemory.forgetting import forget
from rlm_memory_host.textmemory.notes import Note, Recorded
from rlm_memory_host.textmemory.quotes import verify
from rlm_memory_host.tools.artifacts import FALLIBLE
from rlm_memory_host.tools.memory_values import choices_value
from rlm_memory_host.tools.schema import output
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult

_Text = Annotated[str, StringConstraints(min_length=1, max_length=65_536)]
_Id = Annotated[str, StringConstraints(min_length=1, max_length=1_024)]
VERSION_CHARS: Final = 24
"""Of the resident text's hash: its version, as the document has it."""
ANSWER: Final = output(
    scopeKey="string",
    resident="string",
    version="string",
    id="string",
    state="string",
    confirmationRequired="boolean",
    candidates="array",
    rawSessionRetained="boolean",
    warnings="array",
)


class RikoNothing(Arguments):
    """Of `memory_get_resident`: none."""


class RikoRemember(Arguments):
    """Of `memory_remember`."""

    content: Annotated[_Text, Field(description="The exact sentence of the user's latest message")]
    sensitivity: Annotated[Literal["normal", "sensitive"] | None, Field(description="Marks a private claim")] = None


class RikoCorrect(Arguments):
    """Of `memory_correct`."""

    id: Annotated[_Id, Field(description="Id of a memory")]
    content: Annotated[_Text, Field(description="The user's own replacement, from their latest message")]


class RikoTarget(Arguments):
    """Of `memory_forget`, `memory_suppress`, `memory_restore`: exactly one of both."""

    id: Annotated[_Id | None, Field(description="Id of a memory that the user's latest message names")] = None
    target: Annotated[_Id | None, Field(description="What the user's latest message calls it")] = None


def riko_tools(services: TextServices) -> list[Tool]:
    """The six tools of the document."""

    def resident(_arguments: RikoNothing, call: Call) -> ToolResult:
        value = _answer(services, call)
        return ToolResult(value, value["resident"] or f"Nothing is resident. {FALLIBLE}")

    def remember(arguments: RikoRemember, call: Call) -> ToolResult:
        _refuse_what_the_user_did_not_say(services, call, arguments.content)
        hidden = arguments.sensitivity == "sensitive"
        sensitivity = Sensitivity.SENSITIVE if hidden else Sensitivity.NORMAL
        note = Note(arguments.content, kind=Kind.FACT, quote=arguments.content, sensitivity=sensitivity)
        done = services.memory.record(services.caller(call), note, tool="memory_remember")
        return _written(services, call, done)

    def replace(arguments: RikoCorrect, call: Call) -> ToolResult:
        _refuse_what_the_user_did_not_say(services, call, arguments.content)
        wanted = Correction(arguments.content, arguments.id, quote=arguments.content)
        done = correct(services.memory, services.caller(call), wanted, tool="memory_correct")
        return _written(services, call, done)

    text = "Reads the resident text of this agent's preset."
    return [
        _tool("memory_get_resident", text, RikoNothing, resident),
        _tool("memory_remember", "Remember what the user just said, in their own sentence.", RikoRemember, remember),
        _tool("memory_correct", "Replace a memory's text by what the user just said.", RikoCorrect, replace),
        *(
            _tool(name, f"{what} when the user's latest message asks for it.", RikoTarget, _moving(services, name, act))
            for name, act, what in _MOVES
        ),
    ]


_MOVES: Final[tuple[tuple[str, Action, str], ...]] = (
    ("memory_forget", "forget", "Forget one memory"),
    ("memory_suppress", "hide", "Keep one memory from being used, until it is restored,"),
    ("memory_restore", "restore", "Bring a suppressed or forgotten memory back"),
)


def _tool(name: str, text: str, model: type[Arguments], run: Callable[[Any, Call], ToolResult]) -> Tool:
    return Tool(name, f"{text} {FALLIBLE}", model, ANSWER, run)


def _moving(services: TextServices, name: str, action: Action) -> Callable[[Any, Call], ToolResult]:
    def run(arguments: RikoTarget, call: Call) -> ToolResult:
        done = forget(
            services.memory,
            services.caller(call),
            memory_id=arguments.id or "",
            target=arguments.target or "",
            action=action,
            tool=name,
        )
        value = _answer(services, call) | {
            "id": done.id,
            "state": done.state,
            "confirmationRequired": done.state == "confirm",
            "candidates": choices_value(done.choices),
            "rawSessionRetained": done.raw_session_retained,
        }
        return ToolResult(value, _said(value, done.reason))

    return run


def _refuse_what_the_user_did_not_say(services: TextServices, call: Call, content: str) -> None:
    message = services.memory.message(services.caller(call))
    found = verify(message.text if message is not None else None, content)
    if not found.verified:
        raise ToolDenied(
            "content: it has to be whole sentences of the user's latest message, as they wrote them", found.code
        )


def _written(services: TextServices, call: Call, done: Recorded) -> ToolResult:
    value = _answer(services, call) | {
        "id": done.id,
        "state": done.state,
        "confirmationRequired": done.state == "confirm",
        "candidates": choices_value(done.choices),
        "warnings": [item for item in done.warnings if item],
    }
    return ToolResult(value, _said(value, done.reason))


def _said(value: dict[str, Any], reason: str) -> str:
    if value["confirmationRequired"]:
        named = "; ".join(f"{item['title']} ({item['id']})" for item in value["candidates"])
        return f"Not done: {reason}. Ask the user which one: {named}. {FALLIBLE}"
    said = {
        "active": "The memory was updated.",
        "done": "The memory was updated.",
        "duplicate": "It is known already.",
        "unchanged": f"Nothing to do: it is {reason} already.",
    }
    return f"{said.get(value['state'], 'Not done: a person decides.')} {FALLIBLE}"


def _answer(services: TextServices, call: Call) -> dict[str, Any]:
    caller = services.caller(call)
    shown = services.recall.resident(caller, warning="".join(services.warnings()))
    return {
        "scopeKey": default_layer(caller, services.memory.parts.profile).name,
        "resident": shown.text,
        "version": shown.hash[:VERSION_CHARS],
        "id": "",
        "state": "read",
        "confirmationRequired": False,
        "candidates": [],
        "rawSessionRetained": False,
        "warnings": list(services.warnings()),
    }
