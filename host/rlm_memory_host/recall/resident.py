"""The resident text: the few lines an agent always sees. Pure: the same memories give the same bytes.

Owns: order, lines, tiers, signature. Does not own: which memories may be resident (`textmemory.gates`), sending it.

A fixed total order without recency or use: kind block, priority, pinned, title, id. Whole items only; the last line
says how many were left out. Nothing here depends on time, hash seeds or the order of files.

Source: design page "Recall", Resident text; DSH memory plugin, Budgets and cache stability.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from rlm_memory_host.contracts.memory import Block, Kind, LayerKind, Located
from rlm_memory_host.recall.envelope import escaped
from rlm_memory_host.textmemory.gates import may_be_resident
from rlm_memory_host.textmemory.habits import Habit
from rlm_memory_host.textmemory.sentences import fold, split

Tier = Literal["full", "compact", "minimal", "single", "none"]
TIERS: Final[tuple[Tier, ...]] = ("full", "compact", "minimal", "single", "none")
LINE_CHARS: Final = 150
KEPT_SESSIONS: Final = 512
"""Texts and sessions whose text is remembered; one that was let go is made, and sent, again."""
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
HABIT_MARK: Final = "- [habit] "


@dataclass(frozen=True, slots=True)
class Resident:
    """One rendering. `hash` is of the text's bytes; `omitted` counts what would have been shown with more room.

    `basis` is the signature without the tier: it changes only with what the text says.
    """

    text: str
    tier: Tier
    signature: str
    hash: str
    included: tuple[str, ...] = ()
    omitted: int = 0
    reasons: tuple[str, ...] = ()
    basis: str = ""


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
    basis = signature(shown, habits, "full", warning)
    if frame.only_important:
        shown = [item for item in shown if is_important(item.block)]
    entries = [(item.block.id, line_of(item)) for item in shown]
    entries += [(habit.id, habit_line(habit)) for habit in habits]
    made = Resident("", tier, sign, "", basis=basis)
    if tier == "none" or not (entries or warning):
        return _resident(made, [], (), len(entries))
    if tier == "single":
        return _resident(made, [f"{len(entries)} memories; memory_search finds them"], (), len(entries))
    tail = [f"Note: {escaped(warning)}"[:LINE_CHARS]] if warning else []
    return _packed(made, entries, tail, lines_most, room)


def is_important(block: Block) -> bool:
    """Whether a memory stays under pressure: P0, and sure."""
    return block.priority == "P0" and block.confidence >= SURE


def shortened(made: Resident, room: int) -> Resident:
    """The text within `room` characters: whole lines in their order, and how many more were left out; "" for none."""
    if len(made.text) <= room:
        return made
    lines = made.text.split("\n")
    entries = list(zip(made.included, lines, strict=False))
    tail = lines[len(entries) :]
    before = made.omitted if entries else 0
    packed = _packed(made, entries, tail[:-1] if before else tail, len(lines) + 1, room, before)
    return packed if packed.included else _resident(made, [], (), len(entries) + made.omitted)


def without_lines(made: Resident, still_said: Collection[str]) -> Resident:
    """The text without the memories whose line is not among those that are still said; uncounted."""
    lines = made.text.split("\n")
    entries = [pair for pair in zip(made.included, lines, strict=False) if pair[1] in still_said]
    if len(entries) == len(made.included):
        return made
    kept = [*(line for _, line in entries), *lines[len(made.included) :]]
    return _resident(made, kept, tuple(memory_id for memory_id, _ in entries), made.omitted)


def habit_line(habit: Habit) -> str:
    """`- [habit] pattern (habit, id)`."""
    return f"{HABIT_MARK}{escaped(habit.pattern)} (habit, {habit.id})"


def _packed(
    made: Resident, entries: list[tuple[str, str]], tail: list[str], lines_most: int, room: int, before: int = 0
) -> Resident:
    lines: list[str] = []
    ids: list[str] = []
    for number, (memory_id, line) in enumerate(entries):
        last = number == len(entries) - 1 and len(ids) == number and not before
        after = [*lines, line, *tail, *([] if last else [_left_out(len(entries) + before)])]
        if len(line) > LINE_CHARS or len(after) > lines_most or len("\n".join(after)) > room:
            continue
        lines.append(line)
        ids.append(memory_id)
    omitted = before + len(entries) - len(ids)
    more = [_left_out(omitted)] if omitted else []
    return _resident(made, [*lines, *tail, *more], tuple(ids), omitted)


def _left_out(count: int) -> str:
    return f"({count} more left out; memory_search finds them)"


def _resident(made: Resident, lines: list[str], ids: tuple[str, ...], omitted: int) -> Resident:
    text = "\n".join(lines)
    reasons = () if made.tier == "full" else (f"tier-{made.tier}",)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return replace(made, text=text, hash=digest, included=ids, omitted=omitted, reasons=reasons)


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


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a session's context holds: which text, of which epoch, how rich it was, and which memories it shows."""

    basis: str
    epoch: int
    tier: Tier
    included: frozenset[str]


@dataclass(slots=True)
class ResidentCache:
    """The last valid texts by caller and tier: one signature gives the same bytes, a failure keeps what was there."""

    last: dict[tuple[str, Tier], Resident] = field(default_factory=dict[tuple[str, Tier], Resident])
    sent: dict[str, _Sent] = field(default_factory=dict[str, _Sent])
    stable: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, key: str, made: Resident) -> Resident:
        """The text to use: the kept one when nothing that it depends on changed."""
        with self.lock:
            held = self.last.get((key, made.tier))
            if held is not None and held.signature == made.signature:
                self.stable = self.stable and held.text == made.text
                return held
            self.last[key, made.tier] = made
            _bounded(self.last)
            return made

    def held(self, key: str, tier: Tier) -> Resident | None:
        """The last valid text of a caller that is no richer than a tier; None where none was made yet."""
        with self.lock:
            kept = (self.last.get((key, lower)) for lower in TIERS[TIERS.index(tier) :])
            return next((made for made in kept if made is not None), None)

    def in_context(self, made: Resident, session: str, epoch: int) -> frozenset[str] | None:
        """The memories that a session's context shows already; None where it has to be sent this text.

        So it has when what the text says changed, when the context was compacted, and when the context holds it only as
        a lower tier. A lower tier of what is there already would cost room and say less.
        """
        with self.lock:
            sent = self.sent.get(session)
            if sent is None or (sent.basis, sent.epoch) != (made.basis, epoch):
                return None
            return sent.included if TIERS.index(made.tier) >= TIERS.index(sent.tier) else None

    def mark_sent(self, made: Resident, session: str, epoch: int) -> None:
        """A session was sent this text."""
        with self.lock:
            self.sent[session] = _Sent(made.basis, epoch, made.tier, frozenset(made.included))
            _bounded(self.sent)


def _bounded(kept: dict[Any, Any]) -> None:
    """Let go of what was put there first."""
    while len(kept) > KEPT_SESSIONS:
        kept.pop(next(iter(kept)))
