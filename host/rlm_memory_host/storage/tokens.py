"""The one tokeniser: how text becomes the terms that search compares. Pure functions.

Owns: normalisation, words, stems, stop words, CJK n-grams. Does not own: weights and ranking (`ranking`).

Text is NFKC, without format characters (zero width, bidi) and variation selectors, casefolded, NFKC again. Words are
runs of letters, marks, digits and `_`. Inner `. + # -` join words: the whole is a term and so are its parts, except
that dotted numbers stay whole; trailing `+` and `#` belong to the word, so C, C++ and C# differ. English stop words
drop out unless nothing else is left; a word's Snowball stem stands beside it. Runs of Han, kana and Hangul give
characters and pairs in documents, pairs in queries (a single character gives itself). Emoji are terms as they are.

Source: design page "Recall", Tokens and ranking. Its measurements: stems and stop words lift recall@10 from .517 to
.614; unigrams with bigrams find Chinese as well as a dictionary does (.680 against .656).
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

_STOPS: Final = """
    a about above after again all also am an and any are as at be because been before being below between both
    but by can could did do does doing down during each few for from further had has have having he her here
    hers him his how i if in into is it its just me more most my no nor not of off on once only or other our out
    over own same she should so some such than that the their them then there these they this those through to
    too under until up us very was we were what when where which while who whom why will with would you your
