"""How a new text stands to what is on file: every rule, every row of the page's table, and paraphrases of both."""

from __future__ import annotations

import pytest
from rlm_memory_host.textmemory.judge import Judgement, Relation, Said, judge, refined, uncovered, updated
from rlm_memory_host.textmemory.polarity import is_negative, new_cues

PYTHON = Said("Runtime", "Python compatibility", "The project supports Python 3.10.", "mem_py")


def against(
    old: str, new: str, *, title: str = "Note", topic: str = "Topic", new_title: str | None = None
) -> Judgement:
    return judge(Said(topic, new_title or title, new), [Said(topic, title, old, "mem_old")])


@pytest.mark.parametrize(
    ("new", "relation"),
    [
        ("The project supports Python 3.10.", "DUPLICATE"),
        ("  the PROJECT supports\tpython 3.10 ", "DUPLICATE"),
        ("Ｔｈｅ project supports Python 3.10。", "DUPLICATE"),
        ("The project supports Python 3.10 and avoids 3.11-only APIs.", "REFINE"),
        ("The project supports Python 3.10 on Linux and on macOS.", "REFINE"),
        ("The project supports Python 3.12.", "CONFLICT"),
        ("Python 3.12 is what the project supports.", "CONFLICT"),
        ("项目支持 Python 3.12。", "CONFLICT"),
        ("The project now uses Python 3.12.", "UPDATE"),
        ("Now on Python 3.12.", "UPDATE"),
        ("switched to 3.12", "UPDATE"),
        ("Upgraded to 3.12.", "UPDATE"),
        ("The project switched to Python 3.12.", "UPDATE"),
        ("We have upgraded to Python 3.12.", "UPDATE"),
        ("The project currently requires Python 3.12.", "UPDATE"),
        ("项目现在使用 Python 3.12。", "UPDATE"),
        ("已升级到 Python 3.12。", "UPDATE"),
        ("目前改为 Python 3.12", "UPDATE"),
    ],
)
def test_the_pages_python_rows_and_their_paraphrases(new: str, relation: str) -> None:
    """The project's Python version is repeated, refined, disputed or updated, as a reader would say."""
    found = judge(Said("Runtime", "Python compatibility", new), [PYTHON])
    assert found.relation == relation
    assert found.target == "mem_py"


def test_the_same_text_under_another_title_is_a_duplicate() -> None:
    """Where a text is filed does not make it a second fact."""
    found = judge(Said("Elsewhere", "Something else", "The project supports Python 3.10"), [PYTHON])
    assert (found.relation, found.confidence, found.rule) == (Relation.DUPLICATE, 0.99, 2)


