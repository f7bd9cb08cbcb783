"""Like things that only a number or a letter tells apart are not one subject; true contradictions stay conflicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlm_memory_host.contracts.memory import Status
from rlm_memory_host.textmemory.forgetting import forget
from rlm_memory_host.textmemory.judge import Relation, Said, judge
from rlm_memory_host.textmemory.notes import Note
from rlm_memory_host.textmemory.subjects import are_apart, names_another
from scenes import ROOT, Scene


def told(old: str, new: str, old_title: str = "", new_title: str = "") -> Relation:
    """The relation as the service finds it: a title that nobody gave is the text."""
    before = Said("", old_title or old.rstrip("."), old, "mem_old")
    return judge(Said("", new_title or new.rstrip("."), new), [before]).relation


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Server 1 uses port 80.", "Server 2 uses port 81."),
        ("Sensor 3 reads 20 C.", "Sensor 4 reads 21 C."),
        ("sensor-3 drifts by 2 mK a day", "sensor-4 drifts by 5 mK a day"),
        ("The port of server 1 is 80.", "The port of server 2 is 81."),
        ("The battery in sensor 3 lasts 20 days.", "The battery in sensor 4 lasts 31 days."),
        ("Sample #12 is stored at 4 C.", "Sample #13 is stored at 20 C."),
        ("Server A uses port 80.", "Server B uses port 81."),
        ("node-b runs Postgres as database", "node-c runs MySQL as database"),
        ("Rig 2: 41 C", "Rig 3: 40 C"),
        ("Gizmo 3 holds 20 liters of brine.", "Gizmo 4 holds 31 liters of oil."),
        ("The gateway timeout is 30 s.", "The scheduler timeout is 60 s."),
        ("Kim's limit is 30 rows.", "Lee's limit is 40 rows."),
        ("1号服务器使用80端口。", "2号服务器使用81端口。"),
        ("服务器1使用80端口", "服务器2使用81端口"),
        ("传感器3的读数是20度", "传感器4的读数是21度"),
        ("第3步需要20分钟", "第4步需要30分钟"),
        ("3号机位于东楼", "4号机位于西楼"),
        ("样品 12 存放在 4 度", "样品 13 存放在 20 度"),
    ],
)
def test_numbered_subjects_are_two_things(one: str, other: str) -> None:
    """Neither a conflict nor an update: both stay, in whichever order they come."""
    assert told(one, other) is Relation.NEW
    assert told(other, one) is Relation.NEW


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Server 1 uses port 80.", "Server 1 uses port 81."),
        ("The service runs on server 1.", "The service runs on server 2."),
        ("Deploy to server 1 only.", "Deploy to server 2 only."),
        ("Sample 12 is in freezer 3.", "Sample 12 is in freezer 4."),
        ("The server uses port 80.", "The server uses port 81."),
        ("Java 17 is required.", "Java 21 is required."),
        ("Keep 3 backups for 20 days.", "Keep 5 backups for 30 days."),
        ("Retry 3 times within 20 s.", "Retry 5 times within 30 s."),
        ("The timeout is 30 s.", "The timeout is 60 s."),
        ("timeout 30 s", "timeout 60 s"),
        ("The old limit is 30 rows.", "The limit is 40 rows."),
        ("The project supports Python 3.10.", "The project supports Python 3.12."),
        ("Python 3 is required here.", "Python 2 is required here."),
        ("服务器1使用80端口", "服务器1使用81端口"),
        ("服务运行在服务器1上", "服务运行在服务器2上"),
        ("样品 12 在 3 号冰箱", "样品 12 在 4 号冰箱"),
        ("超时是 30 秒", "超时是 60 秒"),
        ("需要 Java 17", "需要 Java 21"),
    ],
)
def test_values_of_one_subject_still_conflict(old: str, new: str) -> None:
    """A number that measures, a place where something runs, a version."""
    assert told(old, new) is Relation.CONFLICT


def test_a_change_of_one_of_them_finds_it_in_a_list() -> None:
    """In a text about both, only the sentence about the same one is replaced."""
    both = Said("", "Sensors", "Sensor 3 reads 20 C. Sensor 4 reads 21 C.", "mem_old")
    found = judge(Said("", "Sensors", "Sensor 4 now reads 25 C."), [both])
    assert (found.relation, found.target) == (Relation.UPDATE, "mem_old")
    assert judge(Said("", "Sensors", "Sensor 3 reads 22 C."), [both]).relation is Relation.CONFLICT
    assert judge(Said("", "Sensors", "Sensor 5 reads 23 C."), [both]).relation is Relation.NEW


NOUNS = st.sampled_from(["server", "sensor", "node", "sample", "room", "worker", "Probe", "camera"])
VERBS = st.sampled_from(["uses port {}", "reads {} volts", "is at {} K", "holds {} items", "runs for {} hours"])
NUMBERS = st.integers(1, 9_999)


@given(NOUNS, VERBS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["", "The ", "our "]))
def test_for_any_numbers_two_things_are_apart_and_one_is_not(
    noun: str, verb: str, one: int, other: int, value: int, new: int, start: str
) -> None:
    """Apart exactly when the numbers of the things differ, whatever they measure; and the same both ways round."""
    left, right = f"{start}{noun} {one} {verb.format(value)}.", f"{start}{noun} {other} {verb.format(new)}."
    assert are_apart(left, right) is (one != other)
    assert are_apart(right, left) is (one != other)
    if one == other and value != new:
        assert told(left, right) is Relation.CONFLICT


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_are_told_apart_the_same_both_ways(one: str, other: str) -> None:
    """No text is apart from itself; hostile text raises nothing."""
    assert not are_apart(one, one)
    names_another(one, other)
    if not (set("now currently 现在") & set(one + other)):
        assert are_apart(one, other) == are_apart(other, one)


def test_the_wrong_one_of_two_is_never_forgotten() -> None:
    """The user names sensor 3; a model that passes the id of sensor 4 gets a proposal and nothing more."""
    for three, four, asks in (
        ("Sensor 3 reads 20 C.", "Sensor 4 reads 21 C.", "Please forget that sensor 3 reads 20 C."),
        ("传感器3的读数是20度。", "传感器4的读数是21度。", "请忘记传感器3的读数是20度。"),
    ):
        scene = Scene()
        kept = {}
        for text in (three, four):
            scene.user(text)
            done = scene.memory.record(ROOT, Note(text, quote=text))
            assert (done.relation, done.state) == ("NEW", "active")
            kept[text] = done.id
        scene.user(asks)
        assert forget(scene.memory, ROOT, memory_id=kept[four]).state != "done"
        assert scene.block(kept[four]).status is Status.ACTIVE
        assert forget(scene.memory, ROOT, memory_id=kept[three]).state == "done"
        again = scene.memory.record(ROOT, Note(four.replace("21", "22").replace("4", "5")))
        assert again.reason != "TOMBSTONED"
