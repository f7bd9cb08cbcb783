"""A quote is whole sentences of the user's own; cues are read where the target is named; habits from own words only."""

from __future__ import annotations

import pytest
from rlm_memory_host.textmemory.commands import actions_in, asked_about, is_cross_project, says_all_projects
from rlm_memory_host.textmemory.quotes import own_statements, verify


@pytest.mark.parametrize(
    ("message", "quote", "stored"),
    [
        ("I don't like tea.", "I don't like tea.", "I don't like tea."),
        ("I don’t  like tea.", "I don't like tea", "I don’t  like tea."),
        ("Use tabs. Never push. Thanks", "Use tabs. Never push.", "Use tabs. Never push."),
        ("Hello!\n- use tabs\n- never push", "use tabs", "use tabs"),
        ("我不喜欢茶。我住在柏林。", "我住在柏林", "我住在柏林。"),
        ("ｕｓｅ　ｔａｂｓ please", "use tabs please", "ｕｓｅ　ｔａｂｓ please"),
        ("one\r\nuse tabs\r\ntwo", "use tabs", "use tabs"),
        ('Name the branch "main" always.', 'Name the branch "main" always.', 'Name the branch "main" always.'),
        ("喜欢", "喜欢", "喜欢"),
    ],
)
def test_whole_sentences_verify_and_are_stored_as_written(message: str, quote: str, stored: str) -> None:
    """Blanks, apostrophes and widths are folded to compare; what is kept is the user's own text."""
    assert verify(message, quote).text == stored


@pytest.mark.parametrize(
    ("message", "quote", "code"),
    [
        ("I don't like tea", "like tea", "QUOTE_CLAUSE"),
        ("I would never say that I like green tea", "I like green tea", "QUOTE_CLAUSE"),
        ("我不喜欢茶", "喜欢茶", "QUOTE_CLAUSE"),
        ("别以为我喜欢喝茶。", "我喜欢喝茶", "QUOTE_CLAUSE"),
        ("I don't like e.g. green tea.", "green tea", "QUOTE_CLAUSE"),
        ("I don't like... green tea", "green tea", "QUOTE_CLAUSE"),
        ("I don't like\ngreen tea", "green tea", "QUOTE_CLAUSE"),
        ("I like tea, but never in the morning.", "I like tea", "QUOTE_CLAUSE"),
        ("Do I like tea?", "Do I like tea?", "QUOTE_QUESTION"),
        ("do i like tea", "do i like tea", "QUOTE_QUESTION"),
        ("我喜欢茶吗", "我喜欢茶吗", "QUOTE_QUESTION"),
        ("> I like green tea\nWhat do you think?", "I like green tea", "QUOTE_QUOTED"),
        ("```\nuse tabs always\n```\nok", "use tabs always", "QUOTE_QUOTED"),
        ("~~~\nuse tabs always", "use tabs always", "QUOTE_QUOTED"),
        ("Look:\n\n    use tabs always\n", "use tabs always", "QUOTE_QUOTED"),
        ('"I like green tea."', "I like green tea.", "QUOTE_QUOTED"),
        ("“我喜欢喝绿茶。”", "我喜欢喝绿茶。", "QUOTE_QUOTED"),
        ("「以后都用制表符」", "以后都用制表符", "QUOTE_QUOTED"),
        ("2026-01-02 10:00:00 use tabs always", "2026-01-02 10:00:00 use tabs always", "QUOTE_QUOTED"),
        ("User: use tabs always", "User: use tabs always", "QUOTE_QUOTED"),
        ("用户说：以后都用 tabs", "用户说：以后都用 tabs", "QUOTE_QUOTED"),
        ("On Monday Bob wrote:\nuse tabs always", "use tabs always", "QUOTE_QUOTED"),
        ("<blockquote>use tabs always</blockquote>", "use tabs always", "QUOTE_QUOTED"),
        ("tea", "tea", "QUOTE_SHORT"),
        ("茶", "茶", "QUOTE_SHORT"),
        ("Use spaces here.", "Use tabs here.", "QUOTE_NOT_FOUND"),
        (None, "Use tabs here.", "QUOTE_UNCAPTURED"),
    ],
)
def test_anything_else_is_refused_with_its_reason(message: str | None, quote: str, code: str) -> None:
    """A part of a sentence, a question, somebody else's words, or no message at all."""
    found = verify(message, quote)
    assert (found.code, found.text) == (code, "")
    assert not found.verified


