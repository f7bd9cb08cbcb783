"""A person says again what was forgotten or hidden: that very memory comes back, in their words. Pure.

Owns: that plan. Does not own: what refuses everybody else (`tombstones`).

Source: design page "The memory model", Lifecycle and gates (Forget: the user's own quote or the operator lifts it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlm_memory_host.contracts.memory import AuditNote, Authority, Block, BlockWrite, Consent, Status
from rlm_memory_host.textmemory.notes import Ready, Recorded
from rlm_memory_host.textmemory.planning import Context, Plan
from rlm_memory_host.textmemory.tombstones import is_same, is_tombstone


def plan_lift(ready: Ready, blocks: Sequence[Block], context: Context) -> Plan | None:
    """A person says again what was forgotten or hidden: that memory comes back in their words. None where none fits."""
    if ready.writer not in (Authority.USER, Authority.OPERATOR):
        return None
    gone = next((item for item in blocks if is_tombstone(item) and is_same(ready.body, item.body)), None)
    if gone is None:
        return None
    changed = replace(
        gone,
        status=Status.ACTIVE,
        version=gone.version + 1,
        body=ready.body,
        title=ready.title,
        authority=ready.writer,
        consent=Consent.EXPLICIT if ready.writer is Authority.USER else Consent.MANAGED,
        evidence="\n".join(item for item in (gone.evidence, ready.evidence) if item),
        sources=tuple(dict.fromkeys((*gone.sources, *ready.sources))),
        tags=ready.tags,
        updated_at=context.now,
    )
    note = AuditNote(
        "restore",
        ready.writer.value,
        context.layer.name,
        gone.id,
        "said-again",
        context.caller.session,
        context.tool,
        (ready.body,),
    )
    result = Recorded(
        gone.id, "UPDATE", "active", context.layer.kind.value, version=changed.version,
        warnings=(*ready.warnings, "a forgotten memory was brought back, since the user said it again"), target=gone.id,
    )  # fmt: skip
    return Plan(result, (BlockWrite(context.layer, changed, gone.version, "restore"),), notes=(note,), accepted=gone.id)
