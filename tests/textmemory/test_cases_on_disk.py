"""Adversarial inputs that meet the files: paths, roots, sizes, locks, disks, hand edits, audit log (`case_rows`)."""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import case_rows as rows_of
import pytest
from real_scenes import Real, each
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.cli import main
from rlm_memory_host.contracts.memory import (
    GLOBAL,
    AuditNote,
    Authority,
    BlockWrite,
    Caller,
    LayerKind,
    Transaction,
    project_layer,
)
from rlm_memory_host.contracts.records import Bounds, RecordRequest, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import (
    HostError,
    LayerUnavailable,
    LimitExceeded,
    LockTimeout,
    StoreError,
    SuspectTruncation,
    ToolInput,
    Unwritable,
)
from rlm_memory_host.recall.service import Query
from rlm_memory_host.storage.faults import FaultyLayer, RecordingLayer
from rlm_memory_host.storage.topics import TopicFile
from rlm_memory_host.textmemory import upkeep
from rlm_memory_host.textmemory.correcting import Correction, correct
from rlm_memory_host.textmemory.notes import Note
from rlm_memory_host.textmemory.store import MarkdownStore
from rlm_memory_host.tools.memories import memory_tools
from rlm_memory_host.tools.tool import Call
from scenes import ROOT

LAYER = project_layer("demo")
BESIDE = Caller(project="beside", session="s7", agent_kind="root")
"""Another project's root agent: what befalls the first one's files is not its concern."""
HOLDER: Final = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


# -- 11: paths ---------------------------------------------------------------------------------------------------------
@each(rows_of.ESCAPES)
def test_a_name_that_climbs_opens_nothing_outside(tmp_path: Path, said: str) -> None:
    """A preset is refused before any look at a file, a project is only a key; the name is in no message and no path."""
    files = RecordingLayer()
    scene = Real(tmp_path / "state", files=files)
    looked = len(files.looks)
    for caller in (replace(ROOT, preset=said), replace(ROOT, preset="..")):
        with pytest.raises(ToolInput) as refused:
            scene.memory.record(caller, Note("A plain note.", layer=LayerKind.PRESET))
        assert said not in str(refused.value)
    assert len(files.looks) == looked
    scene.user("The buoy is red.")
    kept = scene.memory.record(replace(ROOT, project=said), Note("The buoy is red.", quote="The buoy is red."))
    (path,) = [path for path in tmp_path.rglob("*.md") if kept.id in path.read_text() and ".history" not in path.parts]
    assert path.is_relative_to(tmp_path / "state" / "memory" / "local" / "projects")
    assert len(path.relative_to(tmp_path / "state" / "memory" / "local" / "projects").parts) == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "state"]
    assert said.encode() not in scene.disk.journal.audit_path.read_bytes()


@each(rows_of.ENTRIES)
def test_a_file_that_is_elsewhere_is_not_recorded(tmp_path: Path, said: str) -> None:
    """A link, a second name of one file, a folder beside `exports/`, a climbing path: refused, and nothing is kept."""
    session = tmp_path / "session"
    for folder in (session / "exports", session / "exports-evil", tmp_path / "away"):
        folder.mkdir(parents=True)
        (folder / said).write_text("exact")
    store = ArtifactStore(tmp_path / "artifacts", Bounds())
    scope = Scope(project_id="demo", session_id="s1", session_dir=session)
    (session / "exports" / "linked").symlink_to(tmp_path / "away" / said)
    (session / "exports" / "folder").symlink_to(tmp_path / "away")
    os.link(tmp_path / "away" / said, session / "exports" / "twice")
    exports = session / "exports"
    try:
        for source in (
            exports / "linked",
            exports / "folder" / said,
            exports / "twice",
            session / "exports-evil" / said,
            f"{exports}/../exports-evil/{said}",
            tmp_path / "away" / said,
            f"C:\\x:{said}",
            f"\\\\host\\{said}",
        ):
            request = RecordRequest(str(source), "t", "s", "0" * 64, "lab", "1")
            with pytest.raises(StoreError):
                store.record(scope, request)
        assert store.search(scope, SearchRequest()).total == 0
        assert store.record(scope, RecordRequest(str(exports / said), "t", "s", "0" * 64, "lab", "1")).local_saved
    finally:
        store.close()


