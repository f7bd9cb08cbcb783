"""Which of several like things a sentence speaks of: sensor 3 or sensor 4, server A or server B, Kim's limit or Lee's.

Owns: reading the mark that tells like things apart, and whether two texts are about different ones. Does not own: what
follows from that (`judge`, `tombstones`, `commands`). Pure functions; word lists and no grammar.

A number is a mark where it names and a value where it measures: it names behind a noun, in front of what is said of it
("sensor 3 reads …", "3号机位于…"), never before a unit, never with a point, and never in the object ("runs on
server 1" has one value for where it runs). Nouns that come in numbers are told apart by any number. Behind any other
word ("Java 17 is required") the number may as well be a version, so the rest has to differ too, without a word of
change. Two subjects with one head and other words before it ("gateway timeout", "scheduler timeout") are two as well.

Source: design page "The memory model", Relation judge (only what speaks of one subject can contradict).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rlm_memory_host.storage.tokens import normalise
from rlm_memory_host.textmemory.polarity import cues
from rlm_memory_host.textmemory.sentences import features, split, stem

_NUMBERED_WORDS: Final = """
    server host node machine box vm worker shard replica partition cluster pod rack disk drive gpu cpu core queue sensor
    probe detector camera channel electrode lamp beam laser valve pump motor axis robot arm printer rig reactor tank
    oven furnace freezer incubator station unit module cell plate well sample specimen batch lot run trial experiment
    assay fold room lab floor building door gate line track lane platform zone bay shelf slot step phase stage round
    task ticket job request group team squad patient participant subject player account customer client contract
    invoice order chapter section figure table column row page question exercise service instance device meter mouse
    rat animal tube vial engine pipeline street house flat apartment
"""
_VERB_WORDS: Final = """
    is are was were has have had does do did can cannot may must should shall will would could needs need uses use used
    runs run ran reads read holds hold held keeps kept takes took lives lived works worked stands sits listens serves
    serve stores store writes wrote sends sent handles belongs fails failed contains measures measured reports reported
    shows showed supports connects requires required costs weighs starts started stops stopped ends ended gets got goes
    went stays stayed drifts drifted gives gave expects allows allowed accepts returns returned retries waits waited
    points speaks hosts moved drives drove became becomes equals means isn't wasn't doesn't didn't
"""
_FORM_WORDS: Final = """
    new old current former default max maximum min minimum total usual standard actual main primary own chosen favourite
    favorite preferred latest next previous first last
"""
_DETERMINER_WORDS: Final = "the a an our my your this that each every their his her its"
_NUMBERED: Final = frozenset(stem(word) for word in _NUMBERED_WORDS.split())
"""Nouns that come in numbers. Not among them: what a number is a value of (port, version, level, priority, day)."""
_VERBS: Final = frozenset(_VERB_WORDS.split())
_LINKS: Final = frozenset(("of", "for", "in", "on", "at", "from", "to", "with", "by"))
_DETERMINERS: Final = frozenset(_DETERMINER_WORDS.split())
_FORMS: Final = frozenset(_FORM_WORDS.split())
"""Words before a head that say which value of it is meant, and not which thing."""
_WORD: Final = re.compile(r"[^\W_]+(?:['.][^\W_]+)*|[:：=#]|\S")
_MARK: Final = re.compile(r"\d{1,9}|[a-z]\d{1,6}|[a-hj-z]|alpha|beta|gamma|delta|omega", re.ASCII)
_JOINED: Final = re.compile(r"(?<=[a-z])[-#](?=(?:\d{1,9}|[a-z])\b)")

_NUMBERED_CJK: Final = (
    "服务器|主机|节点|机器|传感器|探头|探测器|摄像头|通道|电极|阀门?|泵|电机|机械臂|机器人|打印机|反应器|反应釜|储罐|"
    "冰箱|培养箱|工位|单元|模块|样品|样本|批次|实验|试验|房间|实验室|楼层|产线|生产线|轨道|车道|平台|区域?|货架|槽位|步骤|"
    "阶段|任务|工单|作业|小组|团队|患者|病人|受试者|选手|账户|客户|合同|订单|章节?|图|表|队列|分片|副本|集群|仪器|设备|线路"
)
_SAID_CJK: Final = r"(?:的|是|为|使用|采用|用|在|有|需|读|运行|存|位于|监听|负责|支持|连接|保持|属于|由|：|:|=)"
_CJK: Final = re.compile(
    rf"(?:(?P<noun>{_NUMBERED_CJK})\s*(?:第|#|编号)?\s*(?P<number>\d{{1,9}}|[a-z])\s*(?:号|台)?(?=\s*{_SAID_CJK}))"
    rf"|(?:第?\s*(?P<number2>\d{{1,9}}|[a-z])\s*(?:号|#)\s*(?P<noun2>{_NUMBERED_CJK}|机|楼|库|线|车间|仓|井|炉))"
    r"|(?:第\s*(?P<number3>\d{1,9})\s*(?P<noun3>步|组|批|层|楼|轮|期|章|节|队|阶段|小组|台|次实验))"
)
_OBJECT_CJK: Final = re.compile(r"[是为用在有需到由]|运行|监听|位于")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a sentence's subject is called by: its noun, the mark behind it, and the features of all that is not it.

    `is_sure`: the noun comes in numbers, so another number is another thing whatever else is said.
    """

    noun: str
    mark: str
    rest: frozenset[str]
    is_sure: bool


