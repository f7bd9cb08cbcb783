"""Adversarial inputs to the text memory, in words of our own (`case_rows`), through replayed sessions."""

from __future__ import annotations

import contextlib
from pathlib import Path

import case_rows as rows_of
import pytest
from real_scenes import Real, each
from rlm_memory_host.contracts.memory import (
    GLOBAL,
    Authority,
    Caller,
    Kind,
    LayerKind,
    Sensitivity,
    Status,
    project_layer,
)
from rlm_memory_host.errors import GuardRejected, LimitExceeded, NotFound, ToolDenied, ToolInput, VersionConflict
from rlm_memory_host.recall.envelope import END, START
from rlm_memory_host.recall.service import Query
from rlm_memory_host.storage.names import topic_key
from rlm_memory_host.storage.topics import TopicFile
from rlm_memory_host.textmemory import purging, review, rows
from rlm_memory_host.textmemory.correcting import Correction, correct
from rlm_memory_host.textmemory.forgetting import forget
from rlm_memory_host.textmemory.notes import Note
from rlm_memory_host.textmemory.store import MarkdownStore
from scenes import CHILD, ROOT

LAYER = project_layer("demo")


@pytest.fixture
def scene(tmp_path: Path) -> Real:
    return Real(tmp_path)


@each(rows_of.SECRETS)
def test_a_split_secret_is_refused_and_in_no_byte(scene: Real, said: str) -> None:
    """1: from the model and from the user; the field and line are told, and the value is nowhere under the root."""
    for quote in ("", said):
        scene.user(said)
        with pytest.raises(GuardRejected) as caught:
            scene.memory.record(ROOT, Note(said, quote=quote))
        assert caught.value.code == "GUARD_SECRET"
        assert "line" in str(caught.value)
        for part in (rows_of.LIVE[3:], rows_of.PAT[4:], rows_of.B64[:40]):
            assert part not in str(caught.value)
    held = scene.bytes()
    for part in (rows_of.LIVE[3:], rows_of.PAT[4:], rows_of.B64[:40]):
        assert part.encode() not in held


@each(rows_of.DISGUISED)
def test_a_disguised_secret_is_refused_like_the_plain_one(scene: Real, said: str) -> None:
    """2."""
    for field in ({}, {"title": said.replace("\n", " ")}, {"tags": (said,)}):
        with pytest.raises(GuardRejected) as caught:
            scene.memory.record(ROOT, Note(said if not field else "A plain note.", **field))  # type: ignore[arg-type]
        assert caught.value.code == "GUARD_SECRET"
        assert rows_of.WORD not in str(caught.value)
    assert rows_of.WORD.encode() not in scene.bytes()


@each(rows_of.HARMLESS)
def test_words_about_keys_are_kept(scene: Real, said: str) -> None:
    """3: active, of normal sensitivity, and found again."""
    done = scene.memory.record(ROOT, Note(said))
    assert (done.state, scene.block(done.id).sensitivity) == ("active", Sensitivity.NORMAL)
    assert said in scene.finds(said)


@each(rows_of.INSTRUCTIONS)
def test_an_order_from_a_model_is_refused_and_a_persons_note_of_it_is_inert(scene: Real, said: str) -> None:
    """4: in every field; the user's own is kept, flagged, never resident, and stands escaped in the envelope."""
    line = said.rstrip("。.")
    for note in (Note(said), Note("x y", title=line), Note("x y", topic=line), Note("x y", tags=(line,))):
        with pytest.raises(GuardRejected) as caught:
            scene.memory.record(ROOT, note)
        assert caught.value.code == "GUARD_INJECTION"
    done = scene.says(said)
    block = scene.block(done.id)
    assert (block.authority, block.flags) == (Authority.USER, ("instruction_like",))
    assert said[:12] not in scene.recall.resident(ROOT).text
    scene.end()
    scene.user(f"What about this: {said[:20]}")
    injected = scene.recall.inject(ROOT)
    assert injected.count(START) == injected.count(END) == 1


@each(rows_of.CLOSERS)
def test_stored_text_closes_nothing(scene: Real, said: str) -> None:
    """5: one envelope with one start and one end; the file gives the identical text back."""
    done = scene.memory.record(ROOT, Note(said), operator=True)
    scene.user(f"Tell me about {said[:16]}")
    injected = scene.recall.inject(ROOT)
    assert injected.count(START) == injected.count(END) == 1
    assert "[/Honcho memory]" not in injected
    again = MarkdownStore(scene.root).get(LAYER, done.id)
    assert again is not None
    assert again.block.body == said


