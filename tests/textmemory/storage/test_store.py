"""The store: what was accepted is there again, in any process, whatever people and crashes did to the files."""

from __future__ import annotations

import errno
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rlm_memory_host.contracts.memory import (
    GLOBAL,
    AuditNote,
    Authority,
    Block,
    BlockWrite,
    Evidence,
    Layer,
    LayerKind,
    Log,
    LogRow,
    Sensitivity,
    Status,
    Transaction,
    preset_layer,
    project_layer,
    session_layer,
)
from rlm_memory_host.errors import (
    FormatVersion,
    LayerUnavailable,
    LimitExceeded,
    SuspectTruncation,
    ToolInput,
    Unwritable,
    VersionConflict,
)
from rlm_memory_host.storage.faults import Crashed, CrashingLayer, FaultyLayer, RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.textmemory.store import MarkdownStore

from .conftest import PROJECT, write


def block(name: str, body: str = "body", topic: str = "Topic") -> Block:
    """A block with an id made of `name`."""
    return Block(id=f"mem_{name}", topic=topic, title=f"Title {name}", body=body)


def test_what_was_stored_is_there_in_another_process(tmp_path: Path, store: MarkdownStore) -> None:
    """A second store over the same folder has the same blocks, by snapshot and by id."""
    stored = write(store, block("a", "one\n## two\n<!-- /memory -->"))
    other = MarkdownStore(tmp_path)
    assert other.snapshot(PROJECT).blocks == (stored,)
    found = MarkdownStore(tmp_path).get(PROJECT, "mem_a")
    assert found is not None
    assert (found.block, found.file, found.line) == (stored, "topic.md", 3)


def test_layers_do_not_see_each_other(store: MarkdownStore) -> None:
    """An id of another layer is as absent as one that never was."""
    write(store, block("a"))
    for layer in (project_layer("other"), GLOBAL, preset_layer("coder"), session_layer("s", "demo")):
        assert store.get(layer, "mem_a") is None
        assert store.find((layer,), "mem_a") is None


def test_an_update_keeps_what_was_before(store: MarkdownStore) -> None:
    """History gives each earlier state with the change that ended it."""
    first = write(store, block("a", "one"))
    second = write(store, replace(first, body="two", version=2), expected=1, change="update")
    write(store, replace(second, status=Status.ARCHIVED, version=3), expected=2, change="archive")
    assert [(entry.number, entry.change, entry.block.body) for entry in store.history(PROJECT, "mem_a")] == [
        (1, "update", "one"),
        (2, "archive", "two"),
    ]


def test_a_stale_writer_is_told_the_current_version(store: MarkdownStore) -> None:
    """Nothing of the stale write is stored."""
    first = write(store, block("a", "one"))
    write(store, replace(first, body="two", version=2), expected=1)
    with pytest.raises(VersionConflict) as caught:
        write(store, replace(first, body="three", version=2), expected=1)
    assert caught.value.current == 2
    with pytest.raises(VersionConflict):
        write(store, block("a", "again"))
    with pytest.raises(VersionConflict):
        store.commit(Transaction((BlockWrite(PROJECT, block("b")),), revisions={PROJECT: "stale"}))
    assert [each.body for each in store.snapshot(PROJECT).blocks] == ["two"]


def test_a_topic_continues_in_a_second_file(store: MarkdownStore, tmp_path: Path) -> None:
    """64 blocks a file; all of them are served."""
    store.commit(Transaction(tuple(BlockWrite(PROJECT, block(f"{number}")) for number in range(130))))
    folder = store.roots.folder_of(PROJECT)
    assert sorted(path.name for path in folder.glob("*.md")) == ["topic.0002.md", "topic.0003.md", "topic.md"]
    assert len(MarkdownStore(tmp_path).snapshot(PROJECT).blocks) == 130


