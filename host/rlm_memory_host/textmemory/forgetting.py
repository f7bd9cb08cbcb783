"""Forget, hide, restore: by the operator, or by the user's own words about that very memory. Pure, then one commit.

Owns: which cue allows what, what a block becomes, what remains elsewhere. Does not own: reading cues (`commands`),
physical deletion (purge, operator only).

The cue is checked in the sentence that names the target. A negated cue refuses; two classes at once, or a sentence
that only points ("forget that") for forget and restore, give a confirmation list; no cue makes a proposal that names
its target and leaves it as it is.

Source: design page "The memory model", Lifecycle and gates (Forget); adversarial input 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from rlm_memory_host.contracts.memory import (
    AuditNote,
    Authority,
    Block,
    BlockWrite,
    Caller,
    Candidate,
    Located,
    Status,
    Transaction,
)
from rlm_memory_host.errors import NotFound, ToolDenied, ToolInput
from rlm_memory_host.textmemory import aliases, rows
from rlm_memory_host.textmemory.commands import Action, Asked, asked_about, names_target
from rlm_memory_host.textmemory.quotes import statements, verify
from rlm_memory_host.textmemory.sentences import features, fold, overlap
from rlm_memory_host.textmemory.service import ABSENT, TextMemory
from rlm_memory_host.textmemory.validity import stamp

MOST_CHOICES: Final = 5
REMAINS: Final = ("evidence", "history", "messages already delivered to a remote memory", "exports")
Verdict = Literal["allowed", "negated", "ambiguous", "pointing", "no-cue"]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What became of the request. `remains` says where the text still is after a forget."""

    id: str
    action: Action
    state: Literal["done", "candidate", "confirm", "unchanged"]
    version: int = 0
    title: str = ""
    remains: tuple[str, ...] = ()
    raw_session_retained: bool = False
    withdrawn: int = 0
    choices: tuple[tuple[str, str], ...] = ()
    reason: str = ""


def verdict(asked: Asked, action: Action) -> Verdict:
    """What a user's message says about an action on one target."""
    if action in asked.actions:
        if asked.is_ambiguous:
            return "ambiguous"
        return "allowed" if asked.by_name or action == "hide" else "pointing"
    if action in asked.negated:
        return "negated"
    return "ambiguous" if asked.is_ambiguous else "no-cue"


def forget(
    memory: TextMemory,
    caller: Caller,
    *,
    memory_id: str = "",
    target: str = "",
    action: Action = "forget",
    quote: str = "",
    operator: bool = False,
    tool: str = "",
) -> Forgotten:
    """Forget, hide or restore one memory. Raises NotFound, ToolDenied (CUE_NEGATED, GATE_REFUSED), ToolInput."""
    if bool(memory_id) == bool(target):
        raise ToolInput("id, target: give exactly one of them")
    if caller.agent_kind == "child" and not operator:
        raise ToolDenied("a child agent may not forget, hide or restore memories", "GATE_REFUSED")
    found = [memory.find(caller, memory_id)] if memory_id else resolve(memory, caller, target, action)
    if not found:
        raise NotFound(ABSENT)
    if len(found) > 1:
        return _choose(found, action, "several memories fit")
    item = found[0]
    if not operator:
        message = memory.message(caller)
        text = message.text if message is not None else None
        if quote and not verify(text, quote).verified and not _is_request(text, quote):
            text = None
        others = aliases.names_of((item.layer.name, item.block.id), aliases.kept(memory.store))
        names = (item.block.title, item.block.body, *others, *((target,) if target else ()))
        asked = asked_about(text, names, item.block.id)
        match verdict(asked, action):
            case "negated":
                raise ToolDenied(f"the user's sentence says not to {action} it", "CUE_NEGATED")
            case "ambiguous":
                return _choose([item], action, "the user's sentence asks for more than one thing")
            case "pointing" if not _was_spoken_of(memory, caller, item.block):
                return _choose([item], action, "the user's sentence does not name the memory")
            case "no-cue":
                return _propose(memory, caller, item, action, tool)
            case _:
                pass
    return _done(memory, caller, item, action, Authority.OPERATOR if operator else Authority.USER, tool)


