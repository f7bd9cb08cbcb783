"""Single guards of the store, each seen failing with the guard taken out: locks, flushes, short writes, odd files."""

from __future__ import annotations

import errno
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
from rlm_memory_host.artifacts import ArtifactStore, removal
from rlm_memory_host.contracts.records import SearchRequest
from rlm_memory_host.errors import LockTimeout, StoreError, UnsafeSource
from rlm_memory_host.storage.faults import Crashed, CrashingLayer
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.locks import CommitLock
from rlm_memory_host.storage.objects import file_clock_ns
from store_harness import World, find, fingerprint, tree


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
            with pytest.raises(StoreError):
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
            import rlm_memory_host.artifacts.searching as searching

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
                        project = operator.project(office.scope())
                        removal.sweep(project, undo_seconds=0, check=never, now=time.time() + 2 * DAY)
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
