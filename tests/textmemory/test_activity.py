"""What is remembered of a memory's use: across starts and processes, after damage and after a purge."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from real_scenes import Real
from rlm_memory_host import app, settings
from rlm_memory_host.cli import main
from rlm_memory_host.contracts.memory import Status, default_layer
from rlm_memory_host.recall.service import Query
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.textmemory import activity, purging, review, upkeep
from rlm_memory_host.textmemory.activity import DAMAGED, FILE, Activity, Use, Verdict
from rlm_memory_host.textmemory.aging import AgingRules, plan
from rlm_memory_host.textmemory.correcting import Correction, correct
from rlm_memory_host.textmemory.notes import Note
from rlm_memory_host.textmemory.opening import open_memory
from scenes import PLAIN, ROOT, Scene

EARLY, LATE = "2026-03-01T12:00:00+00:00", "2026-03-02T12:00:00+00:00"


def file_of(root: Path) -> Path:
    return root / "memory" / "local" / "derived" / FILE


def test_a_start_remembers_reads_and_verdicts(tmp_path: Path) -> None:
    """Which a search, a repeat and a verdict of the process before made."""
    before = Real(tmp_path)
    done = before.memory.record(ROOT, Note("The dock is made of oak."))
    before.memory.record(ROOT, Note("The dock is made of oak."))
    before.recall.give(PLAIN, before.recall.search(PLAIN, Query("dock")).items)
    correct(before.memory, ROOT, Correction("", done.id, verdict="stale"))
    before.memory.activity.keep()
    use = Real(tmp_path).memory.activity.of(done.id)
    assert (use.reads, use.repeats, use.verdict) == (1, 1, "stale")
    assert use.read_at == before.clock.now.isoformat()


def test_nothing_is_written_where_nothing_happened_and_nothing_before_it_is_kept(tmp_path: Path) -> None:
    """A read costs no write."""
    scene = Real(tmp_path)
    scene.memory.activity.keep()
    assert not file_of(tmp_path).exists()
    scene.memory.activity.read("mem_a", EARLY)
    assert not file_of(tmp_path).exists()
    assert scene.memory.activity.is_unkept()
    scene.memory.activity.keep()
    assert not scene.memory.activity.is_unkept()
    kept = file_of(tmp_path).stat()
    scene.memory.activity.keep()
    assert file_of(tmp_path).stat().st_ino == kept.st_ino


def test_two_processes_keep_each_others(tmp_path: Path) -> None:
    """Counts add up, the last time and the last verdict count, in whatever order they are kept."""
    first, second = (Activity(open_memory(tmp_path).store) for _ in range(2))
    assert first.of("mem_a") == second.of("mem_a") == Use()
    first.read("mem_a", LATE)
    first.judged("mem_a", "useful", EARLY)
    second.read("mem_a", EARLY)
    second.read("mem_b", EARLY)
    second.judged("mem_a", "wrong", LATE)
    second.keep()
    first.keep()
    for kept in (first, Activity(open_memory(tmp_path).store)):
        assert kept.of("mem_a") == Use(LATE, 2, 0, "wrong", LATE)
        assert kept.of("mem_b") == Use(EARLY, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 64,
        b'{"format":1,"uses":{"mem_a":["',
        b'{"format":2,"uses":{}}',
        b"[]",
        b'{"format":1,"uses":[]}',
        b'{"format":1,"uses":{"mem_a":[1,2]}}',
        b'{"format":1,"uses":{"mem_a":["",1,"x","",""]}}',
        b'{"format":1,"uses":{"mem_a":[7,1,1,"",""]}}',
        b'{"format":1,"uses":{"mem_a":["yesterday",1,1,"",""]}}',
        b'{"format":1,"uses":{"mem_a":["",1,1,"useful","zzz"]}}',
        b'{"format":1,"uses":{"mem_a":["",-4,1,"",""]}}',
    ],
)
def test_a_damaged_file_counts_as_none_and_is_told(tmp_path: Path, data: bytes) -> None:
    """Nothing fails; the next keeping puts it right."""
    path = file_of(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    told: list[tuple[str, str]] = []
    kept = Activity(open_memory(tmp_path).store, lambda feature, code: told.append((feature, code)))
    assert kept.of("mem_a") == Use()
    assert told == [("recall", DAMAGED)]
    kept.read("mem_a", EARLY)
    kept.keep()
    assert Activity(open_memory(tmp_path).store).of("mem_a") == Use(EARLY, 1)


def test_a_served_memory_tells_its_health_of_a_damaged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command goes on, and `health.json` says what was lost."""
    path = file_of(tmp_path / "state")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{")
    scene = Real(tmp_path / "state")
    scene.memory.record(ROOT, Note("The dock is made of oak."))
    assert main(["memory", "--state-root", str(scene.root), "--project", "demo", "consolidate"]) == 0
    assert "0 to move" in capsys.readouterr().out
    health = json.loads((path.parents[1] / ".state" / "health.json").read_text())
    assert health["features"]["recall"]["code"] == DAMAGED


class Refusing(FileLayer):
    """A disk that takes no new file while it is told so."""

    is_full = False

    def create(self, path: Path) -> int:
        if self.is_full:
            raise OSError(28, "full")
        return super().create(path)


def test_what_could_not_be_written_is_kept_the_next_time(tmp_path: Path) -> None:
    """A full disk loses nothing while the process lives."""
    files = Refusing()
    kept = Activity(open_memory(tmp_path, files=files).store)
    kept.read("mem_a", EARLY)
    files.is_full = True
    kept.keep()
    assert kept.is_unkept()
    kept.read("mem_a", LATE)
    assert kept.of("mem_a") == Use(LATE, 2)
    files.is_full = False
    kept.keep()
    assert Activity(open_memory(tmp_path).store).of("mem_a") == Use(LATE, 2)


def test_a_purge_takes_its_ids_out_and_leaves_the_others(tmp_path: Path) -> None:
    """On disk, and for a process that still remembers them; rebuilding what is derived leaves the file alone."""
    scene = Real(tmp_path)
    gone, stays = (scene.memory.record(ROOT, Note(text)).id for text in ("The dock is oak.", "The pump is blue."))
    for memory_id in (gone, stays):
        scene.memory.activity.read(memory_id, EARLY)
    scene.memory.activity.keep()
    scene.memory.activity.read(gone, LATE)
    store = open_memory(tmp_path).store

    def make() -> purging.PurgePlan:
        return purging.plan(store, "id", gone, project="demo")

    made = make()
    assert purging.apply(store, made, made.token, make).remaining == ()
    assert gone.encode() not in file_of(tmp_path).read_bytes()
    scene.memory.activity.keep()
    assert gone.encode() not in file_of(tmp_path).read_bytes()
    upkeep.rebuild_index(store)
    assert Activity(store).of(stays) == Use(EARLY, 1)


def test_a_command_of_its_own_sees_what_a_host_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A read within the last thirty days renews, whoever was read to."""
    scene = Real(tmp_path / "state")
    scene.clock.now -= timedelta(days=10_000)
    ids = [scene.memory.record(ROOT, Note(f"Fact {name} stands.", title=name)).id for name in ("alpha", "beta")]
    command = ["memory", "--state-root", str(scene.root), "--project", "demo", "--json", "consolidate"]

    def would_move() -> set[str]:
        assert main(command) == 0
        plans = json.loads(capsys.readouterr().out)
        return {step["id"] for found in plans.values() for step in found["steps"]}

    assert would_move() == set(ids)
    scene.memory.activity.read(ids[0], datetime.now(UTC).isoformat())
    scene.memory.activity.keep()
    assert would_move() == {ids[1]}


def test_a_host_keeps_it_while_it_runs_and_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a write per read: what a kill loses is what came since the last keeping."""
    monkeypatch.setattr(app, "IDLE_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(activity, "KEEP_SECONDS", 0.0)
    loaded = settings.load(None, tmp_path / "state").settings
    path = file_of(tmp_path / "state")

    async def life() -> None:
        host, started = app.Host(loaded), asyncio.Event()
        running = asyncio.create_task(host.run(started.set))
        await asyncio.wait_for(started.wait(), 30)
        parts: Any = vars(host)["_parts"]
        parts.text.activity.read("mem_a", EARLY)
        async with asyncio.timeout(30):
            while not path.exists():
                await asyncio.sleep(0.01)
        monkeypatch.setattr(activity, "KEEP_SECONDS", 3_600.0)
        parts.text.activity.read("mem_b", EARLY)
        host.stop("enough")
        assert (await running).drained

    asyncio.run(life())
    kept = Activity(open_memory(tmp_path / "state").store)
    assert (kept.of("mem_a"), kept.of("mem_b")) == (Use(EARLY, 1), Use(EARLY, 1))


# -- verdicts ----------------------------------------------------------------------------------------------------------
def test_verdicts_order_reviews_and_renewals_and_move_nothing_by_themselves() -> None:
    """What was found wrong comes first, what was useful last; how many move, and whether, is time's and room's."""
    scene = Scene()
    layer = default_layer(ROOT)
    names = ("alpha", "beta", "gamma", "delta")
    ids = {name: scene.memory.record(ROOT, Note(f"Fact {name} stands.", title=name)).id for name in names}
    verdicts: list[tuple[str, Verdict]] = [("alpha", "useful"), ("gamma", "stale"), ("delta", "wrong")]
    for name, verdict in verdicts:
        correct(scene.memory, ROOT, Correction("", ids[name], verdict=verdict))
    order = [ids[name] for name in ("delta", "gamma", "beta", "alpha")]
    assert review.consolidate(scene.memory, layer).steps == ()
    scene.clock.ahead(days=181)
    blocks = scene.store.snapshot(layer).blocks
    steps = plan(layer.kind, blocks, scene.memory.activity.of, scene.clock.now, None).steps
    assert [step.id for step in steps] == order
    rules = AgingRules(capacity=2)
    review.consolidate(scene.memory, layer, dry_run=False, rules=rules)
    review.consolidate(scene.memory, layer, dry_run=False, rules=rules)
    archived = {memory_id for memory_id in order if scene.block(memory_id).status is Status.ARCHIVED}
    assert archived == set(order[:2])
