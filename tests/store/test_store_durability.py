"""What an operation answered survives a power cut: each leaves nothing on its way to the disk.

A SIGKILL proves nothing of it, since the page cache outlives the process. So the order is held over what a recording
layer saw, for everything that writes: recording, notes, marks, removing, bringing back, sweeping, exporting, importing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import invariants
import pytest
from operator_harness import DAY, NEW, OLD, Office, never
from rlm_memory_host.artifacts import ArtifactStore, importers, removal
from rlm_memory_host.artifacts.export.bundle import export
from rlm_memory_host.artifacts.indexing import marking
from rlm_memory_host.storage.faults import Operation, RecordingLayer
from store_harness import flip_byte

MOMENT = datetime(2026, 8, 21, tzinfo=UTC)
LARGE = b"large result " * 200_000
NOTE = {"lineage": {"inputs": ["a"]}}


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A store with two results, one with a note, and one removed result with its note."""
    office = Office(tmp_path)
    with office.open() as store:
        first = office.record(store, OLD, source_version="old")
        store.annotate(office.scope(), first.experiment_id, NOTE)
        office.record(store, NEW, source_version="new")
        gone = office.record(store, OLD, source_version="gone")
        store.annotate(office.scope(), gone.experiment_id, NOTE)
        removal.remove(parts_of(office, store), gone.experiment_id)
    return office


def parts_of(office: Office, store: ArtifactStore) -> Any:
    return store.project(office.scope()).parts


def experiment(office: Office, version: str) -> str:
    """The result of a version, removed or not."""
    for path in sorted(office.layout.cards.glob("exp_*")):
        if f'"sourceVersion":"{version}"' in path.read_text() and ".ext" not in path.name:
            return path.name[:56]
    raise LookupError(version)


def record(data: bytes) -> Callable[[Office, ArtifactStore], object]:
    return lambda office, store: office.record(store, data, source_version="recorded")


def describe_anew(office: Office, store: ArtifactStore) -> None:
    office.record(store, NEW, source_version="new", title="Another title")


def mend(office: Office, store: ArtifactStore) -> None:
    for path in office.objects():
        flip_byte(path)
    office.record(store, NEW, source_version="new")


def annotate(office: Office, store: ArtifactStore) -> None:
    store.annotate(office.scope(), experiment(office, "new"), NOTE)


def mark(office: Office, store: ArtifactStore) -> None:
    card = marking.mark(parts_of(office, store), experiment(office, "new"), marking.disabled("TOO_OLD"))
    assert card is not None
    assert card.index.last_error_code == "TOO_OLD"


def remove(office: Office, store: ArtifactStore) -> None:
    removal.remove(parts_of(office, store), experiment(office, "old"))


def bring_back(office: Office, store: ArtifactStore) -> None:
    removal.bring_back(parts_of(office, store), experiment(office, "gone"))


OPERATIONS: dict[str, Callable[[Office, ArtifactStore], object]] = {
    "record": record(b"recorded " * 100),
    "record large": record(LARGE),
    "record an empty file": record(b""),
    "record identical bytes": record(NEW),
    "describe anew": describe_anew,
    "mend": mend,
    "annotate": annotate,
    "mark": mark,
    "remove": remove,
    "bring back": bring_back,
}


def watched(office: Office, work: Callable[[Office, ArtifactStore], object]) -> list[Operation]:
    """What an operation did to the disk; it did something."""
    layer = RecordingLayer()
    with office.open(files=layer) as store:
        work(office, store)
    assert layer.changes
    return layer.changes


def check(office: Office, changes: Sequence[Operation]) -> None:
    layout = office.layout
    invariants.check_flushed(changes, but=[layout.lock, layout.journal, layout.temporary])


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_answered_is_on_the_disk(office: Office, name: str) -> None:
    """Bytes before their name, names before the answer."""
    check(office, watched(office, OPERATIONS[name]))


def test_the_first_record_of_a_store_makes_its_folders_durable(tmp_path: Path) -> None:
    """From the artifact root down: a folder whose name is lost takes everything in it along."""
    office = Office(tmp_path)
    changes = watched(office, record(NEW))
    assert {change.name for change in changes} >= {"mkdir", "fsync_folder"}
    check(office, changes)


def test_a_second_object_in_a_new_folder_makes_that_folder_durable(office: Office) -> None:
    """Objects lie in folders by the first characters of their names; most records make one."""
    known = {path.name for path in office.layout.objects.iterdir()}
    changes = watched(office, record(b"elsewhere"))
    made = [change.target for change in changes if change.name == "mkdir"]
    assert made
    assert Path(made[0]).name not in known
    check(office, changes)


def test_sweeping_makes_the_going_of_cards_durable_before_bytes_go(office: Office) -> None:
    """A card that came back after a power cut must find its bytes."""
    with office.open() as store:
        removal.remove(parts_of(office, store), experiment(office, "old"))
        removal.remove(parts_of(office, store), experiment(office, "new"))

    def sweep(office: Office, store: ArtifactStore) -> None:
        done = removal.sweep(
            store.project(office.scope()), undo_seconds=0, check=never, now=datetime.now(UTC).timestamp() + 9 * DAY
        )
        assert (len(done.removed), len(done.objects)) == (3, 2)

    loose: set[str] = set()
    for change in watched(office, sweep):
        if change.name == "unlink":
            if Path(change.target).is_relative_to(office.layout.objects):
                assert not loose
            else:
                loose.add(change.target)
        elif change.name == "fsync_folder" and change.target == str(office.layout.cards):
            loose.clear()
    assert not loose


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_an_export_is_on_the_disk_when_it_has_its_name(office: Office, tmp_path: Path, form: Any) -> None:
    """Each file and each folder of it, and then the name itself."""
    target = tmp_path / "out"
    layer = RecordingLayer()
    with office.open() as store:
        names = [path.stem for path in office.cards()]
        export(parts_of(office, store), names, target, form, check=never, outside=layer, now=MOMENT)
    assert target.exists()
    invariants.check_flushed(layer.changes)


def taking(source: Path, states: list[str]) -> Callable[[Office, ArtifactStore], None]:
    def work(office: Office, store: ArtifactStore) -> None:
        project = store.project(office.scope())
        with importers.open_export(source, office.project, project.parts.bounds, "disabled") as found:
            told = [
                importers.take(
                    project, office.scope(), item, now=lambda: MOMENT, index_state="disabled", check=never
                ).state
                for item in found.items
            ]
        assert sorted(told) == states

    return work


def test_an_import_is_on_the_disk_result_by_result(office: Office, tmp_path: Path) -> None:
    """New results, mended ones, and a note that comes to a result that is here already."""
    source = tmp_path / "export"
    with office.open() as store:
        names = [path.stem for path in office.cards()]
        export(parts_of(office, store), names, source, "folder", check=never, now=MOMENT)
    other = Office(tmp_path / "other")
    check(other, watched(other, taking(source, ["new", "new"])))
    for path in other.objects():
        flip_byte(path)
    check(other, watched(other, taking(source, ["mended", "mended"])))
    (note,) = other.layout.cards.glob("*.ext.json")
    note.unlink()
    changes = watched(other, taking(source, ["present", "present"]))
    assert [change.target for change in changes if change.name == "rename"] == [str(note)]
    check(other, changes)