def test_topics_with_one_slug_have_files_of_their_own(store: MarkdownStore) -> None:
    """C, C++, C#, an emoji and reserved names; equal topics share one; ".." is refused."""
    for number, topic in enumerate(["C", "C++", "C#", "CI/CD", "🔥", "MEMORY", "con", "c", "é", "e\u0301"]):
        write(store, block(f"{number}", topic=topic))
    blocks = store.snapshot(PROJECT).blocks
    assert {each.topic for each in blocks} == {"C", "C++", "C#", "CI/CD", "🔥", "MEMORY", "con", "é"}
    assert len(list(store.roots.folder_of(PROJECT).glob("*.md"))) == 8
    with pytest.raises(LimitExceeded):
        write(store, block("x", topic="../x"))
    assert list(store.folder.parent.glob("**/x.md")) == []


def test_limits_are_named_with_their_number(store: MarkdownStore) -> None:
    """64 topics a layer, 32,768 bytes a block, an id that is no path."""
    store.commit(Transaction(tuple(BlockWrite(PROJECT, block(f"{n}", topic=f"Topic {n}")) for n in range(64))))
    with pytest.raises(LimitExceeded, match="64") as caught:
        write(store, block("more", topic="One more"))
    assert caught.value.code == "TOO_MANY_TOPICS"
    with pytest.raises(LimitExceeded, match="32,768"):
        write(store, block("big", "x" * 10_000_000, topic="Topic 1"))
    with pytest.raises(LimitExceeded):
        write(store, block("../../x", topic="Topic 1"))


# -- hand edits --------------------------------------------------------------------------------------------------------
def edit(store: MarkdownStore, name: str, change: tuple[str, str]) -> Path:
    """Change a topic file as an editor does."""
    path = store.roots.folder_of(PROJECT) / name
    path.write_text(path.read_text().replace(*change))
    return path


def ops(store: MarkdownStore) -> list[str]:
    """The operations in the audit log."""
    return [json.loads(line)["op"] for line in store.journal.audit_path.read_bytes().splitlines()]


def test_a_hand_edit_is_served_as_unreviewed_until_it_is_accepted(tmp_path: Path, store: MarkdownStore) -> None:
    """Only the touched block loses its authority; the audit log tells once; accepting makes it the operator's."""
    write(store, replace(block("a", "one"), authority=Authority.USER))
    write(store, replace(block("b", "two"), authority=Authority.USER))
    edit(store, "topic.md", ("one", "won"))
    for again in (store, MarkdownStore(tmp_path)):
        blocks = again.snapshot(PROJECT).blocks
        assert [(each.body, each.authority) for each in blocks] == [
            ("won", Authority.UNREVIEWED),
            ("two", Authority.USER),
        ]
    assert ops(store).count("external-edit") == 1
    store.accept_edits(AuditNote("accept-edits", "operator"))
    assert [each.authority for each in MarkdownStore(tmp_path).snapshot(PROJECT).blocks] == [
        Authority.OPERATOR,
        Authority.USER,
    ]


def test_an_unreviewed_block_stays_so_when_its_file_is_rewritten(tmp_path: Path, store: MarkdownStore) -> None:
    """Writing another memory of the topic does not launder the edit."""
    write(store, replace(block("a", "one"), authority=Authority.USER))
    edit(store, "topic.md", ("one", "won"))
    write(store, block("b"))
    assert MarkdownStore(tmp_path).snapshot(PROJECT).blocks[0].authority is Authority.UNREVIEWED
    assert store.accept_edits(AuditNote("accept-edits", "operator"))
    assert store.snapshot(PROJECT).blocks[0].authority is Authority.OPERATOR


def test_trusted_edits_are_the_operators_but_never_in_a_repository(tmp_path: Path) -> None:
    """The configuration decides, and a file that a repository carries is never trusted."""
    folder = tmp_path / "repo" / ".memory"
    folder.mkdir(parents=True)
    trusting = MarkdownStore(tmp_path / "a", hand_edits="trust")
    write(trusting, block("a", "one"))
    edit(trusting, "topic.md", ("one", "won"))
    assert trusting.snapshot(PROJECT).blocks[0].authority is Authority.OPERATOR
    carried = MarkdownStore(tmp_path / "b", hand_edits="trust", repositories={PROJECT: folder})
    (folder / "topic.md").write_text("# Topic\n\n<!-- memory\nid: a\nauthority: operator\n-->\n\n## t\n\nb\n")
    assert carried.snapshot(PROJECT).blocks[0].authority is Authority.UNREVIEWED


