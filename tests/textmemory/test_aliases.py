"""Other names that the user puts beside a title: they find the memory, name it in a request, and end with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_scenes import Real
from rlm_memory_host.contracts.memory import Caller, Log, Sensitivity
from rlm_memory_host.recall.service import Query
from rlm_memory_host.textmemory import aliases, purging
from rlm_memory_host.textmemory.forgetting import forget
from rlm_memory_host.textmemory.notes import Note
from scenes import CHILD, ROOT


@pytest.fixture
def scene(tmp_path: Path) -> Real:
    return Real(tmp_path)


def keep(scene: Real, title: str, text: str, caller: Caller = ROOT, **more: object) -> str:
    return scene.memory.record(caller, Note(text, title=title, **more), operator=True).id  # type: ignore[arg-type]


def hears(scene: Real, text: str, caller: Caller = ROOT) -> int:
    scene.user(text, caller.session)
    message = scene.capture.latest_user_message(caller.session)
    assert message is not None
    return aliases.learn(scene.memory, caller, message)


SAID = [
    ("Cooling pump", "It moves 12 litres a minute.", "The cooling pump (CP-7) is in the cellar.", "Where is CP-7 now?"),
    ("Cooling pump", "It moves 12 litres a minute.", "Our cooling pump, also called Big Bertha, hums.", "big bertha"),
    ("Staging host", "Ports 80 to 90 are open.", "Vega (the staging host) was moved.", "Is vega up?"),
    ("Retention plan", "Ninety days, then gone.", "Read the retention plan (aka RP2).", "rp2"),
    ("冷却泵", "每分钟十二升。", "冷却泵（七号泵）在地下室。", "七号泵在哪里？"),
    ("冷却泵", "每分钟十二升。", "我们的冷却泵，又叫大贝莎。", "大贝莎"),
    ("预发布主机", "端口 80 到 90 开放。", "织女星（预发布主机）已经搬走。", "织女星还好吗"),
]


@pytest.mark.parametrize(("title", "body", "message", "question"), SAID)
def test_a_memory_is_found_by_the_name_that_the_user_gave_it(
    scene: Real, title: str, body: str, message: str, question: str
) -> None:
    """Among others, first and as an exact hit; once learned it is not learned again; another process knows it too."""
    for number in range(5):
        keep(scene, f"Other {number}", f"Something else altogether, number {number}.", topic=f"Topic {number}")
    memory_id = keep(scene, title, body)
    assert [hit.id for hit in scene.recall.search(ROOT, Query(question)).items if hit.is_exact] == []
    assert hears(scene, message) == 1
    assert hears(scene, message) == 0
    for recall in (scene.recall, Real(scene.root).recall):
        first = recall.search(ROOT, Query(question)).items[0]
        assert (first.id, first.is_exact) == (memory_id, True)


@pytest.mark.parametrize(
    "message",
    [
        "Is the cooling pump (CP-7) broken?",
        "> The cooling pump (CP-7) is broken.",
        "```\nThe cooling pump (CP-7) is broken.\n```",
        'The mail says "the cooling pump (CP-7) is broken".',
        "The heating pump (HP-2) is broken.",
        "The cooling pump (see the plan that lies on the desk) is old.",
        "The cooling pump (2026) is old.",
        "The cooling pump (the old one) hums.",
        "The cooling pump (Staging host) is odd.",
        "The cooling pump (CP-7) feeds the staging host (Vega).",
        "冷却泵（七号泵）坏了吗？",
    ],
)
def test_nothing_is_learned_from_questions_quotes_remarks_and_two_things_at_once(scene: Real, message: str) -> None:
    """Only one memory and one name of a person's own statement."""
    keep(scene, "Cooling pump", "It moves 12 litres a minute.")
    keep(scene, "Staging host", "Ports 80 to 90 are open.", topic="Hosts")
    keep(scene, "冷却泵", "每分钟十二升。", topic="水泵")
    assert hears(scene, message) == 0
    assert scene.store.rows(Log.ALIASES) == ()


def test_a_name_counts_for_its_own_memory_and_reader_only(scene: Real) -> None:
    """A child teaches none, another project finds none, a sensitive memory gets none, a secret becomes none."""
    keep(scene, "Cooling pump", "It moves 12 litres a minute.")
    keep(scene, "Blood test", "Results are in May.", topic="Health", sensitivity=Sensitivity.SENSITIVE)
    assert hears(scene, "The blood test (Bravo) is in May.") == 0
    assert hears(scene, "The cooling pump (sk-" + "live-9fQ2xL7mZp4Rt8Wv1Ka) is old.") == 0
    scene.user("The cooling pump (CP-7) is in the cellar.")
    message = scene.memory.message(ROOT)
    assert message is not None
    assert aliases.learn(scene.memory, CHILD, message) == 0
    assert hears(scene, "The cooling pump (CP-7) is in the cellar.") == 1
    other = Caller(project="other", session="s9", agent_kind="root")
    assert scene.recall.search(other, Query("CP-7")).items == ()


def test_a_name_goes_to_the_memory_that_it_was_given_last(scene: Real) -> None:
    """An edge and no merge: neither memory is changed by it."""
    first = keep(scene, "Cooling pump", "It moves 12 litres a minute.")
    second = keep(scene, "Backup unit", "It lies on the shelf.", topic="Spares")
    before = [scene.block(memory_id) for memory_id in (first, second)]
    hears(scene, "The cooling pump (CP-7) is in the cellar.")
    hears(scene, "The backup unit (CP-7) replaced it.")
    assert scene.recall.search(ROOT, Query("CP-7")).items[0].id == second
    assert [scene.block(memory_id) for memory_id in (first, second)] == before


def test_a_memory_is_forgotten_by_its_other_name_and_the_name_ends_with_it(scene: Real) -> None:
    """The user's sentence names it by the alias; then the alias finds nothing, and a purge leaves no row of it."""
    memory_id = keep(scene, "Cooling pump", "It moves 12 litres a minute.")
    hears(scene, "The cooling pump (CP-7) is in the cellar.")
    scene.user("Please forget CP-7.")
    assert forget(scene.memory, ROOT, target="CP-7").state == "done"
    assert memory_id not in [item.id for item in scene.recall.search(ROOT, Query("CP-7")).items]

    def replan() -> purging.PurgePlan:
        return purging.plan(scene.disk, "id", memory_id)

    plan = replan()
    purging.apply(scene.disk, plan, plan.token, replan)
    assert scene.store.rows(Log.ALIASES) == ()
    assert b'"alias"' not in scene.bytes()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("blob", ["orange " * 9_000 + "and", "橙色的" * 20_000, "(a " * 20_000])
def test_a_pasted_text_without_sentences_costs_no_more_than_its_length(blob: str) -> None:
    """It gives no names, and is over at once."""
    assert aliases.explicit(f"{blob}\nThe cooling pump (CP-7) is new", lambda _text: [("project/demo", "mem_a")]) == ()
