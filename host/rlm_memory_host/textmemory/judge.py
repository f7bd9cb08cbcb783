"""The relation judge: how a new text stands to what is on file. Deterministic; pure functions.

Owns: rules 1 to 7, contradiction between sentences, what a REFINE or an UPDATE leaves in the block. Does not own: who
may write (`gates`), storing (`lifecycle`), a model that may answer instead (`judging`).

No answer lowers the number of live versions of a fact to zero: an UPDATE replaces only the sentences that the new text
contradicts and keeps the others, a REFINE appends, a CONFLICT and a DUPLICATE leave the block as it is.

Source: design page "The memory model", Relation judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from rlm_memory_host.textmemory import predicates
from rlm_memory_host.textmemory.polarity import cues, is_negative, is_past, new_cues
from rlm_memory_host.textmemory.sentences import (
    Sentence,
    features,
    fold,
    is_number_missing,
    numbers,
    ordered,
    overlap,
    split,
    words,
)
from rlm_memory_host.textmemory.subjects import are_apart

SUBJECT_FLOOR: Final = 0.34
"""Below this overlap of topic and title two differently titled texts speak of different things."""
BODY_REFINES: Final = 0.45
BODY_UPDATES: Final = 0.15
NUMBER_OVERLAP: Final = 0.5
NEGATION_OVERLAP: Final = 0.25
LOOKED_AT: Final = 8
"""Memories that are compared in full, nearest first, where only their topic is shared."""
SURE: Final = 0.80
"""An UPDATE or REFINE below this confidence is a CONFLICT."""
_TIME_WORDS: Final = features("today yesterday since last this week month year recently already just 今天 昨天 已 已经")


class Relation(StrEnum):
    """How a new text stands to the memory on file."""

    NEW = "NEW"
    DUPLICATE = "DUPLICATE"
    REFINE = "REFINE"
    UPDATE = "UPDATE"
    CONFLICT = "CONFLICT"


@dataclass(frozen=True, slots=True)
class Said:
    """A text to compare. `topic` is "" where it only follows the kind and so says nothing about the subject.

    `is_private`: of more than normal sensitivity, so that no model is shown it.
    """

    topic: str
    title: str
    body: str
    id: str = ""
    is_private: bool = False


Ground = Literal["", "number", "negation", "predicate", "ended"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer. `target` is the id compared with (None for NEW), `rule` the rule that spoke, 0 for a model.

    `contests`: a real contradiction, by which recall labels both sides; other conflicts only wait for a person.
    """

    relation: Relation
    confidence: float
    rule: int
    target: str | None = None
    ground: Ground = ""
    contests: bool = False

    def held_to_confidence(self) -> Judgement:
        """UPDATE and REFINE under .80 become CONFLICT."""
        if self.relation in (Relation.UPDATE, Relation.REFINE) and self.confidence < SURE:
            return replace(self, relation=Relation.CONFLICT)
        return self


@dataclass(frozen=True, slots=True)
class Clash:
    """A new sentence that contradicts an old one; `has_cue` when it says that something changed."""

    new: Sentence
    old: Sentence
    ground: Ground
    has_cue: bool


def judge(new: Said, on_file: Sequence[Said]) -> Judgement:
    """Compare `new` with the memories retrieved from the layer it is written to."""
    if not on_file:
        return Judgement(Relation.NEW, 0.76, 1)
    for old in on_file:
        if fold(old.body) == fold(new.body):
            return Judgement(Relation.DUPLICATE, 0.99, 2, old.id)
    on_file = [old for old in on_file if not are_apart(new.body, old.body, (new.title, old.title))]
    if not on_file:
        return Judgement(Relation.NEW, 0.78, 3)
    ranked = sorted(on_file, key=lambda old: -_nearness(new, old))
    target = ranked[0]
    if subject_overlap(new, target) < SUBJECT_FLOOR and fold(new.title) != fold(target.title):
        same = next((old for old in on_file if _is_of_one_person(new, old)), None)
        if same is None:
            return Judgement(Relation.NEW, 0.78, 3)
        return _against(new, same)
    for old in ranked[:LOOKED_AT]:
        found = _against(new, old)
        if found.rule < 6 or not _only_the_topic_is_shared(new, old):
            return found
    return Judgement(Relation.NEW, 0.78, 3)


def _nearness(new: Said, old: Said) -> float:
    return subject_overlap(new, old) + overlap(features(new.body), features(old.body))


