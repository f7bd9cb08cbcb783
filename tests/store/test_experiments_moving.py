"""Exports and imports: byte for byte, all or nothing, twice as good as once, and nothing hostile gets in."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import invariants
import pytest
from operator_harness import NEW, OLD, Office, never
from rlm_memory_host.artifacts import ArtifactStore, importers
from rlm_memory_host.artifacts.export import export
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import Bounds
from rlm_memory_host.errors import HostError, Integrity, NotFound, StoreError, ToolCancelled
from rlm_memory_host.storage.faults import Crashed, CrashingLayer, FaultyLayer, RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from store_harness import find, flip_byte, list_all, tree

MOMENT = datetime(2026, 8, 21, tzinfo=UTC)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def filled(office: Office) -> list[str]:
    """Two results, the second with a sidecar; their ids."""
    with office.open() as store:
        first = office.record(store, OLD, title="First | one", tags=("a",), shape=(2, 3), columns=("x", "y"))
        second = office.record(store, NEW, title="Second")
        store.annotate(office.scope(), second.experiment_id, {"lineage": {"inputs": [first.experiment_id]}})
    return [first.experiment_id, second.experiment_id]


def write(office: Office, target: Path, form: Any = "folder", layer: FileLayer | None = None, **options: Any) -> Path:
    with office.open() as store:
        parts = store.project(office.scope()).parts
        names = options.pop("names", sorted(path.stem for path in office.cards()))
        export(parts, names, target, form, check=options.pop("check", never), outside=layer, now=MOMENT, **options)
    return target


def bring(
    office: Office, source: Path, *, layer: FileLayer | None = None, bounds: Bounds | None = None
) -> dict[str, Any]:
    """Import an export; what became of each experiment, and what was refused."""
    with office.open(files=layer or FileLayer(), bounds=bounds or Bounds()) as store:
        return bring_into(office, store, source)


def bring_into(office: Office, store: ArtifactStore, source: Path) -> dict[str, Any]:
    project = store.project(office.scope())
    told: dict[str, Any] = {"states": [], "refused": {}}
    with importers.open_export(source, office.project, project.parts.bounds, "disabled") as found:
        for item in found.items:
            try:
                taken = importers.take(
                    project, office.scope(), item, now=lambda: MOMENT, index_state="disabled", check=never
                )
                told["states"].append(taken.state)
            except (Integrity, NotFound) as error:
                told["refused"][item.name] = error.code
        told["refused"] |= {item.name: item.code for item in found.skipped}
    return told


def contents(office: Office, project: str | None = None) -> dict[str, tuple[str, Any]]:
    """Every result by artifact: its title and sidecar."""
    with office.open() as store:
        scope = office.scope(project)
        hits = list(list_all(store, scope))
        assert all(store.resolve(scope, hit.experiment_id) for hit in hits)
        return {hit.artifact_id: (hit.title, store.annotate(scope, hit.experiment_id)) for hit in hits}


@pytest.mark.parametrize("form", ["folder", "zip"])
class TestThereAndBack:
    """An export comes back as what it was."""

    def test_the_same_project_elsewhere_gets_the_same_ids_cards_and_bytes(self, tmp_path: Path, form: str) -> None:
        here, there = Office(tmp_path / "a"), Office(tmp_path / "b")
        filled(here)
        source = write(here, tmp_path / "out", form)
        assert bring(there, source) == {"states": ["new", "new"], "refused": {}}
        assert [path.name for path in there.cards()] == [path.name for path in here.cards()]
        assert [path.read_bytes() for path in there.cards()] == [path.read_bytes() for path in here.cards()]
        assert [path.read_bytes() for path in there.objects()] == [path.read_bytes() for path in here.objects()]
        assert contents(there) == contents(here)

    def test_another_project_gets_ids_of_its_own_and_the_same_artifacts(self, tmp_path: Path, form: str) -> None:
        here, there = Office(tmp_path / "a"), Office(tmp_path / "b", project="project-b")
        names = filled(here)
        assert bring(there, write(here, tmp_path / "out", form))["states"] == ["new", "new"]
        assert contents(there) == contents(here)
        assert not {path.stem for path in there.cards()} & set(names)

    def test_a_second_import_changes_nothing(self, tmp_path: Path, form: str) -> None:
        here, there = Office(tmp_path / "a"), Office(tmp_path / "b")
        filled(here)
        source = write(here, tmp_path / "out", form)
        bring(there, source)
        before = [path.read_bytes() for path in there.cards()], tree(there.root)
        assert bring(there, source)["states"] == ["present", "present"]
        assert ([path.read_bytes() for path in there.cards()], tree(there.root)) == before

    def test_what_was_described_anew_here_stays_and_damage_is_mended(self, tmp_path: Path, form: str) -> None:
        here = Office(tmp_path / "a")
        filled(here)
        source = write(here, tmp_path / "out", form)
        with here.open() as store:
            here.record(store, OLD, title="Better title")
        flip_byte(here.objects()[0])
        assert sorted(bring(here, source)["states"]) == ["mended", "present"]
        assert "Better title" in {title for title, _ in contents(here).values()}

    def test_the_same_results_give_the_same_export(self, tmp_path: Path, form: str) -> None:
        here = Office(tmp_path / "a")
        filled(here)
        first, second = write(here, tmp_path / "1", form), write(here, tmp_path / "2", form)
        if form == "zip":
            assert first.read_bytes() == second.read_bytes()
        else:
            assert tree(first) == tree(second)


class TestExporting:
    """What an export refuses."""

    def test_damaged_bytes_are_never_exported(self, office: Office, tmp_path: Path) -> None:
        filled(office)
        flip_byte(office.objects()[0])
        with pytest.raises(Integrity, match="damaged"):
            write(office, tmp_path / "out")
        assert not list(tmp_path.glob("*out*"))

    def test_it_writes_over_nothing_and_not_into_the_store(self, office: Office, tmp_path: Path) -> None:
        filled(office)
        (tmp_path / "there").mkdir()
        with pytest.raises(StoreError, match="exists already"):
            write(office, tmp_path / "there")
        link = tmp_path / "link"
        link.symlink_to(office.root)
        with pytest.raises(StoreError, match="inside the store"):
            write(office, link / "out", forbidden=(office.root,))

    @pytest.mark.parametrize("form", ["folder", "zip"])
    def test_stopping_leaves_nothing(self, office: Office, tmp_path: Path, form: str) -> None:
        filled(office)
        before = sorted(tmp_path.iterdir())
        calls = 0

        def stop() -> None:
            nonlocal calls
            calls += 1
            if calls == 4:
                raise ToolCancelled("stopped")

        with pytest.raises(ToolCancelled):
            write(office, tmp_path / "out", form, check=stop)
        assert sorted(tmp_path.iterdir()) == before

    @pytest.mark.parametrize("form", ["folder", "zip"])
    def test_a_crash_at_any_step_shows_a_whole_export_or_none(self, quick_path: Path, form: str) -> None:
        office = Office(quick_path / "office")
        filled(office)
        whole = write(office, quick_path / "whole", form, layer := RecordingLayer())
        reference = digest_of(whole)
        for at in range(1, len(layer.changes) + 1):
            target = quick_path / f"at-{at}"
            with pytest.raises(Crashed):
                write(office, target, form, CrashingLayer(at))
            assert not target.exists() or digest_of(target) == reference
            if not target.exists():
                assert digest_of(write(office, target, form)) == reference

    @pytest.mark.parametrize("form", ["folder", "zip"])
    @pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
    def test_a_failing_step_leaves_nothing(self, quick_path: Path, form: str, error: int) -> None:
        office = Office(quick_path / "office")
        filled(office)
        write(office, quick_path / "whole", form, layer := RecordingLayer())
        for at in range(1, len(layer.changes)):
            folder = quick_path / f"at-{at}"
            folder.mkdir()
            with pytest.raises(StoreError) as refused:
                write(office, folder / "out", form, FaultyLayer(at, error))
            assert refused.value.code in ("STORE_FULL", "STORE_UNAVAILABLE")
            assert list(folder.iterdir()) == []

    @pytest.mark.parametrize("form", ["folder", "zip"])
    def test_files_are_flushed_before_the_name_appears(self, office: Office, tmp_path: Path, form: str) -> None:
        filled(office)
        write(office, tmp_path / "out", form, layer := RecordingLayer())
        dirty: set[str] = set()
        for change in layer.changes:
            if change.name in ("create", "write"):
                dirty.add(change.target)
            elif change.name == "fsync":
                dirty.discard(change.target)
            elif change.name == "rename":
                assert not dirty
        assert layer.changes[-1].name == "fsync_folder"


def digest_of(target: Path) -> str:
    files = [target] if target.is_file() else sorted(path for path in target.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


# -- importing while things break ------------------------------------------------------------------------------------
def steps_of(folder: Path, source: Path) -> int:
    layer = RecordingLayer()
    bring(Office(folder), source, layer=layer)
    return len(layer.changes)


def export_of(folder: Path) -> tuple[Path, dict[str, bytes]]:
    office = Office(folder / "origin")
    names = filled(office)
    return write(office, folder / "export.zip", "zip"), dict(zip(names, (OLD, NEW), strict=True))


def test_a_crash_in_an_import_leaves_whole_results_or_none(quick_path: Path) -> None:
    """Each write, flush and rename in turn is where the process ends; importing again completes it."""
    source, results = export_of(quick_path)
    steps = steps_of(quick_path / "count", source)
    for at in range(1, steps + 1):
        office = Office(quick_path / f"at-{at}")
        store = office.open(files=CrashingLayer(at))
        with pytest.raises(Crashed):
            bring_into(office, store, source)
        store.close()
        invariants.check_store(office, {}, results)
        with_notes = [title for title, note in contents(office).values() if note]
        assert ("Second" in with_notes) == ("Second" in [title for title, _ in contents(office).values()])
        assert bring(office, source)["refused"] == {}
        invariants.check_store(office, results)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failing_step_of_an_import_leaves_no_half_result(quick_path: Path, error: int) -> None:
    """The result at which the disk failed is not there at all; those before it are; again, and all are."""
    source, results = export_of(quick_path)
    steps = steps_of(quick_path / "count", source)
    for at in range(1, steps + 1):
        office = Office(quick_path / f"at-{at}")
        layer = FaultyLayer(at, error)
        with office.open(files=layer) as store:
            failure = refusal(office, store, source)
            assert failure is None or failure.code.startswith("STORE_")
        invariants.check_store(office, {}, results)
        names = {path.stem for path in office.cards()}
        notes = {path.name.removesuffix(".ext.json") for path in office.layout.cards.glob("*.ext.json")}
        assert notes <= names, "a sidecar stayed without its card"
        assert failure is None or not list(office.layout.temporary.glob("*"))
        bring(office, source)
        invariants.check_store(office, results)


def refusal(office: Office, store: ArtifactStore, source: Path) -> HostError | None:
    try:
        bring_into(office, store, source)
    except HostError as error:
        return error
    return None


# -- hostile exports -------------------------------------------------------------------------------------------------
Entries = dict[str, bytes]


def entries_of(source: Path) -> Entries:
    with zipfile.ZipFile(source) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(target: Path, entries: Entries | list[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    listed = list(entries.items()) if isinstance(entries, dict) else entries
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in listed:
            archive.writestr(name, data)
    return target


def relisted(entries: Entries, **changes: Any) -> Entries:
    """The entries with a manifest that lists exactly them."""
    manifest = json.loads(entries["manifest.json"])
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in entries.items()
        if name != "manifest.json"
    }
    return {**entries, "manifest.json": json.dumps({**manifest, **changes}).encode()}


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def device(name: str) -> zipfile.ZipInfo:
    info = link(name)
    info.external_attr = (stat.S_IFIFO | 0o600) << 16
    return info


def with_entry(name: str | zipfile.ZipInfo, data: bytes = b"x") -> Callable[[Entries], Any]:
    return lambda entries: [*entries.items(), (name, data)]


def first_card(entries: Entries) -> str:
    return next(name for name in entries if name.startswith("cards/") and not name.endswith(".ext.json"))


def first_object(entries: Entries) -> str:
    return next(name for name in entries if name.startswith("objects/"))


HOSTILE: dict[str, tuple[Callable[[Entries], Any], str, str]] = {
    "climbing": (with_entry("../../evil"), "INVALID_PATH", "evil"),
    "absolute": (with_entry("/etc/evil"), "INVALID_PATH", "evil"),
    "climbing below cards": (with_entry("cards/../../evil.json"), "INVALID_PATH", "evil"),
    "backslashes": (with_entry("..\\..\\evil"), "INVALID_PATH", "evil"),
    "a stranger": (with_entry("cards/evil.sh"), "INVALID_PATH", "evil.sh"),
    "a link": (
        lambda entries: [*entries.items(), (link("cards/exp_" + "a" * 52 + ".json"), b"/etc/passwd")],
        "UNSAFE_FILESYSTEM_ENTRY",
        "exp_aaaa",
    ),
    "a pipe": (
        lambda entries: [*entries.items(), (device("objects/aa/art_" + "a" * 52), b"")],
        "NOT_REGULAR_FILE",
        "art_aaaa",
    ),
    "unlisted": (with_entry("cards/exp_" + "a" * 52 + ".json"), "VALIDATION", "exp_aaaa"),
    "missing": (
        lambda entries: {name: data for name, data in entries.items() if name != first_object(entries)},
        "ARTIFACT_MISSING",
        "art_",
    ),
    "no manifest": (
        lambda entries: {name: data for name, data in entries.items() if name != "manifest.json"},
        "INVALID_PATH",
        "manifest",
    ),
    "a manifest that is none": (lambda entries: {**entries, "manifest.json": b"[]"}, "VALIDATION", "manifest"),
    "a manifest with a name twice": (
        lambda entries: {**entries, "manifest.json": b'{"files": {}, "files": {}}'},
        "VALIDATION",
        "manifest",
    ),
    "a later version": (lambda entries: relisted(entries, version=2), "UNSUPPORTED_VERSION", "version"),
    "an experiment twice": (
        lambda entries: relisted(entries, experiments=json.loads(entries["manifest.json"])["experiments"] * 2),
        "VALIDATION",
        "twice",
    ),
    "another size": (lambda entries: {**entries, first_object(entries): b"short"}, "ARTIFACT_CORRUPT", "art_"),
    "too large a card": (
        lambda entries: relisted({**entries, first_card(entries): b"x" * (300 << 10)}),
        "ARTIFACT_TOO_LARGE",
        "exp_",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_by_the_entrys_name_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    source, _ = export_of(tmp_path)
    change, code, word = HOSTILE[name]
    bad = pack(tmp_path / "bad.zip", change(entries_of(source)))
    office = Office(tmp_path / "office")
    with pytest.raises(StoreError) as refused:
        bring(office, bad)
    assert refused.value.code == code
    assert word in str(refused.value)
    assert not office.root.exists() or tree(office.root) == []
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    source, _ = export_of(tmp_path)
    entries = entries_of(source)
    bad = pack(tmp_path / "bad.zip", [*entries.items(), (first_card(entries), b"{}")])
    with pytest.raises(StoreError, match="more than once"):
        bring(Office(tmp_path / "office"), bad)


def test_a_name_that_ends_early_is_refused(tmp_path: Path) -> None:
    """A NUL within a name: one tool sees `verify.py`, another what follows."""
    source, _ = export_of(tmp_path)
    entries = {name: data for name, data in entries_of(source).items() if name != "verify.py"}
    bad = pack(tmp_path / "bad.zip", {**entries, "verify.py_.sh": b"x"})
    bad.write_bytes(bad.read_bytes().replace(b"verify.py_.sh", b"verify.py\0.sh"))
    with pytest.raises(StoreError, match="no export holds") as refused:
        bring(Office(tmp_path / "office"), bad)
    assert refused.value.code == "INVALID_PATH"


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """Sizes count as they unpack: one object over its bound, or all of them over the project's."""
    source, _ = export_of(tmp_path)
    entries = entries_of(source)
    zeros = b"\0" * (8 << 20)
    bomb = ids.artifact_id(hashlib.sha256(zeros).digest())
    bad = pack(tmp_path / "bad.zip", relisted({**entries, f"objects/{bomb[4:6]}/{bomb}": zeros}))
    assert bad.stat().st_size < 1 << 20
    office = Office(tmp_path / "office")
    with pytest.raises(StoreError, match=bomb) as refused:
        bring(office, bad, bounds=Bounds(artifact_bytes=1 << 20))
    assert refused.value.code == "ARTIFACT_TOO_LARGE"
    with pytest.raises(StoreError) as refused:
        bring(office, bad, bounds=Bounds(project_bytes=4 << 20))
    assert refused.value.code == "PROJECT_QUOTA_EXCEEDED"
    assert tree(office.root) == []


