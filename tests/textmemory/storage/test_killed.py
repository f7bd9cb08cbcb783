"""Two real processes write to one store and are killed again and again: whole memories or none, a sound chain."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from memory_nursery import LAYER, body_of
from rlm_memory_host.contracts.memory import Log
from rlm_memory_host.textmemory.opening import open_memory
from rlm_memory_host.textmemory.store import MarkdownStore

NURSERY = Path(__file__).parents[1] / "memory_nursery.py"


@dataclass
class Told:
    """What the writers said before they were killed: the newest version begun and acknowledged of each memory."""

    begun: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    inside: int = 0
    """Kills that left a write begun and not acknowledged."""

    def take(self, lines: list[str]) -> None:
        """One round's lines."""
        open_writes: set[tuple[str, int]] = set()
        for line in lines:
            word, *rest = line.split()
            if word == "status":
                assert rest == ["9"], "a writer ended by itself"
                self.kills += 1
                continue
            memory_id, version = rest[0], int(rest[1])
            if word == "begin":
                self.begun[memory_id] = version
                open_writes.add((memory_id, version))
            else:
                self.acknowledged[memory_id] = version
                open_writes.discard((memory_id, version))
        self.inside += len(open_writes)


@contextmanager
def nursery(root: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(NURSERY), str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        assert process.wait(30) == 0


def check(store: MarkdownStore, told: Told) -> None:
    """Invariant 5: no accepted memory is lost, duplicated or silently changed; and the chain and the logs hold."""
    blocks = store.snapshot(LAYER).blocks
    served = {block.id: block for block in blocks}
    assert len(served) == len(blocks)
    assert told.acknowledged.keys() <= served.keys() <= told.begun.keys()
    for memory_id, block in served.items():
        assert told.acknowledged.get(memory_id, 0) <= block.version <= told.begun[memory_id]
        assert block.body == body_of(memory_id, block.version)
        earlier = store.history(LAYER, memory_id)
        assert [entry.number for entry in earlier] == list(range(1, block.version))
        assert all(entry.block.body == body_of(memory_id, entry.number) for entry in earlier)
    written = Counter(
        found
        for path in store.roots.folder_of(LAYER).glob("*.md")
        for found in re.findall(r"^id: (\S+)$", path.read_text(), re.MULTILINE)
    )
    assert written == Counter(served.keys())
    rows = Counter(re.findall(r'"id":"([^"]+)"', store.journal.log_path(Log.OBSERVATIONS).read_text()))
    assert rows == Counter(
        f"{key}-{version}" for key, block in served.items() for version in range(1, block.version + 1)
    )
    assert store.problems() == ()
    verified = store.journal.verify_audit()
    assert verified.breaks == ()
    assert verified.tail.seq == sum(block.version for block in blocks)


def campaign(root: Path, kills: int) -> Told:
    """Rounds of two writers each, checked after every round by a store that opens anew."""
    told = Told()
    with nursery(root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seed in range(kills // 2):
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            lines: list[str] = []
            while (line := process.stdout.readline().strip()) != "killed":
                assert line, "the nursery ended"
                lines.append(line)
            told.take(lines)
            opened = open_memory(root)
            with opened.store.lock():
                pass
            check(opened.store, told)
    leftovers = [path.name for path in root.rglob("*.tmp")]
    assert len(leftovers) <= told.inside * 3
    return told


def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Eight kills, two writers at a time; after each round a fresh store finds every acknowledged state, once."""
    told = campaign(tmp_path, 8)
    assert told.kills == 8
    assert told.acknowledged


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_kills_most_of_them_inside_a_write(tmp_path: Path) -> None:
    """No accepted memory is lost, duplicated or silently changed, and no audit record or log row either."""
    told = campaign(tmp_path, 200)
    assert told.kills == 200
    assert told.inside > 100
    assert len(told.acknowledged) > 100
