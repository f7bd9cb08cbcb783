"""Whose words they are: verifying a quote against the user's own message. Pure functions.

Owns: which parts of a message are the user's own statements, and whether a quote is whole sentences of them. Does not
own: finding the message (`capture`), the outcome for a note (`gates`), cues to forget or hide (`commands`).

A quote is refused rather than repaired: a part of a sentence (`QUOTE_CLAUSE`), a question, a `>` line, fenced, indented
or quoted text, a pasted log or a forwarded mail, fewer than two words. The message is split into sentences before
anything is folded, so that folding can never join what the user had apart.

Source: design page "The memory model", Quotes; adversarial inputs 7 and 23.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rlm_memory_host.textmemory.sentences import Sentence, fold, fold_quote, is_abbreviation, split_at

QUOTE_UNCAPTURED: Final = "QUOTE_UNCAPTURED"
"""No captured user message: no quote verifies."""
QUOTE_NOT_FOUND: Final = "QUOTE_NOT_FOUND"
QUOTE_CLAUSE: Final = "QUOTE_CLAUSE"
QUOTE_QUESTION: Final = "QUOTE_QUESTION"
QUOTE_QUOTED: Final = "QUOTE_QUOTED"
QUOTE_SHORT: Final = "QUOTE_SHORT"
HINTS: Final = {
    QUOTE_UNCAPTURED: "no user message was captured in this session, so no quote can be verified",
    QUOTE_NOT_FOUND: "the latest user message does not hold these words",
    QUOTE_CLAUSE: "a quote must be whole sentences of the latest user message, not a part of one",
    QUOTE_QUESTION: "a question states nothing that could be kept",
    QUOTE_QUOTED: "the words stand in quoted, fenced or pasted text and are not the user's own statement",
    QUOTE_SHORT: "a quote needs at least two words or two CJK characters",
}

_STOP: Final = re.compile(r"[.!?]+(?=\s|$)|[。！？]+|\n")
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_INDENTED: Final = re.compile(r"^(?: {4,}|\t)\S")
_QUOTE_LINE: Final = re.compile(r"^\s*[>＞]")
_MAIL: Final = re.compile(
    r"^\s*(?:-{2,}\s*(?:original|forwarded) message|on .{4,80}\bwrote:|from:\s|发件人[:：]|.{0,40}写道[:：])",
    re.IGNORECASE,
)
_PASTED: Final = re.compile(
    r"^\s*(?:[\[(]?\d{4}-\d\d-\d\d[T ]|[\[(]?\d{1,2}:\d\d(?::\d\d)?[\])]?\s|(?:debug|info|warn(?:ing)?"
    r"|error|trace|fatal)\b[:\s\]]"
    r"|\[(?:debug|info|warn(?:ing)?|error)\]|(?:user|human|assistant|system|ai|me|customer|client)(?:\s+(?:said|says|wrote|asked))?\s*[:：]|"
    r"(?:用户|助手|系统|客户|我)(?:说)?\s*[:：]|[$%#>]\s+\S|>>>\s|In \[\d+\]:|Traceback )",
    re.IGNORECASE,
)
_PAIRS: Final = {
    '"': '"',
    "“": "”",
    "«": "»",
    "「": "」",
    "『": "』",
    "‹": "›",
    "„": "”",
    "《": "》",
    "`": "`",
    "＂": "＂",
}
_BULLET: Final = re.compile(r"^\s*[-*•·–]\s+")
_HTML: Final = re.compile(r"<(blockquote|pre|code|q)\b[^>]*>.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)
_DANGLING: Final = re.compile(
    r"(?:[,;:，；、：(（-]|\b(?:not|never|n't|no|like|likes|love|want|prefer|use|need|hate|think|believe|say"
    r"|says|said|the|a|an|to|of|in|on|"
    r"at|for|with|and|or|but|if|because|that|than|is|are|was|be|do|does|don't|doesn't|didn't|won't|would"
    r"|should|can|can't|"
    r"my|our|your|their)|[的不没和或但把被])$",
    re.IGNORECASE,
)
_QUESTION_END: Final = re.compile(r"[?？][\s\"'”’」』)）!！]*$|(?:吗|呢|么|嘛)[\s。！!.]*$")
_QUESTION_START: Final = re.compile(
    r"^(?:do|does|did|is|are|am|was|were|can|could|should|shall|will|would|have|has|may|might) (?:i|we|you"
    r"|he|she|it|they|there|this|that)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence of a message. `own` says that it is the user's own statement; `why` is the code when it is not."""

    sentence: Sentence
    own: bool
    why: str = ""

    @property
    def text(self) -> str:
        """The sentence as written."""
        return self.sentence.text


