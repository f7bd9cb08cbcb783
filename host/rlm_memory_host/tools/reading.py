"""`memory_read`: memories whole by id, with their earlier states, in pages where they are long.

Owns: what is read and what of it one answer has. Does not own: parameters, how a page is cut (`paging`), what may show
(`recall.eligibility`).

A page goes on where the one before ended; only what a page gave counts as given to an agent.

Source: design page "Recall, resident text, guard, audit, health, tools", Tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlm_memory_host.contracts.memory import Caller, HistoryEntry, Sensitivity
from rlm_memory_host.recall.eligibility import Reading, block_reason
from rlm_memory_host.recall.envelope import render
from rlm_memory_host.recall.hits import item_of
from rlm_memory_host.recall.items import Found
from rlm_memory_host.tools import paging
from rlm_memory_host.tools.artifacts import FALLIBLE
from rlm_memory_host.tools.memory_arguments import ReadArguments
from rlm_memory_host.tools.memory_values import item_value
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Call, ToolResult


def read(services: TextServices, arguments: ReadArguments, call: Call) -> ToolResult:
    """One page of what was asked for. Raises NotFound, and ToolInput for a cursor of another call."""
    caller = services.caller(call)
    request = paging.digest("memory_read", arguments.ids, arguments.history)
    cursor = paging.decode(arguments.cursor, request) if arguments.cursor else None
    found, values, warnings = read_items(services, caller, arguments.ids, history=arguments.history)
    epoch = services.memory.parts.captured.epoch(caller.session)
    repeated: tuple[str, ...] = ()
    if caller.agent_kind != "none" and cursor is None and not arguments.force:
        repeated = services.recall.ledger.known(caller.session, epoch, found)
    # A cursor of an answer that left some out as given leads through the same ones.
    skipped = repeated if cursor is None else _skipped(values, cursor.end)
    listed = [value for value in values if value["id"] not in skipped]
    seen = paging.digest([(value["id"], value["version"], len(value.get("history", ()))) for value in listed])
    if cursor is not None and cursor.seen != seen:
        warnings.append(paging.CHANGED)
    frame = {"items": [], "repeated": list(repeated), "more": True, "cursor": "", "warnings": warnings}
    kept, after = paging.page(listed, cursor.place if cursor else paging.Place(), paging.room(frame))
    given = [_shown(item, value) for value in kept for item in found if item.id == value["id"]]
    if caller.agent_kind != "none":
        services.recall.ledger.given(caller.session, epoch, given)
    end = _mask(values, skipped)
    onward = paging.encode(paging.Cursor(after, seen, end), request) if after is not None else None
    value = {**frame, "items": kept, "more": after is not None, "cursor": onward}
    text = render(given) if kept else "Nothing new to read. " + FALLIBLE
    return ToolResult(value, text if onward is None else f'{text}\nNot all of it: call again with cursor="{onward}".')


def _mask(values: Sequence[Mapping[str, Any]], skipped: Sequence[str]) -> int:
    """Which of at most five values are left out, as bits."""
    return sum(1 << at for at, value in enumerate(values) if value["id"] in skipped)


def _skipped(values: Sequence[Mapping[str, Any]], mask: int) -> tuple[str, ...]:
    return tuple(value["id"] for at, value in enumerate(values) if mask >> at & 1)


def _shown(item: Found, value: Mapping[str, Any]) -> Found:
    """The hit with the part of its text that the page has."""
    if value["text"] == item.text:
        return item
    return replace(item, text=value["text"], labels=(*item.labels, "a part of it"))


def read_items(
    services: TextServices, caller: Caller, ids: Sequence[str], *, history: bool = False
) -> tuple[list[Found], list[dict[str, Any]], list[str]]:
    """(hits, their values, warnings). Raises NotFound, the same for absent, foreign, forgotten and hidden ones."""
    found: list[Found] = []
    values: list[dict[str, Any]] = []
    warnings: list[str] = []
    message = services.memory.message(caller)
    reading = Reading(services.memory.now(), "history", asked=message.text if message is not None else "")
    for memory_id in dict.fromkeys(ids):
        if memory_id == "resident":
            resident = services.recall.resident(caller, warning="".join(services.warnings()))
            item = Found("resident", "memory", "Resident text", resident.text, version=hash_version(resident.hash))
            found.append(item)
            values.append(item_value(item))
            continue
        place = services.memory.find(caller, memory_id)
        why = block_reason(place.block, reading)
        item = item_of(place.layer, place.block, reading)
        if why:
            warnings.append(f"{memory_id}: not shown ({why})")
            continue
        services.memory.activity.read(memory_id, services.memory.now().isoformat())
        found.append(item)
        value = item_value(item)
        if history and place.block.sensitivity is Sensitivity.NORMAL:
            value["history"], left_out = _history(services.memory.store.history(place.layer, memory_id))
            warnings += [f"{memory_id}: {left_out} earlier states not shown (sensitive)"] if left_out else []
        values.append(value)
    return found, values, warnings


def _history(entries: Sequence[HistoryEntry]) -> tuple[list[dict[str, Any]], int]:
    """(the earlier states, how many are left out): a state that was sensitive stays so."""
    shown = [entry for entry in entries if entry.block.sensitivity is Sensitivity.NORMAL]
    values = [
        {"number": entry.number, "change": entry.change, "version": entry.block.version,
         "title": entry.block.title, "text": entry.block.body, "updated_at": entry.block.updated_at}
        for entry in shown
    ]  # fmt: skip
    return values, len(entries) - len(shown)


def hash_version(digest: str) -> int:
    """A number for the version of a text that has only a hash."""
    return int(digest[:8], 16)
