"""Habits: corrections that a user repeats become, through two human gates, something an agent is told at start.

Owns: detecting a correction in the user's own words, counting sessions, the states and their gates, tombstones. Does
not own: storing (`habitstore`), the optional model's transport (`judging`), what is injected (`recall.resident`).

signal -> pending (threshold of signals) -> suggested (human gate 1) -> auto (human gate 2, seen in >= 2 sessions).
A model never moves a habit; repeats within one session count once. A deleted pattern leaves a tombstone: it is shown
to the person as seen again and never learned again.

Source: design page "The memory model", Lifecycle and gates; DSH memory plugin, Habit pipeline; adversarial input 23.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from rlm_memory_host.storage.tokens import normalise
from rlm_memory_host.textmemory.polarity import is_negative
from rlm_memory_host.textmemory.quotes import own_statements, without_quoted
from rlm_memory_host.textmemory.sentences import features, fold, jaccard

THRESHOLD: Final = 3
"""Signals from which a pattern is proposed."""
MIN_SESSIONS_FOR_AUTO: Final = 2
MAX_SEGMENT: Final = 400
"""Characters of a segment that is looked at and kept."""
SAME_PATTERN: Final = 0.6
"""Jaccard of stems from which two segments are one pattern."""
State = Literal["signal", "pending", "suggested", "auto", "disabled", "deleted"]

_ENGLISH: Final = re.compile(
    r"\bfrom now on\b|\bgoing forward\b|\bin (?:the )?future\b|\bnext time\b|\bevery time\b|\bas a rule\b"
    r"|\bfor all future\b"
    r"|\b(?:please\s+)?(?:always|never)\s+(?!mind\b|been\b|had\b|seen\b)[a-z]+"
    r"|\b(?:stop|quit)\s+[a-z]+ing\b|\b(?:don't|do not)\b.{1,120}\b(?:again|any ?more)\b"
    r"|\bi(?:'ve| have)? (?:already |just )?(?:told|asked) you\b|\bas i (?:said|told you)\b|\bi(?:'d"
    r"| would)? (?:always |much |really |usually )?prefer\b"
    r"|\buse\b.{1,80}\b(?:instead of|rather than|not)\b|\bnot\b.{1,60}\bbut (?:use )?"
    r"|\binstead of\b.{1,80}\buse\b|\bi'm used to\b"
)
_CHINESE: Final = re.compile(
    r"以后(?:都|请|要|别|不要|不用|就|一律|统一|每次)|从(?:现在|今)(?:开始|起)|今后|往后|下次|每次(?:都)?|总是要|永远(?:不要|别|用)"
    r"|(?:不要|别)再|我(?:已经)?(?:说过|告诉过你|讲过|强调过)|(?:应该|要|请)用.{1,40}(?:而不是|不要用|不是)"
    r"|一律|统一(?:用|使用|采用)|我(?:更)?(?:喜欢|习惯|偏好)|记住.{0,4}(?:用|要|不要|别)|始终|务必"
)
_NOT_ABOUT_WORK: Final = re.compile(
    r"\b(?:i|we|they|he|she|it) (?:have |has |had )?(?:always|never) (?:loved|had|knew|was|were|did|thought)\b"
)
_LEADING: Final = re.compile(
    r"^(?:(?:please|ok|okay|no|hey|well|so|and|but|again)[,!\s]+|from now on[,\s]*|going forward[,\s]*"
    r"|in (?:the )?future[,\s]*|next time[,\s]*|"
    r"always\s+|以后(?:都|请|要|就)?|从现在(?:开始|起)[,，]?|今后[,，]?|下次|每次都?|请|记住[:：,，]?)+"
)


@dataclass(frozen=True, slots=True)
class Signal:
    """One correction in the user's words: the segment, and the key of its pattern."""

    text: str
    session: str
    seq: int = 0
    ts: str = ""

    @property
    def pattern(self) -> str:
        """The segment without the words that only say "from now on"."""
        return pattern_of(self.text)


@dataclass(frozen=True, slots=True)
class Habit:
    """One pattern. `sessions` are distinct; `seen_again` counts signals after its deletion."""

    id: str
    pattern: str
    state: State = "signal"
    sessions: tuple[str, ...] = ()
    count: int = 0
    evidence: tuple[str, ...] = ()
    preset: str = ""
    updated_at: str = ""
    created_at: str = ""
    version: int = 1
    seen_again: int = 0
    authority: Literal["user", "operator"] = "user"


def detect(message: str) -> tuple[str, ...]:
    """The corrections in one message of the user: own statements of at most 400 characters, the cue not in quotes."""
    found: list[str] = []
    for text in own_statements(message):
        shaped = normalise(without_quoted(text)).replace("’", "'")
        if len(text) > MAX_SEGMENT or _NOT_ABOUT_WORK.search(shaped):
            continue
        if _ENGLISH.search(shaped) or _CHINESE.search(shaped):
            found.append(text)
    return tuple(dict.fromkeys(found))


def pattern_of(text: str) -> str:
    """What a segment asks for, folded, without its leading words of time and courtesy."""
    folded = fold(text)
    return _LEADING.sub("", folded).strip(" ,，.。!！") or folded