def test_a_file_that_lost_memories_is_not_rewritten(tmp_path: Path, store: MarkdownStore) -> None:
    """SUSPECT_TRUNCATION, also after a restart, until an operator accepts what is left."""
    for name in "abcd":
        write(store, block(name))
    path = store.roots.folder_of(PROJECT) / "topic.md"
    text = path.read_text()
    path.write_text(text[: text.index("mem_b") - 20])
    survivor = store.snapshot(PROJECT).blocks[0]
    for each in (store, MarkdownStore(tmp_path)):
        with pytest.raises(SuspectTruncation):
            write(each, replace(survivor, version=2), expected=1)
        with pytest.raises(SuspectTruncation):
            write(each, block("new"))
    assert "SUSPECT_TRUNCATION" in [problem.code for problem in store.problems()]
    store.accept_edits(AuditNote("accept-edits", "operator"))
    write(store, block("new"))
    path.unlink()
    with pytest.raises(SuspectTruncation):
        write(store, block("newer"))
    assert [problem.code for problem in store.problems()] == ["FILE_MISSING"]


def test_a_hand_edit_between_read_and_write_is_never_overwritten(store: MarkdownStore) -> None:
    """The writer's compare-and-swap fails; the edit stays."""
    first = write(store, block("a", "one"))
    revision = store.snapshot(PROJECT).revision
    edit(store, "topic.md", ("one", "won"))
    with pytest.raises(VersionConflict):
        store.commit(
            Transaction((BlockWrite(PROJECT, replace(first, body="x", version=2), 1),), revisions={PROJECT: revision})
        )
    assert store.snapshot(PROJECT).blocks[0].body == "won"


def test_a_hand_edit_passes_the_guard(tmp_path: Path) -> None:
    """What the guard refuses is quarantined with its place; what it flags is served flagged."""
    verdicts = {"one": "GUARD_SECRET", "two": "instruction_like"}
    store = MarkdownStore(tmp_path, judge=lambda each: verdicts.get(each.body, ""))
    folder = store.roots.folder_of(PROJECT)
    folder.mkdir(parents=True)
    text = "# T\n" + "".join(f"\n<!-- memory\nid: {b}\n-->\n\n## t\n\n{b}\n" for b in ("one", "two", "three"))
    (folder / "t.md").write_text(text)
    assert [(each.id, each.flags) for each in store.snapshot(PROJECT).blocks] == [
        ("two", ("instruction_like",)),
        ("three", ()),
    ]
    assert [(problem.line, problem.code) for problem in store.problems()] == [(3, "GUARD_SECRET")]


def test_a_damaged_place_is_kept_and_the_rest_goes_on(store: MarkdownStore) -> None:
    """Half an entry, NUL bytes, CRLF lines, invalid UTF-8 and a merge conflict: named, untouched, neighbours served."""
    write(store, block("a"))
    path = store.roots.folder_of(PROJECT) / "topic.md"
    damage = b"\n<<<<<<< HEAD\nx\n>>>>>>> y\n\xff\xfe\n\x00\x00\n<!-- memory\nid: mem_half\nhalf"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") + damage)
    write(store, replace(store.snapshot(PROJECT).blocks[0], body="new", version=2), expected=1)
    assert path.read_bytes().endswith(damage)
    assert [each.body for each in store.snapshot(PROJECT).blocks] == ["new"]
    assert {problem.code for problem in store.problems()} == {
        "MERGE_CONFLICT",
        "INVALID_UTF8",
        "NUL_CHARACTER",
        "MARKER_UNCLOSED",
    }


# -- scope -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("preset", ["..", ".", "", "a/b", "\\\\host\\x", "C:\\x:ads", "x\x00"])
def test_a_preset_that_climbs_is_refused_before_anything_is_opened(preset: str, tmp_path: Path) -> None:
    """No file is looked at."""
    with pytest.raises(ToolInput):
        preset_layer(preset)


