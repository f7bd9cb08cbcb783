"""A record may end at any moment: after a restart every acknowledged result is there and nothing half-written is."""

from __future__ import annotations

import errno
import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import invariants
import pytest
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import Recorded
from rlm_memory_host.errors import StoreError
from rlm_memory_host.storage.faults import Crashed, CrashingLayer, FaultyLayer, RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from store_harness import FINGERPRINT, World, flip_byte, tree

OLD, NEW = b"old result " * 500, b"new result " * 700
LARGE = bytes(range(256)) * 8_192
"""2 MiB: on this path hashing overlaps with flushing."""


def experiment_of(world: World, data: bytes) -> str:
    artifact = ids.artifact_id(hashlib.sha256(data).digest())
    return ids.experiment_id(
        project_id=world.project, artifact=artifact, query_fingerprint=FINGERPRINT, source_version="2026-08-21"
    )


def record_new(world: World, store: ArtifactStore) -> Recorded:
    return world.record(store, NEW)


def record_large(world: World, store: ArtifactStore) -> Recorded:
    return world.record(store, LARGE)


def record_again(world: World, store: ArtifactStore) -> Recorded:
    return world.record(store, OLD, title="Another title")


def annotate(world: World, store: ArtifactStore) -> object:
    return store.annotate(world.scope(), experiment_of(world, OLD), {"lineage": ["a", "b"]})


WORK = {
    "a first and only record": record_new,
    "a large one": record_large,
    "the same again": record_again,
    "a note": annotate,
}


def prepare(world: World, *, first: bool) -> dict[str, bytes]:
    if first:
        return {}
    with world.open() as store:
        done = world.record(store, OLD)
        store.annotate(world.scope(), done.experiment_id, {"codec": "bytes"})
    return {done.experiment_id: OLD}


def changes_of(folder: Path, work: Callable[[World, ArtifactStore], object], *, first: bool) -> list[str]:
    world = World(folder)
    prepare(world, first=first)
    layer = RecordingLayer()
    with world.open(files=layer) as store:
        work(world, store)
    return [change.name for change in layer.changes]


def count_changes(folder: Path, work: Callable[[World, ArtifactStore], object], *, first: bool) -> int:
    return len(changes_of(folder, work, first=first))


@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
@pytest.mark.parametrize("name", WORK)
def test_a_crash_at_any_step_loses_and_shows_nothing_wrong(quick_path: Path, name: str, torn: bool) -> None:
    """Each write, flush, rename, unlink and mkdir in turn is where the process ends."""
    work = WORK[name]
    first = name == "a first and only record"
    changes = changes_of(quick_path / "count", work, first=first)
    points = [at for at, change in enumerate(changes, 1) if not torn or change in ("write", "copy")]
    assert points
    for at in points:
        world = World(quick_path / f"at-{at}")
        acknowledged = prepare(world, first=first)
        attempted = {experiment_of(world, data): data for data in (NEW, LARGE)}
        store = world.open(files=CrashingLayer(at, torn=torn))
        with pytest.raises(Crashed):
            work(world, store)
        store.close()
        if world.root.exists():
            invariants.check_store(world, acknowledged, attempted)
        with world.open() as again:
            work(world, again)
            assert not again.status(world.scope())["skipped"]


def test_a_crash_in_a_repair_never_serves_the_damaged_bytes(quick_path: Path) -> None:
    """While a damaged object is being replaced, it is refused or already right."""
    for at in range(1, 30):
        world = World(quick_path / f"at-{at}")
        acknowledged = prepare(world, first=False)
        flip_byte(world.objects()[0])
        store = world.open(files=CrashingLayer(at))
        try:
            world.record(store, OLD)
        except Crashed:
            store.close()
        else:
            store.close()
            invariants.check_store(world, acknowledged)
            return
        with world.open() as again:
            served: bytes | None
            try:
                served = again.resolve(world.scope(), experiment_of(world, OLD)).path.read_bytes()
            except StoreError:
                served = None
            assert served in (None, OLD)
            assert again.record(world.scope(), _request(world)).local_saved
        invariants.check_store(world, acknowledged)
    pytest.fail("the repair never came to its end")


def _request(world: World):
    from store_harness import request

    return request(world.write(OLD))


