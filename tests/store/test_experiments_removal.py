"""Removing results, bringing them back, and sweeping: nothing a card names goes, whatever happens in between."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import invariants
import pytest
from operator_harness import DAY, NEW, OLD, FullDisk, Office, never
from rlm_memory_host.artifacts import ArtifactStore, removal
from rlm_memory_host.artifacts.operators.shelf import Shelf
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import Bounds, parse_card
from rlm_memory_host.errors import Integrity, NotFound, Quota, StoreError, VersionConflict
from rlm_memory_host.storage.faults import Crashed, CrashingLayer, FaultyLayer, RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from store_harness import FINGERPRINT, find, flip_byte, tree

LATER = 2 * DAY
"""How far the sweeps of these tests look ahead: what was just written is past its day of grace then."""


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def parts_of(office: Office, store: ArtifactStore) -> Any:
    return store.project(office.scope()).parts


def sweep(office: Office, store: ArtifactStore, *, days: float = 30, ahead: float = LATER) -> removal.Sweep:
    project = store.project(office.scope())
    return removal.sweep(project, undo_seconds=days * DAY, check=never, now=time.time() + ahead)


class TestRemoving:
    """`rm` and `undo`."""

    def test_a_result_that_another_command_removes_first_is_not_there(self, office: Office) -> None:
        """Between the look and the lock: the same words as for one that never was, and nothing is undone."""
        with office.open() as store:
            done = office.record(store, OLD)

        class Overtaken(FileLayer):
            def open_lock(self, path: Path) -> int:
                with office.open() as other:
                    removal.remove(parts_of(office, other), done.experiment_id)
                return super().open_lock(path)

        with office.open(files=Overtaken()) as store, pytest.raises(NotFound, match="no such experiment"):
            removal.remove(parts_of(office, store), done.experiment_id)
        with office.open() as store:
            assert removal.bring_back(parts_of(office, store), done.experiment_id)

    def test_a_removed_result_is_found_by_nothing_and_comes_back_whole(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            store.annotate(office.scope(), done.experiment_id, {"lineage": ["a"]})
            card = office.cards()[0].read_bytes()
            removal.remove(parts_of(office, store), done.experiment_id)
            assert find(store, office.scope()) == []
            with pytest.raises(NotFound):
                store.resolve(office.scope(), done.experiment_id)
            removal.bring_back(parts_of(office, store), done.experiment_id)
            assert store.resolve(office.scope(), done.experiment_id).path.read_bytes() == OLD
            assert store.annotate(office.scope(), done.experiment_id) == {"lineage": ["a"]}
            assert office.cards()[0].read_bytes() == card
            assert find(store, office.scope()) == [done.experiment_id]

    def test_another_host_sees_the_removal_and_the_return_at_once(self, office: Office) -> None:
        with office.open() as store, office.open() as other:
            done = office.record(store, OLD)
            assert find(other, office.scope()) == [done.experiment_id]
            removal.remove(parts_of(office, store), done.experiment_id)
            assert find(other, office.scope()) == []
            removal.bring_back(parts_of(office, store), done.experiment_id)
            assert find(other, office.scope()) == [done.experiment_id]

    def test_what_was_recorded_again_meanwhile_stays(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            removal.remove(parts_of(office, store), done.experiment_id)
            assert office.record(store, OLD, title="Recorded again").deduplicated
            with pytest.raises(VersionConflict):
                removal.bring_back(parts_of(office, store), done.experiment_id)
            assert store.resolve(office.scope(), done.experiment_id).title == "Recorded again"

    def test_a_damaged_card_can_be_removed_and_does_not_come_back(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            office.cards()[0].write_bytes(b"{")
            removal.remove(parts_of(office, store), done.experiment_id)
            assert not store.diagnostics(office.scope())
            with pytest.raises(Integrity):
                removal.bring_back(parts_of(office, store), done.experiment_id)

    def test_a_result_without_its_bytes_does_not_come_back(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            removal.remove(parts_of(office, store), done.experiment_id)
            office.objects()[0].unlink()
            with pytest.raises(Integrity):
                removal.bring_back(parts_of(office, store), done.experiment_id)
            assert not office.cards()

    def test_bringing_back_keeps_to_the_bound_of_cards(self, office: Office) -> None:
        with office.open(bounds=Bounds(cards=1)) as store:
            done = office.record(store, OLD)
            removal.remove(parts_of(office, store), done.experiment_id)
            office.record(store, NEW)
            with pytest.raises(Quota):
                removal.bring_back(parts_of(office, store), done.experiment_id)

    def test_another_projects_result_is_not_there_to_remove(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            other = store.project(office.scope("project-b")).parts
            for work in (removal.remove, removal.bring_back):
                with pytest.raises(NotFound):
                    work(other, done.experiment_id)
            assert store.resolve(office.scope(), done.experiment_id).path.read_bytes() == OLD


class TestSweeping:
    """`gc`."""

    def test_shared_bytes_stay_while_any_card_names_them(self, office: Office) -> None:
        with office.open() as store:
            first = office.record(store, OLD, source_version="1")
            second = office.record(store, OLD, source_version="2")
            removal.remove(parts_of(office, store), first.experiment_id)
            gone = sweep(office, store, days=0)
            assert [each.experiment_id for each in gone.removed] == [first.experiment_id]
            assert gone.objects == ()
            assert store.resolve(office.scope(), second.experiment_id).path.read_bytes() == OLD
            removal.remove(parts_of(office, store), second.experiment_id)
            assert [name for name, _ in sweep(office, store, days=0).objects] == [first.artifact_id]
            assert office.objects() == []

    def test_bytes_of_a_removed_result_stay_until_its_time_is_over(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            removal.remove(parts_of(office, store), done.experiment_id)
            assert sweep(office, store, days=30).is_empty
            removal.bring_back(parts_of(office, store), done.experiment_id)
            assert store.resolve(office.scope(), done.experiment_id).path.read_bytes() == OLD
            removal.remove(parts_of(office, store), done.experiment_id)
            assert sweep(office, store, days=30, ahead=31 * DAY).objects
            with pytest.raises(NotFound):
                removal.bring_back(parts_of(office, store), done.experiment_id)

    def test_an_object_without_a_card_has_a_day(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            office.cards()[0].unlink()
            soon = time.time() + 0.9 * DAY
            assert removal.plan(store.project(office.scope()), undo_seconds=0, now=soon).is_empty
            assert sweep(office, store, ahead=0.9 * DAY).is_empty
            assert [name for name, _ in sweep(office, store).objects] == [done.artifact_id]

    def test_a_plan_writes_nothing_and_says_what_the_sweep_does(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            removal.remove(parts_of(office, store), done.experiment_id)
            before = tree(office.root)
            project = store.project(office.scope())
            planned = removal.plan(project, undo_seconds=0, now=time.time() + LATER)
            assert tree(office.root) == before
            assert planned.objects == ((done.artifact_id, len(OLD)),)
            assert sweep(office, store, days=0) == planned

    def test_a_record_between_plan_and_deletion_keeps_its_bytes(self, office: Office) -> None:
        """Identical bytes are recorded, by another host, after the sweep looked and before it deletes."""

        class Meanwhile(FileLayer):
            recorded = False

            def look(self, operation: str, target: str | Path) -> None:
                if operation == "open" and Path(target).name == "commit" and not self.recorded:
                    self.recorded = True
                    with office.open() as other:
                        office.record(other, OLD, source_version="meanwhile")

        with office.open() as store:
            office.record(store, OLD)
            office.cards()[0].unlink()
        with office.open(files=Meanwhile()) as store:
            assert sweep(office, store).objects == ()
            found = find(store, office.scope())
            assert store.resolve(office.scope(), found[0]).path.read_bytes() == OLD

    def test_what_cannot_be_read_keeps_every_object(self, office: Office) -> None:
        """A card of which nothing can be told may name anything; a damaged one still names what stands in it."""
        with office.open() as store:
            first = office.record(store, OLD, source_version="1")
            second = office.record(store, NEW, source_version="2")
            card = office.layout.card(first.experiment_id)
            card.write_bytes(card.read_bytes()[:-40])
            office.layout.card(second.experiment_id).unlink()
            assert [name for name, _ in sweep(office, store).objects] == [second.artifact_id]
            office.record(store, NEW, source_version="2")
            office.layout.card(second.experiment_id).unlink()
            card.write_bytes(b"")
            kept = sweep(office, store)
            assert kept.objects == ()
            assert "cannot be read" in kept.kept
            assert len(office.objects()) == 2

    def test_left_overs_of_crashes_go_and_files_of_others_stay(self, office: Office) -> None:
        with office.open() as store:
            done = office.record(store, OLD)
            mine = office.layout.new_temporary("object")
            mine.write_bytes(b"half")
            foreign = office.layout.temporary / "notes.txt"
            foreign.write_bytes(b"mine")
            loose = office.layout.sidecar("exp_" + "a" * 52)
            loose.write_bytes(b"{}")
            gone = sweep(office, store)
            assert len(gone.leftovers) == 2
            assert not mine.exists()
            assert not loose.exists()
            assert foreign.exists()
            assert store.resolve(office.scope(), done.experiment_id).path.read_bytes() == OLD

    def test_swept_bytes_count_no_more(self, office: Office) -> None:
        with office.open(bounds=Bounds(project_bytes=len(OLD) + 10)) as store:
            done = office.record(store, OLD)
            with pytest.raises(Quota):
                office.record(store, NEW[: len(OLD)], source_version="other")
            removal.remove(parts_of(office, store), done.experiment_id)
            sweep(office, store, days=0)
            assert parts_of(office, store).lock.book()[1] == 0
            assert office.record(store, NEW[: len(OLD)], source_version="other").local_saved

    def test_a_project_never_sweeps_anothers_bytes(self, office: Office) -> None:
        with office.open() as store:
            mine = office.record(store, OLD)
            theirs = office.record(store, OLD, scope=office.scope("project-b"))
            removal.remove(parts_of(office, store), mine.experiment_id)
            assert sweep(office, store, days=0).objects
            assert store.resolve(office.scope("project-b"), theirs.experiment_id).path.read_bytes() == OLD


# -- crashes and failing disks ---------------------------------------------------------------------------------------
SHARED = b"shared by two cards " * 300


def do_remove(office: Office, store: ArtifactStore) -> None:
    removal.remove(parts_of(office, store), named(office, NEW, "new"))


def do_undo(office: Office, store: ArtifactStore) -> None:
    removal.bring_back(parts_of(office, store), named(office, OLD, "gone"))


def do_sweep(office: Office, store: ArtifactStore) -> None:
    sweep(office, store, days=0)


WORK: dict[str, Callable[[Office, ArtifactStore], None]] = {"remove": do_remove, "undo": do_undo, "gc": do_sweep}


def named(office: Office, data: bytes, version: str) -> str:
    artifact = ids.artifact_id(hashlib.sha256(data).digest())
    return ids.experiment_id(
        project_id=office.project, artifact=artifact, query_fingerprint=FINGERPRINT, source_version=version
    )


def prepare(folder: Path) -> tuple[Office, dict[str, bytes]]:
    """Results that stay, one of them sharing its bytes with a removed one; removed ones; an object without a card."""
    office = Office(folder)
    with office.open() as store:
        parts = parts_of(office, store)
        office.record(store, b"no card " * 100, source_version="orphan")
        office.cards()[0].unlink()
        kept = {}
        for data, version in ((NEW, "new"), (SHARED, "stays"), (SHARED, "shares"), (OLD, "gone")):
            done = office.record(store, data, source_version=version)
            store.annotate(office.scope(), done.experiment_id, {"codec": "bytes"})
            kept[done.experiment_id] = data
        for data, version in ((SHARED, "shares"), (OLD, "gone")):
            removal.remove(parts, named(office, data, version))
            del kept[named(office, data, version)]
    return office, kept


def check(office: Office, kept: dict[str, bytes]) -> None:
    """The store's invariants; and whatever is still removed can be brought back whole, with its sidecar."""
    attempted = {named(office, OLD, "gone"): OLD, named(office, NEW, "new"): NEW}
    certain = {name: data for name, data in kept.items() if name not in attempted}
    invariants.check_store(office, certain, attempted)
    with office.open() as store:
        shelf = Shelf(parts_of(office, store))
        for gone in shelf.removals():
            card = parse_card(gone.path(office.layout, "card").read_bytes())
            assert office.layout.object(card.artifact.artifact_id).exists(), "a removed card lost its bytes"