@pytest.mark.parametrize("key", ["a/../../b", "..", "", "A", "x" * 200])
def test_a_layer_key_is_never_a_callers_text(key: str) -> None:
    """Keys are derived; anything else is refused."""
    with pytest.raises(ToolInput):
        Layer(LayerKind.PROJECT, key)


def test_a_linked_or_shared_root_makes_its_layers_unavailable(tmp_path: Path) -> None:
    """The global folder is a link to a project's: both are refused, other layers work, the host starts."""
    first = MarkdownStore(tmp_path)
    write(first, block("a"))
    (first.folder / "global").symlink_to(first.roots.folder_of(PROJECT))
    store = MarkdownStore(tmp_path)
    assert not store.is_available(GLOBAL)
    assert not store.is_available(PROJECT)
    with pytest.raises(LayerUnavailable):
        write(store, block("b"), layer=GLOBAL)
    assert write(store, block("c"), layer=preset_layer("coder")).id == "mem_c"
    assert {bad.code for bad in store.roots.refused.values()} <= {"ROOT_IS_A_LINK", "ROOTS_EQUAL"}
    assert store.find((GLOBAL, PROJECT), "mem_a") is None


def test_a_repository_root_that_is_home_or_nested_is_refused(tmp_path: Path) -> None:
    """`/`, and a folder inside the state root."""
    wide = MarkdownStore(tmp_path, repositories={PROJECT: Path("/")})
    assert wide.roots.refused[PROJECT].code == "ROOT_TOO_WIDE"
    inside = tmp_path / "memory" / "local" / "global" / "sub"
    inside.mkdir(parents=True)
    nested = MarkdownStore(tmp_path, repositories={PROJECT: inside})
    assert not nested.is_available(PROJECT)
    assert not nested.is_available(GLOBAL)


def test_a_link_put_in_the_way_later_is_not_followed(tmp_path: Path, store: MarkdownStore) -> None:
    """The check runs again at every write."""
    write(store, block("a"))
    folder = store.roots.folder_of(PROJECT)
    away = tmp_path / "away"
    folder.rename(away)
    folder.symlink_to(away)
    with pytest.raises(LayerUnavailable):
        write(store, block("b"))
    assert "mem_b" not in (away / "topic.md").read_text()


def test_a_link_is_refused_by_a_store_that_never_saw_the_folder(tmp_path: Path, store: MarkdownStore) -> None:
    """It started before the link was made and opens the layer afterwards; a link for a folder above counts too."""
    write(store, block("a"))
    for folder in (store.roots.folder_of(PROJECT), store.roots.folder_of(PROJECT).parent):
        late = MarkdownStore(tmp_path)
        away = tmp_path / f"away-{folder.name}"
        folder.rename(away)
        folder.symlink_to(away)
        with pytest.raises(LayerUnavailable):
            write(late, block("b"))
        assert late.find((PROJECT,), "mem_a") is None
        folder.unlink()
        away.rename(folder)


def test_a_topic_file_that_is_a_link_is_not_read(tmp_path: Path, store: MarkdownStore) -> None:
    """It is named among the problems."""
    write(store, block("a"))
    secret = tmp_path / "secret.md"
    secret.write_text("# S\n\n<!-- memory\nid: s\n-->\n\n## s\n\nsecret\n")
    (store.roots.folder_of(PROJECT) / "linked.md").symlink_to(secret)
    assert [each.id for each in store.snapshot(PROJECT).blocks] == ["mem_a"]
    assert [problem.code for problem in store.problems()] == ["NOT_A_REGULAR_FILE"]


def test_a_repository_takes_normal_sensitivity_and_no_evidence(tmp_path: Path) -> None:
    """What lies in a repository is shared with whoever clones it."""
    folder = tmp_path / "repo" / ".memory"
    folder.mkdir(parents=True)
    store = MarkdownStore(tmp_path / "state", repositories={PROJECT: folder})
    assert write(store, replace(block("a"), evidence="said so")).evidence == ""
    assert "said so" not in (folder / "topic.md").read_text()
    with pytest.raises(LimitExceeded):
        write(store, replace(block("b"), sensitivity=Sensitivity.SENSITIVE))


