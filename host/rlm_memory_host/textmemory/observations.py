"""Observations: what several anchors suggest and nobody said. Never a memory, whatever becomes of them.

Owns: which anchors hold, how an observation comes to count and ceases to, its rows in `observations.ndjson`. Does not
own: finding it (`recall.observed`), who thinks of one: an agent host, an operator.

anchored candidate -> active -> weakened -> invalidated. An anchor is a memory that a person stands behind, or a turn
in which the user spoke; an observation proves no other. Two distinct ones make a candidate. Three, from two sessions,
with a confidence of .8, and nothing against it, make it active by itself, if neither its words nor its anchors are
sensitive. What speaks against it weakens an active one; as many against as for invalidate it. An operator may activate
and invalidate; an invalidated one stays so until an operator says otherwise. An anchor that is forgotten, ended or gone
counts no more, and with fewer than two left the observation is not shown.

Source: design page "The memory model", Lifecycle and gates; Riko, Observation candidates and anchors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from rlm_memory_host.contracts.memory import (
    AuditNote,
    Authority,
    Block,
    Caller,
    Log,
    LogRow,
    Sensitivity,
    Status,
    TextStore,
    Transaction,
    default_layer,
)
from rlm_memory_host.errors import LimitExceeded, NotFound, ToolDenied, ToolInput
from rlm_memory_host.textmemory.gates import sensitivity_of
from rlm_memory_host.textmemory.sentences import fold
from rlm_memory_host.textmemory.service import TextMemory
from rlm_memory_host.textmemory.validity import holds, stamp

MAX_CHARS: Final = 600
MAX_ANCHORS: Final = 32
MAX_KEPT: Final = 500
"""Observations of one owner: an operator looks through them before there are more."""
MIN_ANCHORS: Final = 2
ACTIVE_ANCHORS: Final = 3
ACTIVE_SESSIONS: Final = 2
ACTIVE_CONFIDENCE: Final = 0.8
PREFIX: Final = "obs_"
_CONFIRMED: Final = frozenset({Authority.USER, Authority.OPERATOR})

State = Literal["candidate", "active", "weakened", "invalidated"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation. `anchors` speak for it, `against` against it: ids of memories and turns (`session:number`)."""

    id: str
    layer: str
    text: str
    anchors: tuple[str, ...]
    against: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    confidence: float = 0.0
    sensitivity: Sensitivity = Sensitivity.NORMAL
    state: State = "candidate"
    ts: str = ""


def judged(observation: Observation) -> Observation:
    """The observation in the state that its anchors give it. Pure; never out of `invalidated`."""
    one = observation
    if one.state == "invalidated":
        return one
    if one.against and len(one.against) >= len(one.anchors):
        return replace(one, state="invalidated")
    if one.against:
        return replace(one, state="weakened") if one.state == "active" else one
    supported = len(one.anchors) >= ACTIVE_ANCHORS and len(one.sessions) >= ACTIVE_SESSIONS
    sure = one.confidence >= ACTIVE_CONFIDENCE and one.sensitivity is Sensitivity.NORMAL
    return replace(one, state="active") if one.state == "candidate" and supported and sure else one


def propose(
    memory: TextMemory,
    caller: Caller,
    text: str,
    anchors: Sequence[str],
    *,
    confidence: float,
    against: Sequence[str] = (),
) -> Observation:
    """Keep an observation, or add anchors to the one that says the same.

    Args:
        text: what is inferred, at most 600 characters, in words of one's own.
        anchors, against: ids of memories of the caller's layers that a person stands behind, and of the user's turns.
        confidence: 0 to 1, of whoever infers.

    Raises ToolDenied for a child agent, ToolInput for anchors that do not hold and for fewer than two of them,
    GuardRejected, LimitExceeded, StoreError.
    """
    if caller.agent_kind == "child":
        raise ToolDenied("a child agent observes nothing; its parent may")
    said = _checked(text, confidence)
    memory.parts.guard({"observation": said}, Authority.BACKGROUND, "queue")
    layer = default_layer(caller, memory.parts.profile).name
    known = {item.id: item for item in kept(memory.store)}
    observation_id = _id_of(layer, said)
    before = known.get(observation_id) or Observation(observation_id, layer, said, ())
    if observation_id not in known and len(known) >= MAX_KEPT:
        raise LimitExceeded(f"there are {MAX_KEPT} observations already; an operator has to look through them")
    holding = _holding(memory, caller)
    supporting = _distinct("anchors", (*before.anchors, *anchors), holding, given=anchors)
    if len(supporting) < MIN_ANCHORS:
        raise ToolInput(f"anchors: an observation rests on {MIN_ANCHORS} distinct ones at least")
    opposing = _distinct("against", (*before.against, *against), holding, given=against)
    made = replace(
        before,
        anchors=tuple(supporting),
        against=tuple(name for name in opposing if name not in supporting),
        sessions=tuple(sorted({anchor.session for anchor in supporting.values() if anchor.session})),
        confidence=confidence,
        sensitivity=sensitivity_of(_strictest(before.sensitivity, supporting.values()), said),
        ts=stamp(memory.now()),
    )
    made = judged(made)
    _save(memory.store, made, "observe", caller)
    return made


def set_state(
    memory: TextMemory, caller: Caller, observation_id: str, state: Literal["active", "invalidated"]
) -> Observation:
    """An operator's word on an observation. It stays an observation. Raises NotFound, StoreError."""
    layers = {layer.name for layer in memory.layers(caller)}
    found = next((item for item in kept(memory.store) if item.id == observation_id and item.layer in layers), None)
    if found is None:
        raise NotFound("no such observation", "MEMORY_NOT_FOUND")
    changed = replace(found, state=state, ts=stamp(memory.now()))
    _save(memory.store, changed, f"observation-{state}", caller)
    return changed


