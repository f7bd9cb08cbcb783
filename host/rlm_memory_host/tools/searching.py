"""`memory_search` and `memory_recall`: memories and experiment cards in one order, within what one answer may have.

Owns: the order of both kinds, what of it one answer has, the texts. Does not own: scores and eligibility (`recall`),
the cards' own pages (`hybrid`), how a page is cut (`paging`).

A cursor with `more` leads through the answer that its first page began: at most `limit` hits. A search for cards alone
has the cursors of cards, which lead past `limit`. An agent gets its few memories on the first page, so later ones are
cards: what it was given counts once.

Source: design page "Recall, resident text, guard, audit, health, tools", Recall and Tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlm_memory import wire

from rlm_memory_host.contracts.memory import Kind
from rlm_memory_host.contracts.records import SearchRequest
from rlm_memory_host.recall import fusion
from rlm_memory_host.recall.budget import Choice
from rlm_memory_host.recall.envelope import escaped, render
from rlm_memory_host.recall.items import Found
from rlm_memory_host.recall.service import Query
from rlm_memory_host.textmemory.service import narrowed
from rlm_memory_host.textmemory.tombstones import is_forgotten_text
from rlm_memory_host.textmemory.validity import parse_moment
from rlm_memory_host.tools import paging
from rlm_memory_host.tools.artifacts import FALLIBLE, SearchArguments, card_line
from rlm_memory_host.tools.hybrid import search_cards
from rlm_memory_host.tools.memory_arguments import MemorySearchArguments, RecallArguments
from rlm_memory_host.tools.memory_values import item_value
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Call, ToolResult

RECALL_ITEMS: Final = 20
CARD_KIND: Final = "experiment-card"
OUT_OF_ROOM: Final = ("context-budget", "session-budget")
NAMED: Final = 10
"""Memories that a text names as given before."""


def search(services: TextServices, arguments: MemorySearchArguments, call: Call) -> ToolResult:
    """One page of hits. Raises ToolInput for a bad time or cursor."""
    is_ours = (arguments.cursor or "").startswith(paging.PREFIX)
    narrowing = (None if is_ours else arguments.cursor, arguments.tag, arguments.source, arguments.since)
    if arguments.kind == CARD_KIND or any((*narrowing, arguments.session)):
        cards, cursor, warnings, total = _cards(services, arguments, call, wanted=True)
        warnings += services.warnings()
        value = {"results": cards, "total": total, "cursor": cursor, "more": False, "warnings": warnings}
        return ToolResult(value, _text((), cards))
    return _joined(services, arguments, call)


def _joined(services: TextServices, arguments: MemorySearchArguments, call: Call) -> ToolResult:
    caller = services.caller(call)
    request = paging.digest("memory_search", arguments.model_dump(exclude={"cursor"}))
    cursor = paging.decode(arguments.cursor, request) if arguments.cursor else None
    cards, _, warnings, total = _cards(services, arguments, call, wanted=False)
    page = services.recall.search(caller, query_of(arguments))
    is_agent = caller.agent_kind != "none"
    choice = Choice(()) if is_agent and cursor else services.recall.give(caller, page.items)
    warnings += [f"left out: {reason} ({count})" for reason, count in sorted(page.rejected.items())]
    warnings += [f"given before in this context: {memory_id}" for memory_id in choice.repeated]
    warnings += [*choice.reasons, *page.degraded, *services.warnings()]
    values = [item_value(item) for item in choice.items]
    ranked = _ranked(arguments.query, choice.items, values, cards)[: cursor.end if cursor else arguments.limit]
    frame = {"results": [], "total": page.total + total, "cursor": "", "more": True, "warnings": warnings}
    # An agent's memories are few, and given once: they are on the first page whatever else is.
    first = [value for value in ranked if is_agent and value["kind"] != CARD_KIND]
    listed = [value for value in ranked if value not in first]
    seen = paging.digest([_name(value) for value in listed])
    if cursor is not None and cursor.seen != seen:
        warnings.append(paging.CHANGED)
    space = paging.room(frame) - sum(map(wire.encoded_size, first))
    kept, after = paging.page(listed, cursor.place if cursor else paging.Place(), space)
    names = {_name(value) for value in (*first, *kept)}
    parts = {_name(value): value for value in kept}
    results = [parts.get(_name(value), value) for value in ranked if _name(value) in names]
    onward = paging.encode(paging.Cursor(after, seen, len(listed)), request) if after is not None else None
    given = [item for item in choice.items if f"{item.id} {item.version}" in names]
    shown = [value for value in results if value["kind"] == CARD_KIND]
    value = {**frame, "results": results, "cursor": onward, "more": onward is not None}
    return ToolResult(value, _text(given, shown, onward, _held_back(choice)))


def _name(value: Mapping[str, Any]) -> str:
    return f"{value.get('id') or value['experiment_id']} {value.get('version', '')}"


def _text(
    items: Sequence[Found], cards: Sequence[Mapping[str, Any]], onward: str | None = None, held_back: Sequence[str] = ()
) -> str:
    lines = [render(items)] if items else []
    lines += [escaped(card_line(card)) for card in cards]
    lines += [] if lines or held_back else ["Nothing matches."]
    lines += held_back
    lines += [f'Not all of them: call again with cursor="{onward}".'] if onward else []
    return "\n".join([*lines, FALLIBLE])


def _held_back(choice: Choice) -> list[str]:
    """What a reader of the text alone has to know: that there is more, and why it is not here."""
    said: list[str] = []
    if choice.repeated:
        ids = ", ".join(choice.repeated[:NAMED])
        more = f" and {len(choice.repeated) - NAMED} more" if len(choice.repeated) > NAMED else ""
        said.append(f"Given before in this context: {ids}{more}; memory_read with force=true shows them again.")
    full = [reason for reason in choice.reasons if reason in OUT_OF_ROOM]
    if full:
        said.append(f"Left out for want of room ({', '.join(full)}); memory_read gives a memory by its id.")
    return said


def _ranked(
    query: str, items: Sequence[Found], values: list[dict[str, Any]], cards: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Memories and cards in one order: exact ones first, then by score; without a query the newest first."""
    if not query.strip():
        return sorted(
            [*values, *cards], key=lambda value: value.get("date") or value.get("updated_at", ""), reverse=True
        )
    scaled = fusion.scaled({card["experiment_id"]: card["score"] for card in cards})
    ranked = [(not item.is_exact, -item.score, value) for item, value in zip(items, values, strict=True)]
    ranked += [(not _is_exact(card), -scaled[card["experiment_id"]], card) for card in cards]
    return [value for _, _, value in sorted(ranked, key=lambda entry: entry[:2])]