def same_pattern(one: str, other: str) -> bool:
    """Whether two segments ask for the same: equal when folded, or >= .6 of their stems shared."""
    if pattern_of(one) == pattern_of(other):
        return True
    return jaccard(features(pattern_of(one)), features(pattern_of(other))) >= SAME_PATTERN and _same_polarity(
        one, other
    )


def _same_polarity(one: str, other: str) -> bool:
    return is_negative(one) == is_negative(other)


def habit_id(pattern: str, preset: str = "") -> str:
    """The id of a pattern, the same in every process: `hab_` and 24 hexadecimal digits."""
    return "hab_" + hashlib.sha256(f"{preset}\n{pattern_of(pattern)}".encode()).hexdigest()[:24]


def observe(habits: Sequence[Habit], signal: Signal, *, preset: str = "", threshold: int = THRESHOLD) -> Habit:
    """The habit after one more signal: new, counted up, or a deleted one marked as seen again.

    At the threshold a signal becomes pending; nothing here makes it more than that.
    """
    known = next((item for item in habits if item.preset == preset and same_pattern(item.pattern, signal.text)), None)
    if known is None:
        known = Habit(habit_id(signal.text, preset), signal.pattern, preset=preset, created_at=signal.ts, version=0)
    if known.state == "deleted":
        return replace(known, seen_again=known.seen_again + 1, updated_at=signal.ts, version=known.version + 1)
    sessions = tuple(dict.fromkeys([*known.sessions, signal.session]))
    counted = replace(
        known,
        sessions=sessions,
        count=known.count + 1,
        evidence=(*known.evidence, signal.text[:300])[-5:],
        updated_at=signal.ts,
        version=known.version + 1,
    )
    if counted.state == "signal" and counted.count >= threshold:
        return replace(counted, state="pending")
    return counted


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a gate stays closed: a code and a sentence."""

    code: str
    message: str


def confirm(habit: Habit, *, ts: str) -> Habit | Refusal:
    """Human gate 1: pending -> suggested. Nothing is injected yet."""
    if habit.state != "pending":
        return Refusal("HABIT_STATE", f"only a pending habit can be confirmed; this one is {habit.state}")
    return replace(habit, state="suggested", updated_at=ts, version=habit.version + 1)


def promote(habit: Habit, *, ts: str) -> Habit | Refusal:
    """Human gate 2: suggested -> auto, once it was seen in two distinct sessions."""
    if habit.state not in ("suggested", "disabled"):
        return Refusal("HABIT_STATE", f"only a suggested habit can be promoted; this one is {habit.state}")
    if len(habit.sessions) < MIN_SESSIONS_FOR_AUTO:
        seen = len(habit.sessions)
        return Refusal("HABIT_SESSIONS", f"it was seen in {seen} session(s); {MIN_SESSIONS_FOR_AUTO} are needed")
    return replace(habit, state="auto", updated_at=ts, version=habit.version + 1)


def disable(habit: Habit, *, ts: str) -> Habit | Refusal:
    """A person switches a habit off; it can be promoted again."""
    if habit.state not in ("auto", "suggested"):
        return Refusal("HABIT_STATE", f"a {habit.state} habit cannot be disabled")
    return replace(habit, state="disabled", updated_at=ts, version=habit.version + 1)


def delete(habit: Habit, *, ts: str) -> Habit:
    """A person deletes a habit: the tombstone stays and the pattern is never learned again. Its evidence goes."""
    return replace(habit, state="deleted", evidence=(), updated_at=ts, version=habit.version + 1)


def injected(habits: Iterable[Habit], preset: str | None) -> tuple[Habit, ...]:
    """The habits an agent is told: `auto` ones of the caller's preset or of none, by pattern."""
    fitting = (item for item in habits if item.state == "auto" and item.preset in ("", preset or ""))
    return tuple(sorted(fitting, key=lambda item: (item.pattern, item.id)))


def to_row(habit: Habit) -> dict[str, object]:
    """A row of the signals log."""
    return {
        "id": habit.id,
        "pattern": habit.pattern,
        "state": habit.state,
        "sessions": list(habit.sessions),
        "count": habit.count,
        "evidence": list(habit.evidence),
        "preset": habit.preset,
        "created_at": habit.created_at,
        "updated_at": habit.updated_at,
        "version": habit.version,
        "seen_again": habit.seen_again,
    }


def from_row(row: Mapping[str, object]) -> Habit:
    """The habit of a row; unknown fields are ignored, odd ones fall back to their defaults."""

    def text(name: str) -> str:
        value = row.get(name)
        return value if isinstance(value, str) else ""

    def texts(name: str) -> tuple[str, ...]:
        value = row.get(name)
        items = cast("list[object]", value) if isinstance(value, list) else []
        return tuple(item for item in items if isinstance(item, str))

    def count(name: str) -> int:
        value = row.get(name)
        return value if isinstance(value, int) else 0

    state = text("state")
    known: dict[str, State] = {item: item for item in ("signal", "pending", "suggested", "auto", "disabled", "deleted")}
    return Habit(
        id=text("id"),
        pattern=text("pattern"),
        state=known.get(state, "signal"),
        sessions=texts("sessions"),
        count=count("count"),
        evidence=texts("evidence"),
        preset=text("preset"),
        updated_at=text("updated_at"),
        created_at=text("created_at"),
        version=count("version"),
        seen_again=count("seen_again"),
    )
