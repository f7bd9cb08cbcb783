"""Single guards of the store that no other test saw broken: locks, flushes, short writes, odd files, odd neighbours."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from operator_harness import DAY, NEW, OLD, Office, command_of, never
from rlm_memory_host.artifacts import ArtifactStore, project, removal, searching
from rlm_memory_host.contracts.records import SearchRequest
from rlm_memory_host.errors import LockTimeout, UnsafeSource, Unwritable
from rlm_memory_host.storage import objects, sources
from rlm_memory_host.storage.cardjournal import CardJournal, Entry, Position, follow
from rlm_memory_host.storage.faults import Crashed, CrashingLayer
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.locks import CommitLock
from rlm_memory_host.storage.objects import file_clock_ns
from store_harness import World, find, fingerprint, request, tree


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def parts_of(office: World, store: ArtifactStore) -> Any:
    return store.project(office.scope()).parts


def counted(store: ArtifactStore, world: World) -> int | None:
    return parts_of(world, store).lock.book()[1]


def held(world: World) -> int:
    return sum(path.stat().st_size for path in world.objects())


class TestTheCommitLock:
    """One writer at a time, for ever."""

    def test_a_lock_file_that_is_replaced_while_it_is_opened_locks_nothing(self, tmp_path: Path) -> None:
        """Whoever got hold of the old one takes the one that the others see."""
        path = tmp_path / "commit"

        class Replaced(FileLayer):
            opened = 0

            def open_lock(self, path: Path) -> int:
                descriptor = super().open_lock(path)
                self.opened += 1
                if self.opened == 1:
                    path.unlink()
                    os.close(self.create(path))
                return descriptor

        path.touch()
        layer = Replaced()
        lock = CommitLock(layer, path)
        with lock.held():
            assert os.fstat(lock._descriptor).st_ino == path.stat().st_ino
            with pytest.raises(LockTimeout), CommitLock(FileLayer(), path, seconds=0.01).held():
                pass
        assert layer.opened == 2

    def test_a_thread_gives_up_on_another_of_the_same_host(self, tmp_path: Path) -> None:
        """As on another process: in time, and by name."""
        lock = CommitLock(FileLayer(), tmp_path / "commit", seconds=0.01)
        with lock.held(), ThreadPoolExecutor(1) as pool:

            def enter() -> None:
                with lock.held():
                    pass

            with pytest.raises(LockTimeout, match="another record"):
                pool.submit(enter).result(30)

    def test_a_link_in_the_place_of_the_lock_is_not_followed(self, world: World) -> None:
        """What it leads to stays as it is."""
        with world.open() as store:
            world.record(store, b"one")
            elsewhere = world.folder / "elsewhere"
            elsewhere.write_bytes(b"precious")
            world.layout.lock.unlink()
            world.layout.lock.symlink_to(elsewhere)
            with pytest.raises(Unwritable):
                world.record(store, b"two", query_fingerprint=fingerprint(2))
        assert elsewhere.read_bytes() == b"precious"

    def test_a_count_never_goes_below_nothing(self, tmp_path: Path) -> None:
        """A clean-up that freed more than anybody had counted leaves none."""
        lock = CommitLock(FileLayer(), tmp_path / "commit")
        with lock.held():
            lock.write(3, -7)
            assert lock.read() == (3, 0)

    @pytest.mark.parametrize("data", [b"", b"x", b"not ours" + bytes(16), struct.pack("<8sQ", b"rlmlock1", 7)])
    def test_bookkeeping_that_is_not_ours_is_counted_anew(self, world: World, data: bytes) -> None:
        """Nobody is refused and nothing is miscounted for it."""
        with world.open() as store:
            world.record(store, b"one")
            world.layout.lock.write_bytes(data)
            world.record(store, b"two, longer", query_fingerprint=fingerprint(2))
            assert counted(store, world) == held(world)


class TestTheFileLayer:
    """What the other tests record is really done."""

    def test_flushing_flushes(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The object, the card and the folders of both reach the system's own flush."""
        flushed: list[str] = []
        original = os.fsync

        def noted(descriptor: int) -> None:
            link = Path(f"/proc/self/fd/{descriptor}")
            flushed.append(str(link.readlink()) if link.is_symlink() else "")
            original(descriptor)

        with world.open() as store:
            world.record(store, b"before")
            monkeypatch.setattr(os, "fsync", noted)
            world.record(store, b"flushed", query_fingerprint=fingerprint(2))
        assert len(flushed) >= 4
        if all(flushed):
            kinds = {Path(path).name.partition("-")[0] for path in flushed}
            assert {"object", "card", "cards"} <= kinds

    def test_a_write_that_the_system_cuts_short_goes_on(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A card is whole, however little is written at once."""
        original = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: original(descriptor, bytes(data[:7])))
        with world.open() as store:
            done = world.record(store, b"one", title="whole")
            assert find(store, world.scope(), "whole") == [done.experiment_id]

    @pytest.mark.parametrize("error", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP])
    def test_a_file_system_that_cannot_copy_by_itself_is_read_and_written(
        self, world: World, monkeypatch: pytest.MonkeyPatch, error: int
    ) -> None:
        """To the last byte."""

        def cannot(*_: object) -> int:
            raise OSError(error, os.strerror(error))

        monkeypatch.setattr(os, "copy_file_range", cannot)
        data = os.urandom(3 << 20)
        with world.open() as store:
            done = world.record(store, data)
            assert store.resolve(world.scope(), done.experiment_id).path.read_bytes() == data

    def test_a_clone_of_another_length_is_refused(self, world: World) -> None:
        """A source that grew or shrank while its blocks were shared."""

        class Shorter(FileLayer):
            def clone(self, source: int, descriptor: int) -> bool:
                os.ftruncate(descriptor, 5)
                return True

        with world.open(files=Shorter()) as store:
            before = tree(world.root)
            with pytest.raises(UnsafeSource) as caught:
                world.record(store, bytes(2 << 20))
            assert caught.value.code == "FILE_MUTATED"
            assert [name for name, *_ in tree(world.root) if "objects/" in name or "object-" in name] == []
            assert before == []

    def test_a_file_is_read_whole_or_one_byte_beyond_its_limit(self, tmp_path: Path) -> None:
        """One over the limit shows that it is; what is no file is refused."""
        path = tmp_path / "card"
        path.write_bytes(b"x" * 100)
        assert FileLayer().read_whole(path, 100)[0] == b"x" * 100
        assert len(FileLayer().read_whole(path, 50)[0]) == 51
        path.write_bytes(b"")
        assert FileLayer().read_whole(path, 50)[0] == b""
        path.unlink()
        path.mkdir()
        with pytest.raises(OSError):
            FileLayer().read_whole(path, 50)

    def test_no_text_that_is_no_id_becomes_a_path(self, world: World) -> None:
        """A layout refuses it, whoever asks."""
        for text in ("", "../../etc", "art_" + "a" * 51, "exp_" + "A" * 52):
            for name in (world.layout.object, world.layout.card, world.layout.sidecar):
                with pytest.raises(ValueError, match="not an"):
                    name(text)


class TestWhatIsRemembered:
    """An answer about an object stands only for what every later change must show."""

    @pytest.fixture
    def hashed(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """A number for each time that a file was hashed."""
        calls: list[int] = []
        original = objects.hash_descriptor

        def noted(descriptor: int, size: int, *more: Any) -> str:
            calls.append(size)
            return original(descriptor, size, *more)

        monkeypatch.setattr(objects, "hash_descriptor", noted)
        monkeypatch.setattr(project, "hash_descriptor", noted)
        return calls

    def test_an_object_that_is_hashed_in_the_tick_it_changed_is_hashed_again(
        self, world: World, hashed: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each resolve, until the clock has passed; then once more and never again."""
        with world.open() as store:
            done = world.record(store, b"one")
            with monkeypatch.context() as stopped:
                stopped.setattr(objects, "file_clock_ns", lambda: 0)
                hashed.clear()
                for _ in range(3):
                    store.resolve(world.scope(), done.experiment_id)
                assert len(hashed) == 3
            world.let_the_clock_pass()
            for _ in range(3):
                store.resolve(world.scope(), done.experiment_id)
            assert len(hashed) == 4

    def test_what_was_recorded_in_this_very_tick_is_not_taken_for_known(
        self, world: World, hashed: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same record again hashes the stored object; of an older one it knows what was written."""
        with world.open() as store:
            monkeypatch.setattr(objects, "file_clock_ns", lambda: 0)
            world.record(store, b"one")
            hashed.clear()
            assert world.record(store, b"one").deduplicated
            assert len(hashed) == 2
            monkeypatch.setattr(objects, "file_clock_ns", lambda: 1 << 62)
            world.record(store, b"other", query_fingerprint=fingerprint(2))
            hashed.clear()
            assert world.record(store, b"other", query_fingerprint=fingerprint(2)).deduplicated
            assert len(hashed) == 1

    def test_an_object_that_is_touched_while_it_is_hashed_is_looked_at_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was read may be of before and of after."""
        with world.open() as store:
            done = world.record(store, b"one")
            path, calls = world.objects()[0], 0
            original = objects.hash_descriptor

            def disturbed(*arguments: Any) -> str:
                nonlocal calls
                calls += 1
                found = original(*arguments)
                if calls == 1:
                    world.let_the_clock_pass()
                    os.utime(path, ns=(1, 1))
                return found

            monkeypatch.setattr(objects, "hash_descriptor", disturbed)
            assert store.resolve(world.scope(), done.experiment_id).path == path
            assert calls == 2


class TestASourceThatIsSwapped:
    """Between the look at it and its opening."""

    @pytest.mark.parametrize(("kind", "code"), [("pipe", "NOT_REGULAR_FILE"), ("file", "FILE_MUTATED")])
    def test_it_is_refused_at_once(self, world: World, monkeypatch: pytest.MonkeyPatch, kind: str, code: str) -> None:
        """Opening a pipe waits for nobody."""
        path = world.write(b"mine")
        original, looks = sources._check_kind, 0

        def swap(state: os.stat_result) -> None:
            nonlocal looks
            looks += 1
            original(state)
            if looks == 1:
                path.rename(path.with_name("kept"))
                if kind == "pipe":
                    os.mkfifo(path)
                else:
                    path.write_bytes(b"theirs")

        monkeypatch.setattr(sources, "_check_kind", swap)
        with world.open() as store, pytest.raises(UnsafeSource) as caught:
            store.record(world.scope(), request(path))
        assert caught.value.code == code


class TestAProject:
    """Folders and notes."""

    def test_folders_that_vanish_are_made_again(self, world: World) -> None:
        """An operator who deletes a project beside a host leaves the host working."""
        with world.open() as store:
            world.record(store, b"one")
            shutil.rmtree(world.layout.folder)
            done = world.record(store, b"two", title="second")
            assert find(store, world.scope(), "second") == [done.experiment_id]

    def test_notes_of_many_at_once_lose_no_field(self, world: World) -> None:
        """Each adds its own to what is there."""
        with world.open() as store, world.open() as other, ThreadPoolExecutor(6) as pool:
            done = world.record(store, b"one")

            def add(number: int) -> None:
                each = store if number % 2 else other
                each.annotate(world.scope(), done.experiment_id, {f"field{number}": number})

            list(pool.map(add, range(24)))
            kept = store.annotate(world.scope(), done.experiment_id)
            assert kept == {f"field{number}": number for number in range(24)}

    def test_a_cursor_of_an_earlier_host_says_that_it_cannot_see_its_collection(self, world: World) -> None:
        """Also where counts and positions happen to be the same."""
        with world.open() as store:
            for number in range(12):
                world.record(store, b"%d" % number, title=f"run {number}", query_fingerprint=fingerprint(number))
            cursor = store.search(world.scope(), SearchRequest("run", limit=5)).cursor
            assert cursor is not None
            before = searching._PROCESS
            try:
                searching._PROCESS = "another"  # type: ignore[misc]
                page = store.search(world.scope(), SearchRequest("run", limit=5, cursor=cursor))
            finally:
                searching._PROCESS = before  # type: ignore[misc]
        assert any("rebuilt" in warning for warning in page.warnings)
        assert len(page.results) == 5

    def test_a_card_that_is_read_in_the_tick_it_was_written_is_read_again(self, world: World) -> None:
        """What is remembered of a card is only what every later change must show."""
        with world.open() as store:
            done = world.record(store, b"one", title="first title")
            reader = parts_of(world, store).cards
            path = world.layout.card(done.experiment_id)
            world.let_the_clock_pass()
            data = path.read_bytes()
            with path.open("r+b") as file:
                file.write(data)
            is_within = file_clock_ns() <= path.stat().st_ctime_ns
            reader.read(done.experiment_id)
            if is_within:
                assert done.experiment_id not in reader._known
            world.let_the_clock_pass()


class TestTheCountOfBytes:
    """After crashes and clean-ups."""

    def test_a_clean_up_beside_a_recording_host_is_not_counted_back(self, office: Office) -> None:
        """What another host removed and swept between a record's first look and its commit counts no more."""
        with office.open() as operator:
            gone = office.record(operator, OLD)

            class Late(FileLayer):
                armed = False

                def create(self, path: Path) -> int:
                    if self.armed and path.name.startswith("object-"):
                        self.armed = False
                        removal.remove(parts_of(office, operator), gone.experiment_id)
                        mine = operator.project(office.scope())
                        removal.sweep(mine, undo_seconds=0, check=never, now=time.time() + 2 * DAY)
                    return super().create(path)

            layer = Late()
            with office.open(files=layer) as host:
                assert len(find(host, office.scope())) == 1
                layer.armed = True
                office.record(host, NEW, query_fingerprint=fingerprint(2))
                assert not layer.armed
                assert counted(host, office) == held(office) == len(NEW)

    def test_objects_of_another_tool_count_for_the_bound(self, office: Office) -> None:
        """Nobody counted them; the cards that name them do."""
        with office.open() as store:
            done = office.record(store, OLD)
            parts = parts_of(office, store)
            with parts.lock.held():
                parts.lock.write(parts.lock.read()[0], 3)
            office.record(store, NEW, query_fingerprint=fingerprint(2))
            assert counted(store, office) == held(office)
            assert store.resolve(office.scope(), done.experiment_id).path.read_bytes() == OLD

    def test_gc_frees_what_crashes_counted(self, office: Office, capsys: pytest.CaptureFixture[str]) -> None:
        """The count is what lies there again, and a dry run changes nothing."""
        with office.open() as store:
            office.record(store, OLD)
        layer = CrashingLayer(10**9)
        dying = office.open(files=layer)
        original = layer.rename

        def die(source: Path, target: Path) -> None:
            if target.is_relative_to(office.layout.objects):
                layer.crashed = True
                raise Crashed
            original(source, target)

        layer.rename = die  # type: ignore[method-assign]
        with pytest.raises(Crashed):
            office.record(dying, NEW, query_fingerprint=fingerprint(2))
        dying.close()
        command = command_of(office, capsys)
        with office.open() as store:
            assert counted(store, office) == len(OLD) + len(NEW)
            assert command("gc", "--dry-run").code == 0
            assert counted(store, office) == len(OLD) + len(NEW)
            assert command("gc", "--yes").code == 0
            assert counted(store, office) == held(office) == len(OLD)

    def test_a_recount_beside_a_record_changes_nothing(self, office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was counted while it walked stays counted."""
        with office.open() as store, office.open() as other:
            office.record(store, OLD)
            original = removal.count_object_bytes

            def walk(*arguments: Any) -> int:
                total = original(*arguments)
                office.record(other, NEW, query_fingerprint=fingerprint(2))
                return total

            monkeypatch.setattr(removal, "count_object_bytes", walk)
            removal.recount(parts_of(office, store))
            assert counted(store, office) == held(office) == len(OLD) + len(NEW)


def test_threads_of_one_host_record_one_at_a_time(world: World) -> None:
    """The file's lock alone would let them both in: it belongs to the process's descriptors, not to its threads."""
    inside, most = 0, 0
    guard = threading.Lock()
    with world.open() as store, ThreadPoolExecutor(4) as pool:
        lock = parts_of(world, store).lock
        world.record(store, b"first")

        def work(_: int) -> None:
            nonlocal inside, most
            with lock.held():
                with guard:
                    inside += 1
                    most = max(most, inside)
                assert lock._descriptor >= 0
                with guard:
                    inside -= 1

        list(pool.map(work, range(40)))
    assert most == 1


class TestNotes:
    """A sidecar is read only when it is this experiment's, of a version that is known."""

    @pytest.mark.parametrize("change", [{"experimentId": "exp_" + "a" * 52}, {"schemaVersion": 2}, {"annotation": []}])
    def test_a_note_of_another_experiment_or_version_is_none(self, world: World, change: dict[str, Any]) -> None:
        """The result itself is as good as before."""
        with world.open() as store:
            done = world.record(store, b"one")
            store.annotate(world.scope(), done.experiment_id, {"codec": "text"})
            path = world.layout.sidecar(done.experiment_id)
            path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
            assert store.annotate(world.scope(), done.experiment_id) is None
            assert store.resolve(world.scope(), done.experiment_id).path.read_bytes() == b"one"


class TestTheJournal:
    """It is believed where it leads all the way, and is ours."""

    def test_a_gap_within_leads_nowhere(self) -> None:
        """Also where later records would close it: somebody else was in the folder in between."""

        def step(before: int, after: int) -> Entry:
            return Entry("card", "exp_" + "a" * 52, (1, before, before, before), (1, after, after, after))

        whole = [step(0, 1), step(1, 2)]
        assert follow(whole, whole[0].before, whole[1].after) == whole
        assert follow([step(0, 1), step(5, 6), step(1, 2)], whole[0].before, whole[1].after) is None

    def test_a_file_that_is_no_journal_says_nothing(self, world: World) -> None:
        """Whatever follows its first bytes."""
        with world.open() as store:
            world.record(store, b"one")
        data = world.layout.journal.read_bytes()
        assert len(CardJournal(FileLayer(), world.layout.journal).read()[0]) == 1
        world.layout.journal.write_bytes(b"another!" + data[8:])
        assert CardJournal(FileLayer(), world.layout.journal).read() == ([], Position())


class TestCommands:
    """What an operator is told is so."""

    def test_a_dry_run_says_what_would_not_work_either(
        self, office: Office, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Removing what is not there; bringing back what was not removed, was recorded again or lost its bytes."""
        command = command_of(office, capsys)
        with office.open() as store:
            done = office.record(store, OLD)
        unknown = "exp_" + "a" * 52
        assert command("rm", unknown, "--dry-run").code == 2
        assert command("rm", unknown, done.experiment_id, "--dry-run", "--json").code == 1
        assert command("undo", done.experiment_id, "--dry-run").code == 2
        assert command("rm", done.experiment_id).code == 0
        assert command("undo", done.experiment_id, "--dry-run").code == 0
        office.objects()[0].unlink()
        said = command("undo", done.experiment_id, "--dry-run")
        assert (said.code, "bytes are not there" in said.out) == (2, True)
        with office.open() as store:
            office.record(store, OLD)
        said = command("undo", done.experiment_id, "--dry-run")
        assert (said.code, "recorded again" in said.out) == (2, True)

    def test_a_target_that_cannot_be_written_is_not_called_the_store(
        self, office: Office, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Nor is a full or read-only one; and what to type next can be typed."""
        command = command_of(office, capsys)
        with office.open() as store:
            office.record(store, OLD)
        for form in ("folder", "zip"):
            said = command("export", "--all", "--to", "/proc/no-such-place", "--as", form)
            assert said.code == 2
            assert "the target of the export" in said.err
            assert "the store" not in said.err
        said = command("export", "--all", "--to", tmp_path / "a b.zip")
        assert f"'{tmp_path / 'a b.zip'}'" in said.out

    def test_ls_says_what_a_word_was_taken_for(self, office: Office, capsys: pytest.CaptureFixture[str]) -> None:
        """To people and to programs."""
        command = command_of(office, capsys)
        with office.open() as store:
            office.record(store, OLD, title="treatment of cohorts", summary="a\tb")
        assert "taken for 'treatment'" in command("ls", "tretment").out
        assert "tretment" in command("ls", "tretment", "--json").value["warnings"][0]
        assert "summary: a" in command("show", command("ls", "--json").value["results"][0]["experiment_id"]).out