def _is_exact(card: Mapping[str, Any]) -> bool:
    return any(reason.startswith("exact:") for reason in card["matched"])


def query_of(arguments: MemorySearchArguments) -> Query:
    """The query of a search's arguments. Raises ToolInput for a bad time."""
    return Query(
        arguments.query,
        Kind(arguments.kind) if arguments.kind and arguments.kind != CARD_KIND else None,
        arguments.topic or "",
        narrowed(arguments.scope),
        parse_moment(arguments.at, "at") if arguments.at else None,
        limit=arguments.limit,
    )


def _cards(
    services: TextServices, arguments: MemorySearchArguments, call: Call, *, wanted: bool
) -> tuple[list[dict[str, Any]], str | None, list[str], int]:
    """(cards, cursor, warnings, total). None where artifacts are off or the search is about something else."""
    elsewhere = arguments.kind not in (None, CARD_KIND) or arguments.topic or arguments.at
    if services.cards is None or (elsewhere and not wanted) or arguments.scope not in (None, "all", "project"):
        return [], None, [], 0
    fields: dict[str, Any] = {name: getattr(arguments, name) for name in SearchArguments.model_fields if name != "kind"}
    fields |= {} if wanted else {"cursor": None}
    page = search_cards(services.cards, call.scope, SearchRequest(**fields))
    warnings = list(page["warnings"])
    if page["cursor"] and not wanted and len(page["results"]) < arguments.limit:
        warnings.append(f'more results match than fit; kind="{CARD_KIND}" lists them all')
    return page["results"], page["cursor"] if wanted else None, warnings, page["total"]


def recall(services: TextServices, arguments: RecallArguments, call: Call) -> ToolResult:
    """What is known about a question; what one answer cannot hold is named."""
    caller = services.caller(call)
    page = services.recall.search(caller, Query(arguments.question, limit=RECALL_ITEMS))
    choice = services.recall.give(caller, page.items)
    items = choice.items if caller.agent_kind != "none" else page.items[:5]
    answer, problems = "", list(page.degraded)
    if services.remote is not None and caller.project:
        spoken = services.remote.answer(arguments.question, project=caller.project, deadline_seconds=1.5)
        answer = spoken.text
        problems += [spoken.problem] if spoken.problem else []
        if answer and is_forgotten_text(answer, (item.block for item in services.memory.blocks(caller))):
            answer = ""
    value: dict[str, Any] = {
        "items": [],
        "answer": answer or None,
        "spent_chars": choice.spent,
        "session_spent_chars": choice.session_spent,
        "repeated": list(choice.repeated),
        "tier": choice.tier,
        "degradation_reasons": list(choice.reasons),
        "warnings": [
            *dict.fromkeys(problems),
            *(f"left out: {name} ({count})" for name, count in sorted(page.rejected.items())),
            *services.warnings(),
        ],
    }
    value["items"], after = paging.page([item_value(item) for item in items], paging.Place(), paging.room(value))
    if after is not None:
        left = [item.id for item in items if item.id not in {kept["id"] for kept in value["items"]}]
        value["warnings"].append(f"left out, too long for one answer (memory_read gives them): {', '.join(left)}")
        items = tuple(item for item in items if item.id not in left)
    if answer:
        spoken_item = Found("remote-answer", "remote", "", answer, "project", labels=("the remote memory's inference",))
        items = (*items, spoken_item)
    held_back = _held_back(choice)
    known = [render(items)] if items else ["Nothing is known about that."] if not held_back else []
    return ToolResult(value, "\n".join([*known, *held_back, *([] if items else [FALLIBLE])]))
