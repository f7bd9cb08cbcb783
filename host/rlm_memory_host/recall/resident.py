"""The resident text: the few lines an agent always sees. Pure: the same memories give the same bytes.

Owns: order, lines, tiers, signature. Does not own: which memories may be resident (`textmemory.gates`), sending it.

A fixed total order without recency or use: kind block, priority, pinned, title, id. Whole items only; the last line
says how many were left out. Nothing here depends on time, hash seeds or the order of files.

Source: design page "Recall", Resident text; DSH memory plugin, Budgets and cache stability.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from rlm_memory_host.contracts.memory import Block, Kind, LayerKind, Located
from rlm_memory_host.recall.envelope import escaped
from rlm_memory_host.textmemory.gates import may_be_resident
from rlm_memory_host.textmemory.habits import Habit
from rlm_memory_host.textmemory.sentences import fold, split

Tier = Literal["full", "compact", "minimal", "single", "none"]
TIERS: Final[tuple[Tier, ...]] = ("full", "compact", "minimal", "single", "none")
LINE_CHARS: Final = 150
SURE: Final = 0.8

KIND_ORDER: Final[tuple[Kind, ...]] = (
    Kind.PERSON,
    Kind.PREFERENCE,
    Kind.RELATIONSHIP,
    Kind.STATE,
    Kind.DECISION,
    Kind.PROCEDURE,
    Kind.FACT,
    Kind.EPISODE,
    Kind.SOURCE,
)


@dataclass(frozen=True, slots=True)
class Frame:
    """The bounds of a tier: lines, characters, and the least that an item must be."""

    lines: int
    chars: int
    only_important: bool = False


FRAMES: Final[Mapping[Tier, Frame]] = {
    "full": Frame(24, 3_000),
    "compact": Frame(12, 1_500),
    "minimal": Frame(6, 800, only_important=True),
    "single": Frame(1, LINE_CHARS),
    "none": Frame(0, 0),
}
RIKO_CHARS: Final = 12_000


@dataclass(frozen=True, slots=True)
class Resident:
    """One rendering. `hash` is of the text's bytes; `omitted` counts what would have been shown with more room."""

    text: str
    tier: Tier
    signature: str
    hash: str
    included: tuple[str, ...] = ()
    omitted: int = 0
    reasons: tuple[str, ...] = ()


def eligible(items: Iterable[Located], contested: frozenset[str]) -> list[Located]:
    """The memories that may be resident, in their fixed order, each text once."""
    kept = [item for item in items if may_be_resident(item.block, contested=item.block.id in contested)]
    kept.sort(key=_order)
    seen: set[str] = set()
    unique: list[Located] = []
    for item in kept:
        key = fold(item.block.body)
        if key not in seen:
            seen.add(key)
            unique.append(item)
    return unique


def _order(item: Located) -> tuple[object, ...]:
    block = item.block
    return (KIND_ORDER.index(block.kind), block.priority, not block.pinned, fold(block.title), block.id)


def signature(items: Sequence[Located], habits: Sequence[Habit], tier: Tier, warning: str) -> str:
    """What the text depends on: sorted id:version:priority:content, habits, tier, warning."""
    parts = sorted(f"{b.id}:{b.version}:{b.priority}:{b.content_hash}" for b in (item.block for item in items))
    parts += sorted(f"{habit.id}:{habit.updated_at}:{habit.pattern}" for habit in habits)
    return hashlib.sha256("\n".join([*parts, tier, warning]).encode()).hexdigest()