def _against(new: Said, target: Said) -> Judgement:
    """Rules 4 to 7, against one memory."""
    clashes = contradictions(new, target)
    if clashes:
        if all(clash.has_cue for clash in clashes):
            return Judgement(Relation.UPDATE, 0.93, 4, target.id, clashes[0].ground)
        plain = next(clash for clash in clashes if not clash.has_cue)
        return Judgement(Relation.CONFLICT, 0.88, 4, target.id, plain.ground, contests=True)
    return _compatible(new, target)


def _compatible(new: Said, old: Said) -> Judgement:
    """Rules 5 to 7: nothing in the new text contradicts the old one."""
    body = overlap(features(new.body), features(old.body))
    contains = fold(old.body) in fold(new.body) and body > 0
    adds = predicates.collecting(new.body) & predicates.collecting(old.body) or _is_over_time(new, old)
    if body >= BODY_REFINES or contains or adds:
        if not uncovered(new.body, old.body):
            return Judgement(Relation.DUPLICATE, 0.99, 5, old.id)
        return Judgement(Relation.REFINE, 0.89, 5, old.id)
    if new_cues(new.body, old.body) and body >= BODY_UPDATES:
        return Judgement(Relation.UPDATE, 0.84, 6, old.id)
    return Judgement(Relation.CONFLICT, 0.80, 7, old.id)


def _is_of_one_person(new: Said, old: Said) -> bool:
    """Whether both say where one person lives or works, or what they are called, under whichever title."""
    if fold(new.topic) != fold(old.topic):
        return False
    mine, theirs = predicates.single_valued(new.body), predicates.single_valued(old.body)
    return any(predicates.are_of_one_person(one, two) for one in mine for two in theirs)


def _is_over_time(new: Said, old: Said) -> bool:
    """Whether one tells how a value was and the other how it is: both stay true."""
    mine = predicates.single_valued(new.body, f"{new.topic}\n{new.title}")
    theirs = predicates.single_valued(old.body, f"{old.topic}\n{old.title}")
    return any(one.name == two.name and one.past != two.past for one in mine for two in theirs)


def _only_the_topic_is_shared(new: Said, old: Said) -> bool:
    """Whether two texts lie under one topic and their titles, but for the topic's own words, name different things.

    However many words a topic has, they say nothing on which of its subjects a text is about. What contradicts, repeats
    or adds was found before; here a resemblance by the topic alone would park one text, or overwrite the other.
    """
    if not new.topic or fold(new.topic) != fold(old.topic):
        return False
    filed = features(new.topic)
    mine, theirs = features(new.title) - filed, features(old.title) - filed
    return bool(mine) and bool(theirs) and overlap(mine, theirs) < SUBJECT_FLOOR


def subject_overlap(new: Said, old: Said) -> float:
    """Overlap of what the two texts are filed under: topic and title."""
    return overlap(_subject(new), _subject(old))


def _subject(said: Said) -> frozenset[str]:
    return features(f"{said.topic}\n{said.title}")


# -- contradiction ---------------------------------------------------------------------------------------------------
def contradictions(new: Said, old: Said) -> tuple[Clash, ...]:
    """Each new sentence against its nearest old one; one-value predicates against all of them."""
    everything = split(old.body)
    is_loose = _only_the_topic_is_shared(new, old)
    found: list[Clash] = []
    for sentence in split(new.body):
        before = [other for other in everything if not are_apart(sentence.text, other.text)]
        near = _nearest(sentence, before)
        if near is None or fold(near.text) == fold(sentence.text):
            continue
        ground = _ground(sentence, near, is_loose=is_loose)
        where = near
        if not ground:
            ground, where = _predicate_ground(sentence, before, new, old, near)
        if ground:
            found.append(Clash(sentence, where, ground, bool(new_cues(sentence.text, where.text))))
    return tuple(found)


def _nearest(sentence: Sentence, others: Sequence[Sentence]) -> Sentence | None:
    """The old sentence that shares most; for one that only says "switched to 3.12", the first with a number."""
    mine = features(sentence.text)
    best = max(others, key=lambda old: _closeness(mine, features(old.text)), default=None)
    if best is not None and not mine & features(best.text) and _is_elliptical(sentence.text):
        return next((old for old in others if numbers(old.text)), best)
    return best


def _closeness(mine: frozenset[str], theirs: frozenset[str]) -> tuple[float, int]:
    return overlap(mine, theirs), len(mine & theirs)


