"""Predicates that hold one value at a time (lives in, named, works at, version of, uses … as database). Pure.

Owns: reading such a predicate, its subject and its object out of a sentence; which predicates collect values instead
(likes, speaks). Does not own: what a difference means (`judge`).

Source: design page "The memory model", Relation judge, rule 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rlm_memory_host.storage.tokens import normalise
from rlm_memory_host.textmemory.polarity import is_past
from rlm_memory_host.textmemory.sentences import features

_SLOT_WORDS: Final = (
    "database|db|language|framework|editor|ide|formatter|linter|shell|operating system|os|browser|package manager|"
    "build tool|queue|cache|orm|test runner|broker|timezone|time zone|currency|theme|license|backend|frontend|"
    "数据库|语言|框架|编辑器|格式化工具|浏览器|包管理器|构建工具|缓存|队列|时区|货币|主题"
)
_SYNONYMS: Final = {
    "db": "database",
    "数据库": "database",
    "语言": "language",
    "框架": "framework",
    "编辑器": "editor",
    "浏览器": "browser",
    "缓存": "cache",
    "队列": "queue",
    "time zone": "timezone",
    "时区": "timezone",
    "包管理器": "package manager",
    "构建工具": "build tool",
    "货币": "currency",
    "主题": "theme",
    "格式化工具": "formatter",
    "os": "operating system",
}
_SLOT: Final = re.compile(rf"(?<![a-z])(?:{_SLOT_WORDS})(?![a-z])")
_TO_END: Final = r"(?P<object>[^,;，；。！？()（）]+)"

_PATTERNS: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("lives_in", rf"\b(?:live|lives|living|reside|resides|residing|based|moved|relocated) (?:in|to)\s+{_TO_END}"),
        ("lives_in", rf"(?:居住在|住在|定居在|搬到了?|搬去了?|现居)\s*{_TO_END}"),
        ("named", rf"\b(?:is|am|are|'m|'s)? ?(?:named|called)\s+{_TO_END}"),
        ("named", rf"\bname (?:is|=)\s+{_TO_END}|\bname's\s+(?P<object2>[^,;]+)"),
        ("named", rf"(?:名叫|名字是|名字叫|叫做|(?<=我)叫|(?<=他)叫|(?<=她)叫|(?<=户)叫)\s*{_TO_END}"),
        ("works_at", rf"\b(?:work|works|working|employed) (?:at|for|with)\s+{_TO_END}"),
        ("works_at", rf"(?:就职于|任职于|供职于)\s*{_TO_END}|在\s*(?P<object2>[^,，。]+?)\s*(?:工作|上班)"),
    )
)
_VERSION: Final = re.compile(r"\bversion of\s+(?P<slot>[^,;]+?)\s+(?:is|=|to)\s+(?P<object>[^,;]+)")
_VERSION_CJK: Final = re.compile(r"(?P<slot>[\w.+# ]+?)\s*(?:的)?版本(?:是|为|号是|号为)\s*(?P<object>[^,;，；。]+)")
_USES: Final = re.compile(r"\b(?:use|uses|using|run|runs|adopt|adopts)\s+(?P<rest>[^,;]+)")
_USES_CJK: Final = re.compile(r"(?<!不)(?<!作)(?:使用|采用|选用|用)(?!户)\s*(?P<rest>[^,;，；。！？]+)")
_USED_AS: Final = re.compile(r"^(?P<object>.+?)\s+(?:as|for)\s+(?:the |its |our |their |a |my )*(?P<slot>[^,;]+)$")
_USED_AS_CJK: Final = re.compile(r"^(?P<object>.+?)\s*(?:作为|作|当作|当|做)\s*(?P<slot>[^,，。]+)$")
_SLOT_IS: Final = re.compile(
    rf"(?P<slot>(?<![a-z])(?:{_SLOT_WORDS})(?![a-z]))\s*(?:is|=|:|是|为|：)\s*(?P<object>[^,;，；。]+)"
)
_CUT: Final = re.compile(
    r"\s+(?:with|since|and|in|for|because|near|now|but|where|which|as|at|on|until|by)\s+|和|自从|因为|，"
)
_GENERIC: Final = features(
    "the user users i we me my he she they it you project app team 用户 项目 我们 团队 本项目 该项目"
)
_NOISE: Final = features("currently now always usually still mainly also really 现在 目前")
_COLLECTING: Final = re.compile(
    r"\b(?:like|likes|love|loves|enjoy|enjoys|speak|speaks|knows|owns|plays|has visited|is interested in)\b"
    r"|喜欢|喜爱|爱好|会说|会讲|懂|养了|感兴趣"
)


_Add = Callable[[str, str, str], None]


@dataclass(frozen=True, slots=True)
class Predicate:
    """`name` with its slot (`uses:database`), the features of its subject (empty when general) and of its object."""

    name: str
    subject: frozenset[str]
    object: frozenset[str]
    past: bool = False


def single_valued(sentence: str, context: str = "") -> tuple[Predicate, ...]:
    """The one-value predicates of a sentence. `context` is topic and title: where `uses X` finds its slot word."""
    text = normalise(sentence).replace("’", "'")
    past = is_past(sentence)
    found: list[Predicate] = []

    def add(name: str, subject: str, value: str) -> None:
        target = features(_CUT.split(value.strip(), maxsplit=1)[0])
        if target:
            found.append(Predicate(name, features(subject) - _GENERIC - _NOISE, target, past))

    for name, pattern in _PATTERNS:
        match = pattern.search(text)
        if match is not None:
            groups = match.groupdict()
            add(name, text[: match.start()], groups.get("object") or groups.get("object2") or "")
    for pattern in (_VERSION, _VERSION_CJK):
        match = pattern.search(text)
        if match is not None:
            add("version:" + " ".join(sorted(features(match["slot"]) - _GENERIC)), "", match["object"])
    _uses(text, normalise(context), add)
    return tuple(dict.fromkeys(found))


def _uses(text: str, context: str, add: _Add) -> None:
    match = _SLOT_IS.search(text)
    if match is not None:
        add("uses:" + _slot(match["slot"]), text[: match.start()], match["object"])
    match = _USES.search(text) or _USES_CJK.search(text)
    if match is None:
        return
    subject, rest = text[: match.start()], match["rest"].strip()
    used = _USED_AS.match(rest) or _USED_AS_CJK.match(rest)
    if used is not None:
        add("uses:" + _slot(used["slot"]), "", used["object"])
        return
    inside = _SLOT.search(rest)
    before = _SLOT.search(subject)
    if inside is not None and inside.start() > 0:
        add("uses:" + _slot(inside.group()), "", rest[: inside.start()])
    elif before is not None:
        add("uses:" + _slot(before.group()), "", rest)
    elif (told := _SLOT.search(context)) is not None:
        add("uses:" + _slot(told.group()), "", rest)


def _slot(text: str) -> str:
    known = _SLOT.search(text)
    word = known.group() if known else text.strip(" .。!！?？")
    if word in _SYNONYMS:
        return _SYNONYMS[word]
    return word if known else " ".join(sorted(features(word)))


def collecting(sentence: str) -> frozenset[str]:
    """The predicates in a sentence that collect values (likes, speaks, 喜欢): two of them never contradict."""
    found = (match.group() for match in _COLLECTING.finditer(normalise(sentence)))
    return frozenset(_STEMS.get(word, word) for word in found)


_STEMS: Final = {"likes": "like", "loves": "love", "enjoys": "enjoy", "speaks": "speak", "喜爱": "喜欢", "会讲": "会说"}


def are_of_one_person(one: Predicate, two: Predicate) -> bool:
    """Whether two predicates say the same thing about a person, as far as their subjects tell."""
    if one.name != two.name or one.name not in ("lives_in", "works_at", "named"):
        return False
    return not one.subject or not two.subject or bool(one.subject & two.subject)


def differ(new: Predicate, old: Predicate) -> bool:
    """Whether the same predicate of the same subject has another value now (one being a part of the other is none)."""
    if new.name != old.name or new.past != old.past:
        return False
    if new.subject and old.subject and not new.subject & old.subject:
        return False
    return not (new.object <= old.object or old.object <= new.object)
