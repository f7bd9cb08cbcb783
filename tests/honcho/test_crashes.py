"""The process ends at every single change of the disk; after the restart each admitted delivery is there once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rlm_memory_host.contracts.delivery import DeliveryRequest
from rlm_memory_host.delivery.outbox import Outbox
from rlm_memory_host.honcho.fake import FakeHoncho, Fault
from rlm_memory_host.storage.faults import Crashed, CrashingLayer, RecordingLayer
from world import MESSAGES, World, check_exactly_once_in_order, exchange, now, simulate

FAR = 1_000_000


async def _life(world: World, requests: list[DeliveryRequest], admitted: list[DeliveryRequest]) -> None:
    """Admit and deliver until all is done or the process has ended."""
    layer = world.outbox._disk.files
    assert isinstance(layer, CrashingLayer)
    world.start()
    try:
        for request in requests:
            world.outbox.admit(request)
            admitted.append(request)
            await asyncio.sleep(0.01)
    except Crashed:
        return
    await world.until(lambda: layer.crashed or not world.outbox.waiting(), 86_400)


def _faults(kind: str) -> list[Fault]:
    match kind:
        case "well":
            return []
        case "lost":
            return [
                Fault(route=MESSAGES, commit=True, drop=True),
                Fault(route=MESSAGES, commit_after=7, drop=True),
                Fault(route=MESSAGES, status=429, headers={"Retry-After": "2"}),
            ]
        case _:
            return [Fault(route=MESSAGES, after=1, status=422, body={"detail": "no"})]


def _run(root: Path, kind: str, at: int, *, torn: bool = False) -> int:
    """One crash at change number `at` and a second life; how many changes the first life made."""
    changes = 0
    root.mkdir()

    async def main() -> None:
        nonlocal changes
        fake = FakeHoncho(workspaces=["space"], now=now)
        fake.plan.add(*_faults(kind))
        requests = [exchange("a", 1), exchange("b", 2), exchange("a", 3)]
        admitted: list[DeliveryRequest] = []
        layer = CrashingLayer(at, torn=torn)
        world = World(root, fake=fake, files=layer)
        try:
            async with world:
                await _life(world, requests, admitted)
        except Crashed:
            pass
        finally:
            world.outbox.close()
        changes = len(layer.changes)
        async with World(root, fake=fake) as world:
            world.start()
            await world.until_empty(86_400)
            await fake.settle()
            # The caller whose process died does not know, and admits again.
            for request in requests:
                if request not in admitted:
                    world.outbox.admit(request)
                    await world.until_empty(86_400)
            dead = {path.stem for path in (root / "outbox/dead-letter").iterdir()}
            assert len(dead) <= (kind == "refused")
            alive = [request for request in requests if request.delivery_id not in dead]
            check_exactly_once_in_order(fake, alive)
            left = [path.name for path in (root / "outbox/pending").iterdir()]
            assert not left

    simulate(main)
    return changes


@pytest.mark.parametrize("kind", ["well", "lost", "refused"])
def test_a_crash_at_any_change_loses_nothing_and_doubles_nothing(tmp_path: Path, kind: str) -> None:
    """Every create, write, flush, rename and unlink of admission, delivery and dead letter, one after the other."""
    total = _run(tmp_path / "whole", kind, FAR)
    assert total > 20
    for at in range(1, total + 1):
        _run(tmp_path / f"at-{at}", kind, at)


def test_a_write_torn_in_the_middle_is_no_delivery(tmp_path: Path) -> None:
    """Half a document lies in a temp file; the next start sets it aside."""
    layer = RecordingLayer()
    (tmp_path / "whole").mkdir()
    with Outbox(tmp_path / "whole", redact=str, files=layer) as outbox:
        outbox.admit(exchange("a", 1))
    writes = [number for number, change in enumerate(layer.changes, 1) if change.name == "write"]
    for at in writes:
        _run(tmp_path / f"torn-{at}", "well", at, torn=True)


def test_a_crash_while_bad_files_are_set_aside_loses_no_byte_of_them(tmp_path: Path) -> None:
    """The reason is written before the file moves: it is in one place or the other at any time."""

    def prepare(root: Path) -> Path:
        pending = root / "outbox/pending"
        pending.mkdir(parents=True)
        (pending / f"{'1' * 64}.json").write_bytes(b"broken")
        return pending

    layer = RecordingLayer()
    prepare(tmp_path / "whole")
    with Outbox(tmp_path / "whole", redact=str, files=layer):
        pass
    for at in range(1, len(layer.changes) + 1):
        root = tmp_path / f"at-{at}"
        prepare(root)
        crashing = Outbox(root, redact=str, files=CrashingLayer(at))
        with pytest.raises(Crashed):
            crashing.open()
        crashing.close()
        with Outbox(root, redact=str) as outbox:
            assert outbox.counts()["pending"] == 0
        kept = [path for path in (root / "outbox/quarantine").iterdir() if path.read_bytes() == b"broken"]
        assert len(kept) == 1


def test_a_crash_while_a_dead_letter_is_revived_or_dropped_leaves_it_in_one_place(tmp_path: Path) -> None:
    """Alive or dead, never both, never gone by accident."""

    async def kill_one(root: Path) -> str:
        async with World(root) as world:
            request = exchange("a", 1)
            world.fake.plan.add(Fault(route=MESSAGES, status=422, body={"detail": "no"}))
            world.outbox.admit(request)
            world.start()
            await world.until_empty()
            return request.delivery_id

    for at in range(1, 40):
        root = tmp_path / f"at-{at}"
        root.mkdir()
        delivery_id = simulate(lambda root=root: kill_one(root))
        layer = CrashingLayer(FAR)
        outbox = Outbox(root, redact=str, files=layer)
        outbox.open()
        layer.at = len(layer.changes) + at
        try:
            assert outbox.revive(delivery_id)
            done = True
        except Crashed:
            done = False
        outbox.close()
        places = [
            place for place in ("pending", "dead-letter") if (root / "outbox" / place / f"{delivery_id}.json").exists()
        ]
        assert len(places) == 1
        if done:
            assert places == ["pending"]
            break
    else:
        pytest.fail("revive has too many changes")
