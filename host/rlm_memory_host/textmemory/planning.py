"""From a prepared note and what is on file to the writes that follow. Pure functions.

Owns: what each relation and each gate outcome does to blocks, candidates and conflicts. Does not own: reading and
committing (`service`), forgetting (`forgetting`), a person's reviews (`review`).

No plan raises the authority of a text: a stronger writer's refinement becomes a block of its own beside the weaker one,
and an update of a part takes that part out of the weaker block. A weaker writer's change becomes a candidate that
names its target, and never contests it.

Source: design page "The memory model", Lifecycle and gates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlm_memory_host.contracts.memory import (
    AuditNote,
    Authority,
    Block,
    BlockWrite,
    Caller,
    Candidate,
    CandidateAction,
    Conflict,
    Consent,
    Layer,
    LayerKind,
    LogRow,
    Status,
)
from rlm_memory_host.textmemory import gates, rows
from rlm_memory_host.textmemory.judge import Judgement, Relation, refined, remaining, updated
from rlm_memory_host.textmemory.notes import Ready, Recorded
from rlm_memory_host.textmemory.sentences import fold
from rlm_memory_host.textmemory.shelves import said_of


@dataclass(frozen=True, slots=True)
class Context:
    """What a plan needs of the moment: who, where, when, and a fresh id."""

    caller: Caller
    layer: Layer
    now: str
    fresh_id: str
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes, rows and notes to commit together, and what to answer. `repeats` is a memory said again."""

    result: Recorded
    writes: tuple[BlockWrite, ...] = ()
    rows: tuple[LogRow, ...] = ()
    notes: tuple[AuditNote, ...] = ()
    repeats: str = ""
    accepted: str = ""
    """The id of the block whose text was accepted: it is offered to a remote memory."""


def new_block(ready: Ready, context: Context, **more: object) -> Block:
    """The block that a note becomes."""
    by_user = ready.writer is Authority.USER
    block = Block(
        id=context.fresh_id,
        topic=ready.topic,
        title=ready.title,
        body=ready.body,
        evidence=ready.evidence,
        kind=ready.kind,
        authority=ready.writer,
        sensitivity=ready.sensitivity,
        consent=Consent.EXPLICIT if by_user else Consent.MANAGED if _is_operator(ready) else Consent.PENDING,
        created_at=context.now,
        updated_at=context.now,
        valid_from=ready.valid_from,
        valid_to=ready.valid_to,
        scope=context.layer.kind,
        project=context.caller.project or "" if context.layer.kind is LayerKind.PROJECT else "",
        priority=ready.priority,
        pinned=ready.pinned,
        tags=ready.tags,
        confidence=ready.confidence,
        sources=ready.sources,
        flags=ready.flags,
        source_session=context.caller.session if context.caller.session != "-" else "",
    )
    return replace(block, **more) if more else block  # pyright: ignore[reportArgumentType]


def plan_active(ready: Ready, judgement: Judgement, target: Block | None, context: Context, scope_note: str) -> Plan:
    """The gate said yes: what the relation does."""
    if target is None or judgement.relation is Relation.NEW:
        return _add(new_block(ready, context), "NEW", ready, context, scope_note)
    match judgement.relation:
        case Relation.DUPLICATE:
            return _repeat(ready, target, context, scope_note)
        case Relation.CONFLICT:
            return plan_conflict(ready, judgement, target, context, scope_note)
        case relation if not gates.may_change(ready.writer, target.authority) or target.lock:
            return plan_candidate(ready, context, scope_note, _action(relation), target, "weaker-writer")
        case Relation.REFINE:
            return _refine(ready, target, context, scope_note)
        case _:
            return _update(ready, target, context, scope_note)


def _add(block: Block, relation: str, ready: Ready, context: Context, scope_note: str, target: str = "") -> Plan:
    result = _answer(block, relation, ready, context, scope_note, target)
    note = _note(context, ready, "record", block.id, relation, block.body)
    return Plan(result, (BlockWrite(context.layer, block),), notes=(note,), accepted=block.id)


