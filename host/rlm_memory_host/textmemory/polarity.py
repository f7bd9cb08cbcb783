"""What a sentence says yes or no to, and when: negation, update cues, the past. Read from raw text. Pure functions.

Owns: the word lists of the relation judge. Does not own: what follows from them (`judge`).

Source: design page "The memory model", Relation judge.
"""

from __future__ import annotations

import re
from typing import Final

from rlm_memory_host.storage.tokens import normalise
from rlm_memory_host.textmemory.sentences import stem

_NEGATION: Final = re.compile(
    r"\b(?:not(?! only\b)|never|no(?! problem\b)|cannot)\b|n't\b|n['’]t\b"
    r"|\b(?:dont|doesnt|didnt|wont|cant|shouldnt|mustnt|isnt|arent)\b"
    r"|不要|不能|不允许|不用|不使用|不再|不是|禁止"
    r"|(?<![特区级类分识个性差判辨告离])别(?![的名人处墅致称克])"
)
_NEGATIVE_START: Final = re.compile(r"^[\s\-*•>\d.)]*(?:please\s+|always\s+)?(?:stop|avoid)\b")
_PAST: Final = re.compile(
    r"\bused to\b|\bformerly\b|\bpreviously\b|\bin the past\b|\bno longer\b|\blived in\b|\bworked (?:at"
    r"|for)\b|\bonce (?:lived|worked|used)\b"
    r"|以前|曾经|过去|从前|曾(?=[住在用])|不再"
)
_CUES: Final = frozenset(
    stem(word) for word in ["now", "currently", "switch", "migrate", "update", "upgrade", "change", "replace"]
)
_CUES_CJK: Final = ("现在", "目前", "改为", "改成", "升级", "切换")
_WORD: Final = re.compile(r"[a-z]+(?:'[a-z]+)?")


def is_negative(sentence: str) -> bool:
    """Whether the sentence denies or forbids: not, never, no, cannot, n't, 不要 …, or stop/avoid at its start."""
    text = normalise(sentence).replace("’", "'")
    return _NEGATION.search(text) is not None or _NEGATIVE_START.match(text) is not None


def is_past(sentence: str) -> bool:
    """Whether it speaks of how things were: used to, formerly, 以前, 曾经."""
    return _PAST.search(normalise(sentence)) is not None


def cues(sentence: str) -> frozenset[str]:
    """The update cues in a sentence: stems of whole words (now, switch, migrate, …) and 现在, 改为 and others."""
    text = normalise(sentence)
    latin = {stem(word) for word in _WORD.findall(text)} & _CUES
    return frozenset(latin | {cue for cue in _CUES_CJK if cue in text})


def new_cues(new: str, old: str) -> frozenset[str]:
    """The update cues of `new` that `old` does not have: only these say that something changed."""
    return cues(new) - cues(old)