def build(
    items: Iterable[Located],
    habits: Sequence[Habit] = (),
    *,
    contested: frozenset[str] = frozenset(),
    tier: Tier = "full",
    warning: str = "",
    chars: int | None = None,
) -> Resident:
    """The resident text of a caller's current memories and automatic habits."""
    shown = eligible(items, contested)
    frame = FRAMES[tier]
    room = chars if chars is not None and tier == "full" else frame.chars
    lines_most = frame.lines if chars is None or tier != "full" else frame.lines * 4
    sign = signature(shown, habits, tier, warning)
    if frame.only_important:
        shown = [item for item in shown if item.block.priority == "P0" and item.block.confidence >= SURE]
    entries = [(item.block.id, line_of(item)) for item in shown]
    entries += [(habit.id, f"- [habit] {escaped(habit.pattern)} (habit, {habit.id})") for habit in habits]
    if tier == "none" or not (entries or warning):
        return _resident([], tier, sign, (), len(entries))
    if tier == "single":
        return _resident([f"{len(entries)} memories; memory_search finds them"], tier, sign, (), len(entries))
    return _packed(entries, tier, sign, warning, lines_most, room)


def _packed(
    entries: list[tuple[str, str]], tier: Tier, sign: str, warning: str, lines_most: int, room: int
) -> Resident:
    tail = [f"Note: {escaped(warning)}"[:LINE_CHARS]] if warning else []
    lines: list[str] = []
    ids: list[str] = []
    for number, (memory_id, line) in enumerate(entries):
        last = number == len(entries) - 1 and len(ids) == number
        after = [*lines, line, *tail, *([] if last else [_left_out(len(entries))])]
        if len(line) > LINE_CHARS or len(after) > lines_most or len("\n".join(after)) > room:
            continue
        lines.append(line)
        ids.append(memory_id)
    omitted = len(entries) - len(ids)
    more = [_left_out(omitted)] if omitted else []
    return _resident([*lines, *tail, *more], tier, sign, tuple(ids), omitted)


def _left_out(count: int) -> str:
    return f"({count} more left out; memory_search finds them)"


def _resident(lines: list[str], tier: Tier, sign: str, ids: tuple[str, ...], omitted: int) -> Resident:
    text = "\n".join(lines)
    reasons = () if tier == "full" else (f"tier-{tier}",)
    return Resident(text, tier, sign, hashlib.sha256(text.encode()).hexdigest(), ids, omitted, reasons)


def line_of(item: Located) -> str:
    """`- [P0] ★title (layer, id) tags:… :: first sentence`, the sentence cut to fit, title and id never."""
    block: Block = item.block
    star = "★" if block.pinned else ""
    tags = f" tags:{','.join(escaped(tag) for tag in block.tags[:5])}" if block.tags else ""
    head = f"- [{block.priority}] {star}{escaped(block.title)} ({_layer(item)}, {block.id})"
    if len(head) + len(tags) <= LINE_CHARS:
        head += tags
    first = next((sentence.text for sentence in split(block.body)), "")
    if fold(first) == fold(block.title) or not first:
        return head
    room = LINE_CHARS - len(head) - 4
    text = escaped(first)
    if len(text) <= room:
        return f"{head} :: {text}"
    if room < 24:
        return head
    cut = text[: room - 1]
    cut = cut.rsplit(" ", 1)[0] if " " in cut[room // 2 :] else cut
    return f"{head} :: {cut[: cut.rfind('&')] if '&' in cut[-8:] and ';' not in cut[cut.rfind('&') :] else cut}…"


def _layer(item: Located) -> str:
    return item.layer.kind.value if item.layer.kind is not LayerKind.HABIT else "habit"


@dataclass(slots=True)
class ResidentCache:
    """The last valid text by caller: the same signature gives the same bytes, a failure keeps what was there."""

    last: dict[str, Resident] = field(default_factory=dict[str, Resident])
    sent: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    stable: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, key: str, made: Resident) -> Resident:
        """The text to use: the kept one when nothing that it depends on changed."""
        with self.lock:
            held = self.last.get(key)
            if held is not None and held.signature == made.signature:
                self.stable = self.stable and held.text == made.text
                return held
            self.last[key] = made
            return made

    def is_due(self, key: str, session: str, epoch: int) -> bool:
        """Whether a session has to be sent the text: it changed, or its context was compacted since."""
        with self.lock:
            held = self.last.get(key)
            mark = (held.hash if held else "", epoch)
            if self.sent.get(session) == mark:
                return False
            self.sent[session] = mark
            return True