def _repeat(ready: Ready, target: Block, context: Context, scope_note: str) -> Plan:
    """The block stays as it is, unless a person's own words confirm what a weaker writer had written."""
    confirms = ready.writer.rank > target.authority.rank and ready.writer in (Authority.USER, Authority.OPERATOR)
    if confirms and fold(target.body) != fold(ready.body):
        return _add(new_block(ready, context), "REFINE", ready, context, scope_note, target.id)
    wakes = target.status is Status.DORMANT
    if not confirms and not wakes:
        result = replace(_answer(target, "DUPLICATE", ready, context, scope_note), state="duplicate")
        return Plan(result, repeats=target.id)
    changed = replace(target, status=Status.ACTIVE, version=target.version + 1, updated_at=context.now)
    if confirms:
        changed = replace(
            changed,
            authority=ready.writer,
            consent=Consent.EXPLICIT,
            body=ready.body,
            title=target.title if fold(target.title) == fold(ready.title) else ready.title,
            tags=ready.tags,
            evidence="\n".join(item for item in (target.evidence, ready.evidence) if item),
            sources=tuple(dict.fromkeys((*target.sources, *ready.sources))),
        )
    result = replace(_answer(changed, "DUPLICATE", ready, context, scope_note), state="duplicate")
    write = BlockWrite(context.layer, changed, target.version, "confirm" if confirms else "renew")
    note = _note(context, ready, "confirm" if confirms else "renew", target.id, "DUPLICATE", target.body)
    return Plan(result, (write,), notes=(note,), repeats=target.id)


def _refine(ready: Ready, target: Block, context: Context, scope_note: str) -> Plan:
    if ready.writer.rank > target.authority.rank:
        return _add(new_block(ready, context), "REFINE", ready, context, scope_note, target.id)
    return _change(target, refined(target.body, ready.body), "REFINE", ready, context, scope_note)


def _update(ready: Ready, target: Block, context: Context, scope_note: str) -> Plan:
    old = said_of(target)
    rest = remaining(old, ready.said)
    if ready.writer.rank > target.authority.rank and rest:
        shrunk = replace(target, body=rest, version=target.version + 1, updated_at=context.now)
        plan = _add(new_block(ready, context), "UPDATE", ready, context, scope_note, target.id)
        return replace(plan, writes=(BlockWrite(context.layer, shrunk, target.version, "update"), *plan.writes))
    return _change(target, updated(old, ready.said), "UPDATE", ready, context, scope_note)


def _change(target: Block, body: str, relation: str, ready: Ready, context: Context, scope_note: str) -> Plan:
    """The same id, one version on; sensitivity only tightens."""
    changed = replace(
        target,
        body=body,
        version=target.version + 1,
        status=Status.ACTIVE,
        authority=ready.writer,
        updated_at=context.now,
        sensitivity=max(target.sensitivity, ready.sensitivity, key=lambda item: item.rank),
        evidence="\n".join(item for item in (target.evidence, ready.evidence) if item),
        sources=tuple(dict.fromkeys((*target.sources, *ready.sources))),
        flags=tuple(dict.fromkeys((*target.flags, *ready.flags))),
    )
    result = _answer(changed, relation, ready, context, scope_note, target.id)
    write = BlockWrite(context.layer, changed, target.version, relation.lower())
    note = _note(context, ready, "record", target.id, relation, target.body, body)
    return Plan(result, (write,), notes=(note,), accepted=target.id)


def plan_conflict(ready: Ready, judgement: Judgement, target: Block, context: Context, scope_note: str) -> Plan:
    """The old block keeps its bytes; the new text waits. Only a writer of at least its authority contests it."""
    contests = judgement.contests and gates.may_change(ready.writer, target.authority)
    candidate = candidate_of(ready, context, "new", target.id, f"{judgement.ground or 'unrelated'}", state="conflict")
    conflict = Conflict(
        id=candidate.id.replace("cand_", "conf_"),
        layer=context.layer.name,
        target=target.id,
        candidate=candidate.id,
        reason=judgement.ground or "unrelated",
        contests=contests,
        confidence=judgement.confidence,
        created_at=context.now,
    )
    result = Recorded(
        candidate.id, "CONFLICT", "conflict", context.layer.kind.value, scope_note, warnings=ready.warnings,
        target=target.id, reason=conflict.reason,
    )  # fmt: skip
    note = _note(context, ready, "conflict", target.id, "CONFLICT", ready.body)
    return Plan(result, rows=(rows.log_row(candidate), rows.log_row(conflict)), notes=(note,))


