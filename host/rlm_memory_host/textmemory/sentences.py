"""Text as sentences and features: how two texts are compared. Pure functions.

Owns: where a sentence ends, folding, the set of features of a sentence, overlap. Does not own: tokens
(`storage.tokens`), what negates or contradicts (`negation`, `judge`), what may be quoted (`quotes`).

A sentence ends at `.`, `!` or `?` before a blank or the end, at `。`, `！` or `？`, and at a line break. Features are
stems (dotted numbers whole, CJK as characters and pairs) without stop words, so that "uses" meets "use".

Source: design page "The memory model", Relation judge and Quotes.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rlm_memory_host.storage.tokens import document_terms, normalise

_END: Final = re.compile(r"[.!?]+(?=\s|$)|[。！？]+[”’」』\"']?|\n")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|mr|mrs|ms|dr|prof|approx|resp|[a-z])\.$", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_FINAL_STOP: Final = ".!。！ \t"
_APOSTROPHES: Final = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "′": "'", "＇": "'", "`": "'"})
_CONTRACTION: Final = re.compile(r"\b[a-z]+n't\b|(?<=\w)'(?:s|m|re|ve|ll|d)\b", re.IGNORECASE)
_PARTICLES: Final = frozenset("的了是在着过吧呢啊吗我你他她它们把被就也都和与及")
_SIGNS: Final = frozenset("°©®™")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence and where it stands in its text: `text == whole[start:end]`, without blanks at its ends."""

    text: str
    start: int
    end: int


def split(text: str) -> list[Sentence]:
    """The sentences of a text, in order; a line of blanks is none."""
    return split_at(text, _ends(text))


def split_at(text: str, ends: list[int]) -> list[Sentence]:
    """The pieces of a text between `ends` (offsets after a sentence's last character), without empty ones."""
    found: list[Sentence] = []
    start = 0
    for end in [*ends, len(text)]:
        piece = text[start:end]
        body = piece.strip()
        if body:
            left = start + len(piece) - len(piece.lstrip())
            found.append(Sentence(body, left, left + len(body)))
        start = max(start, end)
    return found


def _ends(text: str) -> list[int]:
    return [match.end() for match in _END.finditer(text) if not is_abbreviation(text, match.end(), match.group())]


def is_abbreviation(text: str, end: int, stop: str) -> bool:
    """Whether a `.` that ends at `end` belongs to a word such as `e.g.`, or to dots that trail off."""
    if stop.startswith("..") and end < len(text):
        return True
    return stop == "." and _ABBREVIATION.search(text[max(0, end - 12) : end]) is not None and end < len(text)


def fold(text: str) -> str:
    """The form in which two texts are the same: NFKC, case, blanks and apostrophes folded, no final stop."""
    return fold_quote(text).casefold().strip(_FINAL_STOP)


def fold_quote(text: str) -> str:
    """The form in which a quote is compared: NFKC, blanks to one, apostrophes to one; case and stops count."""
    if text.isascii():
        return " ".join(text.replace("`", "'").split())
    shaped = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)
    kept = "".join(character for character in shaped if unicodedata.category(character) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", kept).split())


@lru_cache(maxsize=8_192)
def features(text: str) -> frozenset[str]:
    """The stems of a text, without stop words, particles and signs. Numbers are among them, dotted ones whole."""
    return frozenset(ordered(text))


@lru_cache(maxsize=8_192)
def ordered(text: str) -> tuple[str, ...]:
    """The features of a text in the order in which they are first said."""
    plain = _CONTRACTION.sub(" ", _THOUSANDS.sub("", text).translate(_APOSTROPHES))
    stems = dict.fromkeys(_stem(term) for term in document_terms(plain))
    return tuple(item for item in stems if item not in _PARTICLES and item not in _SIGNS)


@lru_cache(maxsize=8_192)
def numbers(text: str) -> frozenset[str]:
    """The numbers of a text as written, without commas between thousands."""
    return frozenset(_NUMBER.findall(_THOUSANDS.sub("", normalise(text))))


def is_number_missing(old: str, new: str) -> bool:
    """Whether a number of `old` is not in `new`, or fewer times with another number in its place."""
    if numbers(old) - numbers(new):
        return True
    before, after = (Counter(_NUMBER.findall(_THOUSANDS.sub("", normalise(text)))) for text in (old, new))
    return bool(before - after) and after.total() >= before.total()


@lru_cache(maxsize=8_192)
def words(text: str) -> frozenset[str]:
    """The features that hold no digit."""
    return frozenset(item for item in features(text) if not any(character.isdigit() for character in item))


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """|A ∩ B| / min(|A|, |B|); 0 when one is empty."""
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """|A ∩ B| / |A ∪ B|; 0 when both are empty."""
    union = len(one | other)
    return len(one & other) / union if union else 0.0


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    """The tokeniser puts a word's stem behind it; numbers and CJK have none."""
    return document_terms(word)[-1] if word.isascii() and word.isalpha() and len(word) > 2 else word


def stem(word: str) -> str:
    """The stem of one lower-case word."""
    return _stem(word)