@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        ("Use pytest for tests.", "Do not use pytest for tests.", "CONFLICT"),
        ("Use pytest for tests.", "Never use pytest for tests", "CONFLICT"),
        ("We use pytest for tests.", "We don’t use pytest for tests.", "CONFLICT"),
        ("使用 pytest 做测试。", "不要使用 pytest 做测试。", "CONFLICT"),
        ("用 pytest 做测试", "禁止用 pytest 做测试", "CONFLICT"),
        ("提交前运行测试", "提交前别运行测试", "CONFLICT"),
        ("Force pushes are fine.", "Avoid force pushes.", "CONFLICT"),
        ("Use pytest for tests.", "Coverage threshold is 80 percent.", "CONFLICT"),
        ("Use pytest for tests.", "Now the coverage threshold is 80 percent.", "CONFLICT"),
        ("用 pytest 做测试。", "覆盖率阈值为百分之八十", "CONFLICT"),
        ("lives in Berlin", "lives in Munich", "CONFLICT"),
        ("lives in Berlin", "now lives in Munich", "UPDATE"),
        ("The user lives in Berlin.", "She lives in Munich.", "CONFLICT"),
        ("我住在柏林", "我住在慕尼黑", "CONFLICT"),
        ("我住在柏林", "我现在住在慕尼黑", "UPDATE"),
        ("works at Acme", "works at Globex", "CONFLICT"),
        ("works at Acme", "currently works at Globex", "UPDATE"),
        ("My name is Anna", "My name is Annette", "CONFLICT"),
        ("The version of Node is 18", "The version of Node is 20", "CONFLICT"),
        ("uses Postgres as database", "uses MySQL as database", "CONFLICT"),
        ("uses the Postgres database", "uses the MySQL database", "CONFLICT"),
        ("使用 Postgres 作为数据库", "使用 MySQL 作为数据库", "CONFLICT"),
        ("数据库使用 Postgres", "数据库使用 MySQL", "CONFLICT"),
        ("timeout 30 s; coverage 80 percent", "timeout 60 s; coverage 90 percent", "CONFLICT"),
        ("The timeout is 30 seconds.", "The timeout is 60 seconds.", "CONFLICT"),
        ("超时 30 秒；覆盖率 80%", "超时 60 秒；覆盖率 90%", "CONFLICT"),
        ("The limit is 12,000 rows", "The limit is 12000 rows", "DUPLICATE"),
        ("Never push. Use pytest.", "Never push. Do not use pytest.", "CONFLICT"),
        ("不要推送。使用 pytest。", "不要推送。不要使用 pytest。", "CONFLICT"),
        ("Do not change the schema.", "Change the schema freely.", "CONFLICT"),
        ("不要修改数据库结构。", "可以随意修改数据库结构。", "CONFLICT"),
        ("The API is served by Flask.", "The API switched to FastAPI.", "UPDATE"),
        ("lives in Berlin", "used to live in Berlin", "CONFLICT"),
    ],
)
def test_pairs_of_the_page_and_their_paraphrases(old: str, new: str, relation: str) -> None:
    """The table's other rows, under one title."""
    assert against(old, new).relation == relation


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("likes tea", "likes jazz"),
        ("The user speaks French", "speaks German fluently at work"),
        ("喜欢茶", "喜欢爵士乐"),
        ("used to live in Berlin", "lives in Munich"),
        ("以前住在柏林", "现在住在慕尼黑"),
        ("She worked at Acme years ago", "She works at Globex"),
        ("lives in Berlin", "lives in Berlin, Germany"),
    ],
)
def test_sets_accumulate_and_the_past_does_not_contradict(old: str, new: str) -> None:
    """Both stay: two liked things, and where somebody lived beside where they live."""
    found = against(old, new)
    assert found.relation is Relation.REFINE
    both = refined(old, new)
    assert old in both
    assert new in both


def test_uses_takes_its_slot_from_the_topic() -> None:
    """Two databases contradict under a topic of databases, and are two things elsewhere."""
    assert against("uses Postgres", "uses MySQL", topic="Database").relation is Relation.CONFLICT
    assert against("使用 Postgres", "使用 MySQL", topic="数据库").relation is Relation.CONFLICT
    assert against("uses Postgres", "uses MySQL", topic="Tools").relation is not Relation.CONFLICT


@pytest.mark.parametrize(
    ("new", "title", "topic"),
    [
        ("Deploy on Fridays.", "Deploy calendar", "Release"),
        ("周五发布", "发布日程", "发布"),
        ("The user likes tea.", "Hot drinks", "Taste"),
    ],
)
def test_another_topic_and_title_is_new(new: str, title: str, topic: str) -> None:
    """Rule 3."""
    found = judge(Said(topic, title, new), [PYTHON])
    assert (found.relation, found.confidence, found.rule, found.target) == (Relation.NEW, 0.78, 3, None)


