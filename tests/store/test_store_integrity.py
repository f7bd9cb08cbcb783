"""What holds whoever writes, whatever ends and however full the disk is: nothing lost, nothing false, nobody waits."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts.records import Bounds, SearchRequest
from rlm_memory_host.errors import Quota, Unwritable
from rlm_memory_host.storage import objects
from rlm_memory_host.storage.faults import Crashed, CrashingLayer, FaultyLayer, RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from store_harness import World, card_json, find, fingerprint, flip_byte, list_all, request, tree
from store_writers import Nursery, Writer, check_writers

WORKER = Path(__file__).parent / "store_worker.py"
Integrity = Literal["cached", "always"]


# -- nothing streams or hashes while others have to wait ---------------------------------------------------------------


@pytest.mark.parametrize("integrity", ["cached", "always"])
def test_no_byte_is_copied_or_hashed_under_a_lock(
    world: World, monkeypatch: pytest.MonkeyPatch, integrity: Integrity
) -> None:
    """In a first record, a repeated one, one that repairs, a note, a resolve and a search, in both integrity modes."""
    touched: list[str] = []
    original = objects.hash_descriptor

    def is_free() -> bool:
        parts = store.project(world.scope()).parts
        catalogue = parts.catalogue._lock
        return not parts.lock._threads.locked() and not catalogue._is_owned()  # type: ignore[attr-defined]

    def hash_freely(*arguments: Any) -> str:
        touched.append("hash")
        assert is_free(), "bytes were hashed under a lock"
        return original(*arguments)

    class Free(FileLayer):
        def copy(self, source: int, descriptor: int, offset: int, count: int) -> int:
            touched.append("copy")
            assert is_free(), "bytes were copied under a lock"
            return super().copy(source, descriptor, offset, count)

    monkeypatch.setattr(objects, "hash_descriptor", hash_freely)
    data = b"bytes" * 300_000
    with world.open(integrity=integrity, files=Free()) as store:
        done = world.record(store, data)
        world.record(store, data, title="again")
        store.resolve(world.scope(), done.experiment_id)
        flip_byte(world.objects()[0])
        assert world.record(store, data, title="mended").warnings
        store.annotate(world.scope(), done.experiment_id, {"codec": "x"})
        find(store, world.scope(), "mended")
        before = len(touched)
        store.resolve(world.scope(), done.experiment_id)
        store.resolve(world.scope(), done.experiment_id)
        assert len(touched) - before == (2 if integrity == "always" else 1)
    assert {"hash", "copy"} <= set(touched)


@pytest.mark.parametrize("integrity", ["cached", "always"])
def test_others_record_and_search_while_a_resolve_hashes(
    world: World, monkeypatch: pytest.MonkeyPatch, integrity: Integrity
) -> None:
    """A large object that is being verified holds nobody up."""
    inside, go = threading.Event(), threading.Event()
    original = objects.hash_descriptor
    with world.open(integrity=integrity) as store, ThreadPoolExecutor(1) as pool:
        done = world.record(store, b"large" * 1_000)

        def hash_slowly(*arguments: Any) -> str:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                assert go.wait(60)
            return original(*arguments)

        monkeypatch.setattr(objects, "hash_descriptor", hash_slowly)
        pending = pool.submit(store.resolve, world.scope(), done.experiment_id)
        assert inside.wait(60)
        assert world.record(store, b"quick", title="quick", query_fingerprint=fingerprint(2)).local_saved
        assert len(find(store, world.scope(), "quick")) == 1
        go.set()
        assert pending.result(60).path.read_bytes() == b"large" * 1_000


# -- the count of bytes ------------------------------------------------------------------------------------------------


def counted(world: World) -> int:
    with world.open() as store:
        return store.project(world.scope()).parts.lock.book()[1] or 0


def held(world: World) -> int:
    return sum(path.stat().st_size for path in world.objects())


def walks(layer: RecordingLayer, world: World) -> int:
    return sum(look.name == "scan" and Path(look.target).is_relative_to(world.layout.objects) for look in layer.looks)


def test_after_a_crash_bytes_are_counted_without_a_walk_and_never_too_low(quick_path: Path) -> None:
    """At most the bytes of the records that died are counted too much, and the next record looks at no object."""
    data, total = b"new result " * 700, 0
    layer = RecordingLayer()
    world = World(quick_path / "count")
    with world.open(files=layer) as store:
        world.record(store, b"first")
        layer.changes.clear()
        world.record(store, data, query_fingerprint=fingerprint(2))
        total = len(layer.changes)
    for at in range(1, total + 1):
        world = World(quick_path / f"at-{at}")
        with world.open() as store:
            world.record(store, b"first")
        dying = world.open(files=CrashingLayer(at))
        with pytest.raises(Crashed):
            world.record(dying, data, query_fingerprint=fingerprint(2))
        dying.close()
        layer = RecordingLayer()
        with world.open(files=layer) as store:
            world.record(store, b"after", query_fingerprint=fingerprint(3))
        assert walks(layer, world) == 0, at
        assert held(world) <= counted(world) <= held(world) + len(data), at


def test_several_writers_count_exactly(world: World) -> None:
    """Three hosts of three threads, with shared and own bytes: the count is the sum of the objects."""
    hosts = [world.open() for _ in range(3)]
    with ThreadPoolExecutor(9) as pool:

        def work(number: int) -> None:
            data = b"shared" if number % 4 == 0 else b"%d" % number * 10
            path = world.write(data, f"{number}.bin")
            hosts[number % 3].record(world.scope(), request(path, query_fingerprint=fingerprint(number)))

        list(pool.map(work, range(36)))
    for host in hosts:
        host.close()
    assert counted(world) == held(world)


def test_a_bound_holds_after_crashes_that_counted_too_much(world: World) -> None:
    """A count that reaches the bound is checked against the disk first: what the dead counted frees itself."""
    bounds = Bounds(project_bytes=20_000)
    with world.open() as store:
        world.record(store, b"first")
    for _ in range(4):
        layer = CrashingLayer(10**9)
        dying = world.open(files=layer)
        original = layer.rename

        def die(source: Path, target: Path, layer: CrashingLayer = layer, original: Any = original) -> None:
            if target.parent.parent == world.layout.objects:
                layer.crashed = True
                raise Crashed
            original(source, target)

        layer.rename = die  # type: ignore[method-assign]
        with pytest.raises(Crashed):
            world.record(dying, b"x" * 8_000, query_fingerprint=fingerprint("dead"))
        dying.close()
    with world.open(bounds=bounds) as store:
        assert world.record(store, b"y" * 15_000, query_fingerprint=fingerprint(2)).local_saved
        with pytest.raises(Quota):
            world.record(store, b"z" * 15_000, query_fingerprint=fingerprint(3))
    assert held(world) == 15_005


# -- many processes and hosts ------------------------------------------------------------------------------------------


@pytest.fixture
def nursery(world: World) -> Iterator[Nursery]:
    """Where writers come from; none of them outlives the test."""
    with Nursery(world) as opened:
        yield opened


def test_eight_processes_and_three_hosts_record_into_one_root(world: World, nursery: Nursery) -> None:
    """The same and different content at once: nothing lost, nothing twice, and everybody finds everything."""
    hosts = [world.open() for _ in range(3)]
    writers = [nursery.start(9) for _ in range(8)]
    with ThreadPoolExecutor(3) as pool:

        def work(number: int) -> None:
            for turn in range(6):
                text = f"shared-{turn}" if turn % 2 else f"host{number}-{turn}"
                path = world.write(text.encode() * 200, f"{number}-{turn}.bin", session=f"host{number}")
                asked = request(path, title=text, query_fingerprint=fingerprint(text))
                done = hosts[number].record(world.scope(session=f"host{number}"), asked)
                assert find(hosts[number], world.scope(), text)[0] == done.experiment_id

        list(pool.map(work, range(3)))
    assert [writer.wait() for writer in writers] == [0] * 8
    expected = {text for writer in writers for text in writer.tried} | {f"shared-{turn}" for turn in (1, 3, 5)}
    expected |= {f"host{number}-{turn}" for number in range(3) for turn in (0, 2, 4)}
    for host in hosts:
        assert {hit.title for hit in list_all(host, world.scope())} == expected
        host.close()
    writers[0].tried |= expected
    check_writers(world, writers)
    assert not list(world.layout.temporary.iterdir())
    assert counted(world) == held(world)


def kill_writers(nursery: Nursery, kills: int, at_once: int, chance: random.Random) -> int:
    """SIGKILL one writer after another at any moment, each replaced by a fresh one; what was acknowledged holds."""
    writers: list[Writer] = []
    alive = [nursery.start(10_000) for _ in range(at_once)]
    for _ in range(kills):
        victim = alive.pop(chance.randrange(len(alive)))
        victim.wait_for(chance.randrange(1, 6))
        for _ in range(chance.randrange(2_000)):
            os.sched_yield()
        assert victim.kill() == -signal.SIGKILL
        writers.append(victim)
        alive.append(nursery.start(10_000))
    for writer in alive:
        assert writer.kill() == -signal.SIGKILL
    acknowledged = check_writers(nursery.world, [*writers, *alive])
    assert acknowledged >= kills
    assert held(nursery.world) <= counted(nursery.world)
    return len(writers) + len(alive)


def test_writers_that_are_killed_lose_nothing_they_acknowledged(nursery: Nursery) -> None:
    """A short run of real SIGKILLs among concurrent writers; the acknowledgements are kept outside."""
    kill_writers(nursery, kills=6, at_once=3, chance=random.Random(1))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_two_hundred_killed_writers_lose_nothing_they_acknowledged(tmp_path: Path) -> None:
    """200 real SIGKILLs, four writers at a time; a store for twenty of them, since each start reads every card."""
    chance, killed = random.Random(2), 0
    for number in range(10):
        with Nursery(World(tmp_path / str(number))) as nursery:
            killed += kill_writers(nursery, kills=16, at_once=4, chance=chance)
    assert killed == 200


# -- full and read-only disks ------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[str], bool]]:
    """A file system of 2 MiB at `folder`; yields a call that mounts it anew with other options. None without rights."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield lambda options: False
        return
    try:
        yield (
            lambda options: (
                subprocess.run(
                    ["mount", "-o", f"remount,{options}", str(folder)], capture_output=True, check=False
                ).returncode
                == 0
            )
        )
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write until the disk says no."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))