# -- 12: roots ---------------------------------------------------------------------------------------------------------
@each(rows_of.ROOTS)
@pytest.mark.parametrize("shape", ["linked", "nested", "wide"])
def test_a_root_that_is_another_is_not_opened_and_the_host_goes_on(tmp_path: Path, said: str, shape: str) -> None:
    """The layers are unavailable by a code, nothing takes their place, other layers work, and nothing was moved."""
    before = Real(tmp_path)
    before.says(said)
    folder = before.disk.roots.folder_of(LAYER)
    held = (folder / "facts.md").read_bytes()
    repositories = {}
    if shape == "linked":
        (before.disk.folder / "global").symlink_to(folder)
    else:
        inside = before.disk.folder / "global" / "inside"
        inside.mkdir(parents=True)
        repositories = {LAYER: inside if shape == "nested" else Path("/")}
    scene = Real(tmp_path, repositories=repositories)
    assert scene.health.features()["storage"].code == "LAYER_UNAVAILABLE"
    assert str(tmp_path) not in scene.health.warning()
    assert scene.finds(said) == []
    with pytest.raises(LayerUnavailable) as refused:
        scene.says(said)
    assert str(tmp_path) not in str(refused.value)
    if shape != "wide":
        assert not scene.disk.is_available(GLOBAL)
    told = {str(root) for bad in scene.disk.roots.refused.values() for root in bad.roots}
    assert told, "the operator is told the roots"
    assert (folder / "facts.md").read_bytes() == held
    scene.user(said, "s7")
    assert scene.memory.record(BESIDE, Note(said, quote=said)).state == "active"
    assert [item.layer for item in scene.memory.current(BESIDE)] == [project_layer("beside")]