def kept(store: TextStore) -> list[Observation]:
    """Every observation on file, in the order in which they came; a row that cannot be read is left out."""
    read = (_from_row(row) for row in store.rows(Log.OBSERVATIONS))
    return [item for item in read if item is not None]


def standing(memory: TextMemory, caller: Caller) -> list[Observation]:
    """The active observations of the caller's layers that still have two anchors."""
    layers = {layer.name for layer in memory.layers(caller)}
    active = [item for item in kept(memory.store) if item.state == "active" and item.layer in layers]
    if not active:
        return []
    holding = _holding(memory, caller)
    return [item for item in active if sum(holding(name) is not None for name in item.anchors) >= MIN_ANCHORS]


# -- anchors -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Anchor:
    """What an anchor that holds is worth: the session that it is from ("" for none), and how it may be shown."""

    session: str
    sensitivity: Sensitivity


Holding = Callable[[str], _Anchor | None]
"""An anchor by its id, None where it does not hold."""


def _holding(memory: TextMemory, caller: Caller) -> Holding:
    view = memory.shelves.view(memory.layers(caller))
    suppressed = frozenset(source for block in view.gone() for source in block.sources)
    turns: dict[str, dict[str, _Anchor]] = {}

    def of_session(session: str) -> dict[str, _Anchor]:
        if session not in turns:
            spoken = (each for each in memory.store.evidence(session) if each.origin == each.speaker == "user")
            turns[session] = {each.id: _Anchor(session, sensitivity_of(each.sensitivity, each.text)) for each in spoken}
        return turns[session]

    def anchor(name: str) -> _Anchor | None:
        key = view.where(name)
        block = view.block(*key) if key is not None else None
        if block is not None:
            return _Anchor(block.source_session, block.sensitivity) if _is_anchor(block, memory) else None
        session, colon, number = name.rpartition(":")
        if not colon or not number.isdecimal() or name in suppressed:
            return None
        return of_session(session).get(name)

    return anchor


def _strictest(declared: Sensitivity, anchors: Iterable[_Anchor]) -> Sensitivity:
    return max(declared, *(anchor.sensitivity for anchor in anchors), key=lambda item: item.rank)


def _is_anchor(block: Block, memory: TextMemory) -> bool:
    return block.status is Status.ACTIVE and block.authority in _CONFIRMED and holds(block, memory.now())


def _distinct(what: str, names: Iterable[str], holding: Holding, *, given: Iterable[str]) -> dict[str, _Anchor]:
    """The anchors that hold, each once. One that was just given and does not hold is an error."""
    wanted = set(given)
    found: dict[str, _Anchor] = {}
    for name in dict.fromkeys(names):
        anchor = holding(name) if isinstance(cast("object", name), str) else None
        if anchor is not None:
            found[name] = anchor
        elif name in wanted:
            kind = (
                "an observation proves no other"
                if str(name).startswith(PREFIX)
                else "no turn of the user and no memory"
            )
            raise ToolInput(f"{what}: {str(name)[:80]!r} does not hold: {kind} that a person stands behind")
    if len(found) > MAX_ANCHORS:
        raise ToolInput(f"{what}: at most {MAX_ANCHORS}")
    return found


def _checked(text: str, confidence: float) -> str:
    said = " ".join(text.split())
    if not said or len(said) > MAX_CHARS:
        raise ToolInput(f"text: 1 to {MAX_CHARS} characters")
    if not (math.isfinite(confidence) and 0 <= confidence <= 1):
        raise ToolInput("confidence: a number from 0 to 1")
    return said


# -- rows --------------------------------------------------------------------------------------------------------------
def _id_of(layer: str, text: str) -> str:
    return PREFIX + hashlib.sha256(f"{layer}\n{fold(text)}".encode()).hexdigest()[:24]


def _save(store: TextStore, item: Observation, op: str, caller: Caller) -> None:
    row: dict[str, Any] = {
        "id": item.id,
        "layer": item.layer,
        "text": item.text,
        "anchors": list(item.anchors),
        "against": list(item.against),
        "sessions": list(item.sessions),
        "confidence": item.confidence,
        "sensitivity": item.sensitivity.value,
        "state": item.state,
        "ts": item.ts,
    }
    note = AuditNote(op, caller.agent_kind, target=item.id, code=item.state.upper(), contents=(item.text,))
    store.commit(Transaction(rows=(LogRow(Log.OBSERVATIONS, row),), notes=(note,)))


def _from_row(row: Mapping[str, Any]) -> Observation | None:
    texts = [row.get(name) for name in ("id", "layer", "text", "ts")]
    lists = [row.get(name) for name in ("anchors", "against", "sessions")]
    state, confidence = row.get("state"), row.get("confidence")
    if not all(isinstance(text, str) for text in texts) or not isinstance(confidence, int | float):
        return None
    if state not in ("candidate", "active", "weakened", "invalidated"):
        return None
    if not all(isinstance(names, list) for names in lists):
        return None
    try:
        sensitivity = Sensitivity(str(row.get("sensitivity")))
    except ValueError:
        return None
    observation_id, layer, text, ts = map(str, texts)
    anchors, against, sessions = (tuple(map(str, cast("list[Any]", names))) for names in lists)
    return Observation(
        observation_id, layer, text, anchors, against, sessions, float(confidence), sensitivity, state, ts
    )