# -- logs, evidence, versions ------------------------------------------------------------------------------------------
def test_the_last_row_of_an_id_counts(tmp_path: Path, store: MarkdownStore) -> None:
    """Rows keep the order in which their ids came."""
    for row in ({"id": "1", "state": "open"}, {"id": "2"}, {"id": "1", "state": "done"}):
        store.commit(Transaction(rows=(LogRow(Log.CANDIDATES, row),)))
    assert store.rows(Log.CANDIDATES) == ({"id": "1", "state": "done"}, {"id": "2"})
    assert MarkdownStore(tmp_path).rows(Log.CANDIDATES) == store.rows(Log.CANDIDATES)


def test_evidence_comes_back_in_order(store: MarkdownStore) -> None:
    """After a sequence number, per session, with its own file whatever the session is called."""
    for seq in (1, 2, 3):
        store.add_evidence(Evidence(f"e{seq}", "../s", seq, "2026-01-01T00:00:00Z", "user", f"turn {seq}\u2028x"))
    store.add_evidence(Evidence("e", "other", 1, "", "user", "else"))
    assert [each.text for each in store.evidence("../s", after=1)] == ["turn 2\u2028x", "turn 3\u2028x"]


def test_a_newer_format_is_readable_and_never_written(tmp_path: Path, store: MarkdownStore) -> None:
    """The message says what to do."""
    write(store, block("a"))
    path = store.folder / ".state" / "manifest.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"format": 2}))
    with pytest.raises(FormatVersion, match="upgrade"):
        write(MarkdownStore(tmp_path), block("b"))


# -- crashes and faults ------------------------------------------------------------------------------------------------
class Unflushed(FileLayer):
    """Announces a flush and leaves it out: it protects from power cuts, and these tests end processes."""

    def fsync(self, descriptor: int) -> None:
        """Announce only."""
        self._changed("fsync", descriptor, lambda: None)

    def fsync_folder(self, path: Path) -> None:
        """Announce only."""
        self._changed("fsync_folder", path, lambda: None)


class Crashing(Unflushed, CrashingLayer):
    """Ends at an operation."""


class Faulty(Unflushed, FaultyLayer):
    """Fails at an operation."""


class Recording(Unflushed, RecordingLayer):
    """Counts operations."""


def script(store: MarkdownStore, done: list[str]) -> None:
    """A few changes; `done` gets what was acknowledged."""
    write(store, block("a", "one"))
    done.append("a1")
    write(store, block("b", "two", topic="Other"))
    done.append("b1")
    rows = (LogRow(Log.CANDIDATES, {"id": "c"}),)
    changed = replace(block("a", "three"), version=2)
    store.commit(
        Transaction(
            (BlockWrite(PROJECT, changed, 1), BlockWrite(PROJECT, block("d", topic="Other"))),
            rows,
            (AuditNote("update", "user", target="mem_a"),),
        )
    )
    done.append("a2")
    write(store, replace(changed, topic="Moved", version=3), expected=2)
    done.append("a3")


STATES = [[], ["a1"], ["a1", "b1"], ["a2", "b1", "d1"], ["a3", "b1", "d1"]]


def check(root: Path, done: int) -> None:
    """Every invariant that can be stated after a crash: all or nothing, acknowledged is there, the audit holds."""
    store = MarkdownStore(root, files=Unflushed())
    with store.lock():
        pass
    blocks = store.snapshot(PROJECT).blocks
    found = sorted(f"{each.id[-1]}{each.version}" for each in blocks)
    assert found in STATES
    assert done <= STATES.index(found) <= done + 1
    assert all(each.authority is Authority.MODEL for each in blocks)
    assert store.problems() == ()
    assert len(store.rows(Log.CANDIDATES)) == (1 if STATES.index(found) >= 3 else 0)
    assert store.journal.verify_audit().breaks == ()
    bodies = {each.id: each.body for each in blocks}
    assert bodies.get("mem_a") in (None, "one", "three")
    assert [entry.block.version for entry in store.history(PROJECT, "mem_a")] == list(
        range(1, next((each.version for each in blocks if each.id == "mem_a"), 1))
    )
    if "mem_z" not in bodies:
        write(store, block("z", topic="After"))
    assert MarkdownStore(root).get(PROJECT, "mem_z") is not None
    assert store.journal.verify_audit().breaks == ()


