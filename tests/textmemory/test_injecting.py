"""One injection within one budget, and what a context that fills up is given less of."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from real_scenes import Real
from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.assembly.sessions import After, Sessions
from rlm_memory_host.contracts.memory import (
    Authority,
    Block,
    BlockWrite,
    Layer,
    Snapshot,
    Transaction,
    preset_layer,
    project_layer,
)
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import ToolInput, Unwritable
from rlm_memory_host.guard.check import Guard
from rlm_memory_host.recall import pressure
from rlm_memory_host.recall.budget import CALL_CHARS, SESSION_CHARS, Bounds
from rlm_memory_host.recall.pressure import LADDER, SLACK, Pressure, level_of
from rlm_memory_host.recall.resident import FRAMES, Tier, build, shortened
from rlm_memory_host.recall.service import Query, Recall
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.textmemory.forgetting import forget
from rlm_memory_host.textmemory.health import TextHealth
from rlm_memory_host.textmemory.service import TextMemory
from rlm_memory_host.textmemory.volatile import VolatileStore
from rlm_memory_host.tools.memories import with_text_status
from rlm_memory_host.tools.status import status_tool
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Call
from scenes import ROOT, Scene

PROJECT = project_layer("demo")
LONG = "The dock number {} is made of oak and is painted " + "very carefully " * 70 + "each year."


def fill(
    scene: Scene, numbers: Iterable[int], text: str = "The dock number {} is made of oak.", **more: object
) -> None:
    """Memories on file as they are, past gates and judge; a person's, so that they may be resident."""
    for number in numbers:
        fields: dict[str, object] = {
            "id": f"mem_{number:026d}", "topic": f"Topic {number % 7}", "title": f"Dock {number}",
            "body": text.format(number), "authority": Authority.OPERATOR,
        }  # fmt: skip
        scene.store.commit(Transaction((BlockWrite(PROJECT, Block(**(fields | more))),)))  # type: ignore[arg-type]


def resident_part(text: str) -> str:
    """The resident text inside an envelope."""
    lines = text.split("\n")
    start = lines.index("Resident:") + 1
    end = next(
        number for number, line in enumerate(lines) if number >= start and (line.endswith("context:") or line[0] == "<")
    )
    return "\n".join(lines[start:end])


# -- the budget --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("resident_words", [2, 12, 40])
def test_resident_text_and_recall_share_one_budget(resident_words: int) -> None:
    """However long either is: 4,000 characters with notice and headings, resident first, every line and item whole."""
    scene = Scene()
    fill(scene, range(60), "The dock number {} is made of oak " + "and of stone " * resident_words + "too.")
    fill(scene, range(100, 108), LONG, authority=Authority.MODEL)
    recall = Recall(scene.memory)
    scene.user("What is the dock made of, and how is it painted each year?")
    whole = recall.resident(ROOT)
    made = recall.injection(ROOT)
    assert len(made.text) <= CALL_CHARS
    assert resident_part(made.text) == whole.text
    assert (made.resident_chars, made.omitted) == (len(whole.text), whole.omitted)
    assert made.text.count("\n- [memory") == made.items
    assert made.left_out > 0
    assert "context-budget" in made.reasons


def test_the_same_memories_give_the_same_bytes_of_an_injection() -> None:
    """Two hosts, other orders of insertion."""
    told: set[str] = set()
    for numbers in (range(40), range(39, -1, -1)):
        scene = Scene()
        fill(scene, numbers)
        scene.user("What is the dock made of?")
        told.add(Recall(scene.memory).inject(ROOT))
    assert len(told) == 1


def test_a_session_spends_one_budget_on_both() -> None:
    """12,000 characters in all; what no longer fits is shortened line by line, then left out, and said."""
    scene = Scene()
    recall = Recall(scene.memory)
    spent: list[int] = []
    reasons: set[str] = set()
    for turn in range(12):
        fill(
            scene,
            range(turn * 30, turn * 30 + 30),
            "The dock number {} is made of oak " + "and stone " * 12,
            priority="P0",
        )
        scene.user("What is the dock made of?")
        made = recall.injection(ROOT)
        lines = resident_part(made.text).split("\n") if made.resident_chars else []
        assert set(lines[:-1]) <= set(recall.resident(ROOT).text.split("\n"))
        spent.append(len("".join(made.text.split("\n")[2:-1])))
        reasons.update(made.reasons)
    assert SESSION_CHARS * 0.8 < sum(spent) <= SESSION_CHARS + 12 * 80
    assert {"resident-shortened", "session-budget"} <= reasons
    scene.events("s1", {"type": "session/compact"})
    scene.user("What is the dock made of?")
    assert resident_part(recall.inject(ROOT)) == recall.resident(ROOT).text


