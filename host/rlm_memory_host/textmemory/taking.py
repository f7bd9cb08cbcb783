"""An imported entry taken as active because the operator said so; and the same rehearsed where nothing is kept.

Owns: what an entry that a person did not look at may do: become a memory of its own where nothing near it is on file.
Does not own: reading other systems (`importing`), the relation (`judge`), what a person decides later (`review`).

It changes no memory: what would refine or update one waits for review and names its target; what contradicts one waits
as a conflict that does not contest it; what was forgotten or hidden here stays so; what is known is left as it is. Each
entry is one commit, so that a kill leaves whole memories and a second run knows them.

Source: design page "The memory model", Lifecycle and gates (Relation judge, Forget); "Recall, resident text, guard,
audit, health, tools", operator only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from rlm_memory_host.contracts.memory import (
    Authority,
    BlockWrite,
    Caller,
    Candidate,
    Layer,
    Log,
    LogRow,
    Transaction,
    new_memory_id,
)
from rlm_memory_host.errors import VersionConflict
from rlm_memory_host.textmemory import planning, rows
from rlm_memory_host.textmemory.judge import Relation, judge
from rlm_memory_host.textmemory.notes import Note, Ready, prepare
from rlm_memory_host.textmemory.planning import Context, Plan
from rlm_memory_host.textmemory.service import ATTEMPTS, Parts, TextMemory
from rlm_memory_host.textmemory.shelves import is_comparable, said_of
from rlm_memory_host.textmemory.tombstones import standing_against
from rlm_memory_host.textmemory.validity import stamp
from rlm_memory_host.textmemory.volatile import VolatileStore

Taken = Literal["active", "known", "waiting", "conflict", "forgotten"]


def take(memory: TextMemory, caller: Caller, candidate: Candidate, *, waits: Candidate | None = None) -> Taken:
    """What became of one entry. `waits` is the candidate that an earlier import made of it.

    Raises ToolInput, LimitExceeded, StoreError, and VersionConflict where others keep writing.
    """
    note = Note(
        candidate.body,
        candidate.title,
        candidate.topic,
        candidate.kind,
        candidate.tags,
        sensitivity=candidate.sensitivity,
    )
    ready = replace(prepare(note, caller, None, operator=True), flags=candidate.flags)
    for attempt in range(ATTEMPTS):
        context = Context(caller, Layer.parse(candidate.layer), stamp(memory.now()), new_memory_id(), "import")
        revision = memory.store.snapshot(context.layer).revision
        taken, plan = _decide(memory, ready, context, waits)
        if plan is None:
            return taken
        try:
            memory.committed(caller, plan, ready, revisions={context.layer: revision} if plan.writes else {})
        except VersionConflict:
            if attempt + 1 == ATTEMPTS:
                raise
            continue
        return taken
    raise AssertionError("unreachable")


def _decide(memory: TextMemory, ready: Ready, context: Context, waits: Candidate | None) -> tuple[Taken, Plan | None]:
    seen = memory.shelves.view((context.layer, *memory.layers(context.caller)))
    if standing_against(seen.gone(), Authority.BACKGROUND, ready.body, ready.title) is not None:
        return "forgotten", None
    near = memory.shelves.view_of(memory.store.snapshot(context.layer)).near(ready.said, is_comparable)
    judgement = judge(ready.said, [said_of(block) for block in near])
    target = next((block for block in near if block.id == judgement.target), None)
    if target is None or judgement.relation is Relation.NEW:
        plan = planning.plan_active(ready, judgement, None, context, "")
        if waits is not None:
            done = replace(waits, state="accepted", updated_at=context.now)
            plan = replace(plan, rows=(*plan.rows, rows.log_row(done)))
        return "active", plan
    if judgement.relation is Relation.DUPLICATE:
        return "known", None
    # What waits is a proposal of the other system: nobody looked at it beside what is on file.
    proposed = replace(ready, writer=Authority.BACKGROUND)
    if judgement.relation is Relation.CONFLICT:
        plan, taken = planning.plan_conflict(proposed, judgement, target, context, ""), "conflict"
    else:
        action = "refine" if judgement.relation is Relation.REFINE else "update"
        plan, taken = planning.plan_candidate(proposed, context, "", action, target, "imported"), "waiting"
    if any(item.id == plan.result.id for item in rows.candidates(memory.store)):
        return "known", None
    return taken, plan


def rehearsal(memory: TextMemory, layers: Sequence[Layer]) -> TextMemory:
    """A memory with what is on file in these layers and what waits; what is written to it is gone with it."""
    store = VolatileStore()
    for layer in dict.fromkeys(layers):
        if memory.store.is_available(layer):
            writes = tuple(BlockWrite(layer, block) for block in memory.store.snapshot(layer).blocks)
            store.commit(Transaction(writes))
    for log in (Log.CANDIDATES, Log.CONFLICTS):
        store.commit(Transaction(rows=tuple(LogRow(log, row) for row in memory.store.rows(log))))
    return TextMemory(Parts(store, memory.parts.guard, clock=memory.parts.clock))
