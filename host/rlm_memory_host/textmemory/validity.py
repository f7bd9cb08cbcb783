"""When something holds: [from, to) in UTC. Pure functions.

Owns: parsing times, whether a block holds at a moment, which earlier state of a block held then. Does not own: clocks.

Source: design page "The memory model", Lifecycle and gates (Validity); adversarial input 19.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time

from rlm_memory_host.contracts.memory import Block, HistoryEntry, Status
from rlm_memory_host.errors import ToolInput


def stamp(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds, as blocks carry it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_moment(text: str, argument: str) -> datetime:
    """A date (its first moment) or a time; without a zone it is UTC. Raises ToolInput naming the argument."""
    try:
        if len(text) == 10:
            return datetime.combine(date.fromisoformat(text), time.min, UTC)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ToolInput(f"{argument}: must be an ISO date or time, such as 2026-08-21") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def moment_of(text: str) -> datetime | None:
    """A stored time; None where there is none or it cannot be read."""
    try:
        return parse_moment(text, "") if text else None
    except ToolInput:
        return None


def holds(block: Block, at: datetime) -> bool:
    """Whether `at` lies in the block's [valid_from, valid_to); a missing end is open."""
    start, end = moment_of(block.valid_from), moment_of(block.valid_to)
    return (start is None or start <= at) and (end is None or at < end)


def existed(block: Block, at: datetime) -> bool:
    """Whether it was known at `at`, or is told to have held then."""
    created = moment_of(block.valid_from) or moment_of(block.created_at)
    return created is None or created <= at


def is_current(block: Block, now: datetime) -> bool:
    """Whether it is active and holds now."""
    return block.status is Status.ACTIVE and holds(block, now)


def state_at(block: Block, history: Iterable[HistoryEntry], at: datetime) -> Block | None:
    """The state of a block that was current at `at`: the block itself, or the earlier state that stood then.

    Forgotten and hidden blocks stay out of the past as well.
    """
    if block.status in (Status.HIDDEN, Status.ARCHIVED):
        return None
    updated = moment_of(block.updated_at)
    told = bool(block.valid_from)
    if (updated is None or updated <= at or told) and existed(block, at):
        return block if holds(block, at) else None
    earlier = sorted(history, key=lambda entry: -entry.number)
    for entry in earlier:
        then = moment_of(entry.block.updated_at)
        if (then is None or then <= at) and existed(entry.block, at):
            return entry.block if holds(entry.block, at) else None
    return None
