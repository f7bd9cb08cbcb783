"""The outbox on disk: durable before it answers, the same after any start, and never stopped by a bad file."""

from __future__ import annotations

import gc
import json
import os
import stat
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.delivery.outbox import Outbox
from rlm_memory_host.errors import Disposed, Integrity, Unwritable
from rlm_memory_host.honcho.fake import FakeHoncho, Fault
from rlm_memory_host.process import AlreadyRunning
from rlm_memory_host.storage.faults import FaultyLayer, RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from world import MESSAGES, World, check_exactly_once_in_order, exchange, keep, now, simulate


def _pending(root: Path) -> Path:
    return root / "outbox/pending"


def test_an_admission_is_on_disk_before_it_is_answered(tmp_path: Path) -> None:
    """Write, flush, rename, flush of the folder, in that order."""
    layer = RecordingLayer()
    with Outbox(tmp_path, redact=keep, files=layer) as outbox:
        layer.changes.clear()
        outbox.admit(exchange("s", 1))
        names = [operation.name for operation in layer.changes]
    assert names == ["create", "write", "fsync", "rename", "fsync_folder"]
    targets = [operation.target for operation in layer.changes]
    assert targets[1] == targets[2]
    assert targets[4] == str(_pending(tmp_path))


def test_secrets_are_gone_before_the_first_write(tmp_path: Path) -> None:
    """No byte that the outbox ever wrote holds what the redactor takes out, in text or in metadata."""
    written: list[bytes] = []

    class Watching(FileLayer):
        def write(self, descriptor: int, data: bytes) -> None:
            written.append(data)
            super().write(descriptor, data)

    request = exchange("s", 1, "the key is hunter2", "noted")
    message = request.messages[0].model_copy(update={"metadata": {**request.messages[0].metadata, "note": "hunter2"}})
    request = request.model_copy(update={"messages": (message, request.messages[1])})
    with Outbox(tmp_path, redact=lambda text: text.replace("hunter2", "[redacted]"), files=Watching()) as outbox:
        outbox.admit(request)
        with pytest.raises(Integrity):
            outbox.admit(exchange("s", 2, "x", "hunter2").model_copy(update={"delivery_id": "0" * 64}))
    assert b"[redacted]" in b"".join(written)
    assert b"hunter2" not in b"".join(written)


