"""The tools of a host without text memory: search, recall, record, correct. Notes go to the remote memory at once.

Owns: their schemas and texts. Does not own: the outbox (behind the port), `memory_status`. Nothing is kept here:
without a remote memory, recording says so and searching finds experiment cards alone.

Source: DeepSeek Honcho specification, section 14; design page "Recall, resident text, guard, audit, health, tools".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import Field
from rlm_memory import wire

from rlm_memory_host.contracts.memory import Authority, Caller, new_memory_id
from rlm_memory_host.contracts.records import SearchRequest
from rlm_memory_host.contracts.remote import Offered, Queued, RemoteMemory, delivery_id
from rlm_memory_host.errors import ToolDenied, ToolInput
from rlm_memory_host.recall import remotely
from rlm_memory_host.recall.envelope import escaped, render
from rlm_memory_host.recall.items import Found
from rlm_memory_host.tools.artifacts import FALLIBLE, SearchArguments, card_line
from rlm_memory_host.tools.hybrid import CardSources, search_cards
from rlm_memory_host.tools.memory_arguments import RecallArguments
from rlm_memory_host.tools.schema import output
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult

REMOTE_SECONDS: Final = 1.5
ITEMS: Final = 5
NOWHERE: Final = (
    "this host keeps no notes: its operator switched text memory off and configured no remote memory "
    "(memory.enabled or [honcho] in rlm-memory.toml)"
)
Check = Callable[[dict[str, str], Authority, str], object]
"""The guard at a sink: raises GuardRejected."""


class NoteArguments(Arguments):
    """Of `memory_record` without text memory."""

    note: Annotated[str, Field(min_length=1, max_length=16_384, description="What to keep, one fact or decision")]
    title: Annotated[str | None, Field(max_length=240, description="A short title; it stands before the text")] = None


class CorrectionArguments(Arguments):
    """Of `memory_correct` without text memory."""

    correction: Annotated[str, Field(min_length=1, max_length=16_384, description="What is right")]
    id: Annotated[str | None, Field(max_length=1024, description="Id of the note that was wrong")] = None
    supersedes: Annotated[str | None, Field(max_length=1024, description="Id or description of what was wrong")] = None


@dataclass(frozen=True, slots=True)
class NoteServices:
    """What these tools use; `cards` None without artifacts, `remote` without a memory service."""

    cards: CardSources | None
    remote: RemoteMemory | None
    check: Check


def note_tools(services: NoteServices) -> list[Tool]:
    """The four tools, in the order in which they are listed."""
    hits = output(results="array", total="integer", cursor=["string", "null"], warnings="array")
    queued = output(id="string", state="string", queued="boolean", delivery_id="string", warnings="array")
    return [
        Tool(
            "memory_search",
            "Find exact results recorded earlier in this project (tables, arrays, documents; kind experiment-card), "
            f"and texts of the remote memory where one is configured. {FALLIBLE}",
            SearchArguments,
            hits,
            lambda arguments, call: _search(services, arguments, call),
            repeatable=True,
        ),
        Tool(
            "memory_recall",
            f"Ask the remote memory a focused question. {FALLIBLE}",
            RecallArguments,
            output(items="array", answer=["string", "null"], warnings="array"),
            lambda arguments, call: _recall(services, arguments, call),
            repeatable=True,
        ),
        Tool(
            "memory_record",
            f"Send one durable note or decision to the remote memory. Never secrets or one-off details. {FALLIBLE}",
            NoteArguments,
            queued,
            lambda arguments, call: _offer(services, call, _titled(arguments), "note", ()),
        ),
        Tool(
            "memory_correct",
            f"Send a correction to the remote memory; what it corrects stays there as history. {FALLIBLE}",
            CorrectionArguments,
            queued,
            lambda arguments, call: _offer(
                services, call, arguments.correction, "correction", (arguments.id, arguments.supersedes)
            ),
        ),
    ]


def _search(services: NoteServices, arguments: SearchArguments, call: Call) -> ToolResult:
    cards: list[dict[str, Any]] = []
    value: dict[str, Any] = {"results": cards, "total": 0, "cursor": None, "warnings": []}
    if services.cards is not None:
        request = SearchRequest(**arguments.model_dump())
        value = search_cards(services.cards, call.scope, request)
        cards = value["results"]
    elsewhere = arguments.kind or arguments.cursor or arguments.tag or arguments.source or arguments.since
    found: list[Found] = []
    if not elsewhere and not arguments.session and arguments.query.strip():
        found, problem = _asked(services, call, arguments.query, arguments.limit)
        value["warnings"] = [*value["warnings"], *([problem] if problem else [])]
    value["results"] = [*cards, *(_value(item) for item in found)][: arguments.limit]
    value["total"] += len(found)
    lines = [escaped(card_line(card)) for card in cards] + ([render(found)] if found else [])
    return ToolResult(value, "\n".join([*lines, FALLIBLE] if lines else ["Nothing matches. " + FALLIBLE]))


def _recall(services: NoteServices, arguments: RecallArguments, call: Call) -> ToolResult:
    if services.remote is None:
        raise ToolDenied(NOWHERE, wire.ADAPTER_DISABLED)
    found, problem = _asked(services, call, arguments.question, ITEMS)
    project = Caller.of(call.scope).project or ""
    spoken = services.remote.answer(arguments.question, project=project, deadline_seconds=REMOTE_SECONDS)
    items = [_value(item) for item in found]
    value = {"items": items, "answer": spoken.text or None, "warnings": [problem] if problem else []}
    if spoken.text:
        inference = Found("remote-answer", "remote", "", spoken.text, labels=("the remote memory's inference",))
        found = [*found, inference]
    return ToolResult(value, render(found) if found else "Nothing is known about that. " + FALLIBLE)


def _asked(services: NoteServices, call: Call, query: str, limit: int) -> tuple[list[Found], str]:
    caller = Caller.of(call.scope)
    answer = remotely.ask(services.remote, caller, query, limit, REMOTE_SECONDS)()
    return remotely.merged(caller, (), answer.hits, (), Counter()), answer.problem


def _value(item: Found) -> dict[str, Any]:
    known = {name: part for name, part in asdict(item).items() if name in ("id", "kind", "text", "layer", "date")}
    return known | {"labels": list(item.labels), "matched": list(item.matched), "trust": "untrusted"}


def _titled(arguments: NoteArguments) -> str:
    title = " ".join((arguments.title or "").split())
    return f"{title}: {arguments.note}" if title else arguments.note


def _offer(services: NoteServices, call: Call, text: str, kind: str, replaced: Sequence[str | None]) -> ToolResult:
    if services.remote is None:
        raise ToolDenied(NOWHERE, wire.ADAPTER_DISABLED)
    if not text.strip():
        raise ToolInput(f"{kind}: it is empty")
    supersedes = tuple(item for item in replaced if item)
    child = call.scope.agent_kind == "child"
    fields = {kind: text, "supersedes": "\n".join(supersedes)}
    services.check(fields, Authority.CHILD if child else Authority.MODEL, "block")
    memory_id = new_memory_id()
    caller = Caller.of(call.scope)
    queued: Queued = services.remote.offer(
        Offered(
            delivery_id(memory_id, 1, kind),
            memory_id,
            "correction" if kind == "correction" else "note",
            text,
            "child" if child else "model",
            caller.session,
            caller.project or "",
            datetime.now(UTC).isoformat(timespec="microseconds"),
            supersedes,
        )
    )
    state = "queued" if queued.queued else "refused"
    warnings = [f"not queued: {queued.problem}"] if queued.problem else []
    value: dict[str, Any] = {
        "id": memory_id if queued.queued else "",
        "state": state,
        "queued": queued.queued,
        "delivery_id": queued.delivery_id,
        "warnings": warnings,
    }
    said = "Queued for the remote memory; nothing is kept here." if queued.queued else "Not kept."
    return ToolResult(value, "\n".join([said, *warnings]))
