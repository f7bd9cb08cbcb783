"""Which words may stand for each other when one is unknown: beginnings and slips of the pen. Pure functions.

Owns: the rule for two words, and the sieve that finds candidates among many without comparing each. Does not own: when
an unknown word may be replaced and what that is worth (`ranking`).

A word of three characters or more stands for those that begin with it. A word of letters alone stands for those of
letters that one edit makes of it (from four letters on) or two (from eight): a letter too many, missing, wrong, or two
neighbours swapped. Beginnings are preferred, the shortest first, then one slip; two only where nothing is nearer.
Words with digits are names: `run12` is never taken for `run13`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal

Similarity = Literal["prefix", "typo", "two typos"]

SHORTEST_PREFIX: Final = 3
ONE_TYPO_FROM: Final = 4
TWO_TYPOS_FROM: Final = 8
LONGEST: Final = 40
"""Letters of a word that is compared for typos."""


def typos_allowed(word: str) -> int:
    """How many slips a word may have: 0, 1 or 2."""
    if not ONE_TYPO_FROM <= len(word) <= LONGEST or not word.isalpha():
        return 0
    return 2 if len(word) >= TWO_TYPOS_FROM else 1


def may_be_meant(term: str) -> bool:
    """Whether a stored term can be what a word with a typo meant."""
    return ONE_TYPO_FROM - 1 <= len(term) <= LONGEST + 1 and term.isalpha()


def letters(word: str) -> int:
    """32 bits for the letters of a word. Each edit changes at most two of them, so two words within n edits differ in
    at most 2 n bits: comparing these numbers drops nearly all of a vocabulary."""
    bits = 0
    for character in word:
        bits |= 1 << (ord(character) & 31)
    return bits


def distance_from(word: str) -> Callable[[str], int]:
    """A function that counts the edits (insert, drop, replace, swap of neighbours) from `word` to another.

    Bit-parallel: one step a letter, whatever the length of `word`.
    """
    masks: dict[str, int] = {}
    for at, letter in enumerate(word):
        masks[letter] = masks.get(letter, 0) | 1 << at
    whole, last, length = (1 << len(word)) - 1, 1 << (len(word) - 1), len(word)

    def distance(other: str) -> int:
        rises, falls, same, before, edits = whole, 0, 0, 0, length
        for letter in other:
            here = masks.get(letter, 0)
            swapped = (~same & here) << 1 & before
            same = (((here & rises) + rises) ^ rises | here | falls | swapped) & whole
            up = (falls | ~(same | rises)) & whole
            down = same & rises
            edits += bool(up & last) - bool(down & last)
            up = up << 1 | 1
            rises = (down << 1 | ~(same | up)) & whole
            falls = up & same
            before = here
        return edits

    return distance


def misspelt(word: str, candidates: Iterable[str], edits: int) -> list[str]:
    """The candidates that exactly `edits` slips turn the word into, nearest in length first, then by name."""
    distance = distance_from(word)
    found = [term for term in candidates if distance(term) == edits and not term.startswith(word)]
    return sorted(found, key=lambda term: (abs(len(term) - len(word)), term))