def test_the_process_may_really_end(quick_path: Path) -> None:
    """The same with real processes that end on the spot, at some of the steps."""
    script = Path(__file__).parent / "store_worker.py"
    steps = count_changes(quick_path / "count", record_new, first=True)
    for at in range(1, steps + 1, 3):
        world = World(quick_path / f"at-{at}")
        ended = subprocess.run([sys.executable, str(script), "crash", str(world.folder), str(at)], check=False)
        assert ended.returncode == 86
        if world.root.exists():
            invariants.check_store(world, {}, {experiment_of(world, NEW): NEW})
        with world.open() as store:
            assert world.record(store, NEW).local_saved


@pytest.mark.parametrize("work", [record_new, record_large, record_again, annotate])
def test_bytes_are_flushed_before_names_and_names_before_the_answer(
    world: World, work: Callable[[World, ArtifactStore], object]
) -> None:
    """Write, flush, rename, flush the folder; first the object, then the card."""
    prepare(world, first=False)
    layer = RecordingLayer()
    with world.open(files=layer) as store:
        work(world, store)
    invariants.check_order(world, layer.changes)


class NoFileFlush(RecordingLayer):
    """Broken on purpose: files are never flushed."""

    def fsync(self, descriptor: int) -> None:
        return None


class NoFolderFlush(RecordingLayer):
    """Broken on purpose: folders are never flushed."""

    def fsync_folder(self, path: Path) -> None:
        return None


@pytest.mark.parametrize("broken", [NoFileFlush, NoFolderFlush])
def test_the_checker_sees_a_missing_flush(world: World, broken: type[RecordingLayer]) -> None:
    """A store that leaves out flushes is caught by the order that the checker holds."""
    layer = broken()
    with world.open(files=layer) as store:
        world.record(store, NEW)
    with pytest.raises(AssertionError):
        invariants.check_order(world, layer.changes)


class CardFirst(FileLayer):
    """Broken on purpose: the object gets its name only after the card got its own, and the process ends in between."""

    def rename(self, source: Path, target: Path) -> None:
        if target.parent.parent.name == "objects":
            return
        super().rename(source, target)
        raise Crashed


def test_the_checker_sees_a_reversed_order(world: World) -> None:
    """A card without bytes, as a reversed order of writes would leave it, turns the invariants red."""
    store = world.open(files=CardFirst())
    with pytest.raises(Crashed):
        world.record(store, NEW)
    store.close()
    with pytest.raises((AssertionError, StoreError)):
        invariants.check_store(world, {}, {experiment_of(world, NEW): NEW})


CODES = {errno.ENOSPC: "STORE_FULL", errno.EROFS: "STORE_READ_ONLY", errno.EIO: "STORE_UNAVAILABLE"}


def refusal(work: Callable[[World, ArtifactStore], object], world: World, store: ArtifactStore) -> StoreError | None:
    try:
        work(world, store)
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("error", "work"),
    [
        (errno.ENOSPC, record_new),
        (errno.ENOSPC, record_large),
        (errno.ENOSPC, record_again),
        (errno.EIO, record_new),
        (errno.EROFS, record_again),
    ],
)
def test_a_failing_step_undoes_itself_and_the_same_call_works_later(
    quick_path: Path, work: Callable[[World, ArtifactStore], object], error: int
) -> None:
    """Disk full, an I/O error or a read-only disk at any step: one named error, the tree as it was, no restart."""
    steps = count_changes(quick_path / "count", work, first=False)
    for at in range(1, steps + 1):
        world = World(quick_path / f"at-{at}")
        acknowledged = prepare(world, first=False)
        before = tree(world.root)
        layer = FaultyLayer(at, error)
        with world.open(files=layer) as store:
            failure = refusal(work, world, store)
            if failure is not None:
                assert failure.code == CODES[error]
                assert str(world.root) not in str(failure)
                assert tree(world.root) == before
            else:
                # Only a step that cleans up may fail without a word, and it says so by a temp file; or one of the
                # journal, after the record is durable: whoever needs it then looks at the cards themselves.
                failed = layer.changes[at - 1]
                assert failed.name == "unlink" or failed.target == str(world.layout.journal)
            layer.failed = 99
            work(world, store)
        invariants.check_store(world, acknowledged, {experiment_of(world, data): data for data in (NEW, LARGE)})


def test_interrupted_calls_are_made_again(quick_path: Path) -> None:
    """EINTR at any step goes unnoticed."""
    steps = count_changes(quick_path / "count", record_new, first=True)
    for at in range(1, steps + 1):
        world = World(quick_path / f"at-{at}")
        with world.open(files=FaultyLayer(at, errno.EINTR)) as store:
            done = world.record(store, NEW)
        invariants.check_store(world, {done.experiment_id: NEW})