def resolve(memory: TextMemory, caller: Caller, target: str, action: Action) -> list[Located]:
    """The memories that a description fits: one said, titled or called so, else those it shares most words with."""
    wanted = features(target)
    pool = [item for item in memory.blocks(caller) if _may_move(item.block, action)]
    called = {alias.key for alias in aliases.kept(memory.store) if fold(alias.name) == fold(target)}
    exact = [
        item
        for item in pool
        if fold(target) in (fold(item.block.title), fold(item.block.body)) or (item.layer.name, item.block.id) in called
    ]
    if exact:
        return exact
    scored: list[tuple[float, Located]] = []
    for item in pool:
        text = f"{item.block.title}\n{item.block.body}"
        share = len(wanted & features(text)) / len(wanted) if wanted else 0.0
        if (share >= 0.5 and names_target(target, (item.block.title, item.block.body))) or share == 1.0:
            scored.append((share + overlap(wanted, features(item.block.title)) / 10, item))
    scored.sort(key=lambda pair: (-pair[0], pair[1].block.id))
    return [item for score, item in scored if score >= scored[0][0] - 0.05][: MOST_CHOICES + 1]


def _may_move(block: Block, action: Action) -> bool:
    if action == "restore":
        return block.status in (Status.HIDDEN, Status.ARCHIVED)
    if action == "hide":
        return block.status in (Status.ACTIVE, Status.DORMANT)
    return block.status is not Status.ARCHIVED


def _is_request(message: str | None, quote: str) -> bool:
    """Whether a quote is a whole sentence that asks politely ("could you forget …?")."""
    return any(fold(quote) == fold(statement.text) for statement in statements(message or ""))


def _was_spoken_of(memory: TextMemory, caller: Caller, block: Block) -> bool:
    """Whether the last two turns named the memory, so that "that" can only mean it."""
    recent = memory.parts.captured.recent(caller.session, 2)[:-1]
    return any(names_target(message.text, (block.title, block.body), block.id) for message in recent)


def _choose(found: Sequence[Located], action: Action, why: str) -> Forgotten:
    choices = tuple((item.block.id, item.block.title) for item in found[:MOST_CHOICES])
    return Forgotten("", action, "confirm", choices=choices, reason=why)


def _propose(memory: TextMemory, caller: Caller, item: Located, action: Action, tool: str) -> Forgotten:
    now = stamp(memory.now())
    block = item.block
    candidate = Candidate(
        id=f"cand_{action}_{block.id}",
        layer=item.layer.name,
        action=action,
        topic=block.topic,
        title=block.title,
        body="",
        kind=block.kind,
        writer=Authority.MODEL,
        target=block.id,
        reason="no-user-cue",
        sessions=(caller.session,),
        created_at=now,
        updated_at=now,
    )
    note = AuditNote("propose", "model", item.layer.name, block.id, action, caller.session, tool)
    memory.store.commit(Transaction(rows=(rows.log_row(candidate),), notes=(note,)))
    return Forgotten(block.id, action, "candidate", block.version, block.title, reason="no-user-cue")


def moved(block: Block, action: Action, now: str) -> Block | None:
    """The block after an action; None when it is there already."""
    status = {"forget": Status.ARCHIVED, "hide": Status.HIDDEN, "restore": Status.ACTIVE}[action]
    if block.status is status:
        return None
    return replace(block, status=status, version=block.version + 1, updated_at=now)


def _done(memory: TextMemory, caller: Caller, item: Located, action: Action, writer: Authority, tool: str) -> Forgotten:
    changed = moved(item.block, action, stamp(memory.now()))
    block = item.block
    if changed is None or not _may_move(block, action):
        return Forgotten(block.id, action, "unchanged", block.version, block.title, reason=block.status.value)
    change = {"forget": "archive", "hide": "hide", "restore": "restore"}[action]
    note = AuditNote(action, writer.value, item.layer.name, block.id, change, caller.session, tool, (block.body,))
    memory.store.commit(Transaction((BlockWrite(item.layer, changed, block.version, change),), notes=(note,)))
    withdrawn = 0
    if action == "forget":
        withdrawn = memory.parts.take_back(block.id)
    return Forgotten(
        block.id,
        action,
        "done",
        changed.version,
        block.title,
        REMAINS if action == "forget" else (),
        action == "forget",
        withdrawn,
    )
