"""Corrections, changes over time, and verdicts on a memory.

Owns: finding what is corrected, the two kinds of change, `expected_version`, verdicts. Does not own: gates, titles and
quotes (`notes`), forgetting.

A correction keeps the id (version + 1, the old state goes to history). A change over time closes the old memory at the
moment named and makes a new one that supersedes it. Both need at least the authority of what they change; else they
become a proposal that names its target. A verdict orders review and renewal, and never changes text, status or
residence.

Source: design page "The memory model", Lifecycle and gates; design page "Recall", Tools (memory_correct).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rlm_memory_host.contracts.memory import (
    AuditNote,
    Authority,
    Block,
    BlockWrite,
    Caller,
    Consent,
    Located,
    Status,
    new_memory_id,
)
from rlm_memory_host.errors import NotFound, ToolDenied, ToolInput, VersionConflict
from rlm_memory_host.textmemory import gates, planning, rows
from rlm_memory_host.textmemory.activity import Verdict
from rlm_memory_host.textmemory.forgetting import MOST_CHOICES, resolve
from rlm_memory_host.textmemory.gates import Outcome
from rlm_memory_host.textmemory.notes import Note, Ready, Recorded, prepare, title_from
from rlm_memory_host.textmemory.planning import Context, Plan
from rlm_memory_host.textmemory.sentences import fold
from rlm_memory_host.textmemory.service import ABSENT, TextMemory, refusal_text
from rlm_memory_host.textmemory.tombstones import standing_against
from rlm_memory_host.textmemory.validity import moment_of, parse_moment, stamp

Change = Literal["correction", "over_time"]


@dataclass(frozen=True, slots=True)
class Correction:
    """What a writer wants changed. `id` or `supersedes` (an id or a description) names the target."""

    text: str
    id: str = ""
    supersedes: str = ""
    quote: str = ""
    change: Change = "correction"
    valid_from: str = ""
    expected_version: int | None = None
    verdict: Verdict | None = None


def correct(
    memory: TextMemory,
    caller: Caller,
    correction: Correction,
    *,
    operator: bool = False,
    background: bool = False,
    tool: str = "",
) -> Recorded:
    """Correct one memory. Raises NotFound, VersionConflict with the current version, ToolDenied, GuardRejected."""
    found = _targets(memory, caller, correction)
    if len(found) > 1:
        choices = tuple((item.block.id, item.block.title) for item in found[:MOST_CHOICES])
        return Recorded("", "UPDATE", "confirm", found[0].layer.kind.value, choices=choices, reason="several fit")
    if not found:
        if correction.verdict and not correction.text.strip():
            raise NotFound(ABSENT)
        note = Note(correction.text, quote=correction.quote, valid_from=_valid_from(correction))
        return memory.record(caller, note, operator=operator, background=background, tool=tool)
    item = found[0]
    _check_version(item.block, correction)
    if correction.verdict is not None:
        memory.activity.judged(item.block.id, correction.verdict, stamp(memory.now()))
        if not correction.text.strip():
            return Recorded(item.block.id, "DUPLICATE", "active", item.layer.kind.value, version=item.block.version)
    ready = _ready(memory, caller, correction, item.block, operator=operator, background=background)
    return _decided(memory, caller, correction, item, ready, tool)


def _targets(memory: TextMemory, caller: Caller, correction: Correction) -> Sequence[Located]:
    if correction.id:
        return [memory.find(caller, correction.id)]
    wanted = correction.supersedes.strip()
    if not wanted:
        return []
    by_id = memory.store.find(memory.layers(caller), wanted)
    if by_id is not None:
        return [by_id]
    if wanted.startswith("mem_") and " " not in wanted:
        raise NotFound(ABSENT)
    return resolve(memory, caller, wanted, "hide")


def _check_version(block: Block, correction: Correction) -> None:
    expected = correction.expected_version
    if expected is not None and expected != block.version:
        raise VersionConflict(
            f"expected_version: the memory is at version {block.version} now, not {expected}; read it and decide again",
            current=block.version,
        )
    if block.status in (Status.HIDDEN, Status.ARCHIVED):
        raise ToolInput("id: the memory was forgotten or hidden; it has to be restored before it can be corrected")


def _valid_from(correction: Correction) -> str:
    return stamp(parse_moment(correction.valid_from, "valid_from")) if correction.valid_from else ""


def _ready(
    memory: TextMemory, caller: Caller, correction: Correction, block: Block, *, operator: bool, background: bool
) -> Ready:
    note = Note(
        correction.text,
        topic=block.topic,
        kind=block.kind,
        quote=correction.quote,
        sensitivity=block.sensitivity,
        valid_from=_valid_from(correction),
    )
    ready = prepare(note, caller, memory.message(caller), operator=operator, background=background)
    ready = memory.guarded(ready, note)
    if ready.writer.rank > block.authority.rank:
        return ready
    # A title that was taken from the old text says what is wrong now.
    was_taken = fold(block.title) == fold(title_from(block.body))
    return replace(ready, title=ready.title if was_taken else block.title, tags=block.tags)


def _decided(
    memory: TextMemory, caller: Caller, correction: Correction, item: Located, ready: Ready, tool: str
) -> Recorded:
    decision = gates.decide(ready.writer, item.layer.kind, ready.columns, has_cross_project_cue=True)
    if decision.outcome is Outcome.REFUSED:
        raise ToolDenied(refusal_text(ready.writer, decision.reason), "GATE_REFUSED")
    context = Context(caller, item.layer, stamp(memory.now()), new_memory_id(), tool)
    pool = memory.store.snapshot(item.layer).blocks
    gone = standing_against((block for block in pool if block.id != item.block.id), ready.writer, ready.body)
    if gone is not None:
        plan = planning.plan_tombstoned(ready, gone, context)
    elif (
        decision.outcome is not Outcome.ACTIVE
        or not gates.may_change(ready.writer, item.block.authority)
        or item.block.lock
    ):
        action = "over_time" if correction.change == "over_time" else "correct"
        plan = planning.plan_candidate(
            ready, context, "", action, item.block, "weaker-writer", rows.candidates(memory.store)
        )
    elif correction.change == "over_time" or correction.valid_from:
        plan = plan_over_time(ready, item.block, context, memory.now() if not correction.valid_from else None)
    elif fold(item.block.body) == fold(ready.body) and ready.writer is item.block.authority:
        return Recorded(item.block.id, "DUPLICATE", "duplicate", item.layer.kind.value, version=item.block.version)
    else:
        plan = plan_in_place(ready, item.block, context)
    try:
        return memory.committed(caller, plan, ready, "correction")
    except VersionConflict as error:
        raise VersionConflict(
            "the memory was changed by somebody else at the same time; read it and decide again", current=error.current
        ) from error


def plan_in_place(ready: Ready, block: Block, context: Context) -> Plan:
    """The same id with the corrected text; the state before goes to history."""
    changed = replace(
        block,
        title=ready.title,
        body=ready.body,
        tags=ready.tags,
        version=block.version + 1,
        status=Status.ACTIVE if block.status is Status.DORMANT else block.status,
        authority=ready.writer,
        consent=Consent.EXPLICIT if ready.writer is Authority.USER else block.consent,
        updated_at=context.now,
        sensitivity=max(block.sensitivity, ready.sensitivity, key=lambda item: item.rank),
        evidence="\n".join(item for item in (block.evidence, ready.evidence) if item),
        sources=tuple(dict.fromkeys((*block.sources, *ready.sources))),
        flags=tuple(dict.fromkeys((*block.flags, *ready.flags))),
    )
    result = Recorded(
        block.id, "UPDATE", "active", context.layer.kind.value, version=changed.version, warnings=ready.warnings,
        target=block.id,
    )  # fmt: skip
    write = BlockWrite(context.layer, changed, block.version, "correct")
    note = _note(context, ready, "correct", block)
    return Plan(result, (write,), notes=(note,), accepted=block.id)


def plan_over_time(ready: Ready, block: Block, context: Context, now: object) -> Plan:
    """Close the old memory at the moment from which the new one holds; both stay, linked. A future one waits."""
    since = context.now if now is not None or not ready.valid_from else ready.valid_from
    begins = moment_of(since)
    is_future = begins is not None and begins > (moment_of(context.now) or begins)
    new = replace(planning.new_block(ready, context), valid_from=since, supersedes=(block.id,), kind=block.kind)
    old = replace(
        block,
        version=block.version + 1,
        valid_to=since,
        status=block.status if is_future else Status.SUPERSEDED,
        superseded_by=new.id,
        updated_at=context.now,
    )
    result = Recorded(
        new.id, "UPDATE", "active", context.layer.kind.value, version=new.version, warnings=ready.warnings,
        target=block.id,
    )  # fmt: skip
    writes = (BlockWrite(context.layer, old, block.version, "supersede"), BlockWrite(context.layer, new))
    return Plan(result, writes, notes=(_note(context, ready, "over-time", block),), accepted=new.id)


def _note(context: Context, ready: Ready, op: str, block: Block) -> AuditNote:
    contents = (block.body, ready.body)
    return AuditNote(
        op, ready.writer.value, context.layer.name, block.id, "UPDATE", context.caller.session, context.tool, contents
    )