def test_folders_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask."""
    before = os.umask(0)
    try:
        with Outbox(tmp_path, redact=keep) as outbox:
            outbox.admit(exchange("s", 1))
    finally:
        os.umask(before)
    for path in (tmp_path / "outbox").rglob("*"):
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path.name


def test_the_same_delivery_waits_once(tmp_path: Path) -> None:
    """Admitting twice answers the same and writes nothing."""
    with Outbox(tmp_path, redact=keep) as outbox:
        assert outbox.admit(exchange("s", 1)).is_new is True
        assert outbox.admit(exchange("s", 1)).is_new is False
        assert len(list(_pending(tmp_path).iterdir())) == 1


def test_after_the_shutdown_began_nothing_is_taken_in(tmp_path: Path) -> None:
    """The caller hears it, and knows that nothing was saved."""
    with Outbox(tmp_path, redact=keep) as outbox:
        outbox.stop_admission()
        with pytest.raises(Disposed):
            outbox.admit(exchange("s", 1))
    assert not list(_pending(tmp_path).iterdir())


def test_a_second_worker_on_the_same_outbox_is_refused(tmp_path: Path) -> None:
    """One at a time; the next may come when the first is gone."""
    with Outbox(tmp_path, redact=keep), pytest.raises(AlreadyRunning):
        Outbox(tmp_path, redact=keep).open()
    Outbox(tmp_path, redact=keep).open()


@pytest.mark.parametrize("name", ["ENOSPC", "EIO", "EROFS"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_disk_that_refuses_is_told_to_the_caller(tmp_path: Path, at: int, name: str) -> None:
    """No admission is reported that is not durable, and nothing half written stays; the next one goes well."""
    import errno

    with Outbox(tmp_path, redact=keep):
        pass
    layer = FaultyLayer(10_000, getattr(errno, name))
    with Outbox(tmp_path, redact=keep, files=layer) as outbox:
        layer.at = len(layer.changes) + at
        with pytest.raises(Unwritable):
            outbox.admit(exchange("s", 1))
        assert not [path for path in _pending(tmp_path).iterdir() if path.suffix == ".tmp"]
        assert outbox.admit(exchange("s", 2)).is_new


def test_an_interrupted_call_is_simply_repeated(tmp_path: Path) -> None:
    """EINTR is no failure."""
    import errno

    layer = FaultyLayer(10_000, errno.EINTR, times=3)
    with Outbox(tmp_path, redact=keep, files=layer) as outbox:
        layer.at = len(layer.changes) + 2
        assert outbox.admit(exchange("s", 1)).is_new
    assert layer.failed == 3


def _spoil(pending: Path, tmp_path: Path) -> dict[str, bytes | None]:
    """Put bad entries beside the good ones; their bytes by name (None: no file)."""
    good = next(pending.glob("*.json")).read_bytes()
    future = json.loads(good)
    future["version"] = 2
    bad: dict[str, bytes | None] = {
        f"{'1' * 64}.json": b"",
        f"{'2' * 64}.json": good[: len(good) // 2],
        f"{'3' * 64}.json": b"\x00" * 1_000_000,
        f"{'4' * 64}.json": b"[]",
        f"{'5' * 64}.json": json.dumps(future).encode(),
        f".{'6' * 64}.json.7.tmp": b"half",
        f"{'7' * 64}.json": good,
        "notes.txt": b"not ours",
        "-r\n\x1b[2J.json": b"{}",
    }
    for name, data in bad.items():
        (pending / name).write_bytes(data or b"")
    (pending / f"{'8' * 64}.json").mkdir()
    (pending / f"{'9' * 64}.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(pending / f"{'a' * 64}.json")
    return {**bad, f"{'8' * 64}.json": None, f"{'9' * 64}.json": None, f"{'a' * 64}.json": None}


class _Unreadable(FileLayer):
    def open_read(self, path: Path) -> int:
        if path.name.startswith("b" * 64):
            raise PermissionError(13, "denied")
        return super().open_read(path)


def test_g4_03_bad_files_are_set_aside_and_stop_nobody(tmp_path: Path) -> None:
    """The good ones arrive, each bad one lies in quarantine with its reason and its bytes, a second start is quiet."""

    async def main() -> None:
        fake = FakeHoncho(workspaces=["space"], now=now)
        requests = [exchange(f"s{n % 3}", n) for n in range(10)]
        async with World(tmp_path, fake=fake) as world:
            for request in requests:
                world.outbox.admit(request)
        bad = _spoil(_pending(tmp_path), tmp_path)
        closed = _pending(tmp_path) / f"{'b' * 64}.json"
        closed.write_bytes(b"closed")
        async with World(tmp_path, fake=fake, files=_Unreadable()) as world:
            assert world.opened.pending == 10
            assert {name for name, _ in world.opened.quarantined} == set(bad)
            assert world.opened.unreadable == ((closed.name, "EACCES"),)
            world.start()
            await world.until_empty()
            check_exactly_once_in_order(fake, requests)
            assert world.worker.status()["quarantined"] == len(bad)
        assert closed.read_bytes() == b"closed"
        quarantine = tmp_path / "outbox/quarantine"
        for name, data in bad.items():
            reason = next(
                path
                for path in quarantine.glob("*.reason.json")
                if json.loads(path.read_bytes())["name"] == name.encode("utf-8", "backslashreplace").decode()
            )
            assert json.loads(reason.read_bytes())["reason"]
            kept = quarantine / reason.name.removesuffix(".reason.json")
            assert kept.lstat()
            if data is not None:
                assert kept.read_bytes() == data
        async with World(tmp_path, fake=fake, files=_Unreadable()) as world:
            assert world.opened.quarantined == ()
            assert world.opened.unreadable == ((closed.name, "EACCES"),)

    simulate(main)


def test_a_file_with_a_dead_letter_s_name_keeps_no_delivery_out(tmp_path: Path) -> None:
    """What lies in dead-letter and is no delivery is set aside at a start; the delivery of that name is taken in."""
    wanted = exchange("s", 1)

    async def main() -> None:
        async with World(tmp_path):
            pass
        dead = tmp_path / "outbox/dead-letter"
        (dead / f"{wanted.delivery_id}.json").write_bytes(b"{")
        (dead / f"{'b' * 64}.json").mkdir()
        (dead / f"{'c' * 64}.json").symlink_to(tmp_path / "elsewhere")
        os.mkfifo(dead / f"{'d' * 64}.json")
        (dead / "notes.txt").write_bytes(b"not ours")
        async with World(tmp_path) as world:
            assert len(world.opened.quarantined) == 5
            assert world.opened.dead_letter == 0
            assert world.outbox.admit(wanted).is_new
            world.start()
            await world.until_empty()
            check_exactly_once_in_order(world.fake, [wanted])
        assert list(dead.iterdir()) == []
        kept = {path.name for path in (tmp_path / "outbox/quarantine").iterdir() if not path.name.endswith("n.json")}
        assert len(kept) == 5

    simulate(main)


def test_a_document_of_the_typescript_package_is_read_and_delivered(tmp_path: Path) -> None:
    """Milliseconds and bare failure codes as well as ours; what we do not know in it stays in it."""

    async def main() -> None:
        fake = FakeHoncho(workspaces=["space"], now=now)
        request = exchange("s", 1)
        document: dict[str, Any] = {
            "version": 1,
            "request": json.loads(request.model_dump_json(by_alias=True)),
            "createdAt": "2026-08-21T10:00:00.000Z",
            "attempts": 2,
            "ambiguous": True,
            "nextAttemptAt": 1_790_001_010_000,
            "failure": "timeout",
            "later": {"kept": True},
        }
        async with World(tmp_path, fake=fake):
            pass
        path = _pending(tmp_path) / f"{request.delivery_id}.json"
        path.write_text(json.dumps(document))
        async with World(tmp_path, fake=fake) as world:
            assert world.opened.pending == 1
            assert world.outbox.read(request.delivery_id).failure.code == "timeout"  # type: ignore[union-attr]
            fake.plan.add()
            world.transport.is_unreachable = True
            world.start()
            await world.until(lambda: world.worker.status()["retried"] == 1)
            assert json.loads(path.read_bytes())["later"] == {"kept": True}
            world.transport.is_unreachable = False
            await world.until_empty()
            check_exactly_once_in_order(fake, [request])

    simulate(main)


def test_an_absurd_time_of_next_attempt_does_not_park_a_delivery(tmp_path: Path) -> None:
    """A clock that was wrong once costs minutes, not years."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.outbox.admit(exchange("s", 1))
        path = next(_pending(tmp_path).iterdir())
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "nextAttemptAt": "2999-01-01T00:00:00Z"}))
        async with World(tmp_path) as world:
            world.start()
            assert await world.until_empty() < 700

    simulate(main)