"""
STOP_WORDS: Final = frozenset(_STOPS.split())

_ASCII_WORDS: Final = re.compile(r"\w+(?:(?:\.|-|[+#]+)\w+)*(?:[+#]+(?![\w+#]))?", re.ASCII)
_JOINT: Final = re.compile(r"[-+#]+")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)+")
_WORD, _CJK, _JOIN, _EMOJI, _REGIONAL, _MODIFIER, _GAP = range(7)
_CJK_RANGES: Final = (
    (0x1100, 0x11FF),
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3038, 0x303C),
    (0x3041, 0x30FF),
    (0x3130, 0x318F),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),
    (0xF900, 0xFAFF),
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFF),
)


def normalise(text: str) -> str:
    """The form in which texts are compared."""
    if text.isascii():
        return text.lower()
    shaped = unicodedata.normalize("NFKC", text)
    kept = "".join(character for character in shaped if not _is_dropped(character))
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", kept).casefold())


def document_terms(text: str) -> list[str]:
    """The terms of stored text, in order, repeated as often as they occur."""
    return _terms(text, is_query=False)


def plain_pieces(text: str) -> list[str]:
    """What stands between the blanks of stored ASCII text: `piece_terms` of each, one after the other, are its terms.

    Empty for other text. Where no piece has a term, only `document_terms` tells: a text of stop words alone keeps them.
    """
    return text.lower().split() if text.isascii() else []


def piece_terms(piece: str) -> tuple[str, ...]:
    """The terms of one of the `plain_pieces`."""
    return _PIECES[piece]


def word_line(text: str) -> str:
    """The terms of stored text that are no stems, each once, with a blank before and after each; no stop words, even
    where all are. One text, which is remembered without giving the collector of garbage anything to look through.
    """
    shaped = normalise(text)
    if shaped.isascii():
        words = [part for word in _ASCII_WORDS.findall(shaped) for part in _with_parts(word)]
    else:
        words = [word for token in _tokens(shaped) for word in _expand(token, is_query=False)]
    return " ".join(["", *dict.fromkeys(word for word in words if word not in STOP_WORDS), ""])


def has_term(line: str, terms: Collection[str]) -> bool:
    """Whether a word of a `word_line`, or its stem, is among the terms.

    Stems are slow to find, and begin as their words do: only those of words that begin as a term does are looked at.
    """
    if any(f" {term} " in line for term in terms):
        return True
    return any(_stem(word) in terms for initial in {term[0] for term in terms} for word in _beginning(initial, line))


def _beginning(initial: str, line: str) -> Iterator[str]:
    at = line.find(" " + initial)
    while at >= 0:
        end = line.index(" ", at + 1)
        yield line[at + 1 : end]
        at = line.find(" " + initial, end)


def query_terms(text: str) -> list[str]:
    """The terms of a query, in order, each once."""
    return list(dict.fromkeys(_terms(text, is_query=True)))


def query_words(text: str) -> list[tuple[str, ...]]:
    """The plain words of a query (no CJK, no numbers), each with its terms: itself and its stem.

    These are the ones that a ranking may take for a similar word when it has no card with any of their terms.
    """
    words = [part for kind, token in _tokens(normalise(text)) if kind == _WORD for part in _with_parts(token)]
    plain = [word for word in words if word.replace("_", "a").isalnum() and not word[0].isdigit()]
    kept = [word for word in plain if word not in STOP_WORDS]
    return [_with_stem(word) for word in dict.fromkeys(kept)]


def telling_words(text: str, letters: int) -> frozenset[str]:
    """The words of a text, each once and as its stem: those of at least so many characters, and pairs of CJK.

    Unlike terms they can be counted: a word and its stem, or a joined word and its parts, are not several.
    """
    told: set[str] = set()
    for kind, token in _tokens(normalise(text)):
        if kind == _CJK:
            told.update(_expand((kind, token), is_query=True))
        elif kind == _WORD:
            parts = list(_with_parts(token))
            long = [part for part in parts[1:] or parts if len(part) >= letters] or [token]
            told.update(_stem(part) for part in long if len(part) >= letters and part not in STOP_WORDS)
    return frozenset(told)


def _terms(text: str, *, is_query: bool) -> list[str]:
    shaped = normalise(text)
    if shaped.isascii():
        found = list(chain.from_iterable(map(_PIECES.__getitem__, shaped.split())))
        return found or [term for word in _ASCII_WORDS.findall(shaped) for term in _with_parts(word)]
    words = [word for token in _tokens(shaped) for word in _expand(token, is_query)]
    kept = [word for word in words if word not in STOP_WORDS] or words
    return [term for word in kept for term in _with_stem(word)]


class _Pieces(dict[str, tuple[str, ...]]):
    """The terms of what stands between blanks, without stop words. Remembered, since cards repeat their words: a start
    asks for every word of every card, and this is a fifth of what finding the words anew takes."""

    def __missing__(self, piece: str) -> tuple[str, ...]:
        found = tuple(
            term
            for word in _ASCII_WORDS.findall(piece)
            for part in _with_parts(word)
            if part not in STOP_WORDS
            for term in _with_stem(part)
        )
        if len(piece) <= _LONGEST_REMEMBERED:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[piece] = found
        return found


_REMEMBERED: Final = 65_536
_LONGEST_REMEMBERED: Final = 64
_PIECES: Final = _Pieces()


def _with_stem(word: str) -> tuple[str, ...]:
    stem = _stem(word)
    return (word,) if stem == word else (word, stem)


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    while start < len(text):
        kind = _kind(text[start])
        end = start + 1
        if kind == _WORD:
            end = _word_end(text, start)
        elif kind == _CJK:
            while end < len(text) and _kind(text[end]) == _CJK:
                end += 1
        elif kind == _REGIONAL:
            end += end < len(text) and _kind(text[end]) == _REGIONAL
        elif kind == _EMOJI:
            while end < len(text) and _kind(text[end]) == _MODIFIER:
                end += 1
        if kind not in (_GAP, _JOIN, _MODIFIER):
            yield (_EMOJI if kind == _REGIONAL else kind), text[start:end]
        start = end


def _word_end(text: str, start: int) -> int:
    """The end of a joined word: the same shape as `_ASCII_WORDS`, for any script."""
    end = _run_end(text, start)
    while end < len(text):
        joint = end + 1
        if text[end] in "+#":
            while joint < len(text) and text[joint] in "+#":
                joint += 1
        elif text[end] not in ".-":
            return end
        if joint < len(text) and _kind(text[joint]) == _WORD:
            end = _run_end(text, joint)
        else:
            return joint if text[end] in "+#" else end
    return end


def _run_end(text: str, start: int) -> int:
    end = start
    while end < len(text) and _kind(text[end]) == _WORD:
        end += 1
    return end


def _expand(token: tuple[int, str], is_query: bool) -> Iterator[str]:
    kind, text = token
    if kind != _CJK:
        yield from _with_parts(text) if kind == _WORD else (text,)
        return
    if len(text) == 1 or not is_query:
        yield from text
    for index in range(len(text) - 1):
        yield text[index : index + 2]


def _with_parts(word: str) -> Iterator[str]:
    yield word
    if word.replace("_", "a").isalnum():
        return
    pieces = [piece for piece in _JOINT.split(word) if piece]
    for piece in pieces:
        if _NUMBER.fullmatch(piece):
            if piece != word:
                yield piece
            continue
        parts = piece.split(".")
        if len(pieces) > 1 or len(parts) > 1:
            yield from parts


@lru_cache(maxsize=4_096)
def _kind(character: str) -> int:
    code = ord(character)
    if any(low <= code <= high for low, high in _CJK_RANGES):
        return _CJK if unicodedata.category(character)[0] in "LMN" else _GAP
    category = unicodedata.category(character)
    if category[0] in "LMN" or character == "_":
        return _WORD
    if character in ".+#-":
        return _JOIN
    if 0x1F1E6 <= code <= 0x1F1FF:
        return _REGIONAL
    if 0x1F3FB <= code <= 0x1F3FF:
        return _MODIFIER
    return _EMOJI if category == "So" else _GAP


@lru_cache(maxsize=4_096)
def _is_dropped(character: str) -> bool:
    return unicodedata.category(character) == "Cf" or 0xFE00 <= ord(character) <= 0xFE0F


_stemmers = threading.local()


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    if not word.isalpha() or not word.isascii() or len(word) < 3:
        return word
    stemmer: Any = getattr(_stemmers, "english", None)
    if stemmer is None:
        stemmer = cast("Any", snowballstemmer).stemmer("english")
        _stemmers.english = stemmer
    return cast("str", stemmer.stemWord(word))