# -- 13: sizes ---------------------------------------------------------------------------------------------------------
@each(rows_of.HUGE)
def test_what_is_too_large_is_refused_with_the_limit(tmp_path: Path, said: str) -> None:
    """10 MB of text, a title of 5,000 characters, 100,000 tags, a value 10,000 deep: the number, and no content."""
    scene = Real(tmp_path)
    many = said * (10_000_000 // len(said.encode()))
    scene.user(said)
    for note, number in (
        (Note(many), "32,768"),
        (Note(said, title=said * 5_000), "240"),
        (Note(said, title=(said * 5_000)[:5_000]), "240"),
        (Note(said, topic=(said * 50)[:200]), "120"),
        (Note(said, tags=tuple(f"{number}" for number in range(100_000))), "64"),
    ):
        with pytest.raises(LimitExceeded, match=number) as refused:
            scene.memory.record(ROOT, note, operator=True)
        assert said.strip() not in str(refused.value)
    deep: object = said
    for _ in range(10_000):
        deep = [deep]
    record = next(tool for tool in memory_tools(scene.services) if tool.name == "memory_record")
    for arguments in ({"note": said, "tags": deep}, {"note": deep}, {"note": many}):
        with pytest.raises(ValueError, match="validation error"):
            record.arguments.model_validate(arguments)
    assert scene.memory.current(ROOT) == []


@each(rows_of.HUGE)
def test_a_file_of_a_million_lines_is_read_in_time_and_its_neighbours_are_served(tmp_path: Path, said: str) -> None:
    """A million lines, and a million markers that never end: named, bounded, untouched; other topics answer."""
    scene = Real(tmp_path)
    kept = scene.says(said.strip(), topic="Kept")
    folder = scene.disk.roots.folder_of(LAYER)
    lines = f"# Long\n\n<!-- memory\nid: mem_long\n-->\n\n## {said.strip()}\n\n" + "x\n" * 1_000_000
    (folder / "long.md").write_text(lines)
    (folder / "marks.md").write_bytes(b"# Marks\n\n" + b"<!-- memory\n" * 90_000)
    assert kept.id in [item.block.id for item in scene.memory.current(ROOT)]
    codes = {(problem.file, problem.code) for problem in scene.disk.problems()}
    assert {("long.md", "BLOCK_TOO_LARGE"), ("marks.md", "TOO_MANY_BLOCKS")} <= codes
    assert (folder / "long.md").read_text() == lines


# -- 15: locks and disks -----------------------------------------------------------------------------------------------
@contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a lock file."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@each(rows_of.HELD)
def test_a_live_holder_is_waited_for_and_a_dead_one_is_not(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LOCK_TIMEOUT` while it lives, asleep or not and however old its file is; the next write after its end."""
    scene = Real(tmp_path)
    scene.says("First things first.")
    monkeypatch.setattr(scene.disk.journal._lock, "_seconds", 0.05)
    lock = scene.disk.folder / ".state" / "locks" / "write"
    with holding(lock) as holder:
        os.utime(lock, (0, 0))
        holder.send_signal(signal.SIGSTOP)
        scene.user(said)
        with pytest.raises(LockTimeout) as refused:
            scene.memory.record(ROOT, Note(said, quote=said))
        assert refused.value.code == "LOCK_TIMEOUT"
        assert scene.finds("First things")
        holder.kill()
        holder.wait()
        assert scene.memory.record(ROOT, Note(said, quote=said)).state == "active"
    assert lock.exists()
    assert Real(tmp_path).finds(said) == [said]


@each(rows_of.HELD)
def test_a_read_only_disk_recalls_and_a_full_one_keeps_the_old_file(tmp_path: Path, said: str) -> None:
    """Writing is unavailable by its code, through the tool's own health; no half file stays; then it goes on."""
    old = Real(tmp_path).says(said, title="The rule").id
    path = Real(tmp_path).disk.roots.locate(LAYER.name, "facts.md")
    before = path.read_bytes()
    for error, code in ((errno.EROFS, "STORE_READ_ONLY"), (errno.ENOSPC, "STORE_FULL")):
        files = FaultyLayer(10**9, error, times=10**9)
        scene = Real(tmp_path, files=files)
        assert scene.finds(said) == [said]
        scene.user(f"{said} Now it is otherwise.")
        record = next(tool for tool in memory_tools(scene.services) if tool.name == "memory_record")
        note = record.arguments.model_validate({"note": f"The disk said {code}.", "topic": f"Other {code}"})
        files.at = 0
        with pytest.raises(Unwritable) as refused:
            record.run(note, Call(Scope("demo", "s1", None, "root")))
        assert refused.value.code == code
        assert scene.health.features()["write"].code == code
        assert scene.finds(said) == [said]
        files.at = 10**9
        assert path.read_bytes() == before
        assert not list(scene.disk.folder.rglob("*.tmp"))
        record.run(note, Call(Scope("demo", "s1", None, "root")))
        assert scene.health.features()["write"].state == "on"
    assert Real(tmp_path).block(old).body == said


@each(rows_of.HELD)
def test_a_disk_that_fills_up_within_a_write_leaves_the_old_text(tmp_path: Path, said: str) -> None:
    """At writes, flushes and renames all through a correction: the old text or the new one, and never neither."""
    count = RecordingLayer()
    scene = Real(tmp_path / "count", files=count)
    done = scene.says(said, title="The rule")
    first = len(count.changes)
    scene.user(said)
    correct(scene.memory, ROOT, Correction("All is otherwise.", done.id), operator=True)
    for at in range(1, len(count.changes) - first + 1, 6):
        root = tmp_path / f"{at}"
        files = FaultyLayer(10**9, errno.ENOSPC)
        scene = Real(root, files=files)
        done = scene.says(said, title="The rule")
        files.at = len(files.changes) + at
        kept, code = "All is otherwise.", ""
        try:
            correct(scene.memory, ROOT, Correction(kept, done.id), operator=True)
        except HostError as error:
            code = error.code
        assert code in ("", "STORE_FULL")
        allowed = {kept} if not code else {said, "All is otherwise."}
        again = Real(root)
        with again.disk.lock():
            pass
        block = again.block(done.id)
        assert block.body in allowed
        assert (block.version == 2) == (block.body == kept)
        assert again.disk.problems() == ()
        assert again.disk.journal.verify_audit().breaks == ()


# -- 16: hand edits ----------------------------------------------------------------------------------------------------
BAD: Final = {
    "ONE_LINE_MARKER": "<!-- memory id: mem_one -->\n\n## One\n\nx",
    "MISSING_ID": "<!-- memory\nkind: fact\n-->\n\n## None\n\nx",
    "BAD_DATE": "<!-- memory\nid: mem_date\ncreated_at: soon\n-->\n\n## Soon\n\nx",
    "SCOPE_MISMATCH": "<!-- memory\nid: mem_swap\nscope: global\n-->\n\n## Swapped\n\nx",
    "DUPLICATE_ID": "<!-- memory\nid: mem_good\n-->\n\n## Again\n\nx",
}


@each(rows_of.EDITED)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_a_file_of_any_editor_is_served_and_each_bad_place_is_named(
    tmp_path: Path, said: str, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Good blocks answer as unreviewed, bad ones have file, line and code; `validate` says 1 and changes nothing."""
    scene = Real(tmp_path)
    other = scene.says("Elsewhere it rains.", topic="Weather")
    good = f"<!-- memory\nid: mem_good\n\ttags:\thand, made\nmood: {said}\n-->\n\n## Good\n\n{said}\n\n<!-- /memory -->"
    text = "\n\n".join(["# Facts", good, *BAD.values()]) + "\n"
    path = scene.disk.roots.folder_of(LAYER) / "facts.md"
    raw = codecs.BOM_UTF8 + text.replace("\n", end).encode()
    path.write_bytes(raw)
    assert scene.finds(said) == [said]
    block = scene.block("mem_good")
    assert (block.authority, block.tags) == (Authority.UNREVIEWED, ("hand", "made"))
    assert said not in scene.recall.resident(ROOT).text
    found = [(problem.file, problem.line, problem.code) for problem in scene.disk.problems()]
    assert sorted(found, key=lambda place: place[1]) == [
        ("facts.md", text[: text.index(f"\n{bad}\n") + 1].count("\n") + 1, code) for code, bad in BAD.items()
    ]
    assert path.read_bytes() == raw
    code = main(["memory", "--state-root", str(tmp_path), "--project", "demo", "--json", "validate"])
    printed = capsys.readouterr().out
    assert code == 1
    assert all(name in printed for name in BAD)
    assert path.read_bytes() == raw
    review = TopicFile(raw).replaced(replace(TopicFile(raw).blocks[0], version=2))
    assert f"\nmood: {said}\n".encode() in review.data
    assert scene.block(other.id).authority is Authority.USER


@each(rows_of.EDITED)
def test_an_id_in_two_layers_is_told_and_neither_is_rewritten(tmp_path: Path, said: str) -> None:
    """A block copied into another layer's file: each layer serves its own, and `validate` names the second."""
    scene = Real(tmp_path)
    done = scene.says(said)
    source = scene.disk.roots.folder_of(LAYER) / "facts.md"
    copy = scene.disk.folder / "global" / "facts.md"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(source.read_bytes())
    fresh = MarkdownStore(tmp_path)
    assert [problem.code for problem in upkeep.validate(fresh).problems] == ["DUPLICATE_ID"]
    assert copy.read_bytes() == source.read_bytes()
    found = fresh.get(GLOBAL, done.id)
    assert found is not None
    assert found.block.authority is Authority.UNREVIEWED
    assert scene.block(done.id).authority is Authority.USER


# -- 17: truncation ----------------------------------------------------------------------------------------------------
@each(rows_of.SHRUNK)
def test_a_file_that_shrank_outside_waits_for_the_operator(tmp_path: Path, said: str) -> None:
    """Twelve memories became one: the model's correction of the survivor is refused until the edit is accepted."""
    scene = Real(tmp_path)
    done = scene.says(said)
    words = ["amber", "basil", "cedar", "dune", "ember", "fjord", "glade", "heron", "islet", "jetty", "kelp"]
    filler = [
        BlockWrite(LAYER, replace(scene.block(done.id), id=f"mem_{word}", title=word, body=f"About {word}."))
        for word in words
    ]
    scene.disk.commit(Transaction(tuple(filler)))
    path = scene.disk.roots.folder_of(LAYER) / "facts.md"
    whole = TopicFile(path.read_bytes())
    for memory_id in whole.places():
        if memory_id != done.id:
            whole = whole.removed(memory_id)
    path.write_bytes(whole.data)
    for again in (scene, Real(tmp_path)):
        again.user(said, "s3")
        caller = replace(ROOT, session="s3")
        with pytest.raises(SuspectTruncation) as refused:
            correct(again.memory, caller, Correction("It is otherwise now.", done.id), operator=True)
        assert refused.value.code == "SUSPECT_TRUNCATION"
        assert said not in str(refused.value)
        assert path.read_bytes() == whole.data
    scene.disk.accept_edits(AuditNote("accept-edits", "operator"))
    assert correct(scene.memory, ROOT, Correction("It is otherwise now.", done.id), operator=True).version == 2
    assert [entry.block.body for entry in scene.disk.history(LAYER, done.id)] == [said]


# -- 18: the audit log -------------------------------------------------------------------------------------------------
def _flipped(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"op":"', b'"op":"x', 1), *lines[2:]]


def _removed(lines: list[bytes]) -> list[bytes]:
    return [lines[0], *lines[2:]]


def _repeated(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[0], *lines[1:]]


def _torn(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], lines[-1][:20]]


def _gone(lines: list[bytes]) -> list[bytes]:
    del lines
    return []


@each(rows_of.AUDITED)
@pytest.mark.parametrize(
    ("damage", "seq"),
    [(_flipped, 2), (_removed, 2), (_repeated, 1), (_torn, -1), (_gone, 1)],
    ids=lambda item: str(item)[:12],
)
def test_a_damaged_audit_log_is_told_at_its_number_and_the_memory_goes_on(
    tmp_path: Path, said: str, damage: Callable[[list[bytes]], list[bytes]], seq: int
) -> None:
    """Also with a clock that went back: the break stays visible, numbers never repeat, and what was kept is found."""
    scene = Real(tmp_path)
    scene.says(said)
    for text, topic in (
        ("Cranes nest on the roof.", "Birds"),
        ("Bread is baked daily.", "Food"),
        ("Tea at four.", "Tea"),
    ):
        assert scene.says(text, topic=topic).relation == "NEW"
    path = scene.disk.journal.audit_path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(damage(list(lines))))
    again = Real(tmp_path)
    told = again.disk.journal.verify_audit().breaks
    if damage is _torn:
        assert again.health.features()["audit"].code == "AUDIT_TORN"
    else:
        assert told[0].seq == seq
    assert again.finds(said)[0] == said
    again.disk.journal.clock = lambda: again.clock.now
    again.clock.ahead(days=-400)
    assert again.says("It goes on all the same.", topic="Fourth").state == "active"
    assert again.says("And once more after that.", topic="Fifth").state == "active"
    rows = [row for line in path.read_bytes().splitlines() if (row := _row(line))]
    written = [row["seq"] for row in rows[-2:]]
    assert written == sorted(set(written))
    assert min(written) > len(lines)
    assert again.disk.journal.verify_audit().breaks[: len(told)] == told
    assert ("audit-torn" in [row["op"] for row in rows]) == (damage is _torn)
    assert said.encode() not in path.read_bytes()


def _row(line: bytes) -> dict[str, Any]:
    try:
        return json.loads(line)
    except ValueError:
        return {}


# -- rubbish anywhere --------------------------------------------------------------------------------------------------
RUBBISH: Final = (
    b"<!-- memory\n", b"-->", b"\n## x\n", b"\x00", b"\xff\xfe", b"```\n", b"### Evidence\n", b"<!-- /memory -->",
    b"\r", b"<<<<<<< a\n", b"id: mem_a\n", b"# ", b"status: hidden\n", b"version: 99999999\n", b"tags: [a, \\\n",
    b"valid_to: 2026-01-01T00:00:00+99:00\n", b"supersedes: x,y\n", b"{", b"\n", b'"', b"\xf0\x9f",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_rubbish_in_any_file_ends_no_call_with_anything_but_a_named_error(tmp_path: Path, seed: int) -> None:
    """Topic files, logs, manifest, index, evidence: cut, doubled, overwritten. What can be read is served."""
    chance = random.Random(seed)
    before = Real(tmp_path)
    kept = [before.says(f"Mooring {word} is firm.", topic=f"T{word}").id for word in ("amber", "basil", "cedar")]
    before.recall.search(ROOT, Query("mooring"))
    files = sorted(path for path in before.disk.folder.rglob("*") if path.is_file() and path.suffix)
    for path in chance.sample(files, 3):
        raw = path.read_bytes()
        for _ in range(3):
            at = chance.randrange(len(raw) + 1)
            raw = chance.choice((
                raw[:at] + chance.choice(RUBBISH) + raw[at:], raw[:at] + raw[at + chance.randint(1, 200) :],
                raw[:at], raw + raw[at:], raw[:at] + chance.randbytes(20) + raw[at:],
            ))  # fmt: skip
        path.write_bytes(raw)
    for scene in (before, Real(tmp_path)):
        for call in (
            lambda scene=scene: scene.recall.search(ROOT, Query("mooring")),
            lambda scene=scene: scene.recall.search(ROOT, Query("mooring", at=scene.memory.now())),
            lambda scene=scene: scene.recall.resident(ROOT),
            lambda scene=scene: scene.memory.status(ROOT),
            lambda scene=scene: upkeep.validate(scene.disk),
            lambda scene=scene: [scene.disk.history(LAYER, memory_id) for memory_id in kept],
            lambda scene=scene: scene.says("It goes on all the same.", topic="Later"),
            lambda scene=scene: upkeep.rebuild_index(scene.disk),
        ):
            with contextlib.suppress(HostError):
                call()
