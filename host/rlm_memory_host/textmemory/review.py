"""What only a person does: candidates, conflicts, confirmation, promotion, habit gates, aging. For operator commands.

Owns: the effect of each decision. Does not own: asking the person (CLI, web), the gate table. No tool of a model calls
anything here; `consolidate` has a dry run that profiles expose.

Source: design page "The memory model", Lifecycle and gates; design page "Recall", Tools (operator only).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from rlm_memory_host.contracts.memory import (
    GLOBAL,
    AuditNote,
    Authority,
    Block,
    BlockWrite,
    Caller,
    Candidate,
    Conflict,
    Consent,
    Layer,
    Located,
    Log,
    LogRow,
    Sensitivity,
    Status,
    Transaction,
    new_memory_id,
)
from rlm_memory_host.errors import NotFound, ToolInput
from rlm_memory_host.textmemory import habits, rows
from rlm_memory_host.textmemory.aging import AgingPlan, AgingRules, plan, verdict_order
from rlm_memory_host.textmemory.correcting import plan_in_place, plan_over_time
from rlm_memory_host.textmemory.forgetting import Forgotten, forget, moved
from rlm_memory_host.textmemory.notes import Ready, Recorded
from rlm_memory_host.textmemory.planning import Context, Plan, new_block
from rlm_memory_host.textmemory.service import ABSENT, TextMemory
from rlm_memory_host.textmemory.tombstones import FLAG_AGED
from rlm_memory_host.textmemory.validity import moment_of, stamp

Resolution = Literal["keep", "correction", "temporal_transition", "both"]
RULES = AgingRules()
_NO_CANDIDATE = "there is no such candidate, or it was decided already"


def pending(memory: TextMemory) -> list[Candidate]:
    """What waits: targets judged wrong first, then stale, useful ones last; then by how often, then the oldest."""
    waiting = [item for item in rows.candidates(memory.store) if item.state in ("pending", "conflict")]
    return sorted(
        waiting,
        key=lambda item: (
            verdict_order(memory.activity.of(item.target)),
            -item.seen,
            item.created_at,
            item.id,
        ),
    )


def seen_again(memory: TextMemory) -> list[Candidate]:
    """What was refused because a person had forgotten it."""
    return [item for item in rows.candidates(memory.store) if item.state == "tombstoned"]


def accept(memory: TextMemory, caller: Caller, candidate_id: str) -> Recorded | Forgotten:
    """Accept a candidate in the operator's name. Raises NotFound."""
    candidate = _candidate(memory, candidate_id)
    layer = Layer.parse(candidate.layer)
    if candidate.action in ("forget", "hide", "restore"):
        done = forget(
            memory,
            caller,
            memory_id=candidate.target,
            action=candidate.action,
            operator=True,
        )
        _settle(memory, candidate, "accepted")
        return done
    context = Context(caller, layer, stamp(memory.now()), new_memory_id(), "review")
    ready = _ready(candidate)
    target = memory.store.get(layer, candidate.target) if candidate.target else None
    if target is None or candidate.action in ("new", "observe", "promote"):
        block = new_block(ready, context)
        result = Recorded(block.id, "NEW", "active", layer.kind.value, version=1)
        made = Plan(result, (BlockWrite(layer, block),), accepted=block.id)
    elif candidate.action == "over_time":
        made = plan_over_time(ready, target.block, context, None)
    else:
        made = plan_in_place(ready, target.block, context)
    row = rows.log_row(replace(candidate, state="accepted", updated_at=context.now))
    note = AuditNote("accept", "operator", layer.name, made.result.id, candidate.action, contents=(candidate.body,))
    kind = "note" if made.result.relation == "NEW" else "correction"
    return memory.committed(caller, replace(made, rows=(row,), notes=(note,)), ready, kind)


def reject(memory: TextMemory, candidate_id: str) -> None:
    """Reject a candidate; the same proposal stays rejected. Raises NotFound."""
    _settle(memory, _candidate(memory, candidate_id), "rejected")


