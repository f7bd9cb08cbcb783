"""The cases of the artifact store that come from other tools' bug reports, and where each is tested.

G3-01, corruption that nobody notices
- refused with the reference and both digests, listed and marked, repaired by recording again: `test_store_records`, a
  flipped byte; never data in a kernel: `test_experiments` (kernel), damaged bytes
G3-03, many processes record the same bytes
- all calls succeed, one card, one object, readers see whole bytes, no temp file stays: `test_store_together`, sixteen
  processes (slow), processes that record the same bytes
G3-05, odd names
- code point by code point, exact bytes, a long title refused with the number: `test_experiments` (kernel), files under
  any name; none is a part of a path: `test_store_guards`, no text becomes a path
G3-07, clean-up takes what another project uses
- both rounds, the day of grace, the dry run: here, cleaning up one project, cleaning up between a blob and its card
G3-09, many records
- all hits, total and cursor, no call reads every card: `test_store_search`, twenty thousand cards (slow)
G3-11, disk full, read-only
- one named error, the tree as it was, reads go on, room heals it: `test_store_together`, a full disk (a size limit);
  `test_store_integrity`, a full disk (2 MiB), a disk that turns read-only; `test_store_records`, a read-only store
- removing and sweeping on a full disk: `test_experiments_removal`, on a full disk; here, what a refusal says
G3-13, stale hit
- stale with both versions, fresh, the bytes of then: here, a source that changes
- odd versions are never equal by accident: `test_store_records`, freshness; `test_experiments` (kernel), staleness
"""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from operator_harness import DAY, NEW, OLD, Command, Office, command_of, never
from rlm_memory_host.artifacts import removal
from rlm_memory_host.cli.experiments_desk import open_desk
from rlm_memory_host.errors import ToolInput, Unwritable
from rlm_memory_host.storage import catalogue
from rlm_memory_host.storage.faults import FaultyLayer
from rlm_memory_host.storage.files import FileLayer
from store_harness import request, tree

THEIRS = "project-b"


def test_a_source_that_changes_changes_no_result(office: Office) -> None:
    """Same size and time, other bytes: stale by its version, named with both, and the bytes of then (G3-13)."""
    source = office.folder / "d.csv"
    source.write_text("a\n1\n")
    before = source.stat()
    with office.open() as store:
        scope = office.scope()
        path = office.write(source.read_bytes(), "d.csv")
        asked = request(path, source=str(source), source_version="v1")
        done = store.record(scope, asked)
        for each in (source, path):
            each.write_text("a\n2\n")
            os.utime(each, ns=(before.st_atime_ns, before.st_mtime_ns))
        stale = store.resolve(scope, done.experiment_id, "v2")
        assert stale.freshness == "stale"
        assert "'v1'" in stale.warnings[0]
        assert "'v2'" in stale.warnings[0]
        assert stale.path.read_text() == "a\n1\n"
        assert store.resolve(scope, done.experiment_id, "v1").freshness == "fresh"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