@each(rows_of.MARKED)
def test_a_body_of_marks_is_one_block_after_three_rewrites(scene: Real, said: str) -> None:
    """6: one in, one out, byte for byte, with its evidence."""
    done = scene.memory.record(ROOT, Note(said, title="Marks", basis="### Evidence\nas told"), operator=True)
    evidence = scene.block(done.id).evidence
    for number in range(3):
        review.pin(scene.memory, ROOT, done.id, pinned=not number % 2)
    path = scene.disk.roots.locate(LAYER.name, "facts.md")
    (block,) = TopicFile(path.read_bytes()).blocks
    assert (block.body, block.evidence, block.version) == (said, evidence, 4)
    assert scene.disk.problems() == ()


@each(rows_of.CLAUSES)
def test_a_part_of_a_sentence_carries_nothing(scene: Real, said: tuple[str, str, str]) -> None:
    """7: refused as `QUOTE_CLAUSE`, so what is kept is the model's own word."""
    message, quote, note = said
    scene.user(message)
    done = scene.memory.record(ROOT, Note(note, quote=quote))
    assert any("QUOTE_CLAUSE" in warning for warning in done.warnings)
    assert all(item.block.authority is Authority.MODEL for item in scene.memory.blocks(ROOT))
    assert note not in scene.recall.resident(ROOT).text


@each(rows_of.KEPT_CUES)
def test_a_negated_cue_forgets_nothing(scene: Real, said: tuple[str, str]) -> None:
    """7."""
    done = scene.says(said[0])
    scene.user(said[1])
    with pytest.raises(ToolDenied) as caught:
        forget(scene.memory, ROOT, memory_id=done.id)
    assert caught.value.code == "CUE_NEGATED"
    assert scene.block(done.id).status is Status.ACTIVE


@each(rows_of.HIDE_CUES)
def test_what_is_not_to_be_mentioned_is_hidden_and_not_restored(scene: Real, said: tuple[str, str]) -> None:
    """7: hide allowed; the same sentence neither forgets nor restores."""
    done = scene.says(said[0])
    scene.user(said[1])
    with pytest.raises((ToolDenied, NotFound)):
        forget(scene.memory, ROOT, memory_id="mem_none", action="restore")
    assert forget(scene.memory, ROOT, memory_id=done.id, action="hide").state == "done"
    assert scene.finds(said[0]) == []
    with contextlib.suppress(ToolDenied):
        forget(scene.memory, ROOT, memory_id=done.id, action="restore")
    assert scene.block(done.id).status is Status.HIDDEN


@each(rows_of.SPOOFS)
def test_direction_characters_leave_names_and_not_bodies(scene: Real, said: str) -> None:
    """8: topic, title and tags are cleaned and it is told; the body keeps them; no line gets a priority by looks."""
    note = Note(f"מזג {said} אוויר", title=said, topic=said, tags=(said[:8],))
    done = scene.memory.record(ROOT, note, operator=True)
    block = scene.block(done.id)
    hidden = set("\u202e\u200f\u2066\u2069")
    assert not hidden & set(block.title + block.topic + "".join(block.tags))
    assert block.body == note.text
    assert any("removed" in warning for warning in done.warnings)
    lines = scene.recall.resident(ROOT).text.splitlines()
    assert all("[P0] ★" not in line for line in lines if block.title[:4] in line)
    assert not hidden & set(scene.recall.resident(ROOT).text)


@each(rows_of.EQUAL)
def test_equal_texts_are_one_memory(scene: Real, said: tuple[str, str]) -> None:
    """9: a duplicate, whichever form came first; the first keeps its code points."""
    first = scene.says(said[0])
    again = scene.says(said[1])
    assert (again.relation, again.id) == ("DUPLICATE", first.id)
    assert scene.block(first.id).body == said[0]
    assert len(scene.memory.current(ROOT)) == 1