class Full(RecordingLayer):
    """A disk on which nothing new fits: every file that is made or grows fails, what only renames or removes works."""

    is_full = False

    def change(self, operation: str, target: str | Path | int, source: str | Path | None = None) -> None:
        super().change(operation, target, source)
        if self.is_full and operation in ("create", "write", "copy", "mkdir"):
            raise OSError(errno.ENOSPC, "injected")


def test_a_full_disk_is_named_reads_go_on_and_room_heals_it(tmp_path: Path) -> None:
    """A real small file system where mounting is allowed, else an injected error; filled to the last block."""
    disk = tmp_path / "disk"
    with small_disk(disk) as remount:
        is_real = remount("size=2m")
        layer = Full()
        world = World(tmp_path)
        store = ArtifactStore(disk / "store", Bounds(), files=layer)
        done = world.record(store, b"old", title="old")
        path = world.write(os.urandom(300_000), "new.bin")
        filler = disk / "filler"
        if is_real:
            with pytest.raises(OSError, match="No space"):
                fill(filler)
        layer.is_full = not is_real
        before = tree(disk / "store")
        for _ in range(2):
            with pytest.raises(Unwritable) as caught:
                store.record(world.scope(), request(path, query_fingerprint=fingerprint(2)))
            assert caught.value.code == "STORE_FULL"
        assert tree(disk / "store") == before
        assert store.resolve(world.scope(), done.experiment_id).path.read_bytes() == b"old"
        assert find(store, world.scope(), "old") == [done.experiment_id]
        layer.is_full = False
        filler.unlink(missing_ok=True)
        assert store.record(world.scope(), request(path, query_fingerprint=fingerprint(2))).local_saved
        store.close()