def count(folder: Path, work: Callable[[Office, ArtifactStore], None]) -> list[str]:
    office, _ = prepare(folder)
    layer = RecordingLayer()
    with office.open(files=layer) as store:
        work(office, store)
    return [f"{change.name} {Path(change.target).name}" for change in layer.changes]


@pytest.mark.parametrize("name", WORK)
def test_a_crash_at_any_step_leaves_every_result_whole(quick_path: Path, name: str) -> None:
    """Each rename, unlink, flush and write in turn is where the process ends; the same command then finishes."""
    steps = count(quick_path / "count", WORK[name])
    assert len(steps) >= 4
    for at in range(1, len(steps) + 1):
        office, kept = prepare(quick_path / f"at-{at}")
        store = office.open(files=CrashingLayer(at))
        with pytest.raises(Crashed):
            WORK[name](office, store)
        store.close()
        check(office, kept)
        finish(office, name)
        check(office, kept)


def finish(office: Office, name: str) -> None:
    """What an operator does next: the same again. A removal or return that was complete says so."""
    with office.open() as store:
        try:
            WORK[name](office, store)
        except (NotFound, VersionConflict):
            assert name != "gc"
        listed = find(store, office.scope(), limit=20)
    assert (named(office, NEW, "new") in listed) == (name != "remove")
    assert (named(office, OLD, "gone") in listed) == (name == "undo")
    if name == "gc":
        assert len(office.objects()) == 2