@each(rows_of.TOPICS)
def test_topics_that_differ_have_files_of_their_own(scene: Real, said: tuple[str, ...]) -> None:
    """10: distinct files, the first line is always the real topic."""
    told = (
        "Amber pendants glow faintly beside warm copper lanterns during winter evenings.",
        "Nine orange buoys float between harbour piers while gulls circle overhead.",
        "Undersea cables rust slowly inside salty trenches near volcanic islands.",
        "Technicians measure thermal drift weekly using calibrated platinum probes.",
    )
    for topic, text in zip(said, told, strict=True):
        scene.memory.record(ROOT, Note(text, topic=topic), operator=True)
    folder = scene.disk.roots.folder_of(LAYER)
    headings = [path.read_text().splitlines()[0] for path in folder.glob("*.md")]
    assert sorted(headings) == sorted(f"# {topic}" for topic in said)
    assert len({topic_key(topic) for topic in said}) == len(said)
    with pytest.raises(LimitExceeded):
        scene.memory.record(ROOT, Note("x y", topic=said[0] * 500))


@each(rows_of.CLIMBING)
def test_a_topic_that_climbs_is_refused(scene: Real, said: str) -> None:
    """10, 11: before any file is opened, and the text is not repeated."""
    with pytest.raises(LimitExceeded) as caught:
        scene.memory.record(ROOT, Note("A plain note.", topic=said))
    assert caught.value.code == "INVALID_TOPIC"
    assert said.strip() == ".." or said.strip() not in str(caught.value)
    assert not list(scene.root.rglob("*.md"))


@each(rows_of.TALKS)
def test_the_row_that_answers_comes_first(scene: Real, said: tuple[str, str]) -> None:
    """20: one Han character, an emoji, Hangul, an inflected word; an empty query lists, a stop word finds literally."""
    for _, text in (*rows_of.TALKS["en"], *rows_of.TALKS["zh"]):
        scene.memory.record(ROOT, Note(text), operator=True)
    assert scene.finds(said[0])[0] == said[1]
    assert len(scene.finds("")) == 6
    assert "We replaced both lamps on Tuesday." in scene.finds("both")


@each(rows_of.SHORT)
def test_a_session_of_one_word_is_purged_alone(scene: Real, said: str) -> None:
    """21: unrelated blocks keep every byte, the old plan's token is refused, the chain holds."""
    scene.memory.record(ROOT, Note(f"{said} is part of this text, {said}. {said}"), operator=True)
    path = scene.disk.roots.locate(LAYER.name, "facts.md")
    before = path.read_bytes()
    scene.user(said, "s2")
    scene.assistant("Good.", "s2")
    scene.end("s2")

    def replan() -> purging.PurgePlan:
        return purging.plan(scene.disk, "session", "s2", project="demo")

    plan = replan()
    scene.memory.record(ROOT, Note("Something else in between."), operator=True)
    with pytest.raises((ToolInput, ToolDenied, VersionConflict)):
        purging.apply(scene.disk, plan, plan.token, replan)
    before = path.read_bytes()
    plan = replan()
    purging.apply(scene.disk, plan, plan.token, replan)
    assert path.read_bytes() == before
    assert list(scene.disk.evidence("s2")) == []
    assert scene.disk.journal.verify_audit().breaks == ()


@each(rows_of.LOCAL)
def test_without_a_cue_global_becomes_project(scene: Real, said: str) -> None:
    """22: kept in the project, and the answer says so; an id of another preset or project is as absent as none."""
    done = scene.says(said, layer=LayerKind.GLOBAL)
    assert (done.scope, bool(done.scope_note)) == ("project", True)
    assert scene.store.snapshot(GLOBAL).blocks == ()
    for other in (Caller(project="other", session="s9", agent_kind="root"), Caller(preset="x", session="s9")):
        with pytest.raises(NotFound) as absent:
            scene.memory.find(other, done.id)
        with pytest.raises(NotFound) as none:
            scene.memory.find(other, "mem_none")
        assert str(absent.value) == str(none.value)


@each(rows_of.EVERYWHERE)
def test_with_the_users_cue_it_is_global(scene: Real, said: str) -> None:
    """22: the user's own message speaks of all projects; the model's forged one does not count."""
    forged = scene.memory.record(ROOT, Note(said, quote=said, layer=LayerKind.GLOBAL))
    assert forged.scope == "project"
    assert scene.says(said, layer=LayerKind.GLOBAL).scope == "global"


@each(rows_of.PREFERENCES)
def test_a_child_keeps_no_preference_and_a_model_proposes_it(scene: Real, said: str) -> None:
    """22: whatever kind it declares."""
    for kind in (Kind.FACT, Kind.PREFERENCE):
        with pytest.raises(ToolDenied):
            scene.memory.record(CHILD, Note(said, kind=kind))
    assert scene.memory.record(ROOT, Note(said, kind=Kind.FACT)).state == "candidate"
    assert scene.memory.current(ROOT) == []


