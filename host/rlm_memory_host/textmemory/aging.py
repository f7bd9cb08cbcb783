"""What time does to memories: expiry, dormancy, capacity. A plan, never a deletion. Pure functions.

Owns: the chain expires_at/expire_days -> dormant after 180 days unread (a read within the last 30 renews) -> over
capacity the oldest dormant -> archived; verdicts order the steps (wrong, stale, none, useful) and decide between the
equally old, never whether something moves. Does not own: doing it (`review.consolidate`), physical deletion (purge
only).

Pinned, P0 and user- or operator-written items never move by themselves. When the clock jumped by more than 30 days
since the last look, the whole chain is held and said so. Ages use the later of the stored times and now, so a clock
that goes back ages nothing.

Source: design page "The memory model", Lifecycle and gates (Aging); DSH memory plugin, Lifecycle; adversarial input 19.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from rlm_memory_host.contracts.memory import LAYER_CAPACITY, Authority, Block, LayerKind, Status
from rlm_memory_host.textmemory.activity import Use
from rlm_memory_host.textmemory.validity import moment_of

DORMANT_DAYS: Final = 180
RENEWAL_DAYS: Final = 30
SESSION_EXPIRE_DAYS: Final = 30
MAX_JUMP: Final = timedelta(days=30)

StepKind = Literal["expire", "dormant", "archive"]


@dataclass(frozen=True, slots=True)
class AgingRules:
    """`expire_days` None means off; the session layer has 30."""

    expire_days: int | None = None
    session_expire_days: int = SESSION_EXPIRE_DAYS
    dormant_days: int = DORMANT_DAYS
    renewal_days: int = RENEWAL_DAYS
    capacity: int = LAYER_CAPACITY


@dataclass(frozen=True, slots=True)
class Step:
    """One memory that would move, and why."""

    id: str
    kind: StepKind
    reason: str


@dataclass(frozen=True, slots=True)
class AgingPlan:
    """What would happen. `held` says that the clock cannot be trusted and nothing does."""

    steps: tuple[Step, ...] = ()
    held: bool = False


def is_protected(block: Block) -> bool:
    """Whether a block never moves by itself."""
    by_person = block.authority in (Authority.OPERATOR, Authority.USER, Authority.UNREVIEWED)
    return block.pinned or block.priority == "P0" or block.lock or by_person


def plan(
    layer: LayerKind,
    blocks: Sequence[Block],
    use_of: Callable[[str], Use],
    now: datetime,
    last_look: datetime | None,
    rules: AgingRules | None = None,
) -> AgingPlan:
    """The steps for one layer. `last_look` is the clock at the last plan, None for the first."""
    rules = rules or AgingRules()
    if last_look is not None and abs(now - last_look) > MAX_JUMP:
        return AgingPlan(held=True)
    steps: list[Step] = []
    dormant: list[tuple[datetime, Block]] = []
    kept = 0
    for block in blocks:
        if block.status not in (Status.ACTIVE, Status.DORMANT):
            continue
        kept += 1
        if is_protected(block):
            continue
        touched = _last_touch(block, use_of(block.id))
        age = max(now, touched) - touched if touched else timedelta()
        if block.status is Status.DORMANT:
            dormant.append((touched or now, block))
        elif reason := _expiry(layer, block, now, age, rules):
            steps.append(Step(block.id, "expire", reason))
        elif age > timedelta(days=rules.dormant_days) and not _is_renewed(use_of(block.id), now, rules):
            steps.append(Step(block.id, "dormant", f"unread for over {rules.dormant_days} days"))
    steps.sort(key=lambda step: verdict_order(use_of(step.id)))
    over = kept - rules.capacity
    oldest = sorted(dormant, key=lambda item: (item[0], verdict_order(use_of(item[1].id)), item[1].id))
    for _, block in oldest[: max(0, over)]:
        steps.append(Step(block.id, "archive", f"the layer is over {rules.capacity:,} memories"))
    return AgingPlan(tuple(steps))


def verdict_order(use: Use) -> int:
    """Where a verdict stands in an order of reviews and renewals: what was found wrong comes first."""
    return {"wrong": 0, "stale": 1, None: 2, "useful": 3}[use.verdict]


def _expiry(layer: LayerKind, block: Block, now: datetime, age: timedelta, rules: AgingRules) -> str:
    told = moment_of(dict(block.extra).get("expires_at", "").strip()) or moment_of(block.valid_to)
    if told is not None and told <= now:
        return "its end was told"
    days = rules.session_expire_days if layer is LayerKind.SESSION else rules.expire_days
    return f"older than {days} days" if days is not None and age > timedelta(days=days) else ""


def _last_touch(block: Block, use: Use) -> datetime | None:
    moments = [moment_of(text) for text in (block.updated_at, block.created_at, use.read_at)]
    known = [moment for moment in moments if moment is not None]
    return max(known) if known else None


def _is_renewed(use: Use, now: datetime, rules: AgingRules) -> bool:
    read = moment_of(use.read_at)
    return read is not None and now - read <= timedelta(days=rules.renewal_days)