@pytest.mark.parametrize("topic", ["Rig", "Rig cooling", "The rig in the east cellar", "实验台", "东侧 实验台 冷却"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("Pump speed", "The pump runs at 1,200 rpm."), ("Coolant", "The loop is filled with glycol.")),
        (("Signing", "Tags are signed with the team key."), ("Branches", "Branches are now named after team tickets.")),
        (("Consent forms", "Forms lie in the vault."), ("Screening", "Screening takes 14 days.")),
        (("Pump speed", "The pump runs at 1,200 rpm."), ("Coolant", "Behind the pump the loop now holds 4 l.")),
        (("Compiler", "We use clang for release builds."), ("Cache place", "The build cache lies on the NAS.")),
        (("水泵转速", "水泵以每分钟 1200 转运行。"), ("冷却液", "回路里装着乙二醇。")),
        (("签名", "标签用团队密钥签名。"), ("分支", "分支现在以工单命名。")),
        (("保留期", "原始文件保留 90 天。"), ("格式", "输入都是表格。")),
    ],
)
def test_two_subjects_of_one_topic_are_two_memories(topic: str, old: tuple[str, str], new: tuple[str, str]) -> None:
    """However many words the topic has: neither waits as a conflict, and a cue in one overwrites no other."""
    for before, after in ((old, new), (new, old)):
        assert judge(Said(topic, *after), [Said(topic, *before, "mem_old")]).relation is Relation.NEW


@pytest.mark.parametrize("topic", ["Rig cooling", "The rig in the east cellar", "东侧 实验台 冷却"])
@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        (("Pump", "The pump runs at 1,200 rpm."), ("Speed", "The pump runs at 900 rpm."), "CONFLICT"),
        (("Pump", "The pump runs at 1,200 rpm."), ("Speed", "The pump now runs at 900 rpm."), "UPDATE"),
        (("Cleaning", "Rinse the loop with acid."), ("Care", "Never rinse the loop with acid."), "CONFLICT"),
        (("Store", "uses Postgres as database"), ("Backend choice", "uses MySQL as database"), "CONFLICT"),
        (("Home", "lives in Oslo"), ("Address", "lives in Bergen"), "CONFLICT"),
        (("水泵", "水泵以每分钟 1200 转运行。"), ("转速", "水泵以每分钟 900 转运行。"), "CONFLICT"),
        (("清洗", "用酸冲洗回路。"), ("保养", "不要用酸冲洗回路。"), "CONFLICT"),
        (("Pump", "The pump runs at 1,200 rpm."), ("Speed", "The pump runs at 1,200 rpm."), "DUPLICATE"),
        (("Filling", "The loop holds glycol."), ("Volume", "The loop holds glycol and some dye."), "REFINE"),
    ],
)
def test_what_contradicts_under_another_title_is_still_found(
    topic: str, old: tuple[str, str], new: tuple[str, str], relation: str
) -> None:
    """Also when another memory of the topic is nearer by its title."""
    nearer = Said(topic, new[0], "Ask the workshop.", "mem_near")
    before = Said(topic, *old, "mem_old")
    assert judge(Said(topic, *new), [before]).relation == relation
    found = judge(Said(topic, *new), [before, Said(topic, "Ballast", "Sand lies below.", "mem_far")])
    assert (found.relation, found.target) == (relation, "mem_old")
    assert judge(Said(topic, *new), [nearer, before]).relation in (relation, Relation.CONFLICT)


def test_under_one_title_what_fits_nowhere_still_waits() -> None:
    """Rule 7: the title says that both are about the same thing."""
    found = judge(Said("Rig cooling", "Pump", "Bearings are greased."), [Said("Rig cooling", "Pump", "It hums.", "m")])
    assert (found.relation, found.rule) == (Relation.CONFLICT, 7)


def test_an_empty_layer_makes_everything_new() -> None:
    """Rule 1."""
    found = judge(PYTHON, [])
    assert (found.relation, found.confidence, found.rule) == (Relation.NEW, 0.76, 1)


