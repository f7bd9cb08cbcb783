"""What a user of the store sees: record, resolve, annotate, bounds, damage, freshness."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import invariants
import pytest
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts.records import Bounds, SearchRequest
from rlm_memory_host.errors import Disposed, FormatVersion, Integrity, NotFound, Quota, StoreError, ToolCancelled
from rlm_memory_host.storage.faults import RecordingLayer
from store_harness import World, card_json, fingerprint, flip_byte, request, tree

WORKER = Path(__file__).parent / "store_worker.py"


def worker(*arguments: object) -> str:
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize("data", [b"", b"x", b"a,b\n1,2\n", bytes(range(256)) * 9_000])
def test_bytes_come_back_exactly_and_in_another_process_too(world: World, data: bytes) -> None:
    """An empty file is a valid result."""
    with world.open() as store:
        done = world.record(store, data, tags=("t",), shape=(2, 3), columns=("a\nb", ""))
        assert (done.bytes, done.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert done.local_saved
        assert not done.deduplicated
        assert not done.honcho_queued
    with world.open() as store:
        found = store.resolve(world.scope(), done.experiment_id)
        assert found.path.read_bytes() == data
        assert (found.tags, found.shape, found.columns) == (("t",), (2, 3), ("a\nb", ""))
        assert json.dumps(found.to_value())
    invariants.check_store(world, {done.experiment_id: data})


def test_modes_are_the_owners_alone_under_any_umask(world: World) -> None:
    """Folders 0700, cards 0600, objects 0400, whether the umask is 0 or takes everything."""
    for number, mask in enumerate((0o000, 0o277)):
        there = World(world.folder / str(number))
        path = there.write(b"bytes")
        before = os.umask(mask)
        try:
            with there.open() as store:
                done = store.record(there.scope(), request(path))
                store.annotate(there.scope(), done.experiment_id, {"codec": "bytes"})
        finally:
            os.umask(before)
        invariants.check_store(there, {done.experiment_id: b"bytes"})
        for folder in (there.root, there.layout.cards, there.objects()[0].parent):
            assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in there.layout.cards.iterdir()} == {0o600}


def test_the_same_again_is_one_card_with_the_newest_description(world: World, store: ArtifactStore) -> None:
    """What a caller leaves out stays; no change leaves the card untouched."""
    first = world.record(store, b"same", tags=("a", "b"), shape=(4,))
    card = world.cards()[0].read_bytes()
    assert world.record(store, b"same").experiment_id == first.experiment_id
    assert world.cards()[0].read_bytes() == card
    again = world.record(store, b"same", title="Better title", tags=("c",))
    assert again.deduplicated
    found = store.resolve(world.scope(), first.experiment_id)
    assert (found.title, found.tags, found.shape) == ("Better title", ("c",), (4,))
    assert found.created_at <= found.updated_at
    assert len(world.cards()) == len(world.objects()) == 1
    other = world.record(store, b"same", query_fingerprint=fingerprint("other"))
    assert other.deduplicated
    assert other.experiment_id != first.experiment_id
    assert (len(world.cards()), len(world.objects())) == (2, 1)


def test_the_same_identity_never_becomes_another_kind_of_thing(world: World, store: ArtifactStore) -> None:
    """4711 and "4711" are the same bytes: under one fingerprint the second kind is refused, and nothing changes."""
    kept = world.record(store, b"4711", media_type="application/json; codec=json")
    before = tree(world.root)
    for other in ("text/plain; charset=utf-8; codec=text", "application/json"):
        with pytest.raises(StoreError, match="another kind of result") as refused:
            world.record(store, b"4711", media_type=other)
        assert refused.value.code == "VALIDATION"
    assert tree(world.root) == before
    assert world.record(store, b"4711").experiment_id == kept.experiment_id
    assert store.resolve(world.scope(), kept.experiment_id).artifact.media_type.endswith("codec=json")


def test_identical_bytes_are_not_copied(world: World) -> None:
    """The source is hashed and that is all."""
    layer = RecordingLayer()
    with world.open(files=layer) as store:
        world.record(store, b"same" * 1_000)
        layer.changes.clear()
        assert world.record(store, b"same" * 1_000).deduplicated
        assert not layer.changes
        world.record(store, b"same" * 999 + b"diff")
        assert any(change.name == "copy" for change in layer.changes)


def test_a_flipped_byte_is_never_served_and_recording_again_repairs(world: World, store: ArtifactStore) -> None:
    """Size, mtime and mode are put back; the change is caught all the same, before and after a first resolve."""
    done = world.record(store, b"precious" * 100)
    for _ in range(2):
        flip_byte(world.objects()[0])
        with pytest.raises(Integrity) as caught:
            store.resolve(world.scope(), done.experiment_id)
        assert caught.value.code == "ARTIFACT_CORRUPT"
        found = hashlib.sha256(world.objects()[0].read_bytes()).hexdigest()
        assert all(text in str(caught.value) for text in (done.experiment_id, done.sha256, found))
        assert str(world.root) not in str(caught.value)
        hit = store.search(world.scope(), SearchRequest()).results[0]
        assert not hit.local_available
        repaired = world.record(store, b"precious" * 100)
        assert not repaired.deduplicated
        assert repaired.warnings
        assert store.resolve(world.scope(), done.experiment_id).path.read_bytes() == b"precious" * 100
        assert store.search(world.scope(), SearchRequest()).results[0].local_available


@pytest.mark.parametrize("integrity", ["cached", "always"])
def test_an_object_is_hashed_once_a_process_or_each_time(world: World, integrity: str) -> None:
    """What `verified_at` says moves only when the bytes were hashed again."""
    with world.open() as store:
        done = world.record(store, b"bytes")
    while time.time_ns() - world.objects()[0].stat().st_ctime_ns < 50_000_000:
        os.sched_yield()
    with world.open(integrity=integrity) as store:
        stamps = set()
        for _ in range(3):
            stamps.add(store.resolve(world.scope(), done.experiment_id).verified_at)
            until = time.time_ns() + 2_000_000
            while time.time_ns() < until:
                pass
    assert len(stamps) == (1 if integrity == "cached" else 3)


def test_the_first_resolve_hashes_even_what_this_process_recorded(world: World, store: ArtifactStore) -> None:
    """What was right when it was written is looked at again before it is first served."""
    done = world.record(store, b"bytes")
    recorded = time.time_ns()
    while time.time_ns() < recorded + 20_000_000:
        os.sched_yield()
    verified = datetime.fromisoformat(store.resolve(world.scope(), done.experiment_id).verified_at)
    assert verified.timestamp() * 1e9 > recorded + 10_000_000


@pytest.mark.parametrize("how", ["missing", "short", "empty", "folder", "link"])
def test_a_missing_or_replaced_object_is_refused_and_repaired(world: World, store: ArtifactStore, how: str) -> None:
    """Fails closed, listed as not available, and mended by the same record."""
    done = world.record(store, b"bytes" * 50)
    path = world.objects()[0]
    path.chmod(0o600)
    data = path.read_bytes()
    if how in ("missing", "folder", "link"):
        path.unlink()
    if how == "short":
        path.write_bytes(data[:-1])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "folder":
        path.mkdir()
    elif how == "link":
        (world.folder / "elsewhere").write_bytes(data)
        path.symlink_to(world.folder / "elsewhere")
    with pytest.raises(Integrity) as caught:
        store.resolve(world.scope(), done.experiment_id)
    assert caught.value.code == ("ARTIFACT_MISSING" if how == "missing" else "ARTIFACT_CORRUPT")
    assert not store.search(world.scope(), SearchRequest()).results[0].local_available
    if how == "folder":
        path.rmdir()
    assert not world.record(store, b"bytes" * 50).deduplicated
    assert store.resolve(world.scope(), done.experiment_id).path.read_bytes() == data


@pytest.mark.parametrize(
    ("recorded", "current", "expected"),
    [
        ("v1", None, "not_checked"),
        ("v1", "v1", "fresh"),
        ("v1", "v2", "stale"),
        ("v1", "v1 ", "stale"),
        ("v1", "", "unverifiable"),
        ("v1", "unknown", "unverifiable"),
        ("unknown", "unknown", "unverifiable"),
        ("unknown", "v1", "unverifiable"),
        ("unknown", None, "not_checked"),
        ("1", "1", "fresh"),
        ("caf\u00e9", "cafe\u0301", "stale"),
    ],
)
def test_freshness(world: World, store: ArtifactStore, recorded: str, current: str | None, expected: str) -> None:
    """Versions are equal only when they are the same text; unknown ones say so."""
    done = world.record(store, b"data", source_version=recorded)
    found = store.resolve(world.scope(), done.experiment_id, current)
    assert found.freshness == expected
    if expected == "stale":
        assert repr(recorded) in found.warnings[0]
        assert repr(current) in found.warnings[0]
    assert bool(found.warnings) == (expected in ("stale", "unverifiable"))


def test_a_version_that_is_no_text_is_refused(world: World, store: ArtifactStore) -> None:
    """1 and "1" are never taken for each other."""
    done = world.record(store, b"data", source_version="1")
    with pytest.raises(StoreError) as caught:
        store.resolve(world.scope(), done.experiment_id, 1)  # type: ignore[arg-type]
    assert caught.value.code == "VALIDATION"


def test_unknown_malformed_and_foreign_references_get_one_answer(world: World, store: ArtifactStore) -> None:
    """Nobody learns from the words whether another project has it."""
    done = world.record(store, b"mine")
    texts = set()
    for scope, reference in (
        (world.scope(project="project-b"), done.experiment_id),
        (world.scope(), "exp_" + "a" * 52),
        (world.scope(), "../../etc/passwd"),
        (world.scope(), ""),
    ):
        with pytest.raises(NotFound) as caught:
            store.resolve(scope, reference)
        texts.add((str(caught.value), caught.value.code))
        with pytest.raises(NotFound):
            store.annotate(scope, reference, {"a": 1})
    assert len(texts) == 1


def test_two_projects_share_no_file_and_look_at_nothing_of_each_other(world: World) -> None:
    """Every path that is opened, statted, scanned or changed for one project lies in its own folder."""
    layer = RecordingLayer()
    other = World(world.folder, "project-b")
    with world.open(files=layer) as store:
        world.record(store, b"shared bytes")
        layer.looks.clear()
        layer.changes.clear()
        scope = other.scope(session="session-b")
        path = other.write(b"shared bytes", session="session-b")
        done = store.record(scope, request(path))
        assert not done.deduplicated
        store.resolve(scope, done.experiment_id)
        store.search(scope, SearchRequest("cohort"))
        store.annotate(scope, done.experiment_id, {"a": 1})
        store.status(scope)
        seen = [Path(operation.target) for operation in (*layer.looks, *layer.changes)]
        inside = [path for path in seen if path.is_relative_to(world.root)]
    assert len(inside) > 10
    above = {world.root, world.root / "projects"}
    assert not [path for path in inside if not path.is_relative_to(other.layout.folder) and path not in above]
    assert not [path for path in seen if path.is_relative_to(world.layout.folder)]
    assert world.objects()[0].stat().st_ino != other.objects()[0].stat().st_ino


@pytest.mark.parametrize(
    ("field", "value", "number"),
    [
        ("title", "t" * 201, "201"),
        ("title", "", "empty"),
        ("title", "a\nb", "line break"),
        ("title", "a\x1b[31m", "control"),
        ("title", "\ud800", "surrogate"),
        ("summary", "s" * 2_001, "2,001"),
        ("summary", "a\x00", "control"),
        ("query_fingerprint", "abc", "64"),
        ("query_fingerprint", "A" * 64, "64"),
        ("source", "", "unknown"),
        ("source_version", "", "unknown"),
        ("source_version", 1, "int"),
        ("tags", ("t",) * 21, "21"),
        ("tags", ("t" * 81,), "81"),
        ("tags", ("",), "empty"),
        ("columns", ("c",) * 257, "257"),
        ("columns", ("c" * 129,), "129"),
        ("shape", (1,) * 33, "33"),
        ("shape", (-1,), "whole"),
        ("shape", (True,), "whole"),
        ("media_type", "text", "type/subtype"),
    ],
)
def test_a_bad_description_is_refused_with_the_number(
    world: World, store: ArtifactStore, field: str, value: object, number: str
) -> None:
    """Before anything is read or written."""
    with pytest.raises(StoreError, match=number) as caught:
        world.record(store, b"x", **{field: value})
    assert caught.value.code == "VALIDATION"
    assert not world.root.exists()


def test_titles_and_tags_have_one_normal_form(world: World, store: ArtifactStore) -> None:
    """Composed; what looks alike in identity fields stays apart."""
    done = world.record(store, b"x", title="cafe\u0301", tags=("cafe\u0301", "caf\u00e9"), source_version="cafe\u0301")
    found = store.resolve(world.scope(), done.experiment_id)
    assert (found.title, found.tags, found.source_version) == ("caf\u00e9", ("caf\u00e9",), "cafe\u0301")


def test_quotas_refuse_before_anything_is_committed(world: World) -> None:
    """Bytes and cards; old results stay, room that is made is used, and a lowered bound never hides what is there."""
    with world.open(bounds=Bounds(project_bytes=100, cards=3)) as store:
        kept = {world.record(store, bytes([n]) * 40).experiment_id: bytes([n]) * 40 for n in range(2)}
        before = tree(world.root)
        with pytest.raises(Quota) as caught:
            world.record(store, b"z" * 40)
        assert caught.value.code == "PROJECT_QUOTA_EXCEEDED"
        assert tree(world.root) == before
        assert world.record(store, b"\x00" * 40).deduplicated
        done = world.record(store, b"s" * 20)
        kept[done.experiment_id] = b"s" * 20
        with pytest.raises(Quota) as caught:
            world.record(store, b"s" * 20, query_fingerprint=fingerprint("other"))
        assert caught.value.code == "CARD_QUOTA_EXCEEDED"
        assert world.record(store, b"s" * 20, title="still updatable").deduplicated
    invariants.check_store(world, kept)


def test_bytes_that_an_operator_frees_can_be_used(world: World) -> None:
    """A count that reaches the bound is checked against the disk before anybody is refused."""
    with world.open(bounds=Bounds(project_bytes=100)) as store:
        world.record(store, b"a" * 90)
        world.objects()[0].unlink()
        world.cards()[0].unlink()
        assert world.record(store, b"b" * 90).local_saved


def test_a_sidecar_is_kept_merged_bounded_and_optional(world: World, store: ArtifactStore) -> None:
    """Without it, or with a broken one, the card is as good as before."""
    done = world.record(store, b"x")
    scope = world.scope()
    assert store.annotate(scope, done.experiment_id) is None
    assert store.annotate(scope, done.experiment_id, {"codec": "frame"}) == {"codec": "frame"}
    both = {"codec": "frame", "preview": {"rows": [[1, None, "é"]]}}
    assert store.annotate(scope, done.experiment_id, {"preview": both["preview"]}) == both
    with world.open() as other:
        assert other.annotate(scope, done.experiment_id) == both
    with pytest.raises(StoreError, match="65,536") as caught:
        store.annotate(scope, done.experiment_id, {"preview": "x" * 70_000})
    assert caught.value.code == "VALIDATION"
    with pytest.raises(StoreError):
        store.annotate(scope, done.experiment_id, {"preview": float("nan")})
    assert store.annotate(scope, done.experiment_id) == both
    world.layout.sidecar(done.experiment_id).write_bytes(b"{broken")
    assert store.annotate(scope, done.experiment_id) is None
    assert store.resolve(scope, done.experiment_id).path.read_bytes() == b"x"
    assert store.annotate(scope, done.experiment_id, {"codec": "again"}) == {"codec": "again"}


def test_a_card_of_the_typescript_package_is_served_and_updated(world: World, store: ArtifactStore) -> None:
    """Put there by the other tool while the store is open; its origin stays when its description changes."""
    data = b"a,b\n1,2\n"
    world.record(store, b"something of ours")
    experiment, document = card_json(world.project, data)
    artifact = world.layout.object(document["artifact"]["artifactId"])
    artifact.parent.mkdir(mode=0o700)
    artifact.write_bytes(data)
    artifact.chmod(0o400)
    card = world.layout.card(experiment)
    card.write_text(json.dumps(document, indent=2))
    card.chmod(0o600)
    assert store.resolve(world.scope(), experiment).path.read_bytes() == data
    assert store.search(world.scope(), SearchRequest("run")).results[0].index_state == "queued"
    again = world.record(store, data, query_fingerprint=document["queryFingerprint"], source_version="v1", title="Ours")
    assert (again.experiment_id, again.deduplicated, again.honcho_queued) == (experiment, True, True)
    written = json.loads(card.read_bytes())
    assert written["originSessionId"] == "session-ts"
    assert written["title"] == "Ours"


def test_a_card_of_a_future_version_is_refused_and_never_overwritten(world: World, store: ArtifactStore) -> None:
    """Resolving and recording say so; searching skips it with a diagnostic."""
    done = world.record(store, b"x")
    card = world.cards()[0]
    document = json.loads(card.read_bytes()) | {"schemaVersion": 2}
    card.write_text(json.dumps(document))
    for call in (
        lambda: store.resolve(world.scope(), done.experiment_id),
        lambda: world.record(store, b"x", title="n"),
    ):
        with pytest.raises(FormatVersion):
            call()
    assert json.loads(card.read_bytes()) == document


def test_a_damaged_card_is_refused_and_recording_again_mends_it(world: World, store: ArtifactStore) -> None:
    """It never comes back as something else."""
    done = world.record(store, b"x")
    world.cards()[0].write_bytes(b"{half")
    with pytest.raises(Integrity):
        store.resolve(world.scope(), done.experiment_id)
    world.record(store, b"x")
    assert store.resolve(world.scope(), done.experiment_id).path.read_bytes() == b"x"


def test_cancelling_and_closing_leave_nothing(world: World) -> None:
    """A cancelled record is gone; a closed store refuses every call by name."""
    store = world.open()
    with pytest.raises(ToolCancelled):
        store.record(world.scope(), request(world.write(b"x" * 5_000_000)), cancelled=lambda: True)
    assert not world.objects()
    assert not list(world.layout.temporary.iterdir())
    reported: list[tuple[int, int]] = []
    path = world.write(b"y" * 5_000_000)
    done = store.record(world.scope(), request(path), progress=lambda now, total: reported.append((now, total)))
    assert reported[-1] == (5_000_000, 5_000_000)
    store.close()
    for call in (
        lambda: store.record(world.scope(), request(path)),
        lambda: store.resolve(world.scope(), done.experiment_id),
        lambda: store.search(world.scope(), SearchRequest()),
        lambda: store.status(world.scope()),
    ):
        with pytest.raises(Disposed):
            call()


def test_temp_files_are_swept_after_a_day_and_strangers_are_left_alone(world: World) -> None:
    """Only files of ours that are older than their grace go."""
    with world.open() as store:
        world.record(store, b"x")
    old, young, stranger = (
        world.layout.temporary / name
        for name in ("object-01J00000000000000000000000.tmp", "card-01J00000000000000000000001.tmp", "notes.txt")
    )
    for path in (old, young, stranger):
        path.write_bytes(b"half")
    for path in (old, stranger):
        os.utime(path, (time.time() - 90_000,) * 2)
    with world.open() as store:
        assert store.status(world.scope())["project"]["temporary_files"] == 2
        world.record(store, b"y")
    assert not old.exists()
    assert young.exists()
    assert stranger.exists()


def test_status_says_nothing_about_content(world: World, store: ArtifactStore) -> None:
    """Numbers and settings: no title, tag, source, id or path."""
    done = world.record(store, b"x", title="Zebra", tags=("quokka",), source="okapi")
    text = json.dumps(store.status(world.scope()))
    for secret in ("Zebra", "quokka", "okapi", done.experiment_id, done.artifact_id, str(world.root), "project-a"):
        assert secret not in text
    assert store.status(world.scope())["project"]["cards"] == 1


@pytest.fixture
def open_world() -> Iterator[World]:
    """Folders that another user can walk through, unlike pytest's own, whatever the umask."""
    before = os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="rlm-memory-test-") as folder:
        Path(folder).chmod(0o755)
        yield World(Path(folder))
    os.umask(before)


def test_a_read_only_store_can_be_read(open_world: World) -> None:
    """As a user who may not write: search and resolve work, recording names the reason, the tree stays."""
    world = open_world
    world.write(b"same", "same.bin")
    with world.open() as store:
        store.record(world.scope(), request(world.write(b"same", "same.bin")))
    world.write(b"other", "other.bin")
    for path in (world.root, *world.root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = tree(world.root)
    answers = json.loads(worker("unprivileged", world.folder))
    assert answers["total"] == 1
    assert answers["bytes"] == 4
    assert answers["same.bin"] in ("recorded", "STORE_READ_ONLY")
    assert answers["other.bin"] == "STORE_READ_ONLY"
    assert tree(world.root) == before


def test_memory_stays_flat_whatever_the_size(world: World) -> None:
    """Recording 96 MiB, again, and resolving it, grows the process by less than 16 MiB."""
    assert int(worker("measure_memory", world.folder, 96)) < 16 << 10