@pytest.fixture
def command(office: Office, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(office, capsys)


def test_cleaning_up_one_project_leaves_what_another_recorded(
    command: Command, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hold the same bytes; a dry run tells what would go; the bytes go after a day, the other's stay (G3-07)."""
    with office.open() as store:
        mine = office.record(store, OLD)
        theirs = office.record(store, OLD, scope=office.scope(THEIRS))
    assert command("rm", mine.experiment_id).code == 0
    before = tree(office.root)
    soon = command("gc", "--dry-run", "--undo-days", "0", "--json").value
    assert (len(soon["removed"]), soon["objects"]) == (1, [])
    real = time.time
    monkeypatch.setattr(removal.time, "time", lambda: real() + 2 * DAY)
    planned = command("gc", "--dry-run", "--undo-days", "0", "--json").value
    assert len(planned["objects"]) == 1
    assert tree(office.root) == before
    done = command("gc", "--yes", "--undo-days", "0", "--json").value
    assert (done["objects"], office.objects()) == (planned["objects"], [])
    with office.open() as store:
        assert store.resolve(office.scope(THEIRS), theirs.experiment_id).path.read_bytes() == OLD


@pytest.mark.parametrize("swept", ["project-a", THEIRS])
def test_cleaning_up_between_a_blob_and_its_card_takes_neither(office: Office, swept: str) -> None:
    """The other project's record stands still there; even its own project's clean-up keeps its bytes (G3-07)."""
    between, asked, go = threading.Event(), threading.Event(), threading.Event()

    class Paused(FileLayer):
        def create(self, path: Path) -> int:
            if path.name.startswith("card-"):
                between.set()
                assert go.wait(60)
            return super().create(path)

    class Asking(FileLayer):
        def look(self, operation: str, target: str | Path) -> None:
            if operation == "open" and Path(target).name == "commit":
                asked.set()

    with office.open() as store:
        mine = office.record(store, OLD)
        removal.remove(store.project(office.scope()).parts, mine.experiment_id)
    with office.open(files=Paused()) as slow, office.open(files=Asking()) as store, ThreadPoolExecutor(2) as pool:
        recording = pool.submit(office.record, slow, OLD, scope=office.scope(THEIRS))
        assert between.wait(60)
        project = store.project(office.scope(swept))
        sweeping = pool.submit(removal.sweep, project, undo_seconds=0, check=never, now=time.time() + 2 * DAY)
        if swept == THEIRS:
            assert asked.wait(60)
            go.set()
        gone = sweeping.result(60)
        go.set()
        theirs = recording.result(60)
        assert len(gone.objects) == (swept == "project-a")
        assert store.resolve(office.scope(THEIRS), theirs.experiment_id).path.read_bytes() == OLD


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_refusal_says_what_was_asked_for(office: Office, error: int) -> None:
    """Only a record says that nothing was recorded; a removal recorded nothing to begin with (G3-11)."""
    with office.open() as store:
        done = office.record(store, OLD)
    with office.open(files=FaultyLayer(1, error, times=99)) as store:
        with pytest.raises(Unwritable) as caught:
            removal.remove(store.project(office.scope()).parts, done.experiment_id)
        assert "record" not in str(caught.value)
        with pytest.raises(Unwritable, match=r"; nothing was recorded$"):
            office.record(store, NEW)


def test_ls_begins_with_the_index_that_a_host_saved(
    command: Command, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the cards that it shows and no others."""
    monkeypatch.setattr(catalogue, "PACK_FROM", 5)
    with office.open() as store:
        for number in range(8):
            office.record(store, b"%d" % number, title=f"run {number}")
    office.let_the_clock_pass()
    with office.open(index_folder=office.state / "index") as store:
        store.status(office.scope())
    assert list((office.state / "index").glob("*.index"))
    opened: list[str] = []

    def look(_layer: Any, operation: str, target: str | Path) -> None:
        if operation == "open" and Path(target).parent.name == "cards":
            opened.append(Path(target).name)

    monkeypatch.setattr(FileLayer, "look", look)
    said = command("ls", "run", "--limit", "2", "--json")
    assert (said.value["total"], len(said.value["results"])) == (8, 2)
    assert set(opened) == {f"{each['experiment_id']}.json" for each in said.value["results"]}


def test_a_folder_where_a_removed_card_should_be_stops_no_clean_up(command: Command, office: Office) -> None:
    """It is left alone and named, and what is ours goes."""
    with office.open() as store:
        done = office.record(store, OLD)
    card = office.layout.card("exp_" + "a" * 52)
    card.mkdir()
    assert command("rm", card.stem, done.experiment_id).code == 0
    swept = command("gc", "--yes", "--undo-days", "0", "--json")
    assert (swept.code, len(swept.value["removed"])) == (0, 1)
    (stray,) = command("verify", "--json").value["strays"]
    assert stray.startswith(card.stem)


def test_a_folder_that_cannot_be_read_ends_an_import_by_name(
    command: Command, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is not known, so nothing is taken, as a wrong guess of what was left out would be worse."""
    (office.folder / "mlruns" / "locked").mkdir(parents=True)
    real = os.open

    def locked(path: Any, *arguments: Any, **more: Any) -> int:
        if path == "locked":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", locked)
    said = command("import", "--from", "mlflow", office.folder / "mlruns")
    assert (said.code, said.err) == (2, "INVALID_PATH: locked: it cannot be read (Permission denied)")


def test_an_empty_project_is_no_project(office: Office) -> None:
    """A shell variable that is not set must not mean the project of the current folder."""
    with office.open() as store:
        office.record(store, OLD)
    with pytest.raises(ToolInput, match="--project"), open_desk(None, office.state, "", as_json=False):
        pass


SECRET = "ghp_" + "Ab3dEf7hIj" * 3 + "kL5mN9"


def test_what_is_imported_passes_the_guard(command: Command, office: Office) -> None:
    """A secret among another tool's texts reaches neither card nor sidecar, and the answer says where it was."""
    run = office.folder / "mlruns" / "7" / ("1" * 32)
    for name, text in {
        "../meta.yaml": "experiment_id: '7'\nlifecycle_stage: active\nname: trees\n",
        "meta.yaml": f"lifecycle_stage: active\nrun_id: {'1' * 32}\nrun_name: owl\nstart_time: 1755770300000\n",
        "params/token": SECRET,
        "tags/team": SECRET,
    }.items():
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for words in (["--dry-run"], []):
        said = command("import", "--from", "mlflow", office.folder / "mlruns", "--json", *words)
        assert (said.code, len(said.value["taken"])) == (0, 1)
        assert said.value["redacted"]
        assert SECRET not in said.out
    texts = [path.read_text() for path in office.layout.cards.iterdir()]
    assert len(texts) == 2
    assert not [text for text in texts if SECRET in text]


def test_an_export_with_a_secret_in_a_card_comes_in_without_it(command: Command, office: Office) -> None:
    """Whoever wrote that card: title, summary and tags are redacted, the bytes are the same."""
    with office.open() as store:
        done = office.record(store, OLD, title=f"with {SECRET}", tags=("fine", SECRET))
    assert command("export", "--all", "--to", office.folder / "out.zip").code == 0
    said = command("import", office.folder / "out.zip", "--json", project=THEIRS)
    assert {each["place"].partition(" ")[0] for each in said.value["redacted"]} == {"title", "tags"}
    listed = command("ls", "fine", "--json", project=THEIRS)
    assert SECRET not in listed.out
    assert listed.value["total"] == 1
    with office.open() as store:
        found = store.resolve(office.scope(THEIRS), said.value["taken"][0]["experiment_id"])
        assert (found.path.read_bytes(), found.artifact.artifact_id) == (OLD, done.artifact_id)
