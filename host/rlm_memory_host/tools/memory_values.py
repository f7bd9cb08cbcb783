"""Values of the memory tools: what a hit, a write and a forget look like as JSON, in every profile.

Owns: those shapes and their texts. Does not own: parameters, which tool gives what (`memories`, `profiles`).

Source: design page "Recall, resident text, guard, audit, health, tools", Tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rlm_memory_host.recall.items import Found
from rlm_memory_host.textmemory.forgetting import Forgotten
from rlm_memory_host.textmemory.notes import Recorded
from rlm_memory_host.tools.schema import output
from rlm_memory_host.tools.tool import ToolResult

RECORDED: Final = output(
    id="string",
    relation="string",
    state="string",
    scope="string",
    scope_note="string",
    version="integer",
    queued="boolean",
    delivery_id="string",
    warnings="array",
    target="string",
    reason="string",
    choices="array",
)
FORGOTTEN: Final = output(
    id="string",
    action="string",
    state="string",
    version="integer",
    title="string",
    remains="array",
    rawSessionRetained="boolean",
    withdrawn="integer",
    choices="array",
    reason="string",
)


def item_value(item: Found) -> dict[str, Any]:
    """One hit as JSON. The text is the stored one; `trust` and `labels` say what it is worth."""
    value = asdict(item)
    value |= {"authority": item.authority.value, "score": round(item.score, 6), "trust": "untrusted"}
    value.pop("is_exact")
    for name in ("matched", "labels", "sources", "tags"):
        value[name] = list(value[name])
    return value


def recorded(result: Recorded) -> ToolResult:
    """The value and text of a write."""
    value = asdict(result)
    value["warnings"] = [item for item in result.warnings if item]
    value["choices"] = choices_value(result.choices)
    said = {
        "active": f"Kept as {result.id} (version {result.version}, {result.scope})",
        "duplicate": f"Already known as {result.id}",
        "candidate": f"Proposed as {result.id}; a person decides",
        "conflict": f"It contradicts {result.target}, which stays; a person decides",
        "signal": "Counted as a signal of a habit; only a person makes it one",
        "confirm": "Several memories fit; ask the user which one",
        "refused": f"Not kept: {result.reason}",
    }[result.state]
    return ToolResult(
        value, "\n".join([f"{said}. Relation: {result.relation}.", result.scope_note, *value["warnings"]])
    )


def forgotten(done: Forgotten) -> ToolResult:
    """The value and text of a forget, hide or restore."""
    value = asdict(done)
    value["rawSessionRetained"] = value.pop("raw_session_retained")
    value["remains"] = list(done.remains)
    value["choices"] = choices_value(done.choices)
    said = {
        "done": f"Done: {done.action} {done.id}.",
        "candidate": f"Not done: the user did not ask to {done.action} it; proposed for a person's review.",
        "confirm": f"Not done: {done.reason}. Ask the user which one.",
        "unchanged": f"Nothing to do: it is {done.reason} already.",
    }[done.state]
    rest = f" What remains: {', '.join(done.remains)}." if done.remains else ""
    return ToolResult(value, said + rest)


def choices_value(choices: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """A confirmation list as JSON."""
    return [{"id": memory_id, "title": title} for memory_id, title in choices]