def refusal(name: str, office: Office, store: ArtifactStore) -> StoreError | None:
    try:
        WORK[name](office, store)
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("name", WORK)
def test_a_failing_step_leaves_every_result_whole_and_the_same_call_works_later(
    quick_path: Path, name: str, error: int
) -> None:
    """Disk full, an I/O error, a read-only disk at any step: a named error and nothing half-done."""
    steps = count(quick_path / "count", WORK[name])
    for at in range(1, len(steps) + 1):
        office, kept = prepare(quick_path / f"at-{at}")
        before = [item for item in tree(office.root) if not item[0].endswith(("commit", "journal"))]
        layer = FaultyLayer(at, error)
        with office.open(files=layer) as store:
            failure = refusal(name, office, store)
            if failure is None:
                assert steps[at - 1].endswith((" commit", " journal")), "only the bookkeeping may fail without a word"
            else:
                assert failure.code.startswith("STORE_")
                assert str(office.root) not in str(failure)
                if name != "gc":
                    assert [item for item in tree(office.root) if not item[0].endswith(("commit", "journal"))] == before
            layer.failed = 99
        check(office, kept)
        finish(office, name)


@pytest.mark.parametrize("name", WORK)
def test_removing_returning_and_sweeping_work_on_a_full_disk(quick_path: Path, name: str) -> None:
    """What frees space must not need space."""
    office, kept = prepare(quick_path)
    with office.open(files=FullDisk()) as store:
        WORK[name](office, store)
    check(office, kept)
    with office.open() as store:
        listed = find(store, office.scope(), limit=20)
    assert (named(office, OLD, "gone") in listed) == (name == "undo")
    assert (named(office, NEW, "new") in listed) == (name != "remove")
    if name == "gc":
        assert len(office.objects()) == 2


def test_a_card_is_off_the_disk_before_its_object(office: Office) -> None:
    """Unlinked cards are flushed before an object goes: a power cut must not bring back a card without bytes."""
    with office.open() as store:
        done = office.record(store, OLD)
        removal.remove(parts_of(office, store), done.experiment_id)
    layer = RecordingLayer()
    with office.open(files=layer) as store:
        sweep(office, store, days=0)
    names = [(change.name, change.target) for change in layer.changes]
    card = max(at for at, (name, target) in enumerate(names) if name == "unlink" and target.endswith(".removed"))
    flush = names.index(("fsync_folder", str(office.layout.cards)), card)
    assert names.index(("unlink", str(office.layout.object(done.artifact_id)))) > flush


def test_a_damaged_byte_does_not_change_what_is_swept(office: Office) -> None:
    """Sweeping goes by names; damage is for `verify` to find."""
    with office.open() as store:
        done = office.record(store, OLD)
        flip_byte(office.objects()[0])
        assert sweep(office, store).is_empty
        assert office.layout.object(done.artifact_id).exists()