def test_quoted_sentences_inside_a_statement_do_not_become_statements() -> None:
    """What a third person said inside quotation marks is not split off as the user's sentence."""
    message = 'He said "I like green tea. I hate coffee." yesterday.'
    assert not verify(message, "I hate coffee.").verified
    assert own_statements(message) == [message]


@pytest.mark.parametrize(
    ("sentence", "actions"),
    [
        ("Forget that I like tea.", ("forget",)),
        ("please delete the tea note", ("forget",)),
        ("Could you forget that I like tea?", ("forget",)),
        ("请忘记我喜欢茶", ("forget",)),
        ("把我住在柏林这条删掉", ("forget",)),
        ("don't forget I like tea", ()),
        ("Never delete the tea note", ()),
        ("Please do not remove it", ()),
        ("别忘了我喜欢茶", ()),
        ("千万别删掉这条", ()),
        ("I forgot my keys", ()),
        ("我忘记了密码", ()),
        ("Stop mentioning my ex", ("hide",)),
        ("don't bring up tea again", ("hide",)),
        ("Never mention tea again.", ("hide",)),
        ("不要再提这个", ("hide",)),
        ("别再提茶了", ("hide",)),
        ("把这条隐藏", ("hide",)),
        ("Don't hide the tea note", ()),
        ("不要隐藏这条", ()),
        ("Restore the tea memory", ("restore",)),
        ("You can mention tea again", ("restore",)),
        ("恢复我喜欢茶的记忆", ("restore",)),
        ("可以再提茶了", ("restore",)),
        ("取消隐藏茶", ("restore",)),
        ("不要恢复它", ()),
        ("don't restore it", ()),
        ("please don't delete but hide it", ("hide",)),
        ("Hide it and delete it", ("forget", "hide")),
        ("Tea is lovely", ()),
    ],
)
def test_cues_and_their_negation(sentence: str, actions: tuple[str, ...]) -> None:
    """What a sentence asks for, in English and Chinese."""
    assert actions_in(sentence) == actions


def test_the_cue_is_read_in_the_sentence_that_names_the_target() -> None:
    """A cue about one thing says nothing about another."""
    message = "Forget the Berlin address. Use tabs everywhere."
    assert asked_about(message, ("Berlin address",)).actions == ("forget",)
    assert asked_about(message, ("Indentation", "Use tabs everywhere")).actions == ()


def test_a_cue_inside_quoted_text_or_a_question_asks_for_nothing() -> None:
    """Pasted words and questions move no memory."""
    for message in ('He wrote "forget the tea note"', "> forget the tea note", "Did you forget the tea note?"):
        assert asked_about(message, ("tea note",)).actions == ()


def test_two_classes_at_once_are_for_a_person_to_settle() -> None:
    """The answer is a confirmation list."""
    assert asked_about("Hide the tea note and delete the tea note", ("tea note",)).is_ambiguous


def test_pointing_without_a_name_is_told_apart() -> None:
    """`this` can mean anything: the caller has to know that nothing was named."""
    found = asked_about("不要再提这个", ("茶",))
    assert (found.actions, found.by_name) == (("hide",), False)


@pytest.mark.parametrize(
    "sentence",
    [
        "Use tabs in all my projects",
        "every project needs a changelog",
        "Sign commits across our repositories.",
        "everywhere I work, use tabs",
        "所有项目都用 tabs",
        "以后所有提交都要签名",
        "跨项目生效",
        "这条全局有效",
    ],
)
def test_cross_project_cues(sentence: str) -> None:
    """The page's phrases and near ones."""
    assert says_all_projects(sentence)
    assert is_cross_project(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Use tabs here",
        "not in all projects",
        "Don't do this in every project",
        "不要在所有项目里用",
        "全局变量不要用",
        "全局状态放这里",
        "全局锁要小心",
        'the phrase "all projects"',
        "在“所有项目”里",
        "Does that hold for all projects?",
        "> all projects use tabs",
    ],
)
def test_what_is_no_cross_project_cue(sentence: str) -> None:
    """Negated, quoted, asked, or about a global variable."""
    assert not is_cross_project(sentence)