@dataclass(frozen=True, slots=True)
class Quote:
    """The outcome: `text` is the quoted sentences as the user wrote them, empty when `code` says why not."""

    text: str = ""
    code: str = ""

    @property
    def verified(self) -> bool:
        """Whether these are the user's own words."""
        return not self.code


def verify(message: str | None, quote: str) -> Quote:
    """Whether `quote` is one or more whole, consecutive sentences of the user's own in `message`."""
    if message is None:
        return Quote(code=QUOTE_UNCAPTURED)
    message = message.replace("\r\n", "\n").replace("\r", "\n")
    wanted = _comparable(quote)
    if not is_long_enough(quote):
        return Quote(code=QUOTE_SHORT)
    said = statements(message)
    for first in range(len(said)):
        text = ""
        for last in range(first, len(said)):
            text = f"{text} {said[last].sentence.text}" if text else said[last].sentence.text
            if _comparable(text) == wanted:
                return _checked(message, said[first : last + 1])
            if len(fold_quote(text)) > len(fold_quote(quote)) + 8:
                break
    inside = fold(quote) in fold(message)
    return Quote(code=_why_not_whole(said, quote) if inside else QUOTE_NOT_FOUND)


def _checked(message: str, said: list[Statement]) -> Quote:
    for statement in said:
        if not statement.own:
            return Quote(code=statement.why)
    return Quote(text=_BULLET.sub("", message[said[0].sentence.start : said[-1].sentence.end]))


def _why_not_whole(said: list[Statement], quote: str) -> str:
    wanted = fold(quote)
    for statement in said:
        if wanted in fold(statement.text) and not statement.own and statement.why == QUOTE_QUOTED:
            return QUOTE_QUOTED
    return QUOTE_CLAUSE


def _comparable(text: str) -> str:
    """As folded for a quote, with case; a final full stop may be left out, blanks between CJK do not count."""
    return re.sub(r"(?<=[^\x00-\u2e7f]) | (?=[^\x00-\u2e7f])", "", _BULLET.sub("", fold_quote(text))).rstrip(".。 ")


def is_long_enough(quote: str) -> bool:
    """At least two words, or two CJK characters."""
    cjk = sum(1 for character in quote if _is_cjk(character))
    latin = re.findall(r"[^\W_]+(?:['’.\-+#][^\W_]+)*", "".join(" " if _is_cjk(c) else c for c in quote))
    return cjk >= 2 or len(latin) + (cjk > 0) >= 2


def _is_cjk(character: str) -> bool:
    return (
        "⺀" <= character <= "鿿" or "가" <= character <= "힯" or "豈" <= character <= "﫿" or character >= "\U00020000"
    )


# -- the message as statements ---------------------------------------------------------------------------------------
def statements(message: str) -> list[Statement]:
    """The sentences of a message, each with whether it is the user's own statement."""
    text = message.replace("\r\n", "\n").replace("\r", "\n")
    pasted = _pasted_spans(text)
    spoken = _quoted_spans(text, pasted)
    ends = [end for end in _ends(text) if not any(left < end < right for left, right in spoken)]
    found: list[Statement] = []
    for sentence in split_at(text, sorted({*ends, *(edge for span in pasted for edge in span)})):
        found.append(_judged(sentence, pasted, spoken))
    return found