def wrong_bytes(entries: Entries) -> Entries:
    """An object and its listing that agree with each other and not with the card."""
    name = first_object(entries)
    return relisted({**entries, name: entries[name][:-1] + b"!"})


def wrong_card(entries: Entries) -> Entries:
    name = first_card(entries)
    return relisted({**entries, name: entries[name].replace(b'"sourceVersion":"2026', b'"sourceVersion":"2027')})


def quiet_change(entries: Entries) -> Entries:
    """Bytes changed under an unchanged manifest."""
    name = first_object(entries)
    return {**entries, name: entries[name][:-1] + b"!"}


def quiet_card(entries: Entries) -> Entries:
    """A card changed under an unchanged manifest; its ids still follow from it."""
    name = first_card(entries)
    return {**entries, name: entries[name].replace(b"Aggregate response", b"Aggregate nonsense")}


def control_characters(entries: Entries) -> Entries:
    name = first_card(entries)
    card = json.loads(entries[name])
    return relisted({**entries, name: json.dumps({**card, "title": "\x1b[2J"}).encode()})


@pytest.mark.parametrize("change", [wrong_bytes, wrong_card, quiet_change, quiet_card, control_characters])
def test_a_fault_of_one_experiment_refuses_that_one_and_takes_the_others(
    tmp_path: Path, change: Callable[[Entries], Entries]
) -> None:
    source, results = export_of(tmp_path)
    office = Office(tmp_path / "office")
    told = bring(office, pack(tmp_path / "bad.zip", change(entries_of(source))))
    assert told["states"] == ["new"]
    assert len(told["refused"]) == 1
    invariants.check_store(office, {}, results)
    with office.open() as store:
        assert len(find(store, office.scope())) == 1