def plan_candidate(
    ready: Ready,
    context: Context,
    scope_note: str,
    action: CandidateAction = "new",
    target: Block | None = None,
    reason: str = "gate",
    known: Sequence[Candidate] = (),
) -> Plan:
    """A proposal for a person. The same proposal again is counted, and a rejected one stays rejected."""
    candidate = candidate_of(ready, context, action, target.id if target else "", reason)
    before = next((item for item in known if item.id == candidate.id), None)
    if before is not None:
        candidate = replace(
            before,
            seen=before.seen + 1,
            updated_at=context.now,
            sessions=tuple(dict.fromkeys((*before.sessions, *candidate.sessions))),
        )
    relation = {"update": "UPDATE", "refine": "REFINE"}.get(action, "NEW")
    result = Recorded(
        candidate.id, relation, "candidate", context.layer.kind.value, scope_note, warnings=ready.warnings,
        target=candidate.target, reason=candidate.reason,
    )  # fmt: skip
    note = _note(context, ready, "propose", candidate.target or candidate.id, action, ready.body)
    return Plan(result, rows=(rows.log_row(candidate),), notes=(note,))


def candidate_of(
    ready: Ready, context: Context, action: CandidateAction, target: str, reason: str, *, state: str = "pending"
) -> Candidate:
    """The candidate of a note; its id follows from what it says, so that a repetition is the same candidate."""
    told = "\n".join((context.layer.name, action, target, fold(ready.title), fold(ready.body)))
    return Candidate(
        id="cand_" + hashlib.sha256(told.encode()).hexdigest()[:24],
        layer=context.layer.name,
        action=action,
        topic=ready.topic,
        title=ready.title,
        body=ready.body,
        kind=ready.kind,
        tags=ready.tags,
        writer=ready.writer,
        sensitivity=ready.sensitivity,
        target=target,
        state="conflict" if state == "conflict" else "pending",
        reason=reason,
        confidence=ready.confidence,
        sources=ready.sources,
        sessions=(context.caller.session,),
        flags=ready.flags,
        created_at=context.now,
        updated_at=context.now,
    )


def plan_tombstoned(ready: Ready, gone: Block, context: Context) -> Plan:
    """Refused, and shown to the person as seen again."""
    seen = replace(candidate_of(ready, context, "new", gone.id, "TOMBSTONED"), state="tombstoned")
    result = Recorded("", "NEW", "refused", context.layer.kind.value, reason="TOMBSTONED", warnings=ready.warnings)
    note = _note(context, ready, "refuse", gone.id, "TOMBSTONED", ready.body)
    return Plan(result, rows=(rows.log_row(seen),), notes=(note,))


def _answer(block: Block, relation: str, ready: Ready, context: Context, scope_note: str, target: str = "") -> Recorded:
    warnings = ready.warnings
    if block.authority is Authority.MODEL:
        warnings = (*warnings, "kept as the model's word: not in the resident text until a person confirms it")
    return Recorded(
        block.id, relation, "active", context.layer.kind.value, scope_note, block.version, warnings=warnings,
        target=target,
    )  # fmt: skip


def _note(context: Context, ready: Ready, op: str, target: str, code: str, *contents: str) -> AuditNote:
    return AuditNote(
        op, ready.writer.value, context.layer.name, target, code, context.caller.session, context.tool, contents
    )


def _action(relation: Relation) -> CandidateAction:
    return "refine" if relation is Relation.REFINE else "update"


def _is_operator(ready: Ready) -> bool:
    return ready.writer is Authority.OPERATOR
