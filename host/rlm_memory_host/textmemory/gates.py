"""The gate table: what becomes of a write, by who writes, where and what. Pure functions, no exception to them.

Owns: the table, which column a text falls in (the stricter of its declared kind and the rules' own reading), who may
change what, which memories may be resident. Does not own: who the writer is (verified quotes, the caller), storing.

Source: design page "The memory model", Lifecycle and gates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

from rlm_memory_host.contracts.memory import (
    FLAG_INSTRUCTION_LIKE,
    Authority,
    Block,
    Caller,
    Kind,
    LayerKind,
    Sensitivity,
    Status,
)
from rlm_memory_host.textmemory import commands

Column = Literal["session", "project", "personal", "global", "habit"]
COLUMNS: Final[tuple[Column, ...]] = ("session", "project", "personal", "global", "habit")
PERSONAL_KINDS: Final = frozenset({Kind.PREFERENCE, Kind.PERSON, Kind.RELATIONSHIP})
WRITERS: Final = (Authority.OPERATOR, Authority.USER, Authority.MODEL, Authority.BACKGROUND, Authority.CHILD)


class Outcome(IntEnum):
    """What a write becomes, from the most permissive to the strictest."""

    ACTIVE = 0
    SIGNAL = 1
    """Only a habit signal is counted."""
    CANDIDATE = 2
    REFUSED = 3


_TABLE: Final[Mapping[Authority, Mapping[Column, Outcome]]] = {
    Authority.OPERATOR: {
        "session": Outcome.ACTIVE,
        "project": Outcome.ACTIVE,
        "personal": Outcome.ACTIVE,
        "global": Outcome.ACTIVE,
        "habit": Outcome.ACTIVE,
    },
    Authority.USER: {
        "session": Outcome.ACTIVE,
        "project": Outcome.ACTIVE,
        "personal": Outcome.ACTIVE,
        "global": Outcome.ACTIVE,
        "habit": Outcome.SIGNAL,
    },
    Authority.MODEL: {
        "session": Outcome.ACTIVE,
        "project": Outcome.ACTIVE,
        "personal": Outcome.CANDIDATE,
        "global": Outcome.CANDIDATE,
        "habit": Outcome.SIGNAL,
    },
    Authority.BACKGROUND: {
        "session": Outcome.CANDIDATE,
        "project": Outcome.CANDIDATE,
        "personal": Outcome.CANDIDATE,
        "global": Outcome.CANDIDATE,
        "habit": Outcome.SIGNAL,
    },
    Authority.CHILD: {
        "session": Outcome.ACTIVE,
        "project": Outcome.CANDIDATE,
        "personal": Outcome.REFUSED,
        "global": Outcome.REFUSED,
        "habit": Outcome.REFUSED,
    },
}


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome, the layer kind it holds for, and a note when that is not the one asked for."""

    outcome: Outcome
    layer: LayerKind
    reason: str
    note: str = ""


def decide(
    writer: Authority, layer: LayerKind, columns: Iterable[Column], *, has_cross_project_cue: bool = False
) -> Decision:
    """The table's answer: the strictest cell of the layer's column and those the text falls in.

    What is asked for the global layer goes to the project with a note unless the user's captured message speaks of all
    projects: a model may ask, the host decides. A child's request is refused and the operator's needs no cue.
    """
    if writer not in _TABLE:
        return Decision(Outcome.REFUSED, layer, "unknown-writer")
    note = ""
    needs_cue = writer in (Authority.USER, Authority.MODEL, Authority.BACKGROUND)
    if layer is LayerKind.GLOBAL and needs_cue and not has_cross_project_cue:
        layer, note = LayerKind.PROJECT, "kept in the project: the user's message does not speak of all projects"
    row = _TABLE[writer]
    wanted: set[Column] = {_column_of(layer), *columns}
    if note:
        wanted.discard("global")
    strictest = max(wanted, key=lambda column: (row[column], COLUMNS.index(column)))
    outcome = row[strictest]
    return Decision(outcome, layer, f"gate-{writer.value}-{strictest}", note)


def cell(writer: Authority, column: Column) -> Outcome:
    """One cell of the table."""
    return _TABLE[writer][column]


def _column_of(layer: LayerKind) -> Column:
    match layer:
        case LayerKind.SESSION:
            return "session"
        case LayerKind.PROJECT | LayerKind.PRESET:
            return "project"
        case LayerKind.GLOBAL:
            return "global"
        case LayerKind.HABIT:
            return "habit"


def columns_of(kind: Kind, *texts: str, sensitivity: Sensitivity = Sensitivity.NORMAL) -> tuple[Column, ...]:
    """The columns a text falls in beside its layer's: what it declares and what the rules read in it."""
    joined = "\n".join(texts)
    read = commands.is_preference(joined) or commands.is_personal(joined) or bool(commands.sensitivity_cue(joined))
    if kind in PERSONAL_KINDS or sensitivity is not Sensitivity.NORMAL or read:
        return ("personal",)
    return ()


def sensitivity_of(declared: Sensitivity, *texts: str) -> Sensitivity:
    """The stricter of what is declared and what the rules read; reading only tightens."""
    cue = commands.sensitivity_cue("\n".join(texts))
    read = {"sensitive": Sensitivity.SENSITIVE, "identifier": Sensitivity.PROVISIONAL}.get(cue, Sensitivity.NORMAL)
    return max(declared, read, key=lambda item: item.rank)


def writer_of(caller: Caller, *, quoted: bool, background: bool = False) -> Authority:
    """Who writes, as the host knows: a verified quote is the user's; a child stays a child whatever it quotes."""
    if caller.agent_kind == "child":
        return Authority.CHILD
    if background:
        return Authority.BACKGROUND
    return Authority.USER if quoted else Authority.MODEL


def may_change(writer: Authority, target: Authority) -> bool:
    """Whether `writer` has at least the authority of what it changes.

    An unreviewed hand edit may have been anybody's word: only a user or the operator changes it.
    """
    needed = Authority.USER.rank if target is Authority.UNREVIEWED else target.rank
    return writer.rank >= needed


def may_be_resident(block: Block, *, contested: bool = False) -> bool:
    """Whether a block may stand in the resident text: active, a person's word, normal, undisputed, no order."""
    return (
        block.status is Status.ACTIVE
        and block.authority in (Authority.OPERATOR, Authority.USER)
        and block.sensitivity is Sensitivity.NORMAL
        and block.kind not in (Kind.SOURCE,)
        and FLAG_INSTRUCTION_LIKE not in block.flags
        and not block.superseded_by
        and not contested
    )