def test_a_resident_text_is_shortened_by_whole_lines() -> None:
    """Every length from none to all of it: whole lines in order, the warning stays, and the count is right."""
    scene = Scene()
    fill(scene, range(30))
    whole = build(scene.memory.current(ROOT), warning="memory is degraded (audit: AUDIT_SHORTENED)")
    total = len(whole.included) + whole.omitted
    for room in range(len(whole.text) + 2):
        made = shortened(whole, room)
        assert len(made.text) <= room or not made.text
        assert len(made.included) + made.omitted == total
        if not made.text:
            continue
        lines = made.text.split("\n")
        assert lines[-1] == f"({made.omitted} more left out; memory_search finds them)"
        assert lines[-2].startswith("Note: memory is degraded")
        kept = [line for line in whole.text.split("\n") if line in lines[:-2]]
        assert lines[:-2] == kept
        assert [name for name in whole.included if name in made.included] == list(made.included)
    assert shortened(whole, len(whole.text)) is whole


def test_what_the_context_shows_already_is_not_recalled_and_what_was_cut_off_is() -> None:
    """Recall leaves out the lines that were sent, and only those."""
    scene = Scene()
    fill(scene, range(60))
    recall = Recall(scene.memory)
    scene.user("What is the dock number 10 made of?")
    first = recall.injection(ROOT)
    assert "mem_" + f"{10:026d}" in resident_part(first.text)
    assert first.text.count("mem_" + f"{10:026d}") == 1
    last = recall.search(ROOT, Query("dock number 59")).items[0].id
    assert last not in recall.resident(ROOT).included
    scene.user("What is the dock number 59 made of?")
    second = recall.inject(ROOT)
    assert "Resident:" not in second
    assert last in second


def test_profile_riko_keeps_its_long_resident_text_whole(tmp_path: Path) -> None:
    """Its 12,000 characters stand beside recall, as its document has it."""
    caller = replace(ROOT, preset="coder")
    scene = Scene(profile="riko")
    for number in range(90):
        block = Block(
            f"mem_{number:03}",
            "T",
            f"Plank {number}",
            "is made of oak " * 9 + str(number),
            authority=Authority.OPERATOR,
        )
        scene.store.commit(Transaction((BlockWrite(preset_layer("coder"), block),)))
    recall = Recall(scene.memory)
    scene.user("What do you remember of my planks?")
    made = recall.injection(caller)
    assert made.resident_chars > CALL_CHARS
    assert resident_part(made.text) == recall.resident(caller).text


# -- pressure ----------------------------------------------------------------------------------------------------------
def test_pressure_lowers_in_the_pages_order() -> None:
    """The tier first, then how many and how long, then all but P0 and the sure, a line, none; every step is named."""
    assert [step.tier for step in LADDER] == ["full", "compact", "minimal", "minimal", "minimal", "single", "none"]
    assert pressure.at(4)[1] == ("resident-compact", "resident-minimal", "fewer-and-shorter", "important-only")
    sizes = [(step.bounds.items, step.bounds.item_chars, step.bounds.call_chars) for step in LADDER]
    assert sizes == sorted(sizes, reverse=True)
    assert LADDER[0].bounds == Bounds(5, 1_200, 4_000, 12_000)
    assert [step.only_important for step in LADDER] == [False] * 4 + [True] * 3
    begins = [step.begins for step in LADDER]
    assert begins == sorted(set(begins))
    assert pressure.at(99) == pressure.at(6)


def test_a_step_is_taken_back_only_with_slack() -> None:
    """A context that breathes about a step stays on it; a step is left where the context is emptier than it began."""
    begins = LADDER[2].begins
    level = 0
    for used in (begins, begins - SLACK / 2, begins + SLACK / 2, begins - SLACK / 2):
        level = level_of(used, level)
        assert level == 2
    assert level_of(begins - SLACK - 0.001, 2) == 1
    assert level_of(0.0, 6) == 0
    assert level_of(1.0, 0) == 6
    assert [level_of(step.begins, 0) for step in LADDER] == list(range(7))