def test_a_document_that_spoils_while_it_waits_is_set_aside(tmp_path: Path) -> None:
    """Somebody truncates a file under the running worker; the session goes on with the next."""

    async def main() -> None:
        async with World(tmp_path) as world:
            spoiled, after = exchange("s", 1), exchange("s", 2)
            world.outbox.admit(spoiled)
            world.outbox.admit(after)
            (_pending(tmp_path) / f"{spoiled.delivery_id}.json").write_bytes(b"{")
            world.start()
            await world.until_empty()
            check_exactly_once_in_order(world.fake, [after])
            assert (tmp_path / "outbox/quarantine" / f"{spoiled.delivery_id}.json").read_bytes() == b"{"

    simulate(main)


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Deliveries never land where somebody pointed a link at."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox/pending").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unwritable, match="not a real folder"):
        Outbox(tmp_path, redact=keep).open()


def test_ten_thousand_waiting_deliveries_are_taken_up_and_drained_without_another_scan(tmp_path: Path) -> None:
    """One look at the folder at the start, one read per delivery afterwards, order kept."""
    _write_pending(tmp_path, 10_000, sessions=400)

    async def main() -> None:
        fake = FakeHoncho(workspaces=["space"], now=now)
        layer = _Fast()
        async with World(tmp_path, fake=fake, files=layer) as world:
            assert world.opened.pending == 10_000
            scans = [look for look in layer.looks if look.name == "scan"]
            world.fake.plan.add(Fault(route=MESSAGES, times=None, wait=1.0))
            world.start()
            await world.until(lambda: len(world.outbox.waiting()) <= 9_800)
            assert [look for look in layer.looks if look.name == "scan"] == scans
            by_session: dict[str, list[int]] = {}
            for row in fake.rows():
                by_session.setdefault(row["session_id"], []).append(row["metadata"]["dsh_event_seq"])
            assert all(earlier < later for rows in by_session.values() for earlier, later in pairwise(rows))

    simulate(main)


def test_what_waits_is_not_held_in_memory(tmp_path: Path) -> None:
    """Twenty-five megabytes of texts wait; the outbox keeps a few fields of each, at the start and afterwards."""
    _write_pending(tmp_path, 1_000, sessions=50, text="a question " * 4_000)
    written = sum(path.stat().st_size for path in _pending(tmp_path).iterdir())
    assert written > 25 << 20
    gc.collect()
    tracemalloc.start()
    try:
        with Outbox(tmp_path, redact=keep) as outbox:
            held, peak = tracemalloc.get_traced_memory()
            assert len(outbox.waiting()) == 1_000
    finally:
        tracemalloc.stop()
    assert held < 2 << 20
    assert peak < 4 << 20


class _Fast(RecordingLayer):
    """Flushes nothing: this test is about reads."""

    def fsync(self, descriptor: int) -> None:
        self.change("fsync", descriptor)

    def fsync_folder(self, path: Path) -> None:
        self.change("fsync_folder", path)


def _write_pending(root: Path, count: int, sessions: int, text: str = "") -> None:
    pending = _pending(root)
    pending.mkdir(parents=True)
    for number in range(count):
        texts = (text, "an answer") if text else ()
        request = exchange(f"s{number % sessions}", number, *texts)
        document = {
            "version": 1,
            "request": json.loads(request.model_dump_json(by_alias=True)),
            "createdAt": f"2026-08-21T10:00:00.{number:06d}Z",
            "attempts": 0,
            "ambiguous": False,
        }
        (pending / f"{request.delivery_id}.json").write_text(json.dumps(document))


def measure_start(root: Path, count: int = 10_000) -> float:
    """Seconds of a start with `count` waiting deliveries: `python -c "import test_outbox as t; ..."`; not a test."""
    _write_pending(root, count, sessions=400)
    began = time.process_time()
    with Outbox(root, redact=keep):
        return time.process_time() - began