def resolve(memory: TextMemory, caller: Caller, conflict_id: str, resolution: Resolution) -> Recorded | None:
    """Settle a conflict: keep the old, correct it, let it end now, or keep both. Raises NotFound."""
    conflict = next((item for item in rows.conflicts(memory.store) if item.id == conflict_id), None)
    if conflict is None or conflict.state != "open":
        raise NotFound("there is no such open conflict")
    candidate = _candidate(memory, conflict.candidate)
    actions = {"correction": "correct", "temporal_transition": "over_time", "both": "new"}
    result: Recorded | Forgotten | None = None
    if resolution == "keep":
        _settle(memory, candidate, "rejected")
    else:
        action = actions[resolution]
        _save(memory, replace(candidate, action=action))  # pyright: ignore[reportArgumentType]
        result = accept(memory, caller, candidate.id)
    done = replace(conflict, state="resolved", resolution=resolution, resolved_at=stamp(memory.now()))
    note = AuditNote("resolve", "operator", conflict.layer, conflict.target, resolution)
    memory.store.commit(Transaction(rows=(rows.log_row(done),), notes=(note,)))
    return result if isinstance(result, Recorded) else None


def open_conflicts(memory: TextMemory) -> list[Conflict]:
    """The conflicts that wait for a person."""
    return [item for item in rows.conflicts(memory.store) if item.state == "open"]


def confirm(memory: TextMemory, caller: Caller, memory_id: str) -> Block:
    """A person stands behind a memory that a model wrote: it may be resident from now on. Raises NotFound."""
    return _operator_change(memory, caller, memory_id, "confirm", authority=Authority.OPERATOR, consent=Consent.MANAGED)


def pin(memory: TextMemory, caller: Caller, memory_id: str, *, pinned: bool = True) -> Block:
    """Pin or unpin. Raises NotFound."""
    return _operator_change(memory, caller, memory_id, "pin", pinned=pinned)


def set_sensitivity(memory: TextMemory, caller: Caller, memory_id: str, sensitivity: Sensitivity) -> Block:
    """A person decides, in both directions. Raises NotFound."""
    return _operator_change(memory, caller, memory_id, "sensitivity", sensitivity=sensitivity)


def promote(memory: TextMemory, caller: Caller, memory_id: str) -> Block:
    """Copy a memory to the global layer in the operator's name; the old one is superseded by it. Raises NotFound."""
    item = memory.find(caller, memory_id)
    if item.layer == GLOBAL:
        raise ToolInput("id: the memory is global already")
    now = stamp(memory.now())
    new = replace(
        item.block, id=new_memory_id(), version=1, scope=GLOBAL.kind, project="", authority=Authority.OPERATOR,
        supersedes=(item.block.id,), created_at=now, updated_at=now,
    )  # fmt: skip
    old = replace(
        item.block, status=Status.SUPERSEDED, superseded_by=new.id, version=item.block.version + 1, updated_at=now
    )
    writes = (BlockWrite(GLOBAL, new), BlockWrite(item.layer, old, item.block.version, "promote"))
    note = AuditNote("promote", "operator", GLOBAL.name, new.id, "promote", contents=(new.body,))
    return memory.store.commit(Transaction(writes, notes=(note,)))[0]


def _operator_change(memory: TextMemory, caller: Caller, memory_id: str, change: str, **fields: object) -> Block:
    item: Located = memory.find(caller, memory_id)
    now = stamp(memory.now())
    changed = replace(item.block, version=item.block.version + 1, updated_at=now, **fields)  # pyright: ignore[reportArgumentType]
    note = AuditNote(change, "operator", item.layer.name, memory_id, change)
    write = BlockWrite(item.layer, changed, item.block.version, change)
    return memory.store.commit(Transaction((write,), notes=(note,)))[0]


# -- habits ----------------------------------------------------------------------------------------------------------
HabitGate = Literal["confirm", "promote", "disable", "delete"]