def test_a_folder_is_held_to_the_same_rules(tmp_path: Path) -> None:
    """Links, other files and pipes in an export's folder end the import by name."""
    office = Office(tmp_path / "origin")
    filled(office)
    there = Office(tmp_path / "office")
    source = write(office, tmp_path / "out")
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    extra = source / "cards" / ("exp_" + "a" * 52 + ".json")
    extra.symlink_to(secret)
    with pytest.raises(StoreError, match="it is a link"):
        bring(there, source)
    extra.unlink()
    (source / "evil.sh").write_bytes(b"x")
    with pytest.raises(StoreError, match=r"evil\.sh: no export holds"):
        bring(there, source)
    (source / "evil.sh").unlink()
    os.mkfifo(extra)
    with pytest.raises(StoreError, match="it is no regular file"):
        bring(there, source)
    extra.unlink()
    data = next((source / "objects").rglob("art_*"))
    kept = data.read_bytes()
    data.unlink()
    data.symlink_to(secret)
    with pytest.raises(StoreError, match="it is a link"):
        bring(there, source)
    data.unlink()
    data.write_bytes(kept)
    assert bring(there, source)["states"] == ["new", "new"]


def test_an_export_that_another_tool_packed_comes_in(tmp_path: Path) -> None:
    """With entries for its folders, as most tools write them, and compressed."""
    office = Office(tmp_path / "origin")
    filled(office)
    folder = write(office, tmp_path / "out")
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    with zipfile.ZipFile(packed) as archive:
        assert any(name.endswith("/") for name in archive.namelist())
    assert bring(Office(tmp_path / "office"), Path(packed))["states"] == ["new", "new"]


def test_no_archive_at_all_is_said_plainly(tmp_path: Path) -> None:
    office = Office(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("not a zip")
    for path in (text, tmp_path / "absent", tmp_path):
        with pytest.raises(StoreError):
            bring(office, path)