def own_statements(message: str) -> list[str]:
    """The sentences that are the user's own statements."""
    return [statement.text for statement in statements(message) if statement.own]


def without_quoted(text: str) -> str:
    """A sentence with what stands in quotation marks taken out: what is left is said and not reported."""
    kept = text
    for start, end in sorted(_quoted_spans(text, []), reverse=True):
        kept = f"{kept[:start]} {kept[end:]}"
    return kept


def _judged(sentence: Sentence, pasted: list[tuple[int, int]], spoken: list[tuple[int, int]]) -> Statement:
    if any(left < sentence.end and sentence.start < right for left, right in pasted):
        return Statement(sentence, False, QUOTE_QUOTED)
    inner = sentence.text.strip(" \t.。!！?？,，—–-*•_")
    left_edge = sentence.start + sentence.text.find(inner) if inner else sentence.start
    if any(left <= left_edge and left_edge + len(inner) <= right for left, right in spoken):
        return Statement(sentence, False, QUOTE_QUOTED)
    if is_question(sentence.text):
        return Statement(sentence, False, QUOTE_QUESTION)
    return Statement(sentence, True)


def is_question(sentence: str) -> bool:
    """Whether a sentence asks: `?`, 吗, or an auxiliary before its subject."""
    text = fold_quote(sentence)
    return _QUESTION_END.search(text) is not None or _QUESTION_START.match(text) is not None


def _ends(text: str) -> Iterator[int]:
    for match in _STOP.finditer(text):
        if match.group() == "\n":
            line = text[: match.start()].rsplit("\n", 1)[-1].rstrip()
            if _DANGLING.search(line) and text[match.end() : match.end() + 1] not in ("", "\n"):
                continue
        elif is_abbreviation(text, match.end(), match.group()):
            continue
        yield match.end()


def _pasted_spans(text: str) -> list[tuple[int, int]]:
    """Fenced, indented and `>` lines, pasted logs and transcripts, HTML quotes, and all after a mail's header."""
    spans = [match.span() for match in _HTML.finditer(text)]
    fence = ""
    offset = 0
    blank = True
    for line in text.split("\n"):
        end = offset + len(line)
        marker = _FENCE.match(line)
        if fence:
            spans.append((offset, end))
            if marker is not None and marker[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif marker is not None:
            fence = marker[1]
            spans.append((offset, end))
        elif _MAIL.match(line):
            spans.append((offset, len(text)))
            break
        elif _QUOTE_LINE.match(line) or _PASTED.match(line) or (blank and _INDENTED.match(line)):
            spans.append((offset, end))
        blank = not line.strip() or (blank and _INDENTED.match(line) is not None)
        offset = end + 1
    return spans


def _quoted_spans(text: str, pasted: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Text between quotation marks, marks included; one that never closes goes on to the end of its paragraph."""
    spans: list[tuple[int, int]] = []
    index = 0
    while index < len(text):
        closing = _PAIRS.get(text[index])
        inside = any(left <= index < right for left, right in pasted)
        if closing is None or inside or _is_inch(text, index):
            index += 1
            continue
        limit = text.find("\n\n", index)
        limit = len(text) if limit < 0 else limit
        end = text.find(closing, index + 1, limit)
        end = limit if end < 0 else end + 1
        spans.append((index, end))
        index = end
    spans.extend(match.span() for match in re.finditer(r"(?<!\w)['‘][^'’\n]{12,}[.!?]['’](?!\w)", text))
    return spans


def _is_inch(text: str, index: int) -> bool:
    """Whether a straight mark follows a digit directly: 14\" is a length."""
    return text[index] == '"' and index > 0 and unicodedata.category(text[index - 1]) == "Nd"