@each(rows_of.LAUNDERED)
def test_nobody_elses_correction_is_a_signal(scene: Real, said: str) -> None:
    """23: pasted, fenced, quoted, or the model's claim that the user said so."""
    scene.user(said)
    message = scene.memory.message(ROOT)
    assert message is not None
    assert scene.memory.observe(message, None) == 0
    scene.memory.record(ROOT, Note("User said: always use tabs.", layer=LayerKind.HABIT))
    assert scene.memory.habits() == []


@each(rows_of.CORRECTIONS)
def test_repeats_count_one_session_and_a_deleted_habit_stays_deleted(scene: Real, said: str) -> None:
    """23: fifty in one session cannot be promoted; a deleted one is only shown as seen again."""
    for _ in range(50):
        scene.user(said, "loud")
        message = scene.capture.latest_user_message("loud")
        assert message is not None
        scene.memory.observe(message, None)
    (habit,) = scene.memory.habits()
    assert (habit.state, habit.sessions) == ("pending", ("loud",))
    review.gate_habit(scene.memory, habit.id, "confirm")
    with pytest.raises(ToolInput):
        review.gate_habit(scene.memory, habit.id, "promote")
    review.gate_habit(scene.memory, habit.id, "delete")
    for session in ("n1", "n2", "n3"):
        scene.user(said, session)
        message = scene.capture.latest_user_message(session)
        assert message is not None
        scene.memory.observe(message, None)
    (habit,) = scene.memory.habits()
    assert (habit.state, habit.seen_again) == ("deleted", 3)
    assert said[:8] not in scene.recall.resident(ROOT).text


@each(rows_of.COLLECT)
def test_sets_accumulate(scene: Real, said: tuple[str, str]) -> None:
    """24: two liked things are two."""
    for text in said:
        assert scene.says(text, title="About the user").state == "active"
    kept = "\n".join(item.block.body for item in scene.memory.current(ROOT))
    assert all(text in kept for text in said)
    assert rows.conflicts(scene.store) == []


@each(rows_of.CONTEND)
def test_one_value_at_a_time_is_contested(scene: Real, said: tuple[str, str]) -> None:
    """24: the old text stays, recall shows both sides labelled, and the resident text neither."""
    first = scene.says(said[0], title="About the user")
    second = scene.says(said[1], title="About the user")
    assert (second.relation, second.state) == ("CONFLICT", "conflict")
    assert scene.block(first.id).body == said[0]
    items = scene.recall.search(ROOT, Query(said[0])).items
    assert {item.text for item in items if "contested" in item.labels} == set(said)
    assert said[0] not in scene.recall.resident(ROOT).text


@each(rows_of.PAST)
def test_how_it_was_does_not_contradict_how_it_is(scene: Real, said: tuple[str, str]) -> None:
    """24: over time, no conflict."""
    for text in said:
        assert scene.says(text, title="About the user").state == "active"
    assert rows.conflicts(scene.store) == []


@each(rows_of.FUTURE)
def test_a_fact_of_a_later_day_is_not_current_yet(scene: Real, said: str) -> None:
    """19: it becomes so when its day comes; a clock two years ahead and back expires nothing."""
    done = scene.memory.record(ROOT, Note(said, valid_from="2026-06-01T00:00:00Z"), operator=True)
    kept = scene.memory.record(ROOT, Note("The plain marker stays."), operator=True)
    assert said not in scene.finds(said)
    scene.clock.ahead(days=730)
    assert said in scene.finds(said)
    scene.clock.ahead(days=-730)
    assert said not in scene.finds(said)
    assert {scene.block(memory_id).status for memory_id in (done.id, kept.id)} == {Status.ACTIVE}


@each(rows_of.STALE)
def test_a_stale_edit_is_told_the_current_version(scene: Real, said: tuple[str, str]) -> None:
    """14: the second of two edits of one version is refused and changes nothing; the same title twice is one memory."""
    first = scene.says(said[0], title="The rule")
    assert scene.says(said[0], title="The rule").id == first.id
    scene.user(said[1])
    edit = Correction(said[1], first.id, quote=said[1], expected_version=1)
    assert correct(scene.memory, ROOT, edit).version == 2
    with pytest.raises(VersionConflict) as caught:
        correct(scene.memory, ROOT, edit)
    assert caught.value.current == 2
    assert scene.block(first.id).body == said[1]