def gate_habit(memory: TextMemory, habit_id: str, gate: HabitGate) -> habits.Habit:
    """One human gate. Raises NotFound, or ToolInput with the gate's own reason."""
    habit = next((item for item in memory.habits() if item.id == habit_id), None)
    if habit is None:
        raise NotFound("there is no such habit")
    now = stamp(memory.now())
    steps = {"confirm": habits.confirm, "promote": habits.promote, "disable": habits.disable}
    found = habits.delete(habit, ts=now) if gate == "delete" else steps[gate](habit, ts=now)
    if isinstance(found, habits.Refusal):
        raise ToolInput(f"{found.code}: {found.message}")
    change: list[LogRow] = [LogRow(Log.SIGNALS, habits.to_row(found))]
    if gate == "delete":
        change.append(LogRow(Log.TOMBSTONES, {"id": habit.id, "pattern": habit.pattern, "ts": now}))
    note = AuditNote(f"habit-{gate}", "operator", "habit", habit.id, found.state)
    memory.store.commit(Transaction(rows=tuple(change), notes=(note,)))
    return found


# -- aging -----------------------------------------------------------------------------------------------------------
def consolidate(memory: TextMemory, layer: Layer, *, dry_run: bool = True, rules: AgingRules = RULES) -> AgingPlan:
    """What age and capacity would move in a layer; with `dry_run` False it is moved. Nothing is ever deleted."""
    last = next(
        (str(row.get("ts")) for row in memory.store.rows(Log.JOBS) if row.get("id") == f"aging:{layer.name}"), ""
    )
    now = memory.now()
    snapshot = memory.store.snapshot(layer)
    found = plan(layer.kind, snapshot.blocks, memory.activity.of, now, moment_of(last), rules)
    if dry_run:
        return found
    by_id = {block.id: block for block in snapshot.blocks}
    writes: list[BlockWrite] = []
    for step in found.steps:
        block = by_id[step.id]
        if step.kind == "archive":
            changed = moved(block, "forget", stamp(now))
            changed = replace(changed, flags=(*changed.flags, FLAG_AGED)) if changed else None
        else:
            changed = replace(block, status=Status.DORMANT, version=block.version + 1, updated_at=block.updated_at)
        if changed is not None:
            writes.append(BlockWrite(layer, changed, block.version, step.kind))
    row = LogRow(Log.JOBS, {"id": f"aging:{layer.name}", "ts": stamp(now), "held": found.held})
    notes = tuple(AuditNote(step.kind, "background", layer.name, step.id, "aging") for step in found.steps)
    memory.store.commit(Transaction(tuple(writes), (row,), notes, {layer: snapshot.revision} if writes else {}))
    return found


def _candidate(memory: TextMemory, candidate_id: str) -> Candidate:
    found = next((item for item in rows.candidates(memory.store) if item.id == candidate_id), None)
    if found is None or found.state not in ("pending", "conflict"):
        raise NotFound(_NO_CANDIDATE)
    return found


def _settle(memory: TextMemory, candidate: Candidate, state: Literal["accepted", "rejected"]) -> None:
    _save(memory, replace(candidate, state=state, updated_at=stamp(memory.now())))


def _save(memory: TextMemory, candidate: Candidate) -> None:
    note = AuditNote("review", "operator", candidate.layer, candidate.target or candidate.id, candidate.state)
    memory.store.commit(Transaction(rows=(rows.log_row(candidate),), notes=(note,)))


def _ready(candidate: Candidate) -> Ready:
    return Ready(
        writer=Authority.OPERATOR,
        topic=candidate.topic,
        title=candidate.title,
        body=candidate.body,
        kind=candidate.kind,
        tags=candidate.tags,
        columns=(),
        sensitivity=candidate.sensitivity,
        sources=candidate.sources,
        flags=candidate.flags,
        confidence=candidate.confidence,
    )


__all__ = [
    "ABSENT",
    "accept",
    "confirm",
    "consolidate",
    "gate_habit",
    "open_conflicts",
    "pending",
    "pin",
    "promote",
    "reject",
    "resolve",
    "seen_again",
    "set_sensitivity",
]