def test_a_compacted_context_starts_at_the_top() -> None:
    """What was told of the context before does not hold for the one after."""
    told = Pressure()
    assert told.told("s", 0, 0.75) == (("pressure", "resident-compact"), ("pressure", "resident-minimal"))
    assert told.told("s", 0, 0.62) == (("relief", "resident-minimal"),)
    assert (told.level("s", 0), told.level("s", 1), told.level("t", 0)) == (1, 0, 0)


@pytest.mark.parametrize(
    ("used", "tier"), [(0.0, "full"), (0.6, "compact"), (0.7, "minimal"), (0.93, "single"), (0.98, "none")]
)
def test_a_full_context_is_given_a_smaller_resident_text(used: float, tier: Tier) -> None:
    """Within the tier's lines and characters, with the reasons, for whoever reads it in that session alone."""
    scene = Scene()
    fill(scene, range(40), priority="P0")
    recall = Recall(scene.memory)
    scene.user("What is the dock made of?")
    recall.pressed(ROOT, used)
    made, frame = recall.resident(ROOT), FRAMES[tier]
    assert made.tier == tier
    assert len(made.text) <= frame.chars
    assert len(made.text.split("\n")) <= max(1, frame.lines)
    assert made.reasons == pressure.at(level_of(used))[1]
    injection = recall.injection(ROOT)
    assert (injection.tier, injection.resident_chars) == (tier, len(made.text))
    assert injection.items == 0 or tier not in ("single", "none")
    assert set(made.reasons) <= set(injection.reasons)
    assert recall.resident(replace(ROOT, session="s2")).tier == "full"


def test_under_pressure_an_agent_gets_fewer_then_only_important_items() -> None:
    """3 items of 600 characters, then P0 and sure ones alone; the choice says its tier and why."""
    scene = Scene()
    fill(scene, range(8), LONG)
    fill(scene, range(8, 10), "The dock number {} is made of oak.", priority="P0")
    fill(scene, range(10, 11), "The dock number {} is made of oak.", priority="P0", confidence=0.5)
    recall = Recall(scene.memory)

    def given(used: float) -> tuple[list[str], str, tuple[str, ...]]:
        recall.pressed(ROOT, used)
        found = recall.search(ROOT, Query("what is the dock made of", limit=20)).items
        choice = recall.give(ROOT, found, force=True)
        assert all(len(item.text) <= recall._step(ROOT)[0].bounds.item_chars for item in choice.items)  # pyright: ignore[reportPrivateUsage]
        return [item.id[-2:] for item in choice.items], choice.tier, choice.reasons

    assert len(given(0.0)[0]) >= 4
    assert len(given(0.8)[0]) == 3
    ids, tier, reasons = given(0.87)
    assert (sorted(ids), tier) == (["08", "09"], "minimal")
    assert reasons[:4] == ("resident-compact", "resident-minimal", "fewer-and-shorter", "important-only")


def test_a_lower_tier_of_what_the_context_holds_is_not_sent_again() -> None:
    """It would cost room and say less; a richer one is sent when there is room again, and all after compaction."""
    scene = Scene()
    fill(scene, range(40))
    recall = Recall(scene.memory)

    def sent(used: float) -> int:
        scene.user("Nothing of that kind, thanks.")
        recall.pressed(ROOT, used)
        return recall.injection(ROOT).resident_chars

    full = len(build(scene.memory.current(ROOT)).text)
    compact = len(build(scene.memory.current(ROOT), tier="compact").text)
    assert [sent(used) for used in (0.61, 0.61, 0.2, 0.61, 0.2)] == [compact, 0, full, 0, 0]
    fill(scene, [99], priority="P0")
    assert sent(0.61) > 0
    scene.events("s1", {"type": "session/compact"})
    assert sent(0.2) > compact


def test_every_step_is_audited_without_content(tmp_path: Path) -> None:
    """One record a step down, one a step back, with the step's name and the session."""
    scene = Real(tmp_path)
    scene.says("The dock is made of oak.")
    before = len((scene.disk.folder / "audit.ndjson").read_bytes().splitlines())
    for used in (0.72, 0.72, 0.62, 0.0):
        scene.recall.pressed(ROOT, used)
    lines = (scene.disk.folder / "audit.ndjson").read_text().splitlines()[before:]
    told = [line.split(f'"{name}":"')[1].split('"')[0] for line in lines for name in ("op", "code")]
    assert told == [
        *("pressure", "resident-compact", "pressure", "resident-minimal"),
        *("relief", "resident-minimal", "relief", "resident-compact"),
    ]
    assert all('"session":"s1"' in line and "oak" not in line for line in lines)


