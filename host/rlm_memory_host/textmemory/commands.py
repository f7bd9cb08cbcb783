"""What a user's sentence asks for: to forget, hide or restore a memory, and whether across all projects. Pure.

Owns: the three cue classes with their negation, the sentence that names the target, cross-project cues, cues of
preference, person and sensitivity. Does not own: whether the message is the user's (`capture`), what is allowed
(`gates`).

A cue counts in the user's own, unquoted statement only. "Don't forget …" is no cue to forget, and 不要再提 is a cue to
hide and never one to restore. Two classes in one sentence are ambiguous: a person picks.

Source: design page "The memory model", Lifecycle and gates, Cross-project cues; adversarial input 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from rlm_memory_host.storage.tokens import normalise
from rlm_memory_host.textmemory.quotes import QUOTE_QUESTION, Statement, statements
from rlm_memory_host.textmemory.sentences import features, fold, overlap
from rlm_memory_host.textmemory.subjects import names_another

Action = Literal["forget", "hide", "restore"]
ACTIONS: Final[tuple[Action, ...]] = ("forget", "hide", "restore")
NAMED_OVERLAP: Final = 0.5
"""Share of a target's words that a sentence must hold to name it."""

_LEAD: Final = (
    r"(?:^|[,;:—-]\s*|\b(?:and|then|so|but|ok|okay|now|please|just|also|well|yes|no)[,\s]\s*)"
    r"(?:(?:please|just|kindly|also|now|you can|you may|you should|you must|go ahead and|feel free to|i want you to|"
    r"i'd like you to|i would like you to|i need you to|let's|(?:can|could|would|will) you(?: please)?)\s+)*"
)
_NOT: Final = (
    r"(?:don't|do not|dont|never|cannot|can't|must not|mustn't|should not|shouldn't|no need to|not to)\s+"
    r"(?:ever\s+|you\s+)?"
)
_MENTION: Final = r"(?:mention|bring up|bring|talk about|refer to|show|remind me (?:of|about)|raise)"
_FORGET_VERB: Final = r"(?:forget(?: about)?|delete|remove|erase|drop|wipe|discard|unlearn)"

_FORGET: Final = re.compile(
    _LEAD + r"(?:" + _FORGET_VERB + r"|stop remembering|(?:don't|do not|dont) remember|no longer remember)\b"
    r"|(?:^|[,，。；;：:\s]|请|麻烦|帮我|可以|你|把.{1,40}?|将.{1,40}?|也|都|就|快)"
    r"(?:忘记|忘掉|忘了|删除|删掉|清除|抹掉|抹去|不要记住?|别记住?|不用记住?|不必记住?|不要再记)"
)
_FORGET_NEGATED: Final = re.compile(
    _NOT
    + r"(?:let me |let us )?"
    + _FORGET_VERB
    + r"\b|\bnot forget\b|\bunforget|\b(?:i|we|they|he|she)\s+(?:\w+\s+)?(?:forget|forgot|deleted|removed)\b"
    r"|(?:不要|不能|别|不许|不可以|不可|切勿|勿|不用|千万别)(?:再|把.{1,40}?)?(?:忘记|忘掉|忘了?|删除|删掉|删|清除|抹掉)"
    r"|(?:我|我们|他|她)(?:又|已经|差点|老是|总是)?(?:忘记|忘掉|忘)了?|取消删除|撤销删除|没忘"
)
_HIDE: Final = re.compile(
    _LEAD + r"(?:hide|suppress|mute|stop (?:mentioning|bringing|showing|talking about|referring to|reminding))\b"
    r"|" + _NOT + _MENTION + r"\b"
    r"|(?:不要|别|不用|不必|不许|请勿|勿)(?:再)?(?:提起|提到|提及|提|说起|显示|展示)|不(?:想|要)再(?:听到|看到|提)"
    r"|(?:^|[,，。；;：:\s]|请|麻烦|帮我|把.{1,40}?|将.{1,40}?)(?:隐藏|屏蔽|藏起来)"
)
_HIDE_NEGATED: Final = re.compile(
    _NOT + r"(?:hide|suppress|mute|stop (?:mentioning|bringing|showing|talking))\b|\bunhide\b|\bunmute\b"
    r"|\b(?:i|we|they|he|she)\s+(?:hide|hid)\b"
    r"|(?:不要|别|不用|取消|停止|解除|不能)(?:再)?(?:隐藏|屏蔽|藏)|不再隐藏"
)
_RESTORE: Final = re.compile(
    _LEAD + r"(?:restore|unhide|undelete|unmute|un-?forget|recover|reinstate|bring\b.{1,60}?\bback|start mentioning|"
    r"show\b.{1,60}?\bagain|mention\b.{1,60}?\bagain|remember\b.{1,60}?\bagain)\b"
    r"|(?:^|[,，。；;：:\s]|请|麻烦|帮我|可以|把.{1,40}?|将.{1,40}?)(?:恢复|找回|取消隐藏|取消屏蔽|解除隐藏|重新显示|重新记住|取消删除|撤销删除|再提起?)"
)
_RESTORE_NEGATED: Final = re.compile(
    _NOT + r"(?:restore|unhide|undelete|recover|reinstate|bring|show|mention|remember)\b"
    r"|(?:不要|别|不用|不必|不许|请勿|勿|不想|不能)(?:再)?(?:恢复|找回|提|取消|显示|重新)"
)
_CUES: Final = {
    "forget": (_FORGET, _FORGET_NEGATED),
    "hide": (_HIDE, _HIDE_NEGATED),
    "restore": (_RESTORE, _RESTORE_NEGATED),
}
_REQUEST: Final = re.compile(
    r"^(?:(?:please|ok|okay|hey|hi|now|so|and)[,\s]+)*(?:can|could|would|will) you\b|^(?:你)?(?:能不能|能|可以"
    r"|可不可以)(?:请|帮)?",
    re.IGNORECASE,
)
_DEICTIC: Final = re.compile(
    r"\b(?:this|it|these|those|them)\b"
    r"|\bthat\b(?=\W*(?:$|[.!?,;:)]|(?:one|thing|memory|note|fact|entry|rule|preference|please|too|now|again|as|from"
    r"|for|and|ever|any ?more|about|anymore)\b))"
    r"|这个|那个|这条|那条|这件事|那件事|这|它|此事"
)