def are_apart(one: str, other: str, titles: tuple[str, str] = ("", "")) -> bool:
    """Whether two texts speak of different ones of like things, and nowhere of the same; titles count with them."""
    mine = (*_marks(f"{titles[0]}:"), *_marks(one))
    theirs = (*_marks(f"{titles[1]}:"), *_marks(other))
    if not mine or not theirs:
        return _heads_apart(one, other)
    shared = {mark.noun for mark in mine} & {mark.noun for mark in theirs}
    changed = bool(cues(one) - cues(other))
    pairs = [(left, right) for left in mine for right in theirs if left.noun == right.noun]
    return bool(shared) and all(
        left.mark != right.mark and _tells(left, right, changed=changed) for left, right in pairs
    )


def names_another(sentence: str, name: str) -> bool:
    """Whether a sentence names one of the like things that `name` is one of, and not that one ("forget sensor 3")."""
    shaped = _JOINED.sub(" ", normalise(sentence))
    words = [stem(word) for word in _WORD.findall(shaped) if word != "#"]
    for mark in (*_marks(name), *_marks(f"{name}:")):
        said = {words[at + 1] for at, word in enumerate(words[:-1]) if word == mark.noun}
        said = {word for word in said if _MARK.fullmatch(word)}
        if not mark.noun.isascii():
            behind = re.findall(rf"{mark.noun}\s*(?:第|#|编号)?\s*(\d+)", shaped)
            said = {*behind, *re.findall(rf"(\d+)\s*(?:号|#)?\s*{mark.noun}", shaped)}
        if said and mark.mark not in said:
            return True
    return False


def _tells(left: Mark, right: Mark, *, changed: bool) -> bool:
    """Whether two marks of one noun name two things."""
    return left.is_sure or (not changed and left.rest != right.rest)


@lru_cache(maxsize=8_192)
def _marks(text: str) -> tuple[Mark, ...]:
    found = (_mark(sentence.text) for sentence in split(text))
    return tuple(mark for mark in found if mark is not None)


def _mark(sentence: str) -> Mark | None:
    shaped = normalise(sentence).replace("’", "'")
    return _latin_mark(_JOINED.sub(" ", shaped)) or _cjk_mark(shaped)


def _latin_mark(text: str) -> Mark | None:
    words = _WORD.findall(text)
    for at, word in enumerate(words[:8]):
        if word in _VERBS:
            return None
        if at == 0 or _MARK.fullmatch(word) is None:
            continue
        place = at - 2 if words[at - 1] == "#" else at - 1
        noun = words[place] if place >= 0 else ""
        following = words[at + 1] if at + 1 < len(words) else ""
        if not noun.isalpha() or noun in _LINKS | _DETERMINERS or _is_object(words[:place]):
            continue
        is_sure = stem(noun) in _NUMBERED
        if not (_is_said(following, is_sure=is_sure) and (is_sure or word.isdigit())):
            continue
        rest = " ".join((*words[:place], *words[at + 1 :]))
        return Mark(stem(noun), word, features(rest), is_sure)
    return None


def _is_said(word: str, *, is_sure: bool) -> bool:
    """Whether a word begins what is said of the thing before it."""
    if word in _VERBS:
        return True
    return is_sure and (word in ":：='" or (word.isalpha() and len(word) > 3 and word.endswith(("s", "ed"))))


def _is_object(before: list[str]) -> bool:
    """Whether the words before a noun make it an object: "deploy to server 1", and not "the port of server 1"."""
    links = {word for word in before if word in _LINKS} - {"of"}
    return bool(links) and before[0] not in _DETERMINERS


def _cjk_mark(text: str) -> Mark | None:
    match = _CJK.search(text)
    if match is None or match.start() > 24 or _OBJECT_CJK.search(text, 0, match.start()):
        return None
    parts = match.groupdict()
    noun = parts["noun"] or parts["noun2"] or parts["noun3"]
    mark = parts["number"] or parts["number2"] or parts["number3"]
    return Mark(noun, mark, features(text[: match.start()] + " " + text[match.end() :]), True)


# -- one head, other words before it -----------------------------------------------------------------------------------
def _heads_apart(one: str, other: str) -> bool:
    mine, theirs = _subjects(one), _subjects(other)
    if len(mine) != 1 or len(theirs) != 1:
        return False
    (head, before), (other_head, other_before) = mine[0], theirs[0]
    return head == other_head and bool(before) and bool(other_before) and not before & other_before


@lru_cache(maxsize=8_192)
def _subjects(text: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """(head, words before it) of each sentence's subject, where it is a plain run of words before a verb."""
    found: list[tuple[str, frozenset[str]]] = []
    for sentence in split(text):
        words = _WORD.findall(normalise(sentence.text).replace("’", "'"))
        stop = next((at for at, word in enumerate(words[:7]) if word in _VERBS), 0)
        subject = [word for word in words[:stop] if word not in _DETERMINERS]
        if len(subject) < 1 or not all(word.isascii() and word[0].isalpha() for word in subject):
            return ()
        if _LINKS & set(subject):
            return ()
        before = frozenset(stem(word.removesuffix("'s")) for word in subject[:-1] if word not in _FORMS)
        found.append((stem(subject[-1]), before))
    return tuple(found)