def test_a_disk_that_turns_read_only_is_named_and_reads_go_on(tmp_path: Path) -> None:
    """Remounted where that is allowed, else injected; and writable again without a restart."""
    disk = tmp_path / "disk"
    with small_disk(disk) as remount:
        is_real = remount("size=2m")
        layer = FaultyLayer(10**9, errno.EROFS, times=10**9)
        world = World(tmp_path)
        store = ArtifactStore(disk / "store", Bounds(), files=layer)
        done = world.record(store, b"old", title="old")
        path = world.write(b"new", "new.bin")
        if is_real:
            assert remount("ro")
        else:
            layer.at = 0
        with pytest.raises(Unwritable) as caught:
            store.record(world.scope(), request(path, query_fingerprint=fingerprint(2)))
        assert caught.value.code == "STORE_READ_ONLY"
        assert store.resolve(world.scope(), done.experiment_id).path.read_bytes() == b"old"
        with ArtifactStore(disk / "store", Bounds(), index_folder=disk / "index") as fresh:
            assert find(fresh, world.scope(), "old") == [done.experiment_id]
        layer.at = 10**9
        assert not is_real or remount("rw")
        assert store.record(world.scope(), request(path, query_fingerprint=fingerprint(2))).local_saved
        store.close()


# -- large and untidy --------------------------------------------------------------------------------------------------


def untidy(world: World, cards: int) -> int:
    """So many cards, among them some malformed, some of a later version, some of another project; how many are good."""
    world.layout.cards.mkdir(parents=True, mode=0o700)
    good = 0
    for number in range(cards):
        project = "project-b" if number % 100 == 3 else world.project
        experiment, card = card_json(project, b"%d" % (number % 9), number)
        text = json.dumps(card | {"title": f"run {number} of the untidy store"})
        if number % 100 == 1:
            text = text[: len(text) // 2]
        elif number % 100 == 2:
            text = json.dumps(card | {"schemaVersion": 2})
        else:
            good += number % 100 != 3
        world.layout.card(experiment).write_text(text)
    return good


def check_untidy(world: World, cards: int) -> None:
    good = untidy(world, cards)
    for _ in range(2):
        with world.open(bounds=Bounds(cards=cards * 2, raised=True), index_folder=world.folder / "index") as store:
            page = store.search(world.scope(), SearchRequest("untidy"))
            assert page.total == good
            status = store.status(world.scope())
            assert status["project"]["skipped"] == cards - good
            assert set(status["skipped"]) == {"VALIDATION", "UNSUPPORTED_VERSION", "INVALID_SCOPE"}
            assert world.record(store, b"one more", title="one more").local_saved
            assert store.search(world.scope(), SearchRequest("one more")).results[0].title == "one more"
    assert list((world.folder / "index").glob("*.index"))


def test_a_start_over_many_cards_with_bad_ones_among_them(world: World) -> None:
    """Enough for a packed index; twice, the second time from the saved one."""
    check_untidy(world, 1_300)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_start_over_ten_thousand_cards_with_bad_ones_among_them(world: World) -> None:
    """As above, at the default bound."""
    check_untidy(world, 10_000)