def operations(root: Path) -> int:
    """How many changes of the store the script makes."""
    layer = Recording()
    script(MarkdownStore(root, files=layer), [])
    return len(layer.changes)


def crash(root: Path, at: int, *, torn: bool, done: list[str]) -> None:
    """Run the script until the process ends at operation number `at`."""
    try:
        script(MarkdownStore(root, files=Crashing(at, torn=torn)), done)
    except Crashed:
        pass


@pytest.mark.parametrize("torn", [False, True])
def test_every_crash_leaves_all_or_nothing(tmp_path: Path, torn: bool) -> None:
    """The process ends at each single write, flush, rename and unlink, or within a write."""
    total = operations(tmp_path / "count")
    assert total > 60
    for at in range(1, total + 1):
        root = tmp_path / f"{at}"
        done: list[str] = []
        crash(root, at, torn=torn, done=done)
        check(root, len(done))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_changes_nothing_or_completes(tmp_path: Path, error: int) -> None:
    """A full or failing disk at each operation: the error is named, nothing is half there, the next write works."""
    for at in range(1, operations(tmp_path / "count") + 1):
        root = tmp_path / f"{at}"
        done: list[str] = []
        try:
            script(MarkdownStore(root, files=Faulty(at, error)), done)
        except (Unwritable, OSError):
            pass
        check(root, len(done))


def test_an_interrupted_call_goes_on(tmp_path: Path) -> None:
    """EINTR at each operation is no failure."""
    for at in range(1, operations(tmp_path / "count") + 1):
        done: list[str] = []
        script(MarkdownStore(tmp_path / f"{at}", files=Faulty(at, errno.EINTR)), done)
        assert len(done) == 4


def test_files_are_flushed_before_they_get_their_name(tmp_path: Path) -> None:
    """Write, flush, rename, flush the folder; the manifest before the first rename of a topic file."""
    layer = RecordingLayer()
    write(MarkdownStore(tmp_path, files=layer), block("a"))
    names = [(change.name, Path(change.target).name) for change in layer.changes]
    manifest, topic = names.index(("rename", "manifest.json")), names.index(("rename", "topic.md"))
    assert manifest < topic < names.index(("create", "audit.ndjson"))
    assert [name for name, _ in names[:manifest]].count("fsync") >= 2
    assert names[topic + 1][0] == "fsync_folder"
    assert names[manifest + 1][0] == "fsync_folder"


def test_a_read_only_store_still_recalls(tmp_path: Path) -> None:
    """Writing is refused by name; reading goes on."""
    write(MarkdownStore(tmp_path), block("a"))
    store = MarkdownStore(tmp_path, files=FaultyLayer(1, errno.EROFS, times=10**9))
    with pytest.raises(Unwritable):
        write(store, block("b"))
    assert [each.id for each in store.snapshot(PROJECT).blocks] == ["mem_a"]


def test_many_threads_and_stores_lose_nothing(tmp_path: Path) -> None:
    """Two stores on one folder, six threads each: every write is there, the audit chain holds."""
    stores = [MarkdownStore(tmp_path), MarkdownStore(tmp_path)]

    def work(number: int) -> None:
        for each in range(8):
            write(stores[number % 2], block(f"{number}-{each}", topic=f"T{number % 3}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = MarkdownStore(tmp_path)
    assert len(store.snapshot(PROJECT).blocks) == 96
    assert all(each.authority is Authority.MODEL for each in store.snapshot(PROJECT).blocks)
    assert store.journal.verify_audit().breaks == ()
    assert "external-edit" not in ops(store)