_GLOBAL: Final = re.compile(
    r"\b(?:all|every|any|across)(?: of)?(?: (?:my|our|the))? (?:projects?|workspaces?|repositor(?:y|ies)"
    r"|repos?)\b|\beverywhere (?:i|we) work\b"
    r"|所有的?项目|所有的?工作区|跨项目|以后所有|全局(?!变量|状态|锁)"
)
_GLOBAL_NEGATED: Final = re.compile(
    r"\b(?:not|never|except|no|isn't|doesn't|don't)\b[^,;]{0,40}\b(?:all|every|any|across|everywhere)\b"
    r"|\bnot\b.{0,20}\bglobal"
    r"|(?:不是|不要|不对|别|不能|并非|不在|不用|不适用于|而非|除了?)[^，。；]{0,12}(?:所有|跨项目|全局|以后)"
    r"|\bonly (?:in|for) this\b|只在(?:这个|本)"
)

_PREFERENCE: Final = re.compile(
    r"\b(?:i|we|user|he|she|they)(?:'d)?\s+(?:\w+\s+){0,2}(?:prefer|prefers|like|likes|love|loves|hate"
    r"|hates|dislike|dislikes|enjoy|enjoys|want|wants|favou?r)\b"
    r"|\b(?:my|the user's|their|his|her) (?:favou?rite|preference|preferred|habit)\b|\bprefers?\b"
    r"|喜欢|偏好|更爱|讨厌|不爱|习惯(?:用|于)|偏爱|我想要"
)
_FIRST_PERSON: Final = re.compile(r"\b(?:i|i'm|i've|i'd|my|me|mine|myself)\b|我(?!们)|本人|俺")
_PERSON: Final = re.compile(
    r"\b(?:the user|user) (?:is|lives|works|has|was|speaks|owns|studies|comes)\b|\b(?:born (?:in|on)"
    r"|married|wife|husband|daughter|son|girlfriend|"
    r"boyfriend|colleague|birthday|years old|his name|her name|my name)\b"
    r"|住在|出生|生日|妻子|丈夫|女儿|儿子|女朋友|男朋友|同事|岁|名叫|就职|任职|用户(?:是|住|叫|在)"
)
_NAMED_PERSON: Final = re.compile(
    r"(?:^|(?:\b(?:[A-Z][a-z]+|[Uu]ser|[Hh]e|[Ss]he|[Ww]ho|[Tt]hey)\s+))(?:now |currently )?"
    r"(?:(?:lives?|works?|moved|resides?|studies) (?:in|at|for|to)|speaks|is named|is married|was born) [A-Z\d]"
    # What somebody is fond of; a tool of that name waits for a person as well, which costs a look and no privacy.
    r"|\b[A-Z][a-z]+ (?:(?:really|always|usually|still|also) )?(?:likes|loves|hates|dislikes|enjoys|adores|wants) \w"
)
_SENSITIVE: Final = re.compile(
    r"\b(?:diagnos\w*|depress\w*|anxiety|therap\w*|medication|disease|illness|cancer|hiv|pregnan\w*"
    r"|disab\w*|religio\w*|gay|lesbian|sexual\w*|"
    r"transgender|salary|debt|bankrupt\w*|credit card|passport|social security|ssn|bank account|criminal"
    r"|arrest\w*|political party|"
    r"ethnic\w*|suicid\w*|addict\w*|alcoholic)\b"
    r"|确诊|抑郁|焦虑症|治疗|服药|癌症|怀孕|残疾|宗教|信仰|同性恋|性取向|工资|薪水|负债|破产|信用卡|护照|身份证|银行账户|犯罪|党派|自杀|成瘾"
)
_IDENTIFIER: Final = re.compile(
    r"\b\d{3}-\d{2}-\d{4}\b|\b(?:\d[ -]?){13,19}\b|\b\+?\d{1,3}[ -]?\(?\d{2,4}\)?[ -]\d{3,4}[ -]\d{3,4}\b"
    r"|\b\d{17}[\dx]\b"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asked about one target: the classes found in the sentence that names it, and that sentence."""

    actions: tuple[Action, ...] = ()
    sentence: str = ""
    by_name: bool = False
    """The sentence names the target, not only "this"."""
    negated: tuple[Action, ...] = ()
    """Classes that the sentence naming the target forbids ("don't forget …")."""

    @property
    def is_ambiguous(self) -> bool:
        """Whether two classes stand in the sentence: a person picks from a confirmation list."""
        return len(self.actions) > 1


def actions_in(sentence: str) -> tuple[Action, ...]:
    """The cue classes that one sentence really asks for."""
    text = normalise(sentence).replace("’", "'").strip(" \t*-•")
    found: list[Action] = []
    for action in ACTIONS:
        cue, negated = _CUES[action]
        rest = negated.sub(" ■ ", text)
        if cue.search(rest if action != "hide" else negated.sub(" ■ ", text)):
            found.append(action)
    return tuple(found)


def negated_in(sentence: str) -> tuple[Action, ...]:
    """The cue classes that one sentence forbids: `forget` for "don't forget", `restore` for 不要恢复."""
    text = normalise(sentence).replace("’", "'")
    return tuple(action for action in ACTIONS if _CUES[action][1].search(text))


def asked_about(message: str | None, names: tuple[str, ...], memory_id: str = "") -> Asked:
    """What the latest user message asks about the memory with these names (title, body, alias, the given target).

    Looks at the sentences that name it; where none does, at one that only points ("forget that").
    """
    pointing: Asked | None = None
    negated: list[Action] = []
    for statement in statements(message or ""):
        if not _may_ask(statement):
            continue
        actions = actions_in(statement.text)
        is_named = names_target(statement.text, names, memory_id)
        if is_named or _DEICTIC.search(normalise(statement.text)):
            negated.extend(negated_in(statement.text))
        if actions and is_named:
            return Asked(actions, statement.text, by_name=True, negated=tuple(negated))
        if actions and _DEICTIC.search(normalise(statement.text)):
            pointing = pointing or Asked(actions, statement.text)
    found = pointing or Asked()
    return Asked(found.actions, found.sentence, negated=tuple(negated))


def _may_ask(statement: Statement) -> bool:
    """A statement, or a request put as a question ("could you forget …?")."""
    if statement.own:
        return True
    return statement.why == QUOTE_QUESTION and _REQUEST.match(statement.text) is not None


def names_target(sentence: str, names: tuple[str, ...], memory_id: str = "") -> bool:
    """Whether a sentence names a memory: by id, by a name as written, or by half of a name's words."""
    if memory_id and memory_id in sentence:
        return True
    said = features(sentence)
    for name in names:
        wanted = features(name)
        if name and fold(name) and len(fold(name)) > 1 and fold(name) in fold(sentence):
            return True
        shares = bool(wanted) and len(wanted & said) / len(wanted) >= NAMED_OVERLAP and overlap(wanted, said) > 0
        if shares and not names_another(sentence, name):
            return True
    return False


def is_cross_project(message: str | None) -> bool:
    """Whether an own, unnegated statement says that something holds for all projects."""
    return any(says_all_projects(statement.text) for statement in statements(message or "") if statement.own)


def says_all_projects(sentence: str) -> bool:
    """Whether one sentence has an unnegated, unquoted cross-project cue."""
    text = without_quoted(normalise(sentence).replace("’", "'"))
    return _GLOBAL.search(text) is not None and _GLOBAL_NEGATED.search(text) is None


def without_quoted(text: str) -> str:
    """A text without what stands in quotation marks."""
    return re.sub(r"\"[^\"]*\"|“[^”]*”|「[^」]*」|『[^』]*』|`[^`]*`", " ", text)


def is_preference(text: str) -> bool:
    """Whether a text speaks of what somebody likes, wants or is used to."""
    return _PREFERENCE.search(normalise(text).replace("’", "'")) is not None


def is_personal(text: str) -> bool:
    """Whether a text speaks in the first person or about a person."""
    shaped = normalise(text).replace("’", "'")
    return any(pattern.search(shaped) for pattern in (_FIRST_PERSON, _PERSON)) or _NAMED_PERSON.search(text) is not None


def sensitivity_cue(text: str) -> Literal["", "identifier", "sensitive"]:
    """`sensitive` for health, faith, money and the like, `identifier` for numbers that look like a person's papers."""
    shaped = normalise(text)
    if _SENSITIVE.search(shaped):
        return "sensitive"
    return "identifier" if _IDENTIFIER.search(shaped) else ""