def _is_elliptical(text: str) -> bool:
    """Whether a sentence is nothing but an update cue, numbers and words of time: its subject is the title's."""
    said = {item for item in words(text) if item not in _TIME_WORDS}
    return bool(numbers(text)) and bool(cues(text)) and not {item for item in said if not cues(item)} - _CUE_PARTS


_CUE_PARTS: Final = features("现在 目前 改为 改成 升级 切换 升级到 切换到 已升级 升级至 切换至")


def _ground(new: Sentence, old: Sentence, *, is_loose: bool = False) -> Ground:
    """How two sentences clash. `is_loose`: titles name two things, so one word in common and a cue change no number."""
    shared = overlap(words(new.text), words(old.text))
    cue = bool(new_cues(new.text, old.text))
    if is_number_missing(old.text, new.text):
        related = (shared > 0 and not is_loose) or (_is_elliptical(new.text) and bool(numbers(new.text)))
        if shared >= NUMBER_OVERLAP or (cue and related):
            return "number"
    everything = overlap(features(new.text), features(old.text))
    if is_negative(new.text) != is_negative(old.text) and everything >= NEGATION_OVERLAP:
        return "negation"
    return ""


def _predicate_ground(
    sentence: Sentence, before: Sequence[Sentence], new: Said, old: Said, near: Sentence
) -> tuple[Ground, Sentence]:
    mine = predicates.single_valued(sentence.text, f"{new.topic}\n{new.title}")
    for other in before if mine else ():
        theirs = predicates.single_valued(other.text, f"{old.topic}\n{old.title}")
        for one in mine:
            for two in theirs:
                if predicates.differ(one, two):
                    return "predicate", other
                if one.name == two.name and one.past and not two.past and one.object & two.object:
                    return "ended", other
    return "", near


# -- what a change leaves --------------------------------------------------------------------------------------------
def is_covered(sentence: str, old: str) -> bool:
    """Whether an old sentence already says it: the same words in the same order, with equal negation and numbers."""
    if fold(sentence) == fold(old):
        return True
    if is_negative(sentence) != is_negative(old) or is_past(sentence) != is_past(old):
        return False
    if numbers(sentence) != numbers(old):
        return False
    mine = features(sentence)
    return bool(mine) and mine <= features(old) and _is_subsequence(ordered(sentence), ordered(old))


def uncovered(new_body: str, old_body: str) -> tuple[str, ...]:
    """The sentences of the new text that no old sentence covers, in order."""
    before = split(old_body)
    return tuple(
        sentence.text
        for sentence in split(new_body)
        if not any(is_covered(sentence.text, other.text) for other in before)
    )


def refined(old_body: str, new_body: str) -> str:
    """The old text with the uncovered sentences of the new one appended, one a line."""
    return "\n".join([old_body, *uncovered(new_body, old_body)])


def updated(old: Said, new: Said) -> str:
    """The old text with what the new one replaces taken out and the new sentences in its place; the rest stays."""
    replaced = _replaced(old, new)
    before = split(old.body)
    if len(replaced) == len(before):
        return new.body
    kept = "\n".join(sentence.text for sentence in before if sentence not in replaced)
    added = "\n".join(uncovered(new.body, kept))
    if not replaced:
        return refined(old.body, new.body)
    text = old.body
    for index, sentence in sorted(enumerate(replaced), key=lambda item: -item[1].start):
        text = text[: sentence.start] + (added if index == 0 else "") + text[sentence.end :]
    return text.strip("\n") if text.strip() else new.body


def remaining(old: Said, new: Said) -> str:
    """What of the old text the new one does not speak of; "" when it replaces all of it."""
    replaced = _replaced(old, new)
    kept = [sentence.text for sentence in split(old.body) if sentence not in replaced]
    return "\n".join(kept) if replaced else old.body


def _replaced(old: Said, new: Said) -> list[Sentence]:
    """The old sentences that the new text stands instead of, in order."""
    before = split(old.body)
    clashes = contradictions(new, old)
    found = {clash.old.start: clash.old for clash in clashes}
    if not found:
        for sentence in split(new.body):
            near = _nearest(sentence, [other for other in before if not are_apart(sentence.text, other.text)])
            if near is None or is_past(near.text) or any(is_covered(sentence.text, other.text) for other in before):
                continue
            if overlap(features(sentence.text), features(near.text)) >= BODY_UPDATES:
                found[near.start] = near
    return [found[start] for start in sorted(found)]


def _is_subsequence(short: Sequence[str], long: Sequence[str]) -> bool:
    rest = iter(long)
    return all(item in rest for item in short)