def test_confidences_are_the_pages() -> None:
    """Each rule answers with its own confidence."""
    assert against("lives in Berlin", "now lives in Munich").confidence == 0.93
    assert against("lives in Berlin", "lives in Munich").confidence == 0.88
    assert against("The API is served by Flask.", "The API switched to FastAPI.").confidence == 0.84
    assert against("Use pytest for tests.", "Coverage threshold is 80 percent.").confidence == 0.80
    assert judge(Said("Runtime", "Python compatibility", "Supports Python 3.10 well."), [PYTHON]).confidence == 0.89


def test_only_contradictions_contest() -> None:
    """A conflict for want of anything better waits for a person without labelling what is on file."""
    assert against("lives in Berlin", "lives in Munich").contests
    assert not against("Use pytest for tests.", "Coverage threshold is 80 percent.").contests


def test_an_update_under_eighty_percent_is_a_conflict() -> None:
    """A judge that is not sure may not change a text."""
    for relation in (Relation.UPDATE, Relation.REFINE):
        assert Judgement(relation, 0.79, 0, "mem_a").held_to_confidence().relation is Relation.CONFLICT
        assert Judgement(relation, 0.80, 0, "mem_a").held_to_confidence().relation is relation


def test_an_update_keeps_the_sentences_it_does_not_speak_of() -> None:
    """A fact that the new text does not contradict is never lost with the one that it replaces."""
    old = Said("Rules", "Rules", "Never push. The timeout is 30 s.\n- Keep `main` green.")
    new = Said("Rules", "Rules", "The timeout is now 60 s.")
    assert judge(new, [old]).relation is Relation.UPDATE
    assert updated(old, new) == "Never push. The timeout is now 60 s.\n- Keep `main` green."


def test_an_update_of_a_single_sentence_is_the_new_text() -> None:
    """Nothing of the old fact stays in the block; its history has it."""
    assert updated(PYTHON, Said("Runtime", "Python compatibility", "Now on Python 3.12.")) == "Now on Python 3.12."


def test_a_refinement_appends_only_what_is_not_said_yet() -> None:
    """Repeated sentences are left out, a repetition of everything is a duplicate."""
    old = "Use pytest. Never push."
    assert uncovered("Never push. Sign every commit.", old) == ("Sign every commit.",)
    assert refined(old, "Never push. Sign every commit.") == "Use pytest. Never push.\nSign every commit."
    assert against(old, "Never push!").relation is Relation.DUPLICATE


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("Bob reports to Alice", "Alice reports to Bob"),
        ("Do not use pytest", "Use pytest"),
        ("Ports 80 and 90", "Ports 80"),
        ("住在柏林", "以前住在柏林"),
    ],
)
def test_same_words_do_not_cover_another_meaning(new: str, old: str) -> None:
    """Order, negation, numbers and tense count before a sentence is taken for said."""
    assert uncovered(new, old) == (new,)


@pytest.mark.parametrize("text", ["特别好", "分支的类别", "Level: notable", "nothing", "别的项目", "Not only fast"])
def test_what_only_looks_like_a_negation_is_none(text: str) -> None:
    """Parts of words do not deny."""
    assert not is_negative(text)


def test_a_cue_that_the_old_sentence_has_too_is_none() -> None:
    """`change` in a rule about changing says nothing about an update."""
    assert not new_cues("Change the schema freely.", "Do not change the schema.")
    assert new_cues("Now change the schema.", "Do not change the schema.")
    assert not new_cues("The exchange knows it", "x")


def test_repeating_a_fact_never_deletes_it() -> None:
    """Four forms of one fact: repeats are duplicates, none is an update or a conflict."""
    on_file = [Said("Rig", "Rig", "The rig runs at 40 C.", "mem_r")]
    for text in ("The rig runs at 40 C.", " the rig runs at 40 c ", "The rig runs at 40 °C."):
        assert judge(Said("Rig", "Rig", text), on_file).relation in (Relation.DUPLICATE, Relation.REFINE)