# -- failures ----------------------------------------------------------------------------------------------------------
class Failing(VolatileStore):
    """A store whose files cannot be read while `fails`."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = threading.Event()

    def snapshot(self, layer: Layer) -> Snapshot:
        if self.fails.is_set():
            raise Unwritable("the files cannot be read now")
        return super().snapshot(layer)


def test_the_last_valid_resident_text_stays_when_the_memories_cannot_be_read() -> None:
    """The same bytes, said to be the last valid ones, sent after a compaction too; without one, nothing is made up."""
    store = Failing()
    scene = Scene(store=store)
    fill(scene, range(3))
    recall = Recall(scene.memory)
    scene.user("What is the dock made of?")
    before = recall.resident(ROOT)
    store.fails.set()
    held = recall.resident(ROOT)
    assert (held.text, held.hash, held.reasons) == (before.text, before.hash, ("resident-last-valid",))
    made = recall.injection(ROOT)
    assert resident_part(made.text) == before.text
    assert {"resident-last-valid", "recall-unavailable"} <= set(made.reasons)
    scene.events("s1", {"type": "session/compact"})
    scene.user("What is the dock made of?")
    assert resident_part(recall.inject(ROOT)) == before.text
    with pytest.raises(Unwritable):
        recall.resident(replace(ROOT, project="other"))


def test_the_last_valid_resident_text_no_longer_says_what_was_forgotten_or_changed_meanwhile() -> None:
    """A forget and an edit count though the files cannot be read afterwards; habits and the rest stay."""
    store = Failing()
    scene = Scene(store=store)
    fill(scene, range(4))
    recall = Recall(scene.memory)
    scene.user("What is the dock made of?")
    before = recall.resident(ROOT)
    forgotten, changed, *kept = before.included
    forget(scene.memory, ROOT, memory_id=forgotten, operator=True)
    block = store.get(PROJECT, changed)
    assert block is not None
    said = replace(block.block, title="Another title", body="It is made of glass.", version=block.block.version + 1)
    store.commit(Transaction((BlockWrite(PROJECT, said, block.block.version, "update"),)))
    store.fails.set()
    held = recall.resident(ROOT)
    assert held.included == tuple(kept)
    assert held.text == "\n".join(line for line in before.text.split("\n") if any(name in line for name in kept))
    assert held.hash == hashlib.sha256(held.text.encode()).hexdigest() != before.hash
    assert resident_part(recall.inject(ROOT)) == held.text
    store.fails.clear()
    assert changed in recall.resident(ROOT).included


# -- what is said of it ------------------------------------------------------------------------------------------------
def test_a_sessions_injection_tells_the_status_what_had_no_room(tmp_path: Path) -> None:
    """Counts and reasons, no content; and the one line of health stands in the injection too."""
    scene = Real(tmp_path)
    fill(scene, range(60), "The dock number {} is made of oak " + "and of stone " * 12 + "too.")
    fill(scene, range(100, 108), LONG, authority=Authority.MODEL)
    health = TextHealth(FileLayer(), tmp_path / "health")
    sessions = Sessions(scene.store, Redaction(Guard(), (tmp_path,)), health, "user")
    memory = TextMemory(replace(scene.memory.parts, captured=sessions.capture))
    recall = Recall(memory)
    with ThreadPoolExecutor(1) as pool:
        sessions.serve(memory, recall, After(None, None, pool))
    scope = Scope("demo", "s1", None, "root")
    health.fault("audit", "AUDIT_SHORTENED")
    sessions.asked(scope, "What is the dock made of, and how is it painted each year?", 1)
    made = sessions.inject(scope, used=0.61)
    services = TextServices(memory, recall, health=health)
    status = with_text_status(status_tool(None, lambda: 0), services)
    shown = status.run(status.arguments.model_validate({}), Call(scope)).value["resident"]
    assert shown["injection"] == made.diagnostics()
    assert (made.tier, shown["tier"], shown["degradation_reasons"]) == ("compact", "compact", ["resident-compact"])
    assert made.omitted > 0
    assert "oak" not in str(shown)
    assert "Note: memory is degraded (audit: AUDIT_SHORTENED)" in made.text
    with pytest.raises(ToolInput):
        sessions.pressed(scope, 1.5)
