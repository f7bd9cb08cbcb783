"""Many threads, processes and hosts in one store, and a disk that is full."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import invariants
import pytest
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts.records import Bounds, SearchRequest
from rlm_memory_host.errors import LockTimeout, Quota, StoreError, Unwritable
from rlm_memory_host.storage import objects
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.locks import CommitLock
from store_harness import World, fingerprint, list_all, request, tree

WORKER = Path(__file__).parent / "store_worker.py"


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], seconds: float = 100) -> str:
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0, f"{process.args} ended with {process.returncode}"
    return output


def same_bytes_at_once(world: World, writers: int, rounds: int, readers: int, size: int, seconds: float = 100) -> None:
    stop = world.folder / "stop"
    reading = [start("read_newest", world.folder, stop, size) for _ in range(readers)]
    writing = [start("record_same", world.folder, f"p{n}", rounds, size) for n in range(writers)]
    try:
        for process in writing:
            finish(process, seconds)
        stop.touch()
        for process in reading:
            assert int(finish(process, seconds)) > 0
    finally:
        for process in (*writing, *reading):
            process.kill()
            process.wait()
    assert (len(world.cards()), len(world.objects())) == (1, 1)
    assert not list(world.layout.temporary.iterdir())
    with world.open() as store:
        experiment = store.search(world.scope(), SearchRequest()).results[0].experiment_id
        assert store.status(world.scope())["project"]["bytes"] == size
    invariants.check_store(world, {experiment: b"A" * size})


def test_processes_that_record_the_same_bytes_converge(world: World) -> None:
    """One card, one object, no temp file; readers never see an error or short data."""
    same_bytes_at_once(world, writers=3, rounds=6, readers=2, size=300_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixteen_processes_record_the_same_five_megabytes(world: World) -> None:
    """320 records, 4 readers."""
    same_bytes_at_once(world, writers=16, rounds=20, readers=4, size=5_000_000, seconds=800)


def test_processes_that_record_different_results_lose_none(world: World) -> None:
    """Every acknowledged record of every process is there, and a store that was open all along sees them all."""
    with world.open() as store:
        world.record(store, b"first")
        processes = [start("record_different", world.folder, f"p{n}", 8) for n in range(3)]
        done: dict[str, bytes] = {}
        for process in processes:
            done |= {experiment: text.encode() for experiment, text in json.loads(finish(process)).items()}
        assert len(done) == 24
        assert {hit.experiment_id for hit in list_all(store, world.scope())} >= done.keys()
        total = store.status(world.scope())["project"]
        assert (total["cards"], total["bytes"]) == (25, sum(map(len, done.values())) + 5)


def test_threads_record_find_and_resolve_side_by_side(world: World, store: ArtifactStore) -> None:
    """Same and different bytes from eight threads over two stores on one root."""
    with world.open() as other, ThreadPoolExecutor(8) as pool:

        def work(number: int) -> tuple[str, bytes]:
            here = (store, other)[number % 2]
            data = b"same" if number % 3 == 0 else f"{number}".encode()
            path = world.write(data, f"{number}.bin")
            done = here.record(world.scope(), request(path, title=f"t{number}"))
            assert here.resolve(world.scope(), done.experiment_id).path.read_bytes() == data
            here.search(world.scope(), SearchRequest("t1"))
            return done.experiment_id, data

        done = dict(pool.map(work, range(40)))
    assert len(done) == 27
    invariants.check_store(world, done)


def test_quotas_hold_among_concurrent_writers(world: World) -> None:
    """Published bytes and cards never exceed their bounds; beside them only records in flight lie in tmp/."""
    bounds = Bounds(project_bytes=1_000, cards=6)
    with world.open(bounds=bounds) as one, world.open(bounds=bounds) as two, ThreadPoolExecutor(6) as pool:

        def work(number: int) -> bool:
            path = world.write(f"{number:100}".encode(), f"{number}.bin")
            try:
                (one, two)[number % 2].record(world.scope(), request(path))
            except Quota:
                return False
            return True

        assert sum(pool.map(work, range(24))) == 6
    assert len(world.cards()) == 6
    assert sum(path.stat().st_size for path in world.objects()) == 600
    assert not list(world.layout.temporary.iterdir())


def test_a_lock_that_is_kept_too_long_is_named(world: World) -> None:
    """Waiting has an end."""
    world.folder.joinpath("lock").touch()
    holder = CommitLock(FileLayer(), world.folder / "lock")
    waiting = CommitLock(FileLayer(), world.folder / "lock", seconds=0.05)
    with holder.held(), pytest.raises(LockTimeout), waiting.held():
        pass
    with waiting.held():
        pass


def test_streaming_happens_outside_the_lock(world: World) -> None:
    """While one record is stuck in the middle of its bytes, another finishes."""
    inside, go = threading.Event(), threading.Event()

    class Slow(FileLayer):
        def copy(self, source: int, descriptor: int, offset: int, count: int) -> int:
            inside.set()
            assert go.wait(60)
            return super().copy(source, descriptor, offset, count)

    with world.open(files=Slow()) as slow, world.open() as quick, ThreadPoolExecutor(1) as pool:
        path = world.write(b"slow" * 1_000, "slow.bin")
        pending = pool.submit(slow.record, world.scope(), request(path, query_fingerprint=fingerprint("slow")))
        assert inside.wait(60)
        assert world.record(quick, b"quick").local_saved
        go.set()
        assert pending.result(60).local_saved


def test_the_same_bytes_published_by_another_meanwhile_are_no_damage(world: World) -> None:
    """Who comes second is told "deduplicated"; the object stays the file that readers may have open."""
    source = world.write(b"same" * 1_000, "same.bin")
    with world.open() as other:

        class Overtaken(FileLayer):
            def open_lock(self, path: Path) -> int:
                if not world.objects():
                    other.record(world.scope(), request(source))
                return super().open_lock(path)

        with world.open(files=Overtaken()) as store:
            done = store.record(world.scope(), request(source, title="another"))
    assert (done.deduplicated, done.warnings) == (True, ())
    invariants.check_store(world, {done.experiment_id: source.read_bytes()})
    assert not list(world.layout.temporary.iterdir())


def test_an_object_that_is_replaced_while_it_is_hashed_is_looked_at_again(world: World) -> None:
    """A repair by another host is no error for a reader."""
    with world.open() as store:
        done = world.record(store, b"bytes" * 1_000)

    class Replacing(FileLayer):
        left = 2

        def open_read(self, path: Path) -> int:
            descriptor = super().open_read(path)
            if path.parent.parent == world.layout.objects and self.left:
                self.left -= 1
                twin = world.layout.temporary / "twin"
                twin.write_bytes(path.read_bytes())
                pending.append((twin, path))
            return descriptor

    pending: list[tuple[Path, Path]] = []
    original = objects.hash_descriptor

    def hash_and_replace(*arguments: Any) -> str:
        digest = original(*arguments)
        while pending:
            twin, path = pending.pop()
            twin.replace(path)
        return digest

    with pytest.MonkeyPatch.context() as patch, world.open(files=Replacing()) as store:
        patch.setattr(objects, "hash_descriptor", hash_and_replace)
        assert store.resolve(world.scope(), done.experiment_id).path.read_bytes() == b"bytes" * 1_000


def test_closing_ends_a_record_that_streams(world: World) -> None:
    """It answers by name, leaves nothing, and close comes back."""
    inside, go = threading.Event(), threading.Event()

    class Slow(FileLayer):
        def copy(self, source: int, descriptor: int, offset: int, count: int) -> int:
            inside.set()
            assert go.wait(60)
            return super().copy(source, descriptor, offset, min(count, 1_000))

    store = world.open(files=Slow())
    with ThreadPoolExecutor(2) as pool:
        pending = pool.submit(world.record, store, b"x" * 5_000)
        assert inside.wait(60)
        closing = pool.submit(store.close)
        while not store._closed:
            os.sched_yield()
        go.set()
        with pytest.raises(StoreError) as caught:
            pending.result(60)
        closing.result(60)
    assert caught.value.code == "DISPOSED"
    assert not world.objects()
    assert not list(world.layout.temporary.iterdir())


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """Writing past `limit` bytes of a file fails, much as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_named_and_passes(world: World, store: ArtifactStore) -> None:
    """The tree stays as it was, old results load, and the same call works when there is room again."""
    old = world.record(store, b"old")
    path = world.write(os.urandom(3_000_000), "big.bin")
    before = tree(world.root)
    for _ in range(2):
        with file_size_limit(1_000_000), pytest.raises(Unwritable) as caught:
            store.record(world.scope(), request(path))
        assert caught.value.code == "STORE_FULL"
        assert tree(world.root) == before
        assert store.resolve(world.scope(), old.experiment_id).path.read_bytes() == b"old"
    done = store.record(world.scope(), request(path))
    invariants.check_store(world, {old.experiment_id: b"old", done.experiment_id: path.read_bytes()})


def test_a_first_record_on_a_full_disk(world: World, store: ArtifactStore) -> None:
    """Nothing was there before and no file is there after."""
    path = world.write(b"x" * 5_000)
    with file_size_limit(100), pytest.raises(Unwritable):
        store.record(world.scope(), request(path))
    assert not [name for name, size, _ in tree(world.root) if size]
    assert store.record(world.scope(), request(path)).local_saved
