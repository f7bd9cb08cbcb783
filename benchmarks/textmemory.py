"""The text memory at 20,000 memories: start, search, one write against its own flushes, and hostile texts.

Run: `python benchmarks/textmemory.py [memories]`. Numbers are milliseconds. A start is from opening to the answer of
the first search, with and without the kept words (target: at most 500); a search is told as p50 and p99 of 300 queries
of one to four words (target: p99 at most 3); a write as the median ratio of its wall time to the time spent in its
flushes and renames, which the file system flushes as well (target: at most 1.2). CPU times leave out what other
processes take.

Source: design page "Quality", Targets.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rlm_memory_host.contracts.memory import (
    AuditNote,
    Authority,
    Block,
    BlockWrite,
    Caller,
    Transaction,
    new_memory_id,
    project_layer,
)
from rlm_memory_host.guard import Guard, Sink
from rlm_memory_host.recall.service import Query, Recall
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.textmemory.guarding import guard_of
from rlm_memory_host.textmemory.opening import open_memory
from rlm_memory_host.textmemory.service import Parts, TextMemory

LAYER = project_layer("benchmark")
TOPICS = 40
CALLER = Caller(project="benchmark", session="bench")
WORDS = [f"word{number}" for number in range(3_000)]


class Timed(FileLayer):
    """Adds up the time spent in flushes."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.flushes = 0

    def _timed(self, call: Callable[[], None]) -> None:
        started = time.perf_counter()
        call()
        self.spent += time.perf_counter() - started
        self.flushes += 1

    def fsync(self, descriptor: int) -> None:
        """As the real one, timed."""
        self._timed(lambda: FileLayer.fsync(self, descriptor))

    def fsync_folder(self, path: Path) -> None:
        """As the real one, timed."""
        self._timed(lambda: FileLayer.fsync_folder(self, path))

    def rename(self, source: Path, target: Path) -> None:
        """As the real one, timed: replacing a file makes the file system flush it."""
        self._timed(lambda: FileLayer.rename(self, source, target))


def fill(root: Path, memories: int) -> None:
    """Store the memories in one commit a topic."""
    rng = random.Random(3)
    store = open_memory(root).store
    for topic in range(TOPICS):
        blocks = [
            Block(
                new_memory_id(), f"Topic {topic}", f"{rng.choice(WORDS)} {number}", " ".join(rng.choices(WORDS, k=25))
            )
            for number in range(memories // TOPICS)
        ]
        store.commit(Transaction(tuple(BlockWrite(LAYER, block) for block in blocks)))


def measured(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU milliseconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def main(memories: int) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        print(f"fill {memories}: {measured(lambda: fill(root, memories))[0]:.0f} ms")
        wall, cpu = measured(lambda: opened(root).search(CALLER, Query("word1 word2")))
        print(f"first start, to the first answer: wall {wall:.0f}, CPU {cpu:.0f}")
        starts = [measured(lambda: opened(root).search(CALLER, Query("word1 word2"))) for _ in range(5)]
        wall, cpu = (statistics.median(each) for each in zip(*starts, strict=True))
        print(f"start, to the first answer: wall {wall:.0f}, CPU {cpu:.0f}")
        wall, cpu = measured(lambda: open_memory(root).store.get(LAYER, "mem_none"))
        print(f"open alone: wall {wall:.0f}, CPU {cpu:.0f}")
        searches(root)
        writes(root)
    guard = Guard()
    for name, text in (
        ("32 KiB of prose", "The rig runs at forty degrees. " * 1_000),
        ("32 KiB of key words", "token " * 5_000),
    ):
        fields = {"body": text}
        times = [measured(lambda fields=fields: guard(fields, Authority.MODEL, Sink.BLOCK))[1] for _ in range(5)]
        print(f"guard, {name}: CPU {statistics.median(times):.1f}")


def opened(root: Path) -> Recall:
    """Recall over the memory, as a host opens it."""
    made = open_memory(root)
    return Recall(TextMemory(Parts(made.store, guard_of(made.guard))))


def searches(root: Path) -> None:
    """Queries of one to four words, after the first."""
    recall, rng = opened(root), random.Random(9)
    recall.search(CALLER, Query("word1"))
    queries = [" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(300)]
    times = [measured(lambda query=query: recall.search(CALLER, Query(query))) for query in queries]
    for name, spent in zip(("wall", "CPU"), zip(*times, strict=True), strict=True):
        ordered = sorted(spent)
        print(f"search, {name}: p50 {ordered[150]:.1f}, p99 {ordered[296]:.1f}")


def writes(root: Path) -> None:
    """Updates of one memory and new ones."""
    files = Timed()
    store = open_memory(root, files=files).store
    block = store.snapshot(LAYER).blocks[0]
    for what in ("update", "new"):
        ratios: list[float] = []
        cpus: list[float] = []
        for number in range(30):
            if what == "update":
                block = replace(block, version=block.version + 1, body=f"text {number}")
                write = BlockWrite(LAYER, block, block.version - 1)
            else:
                write = BlockWrite(LAYER, Block(new_memory_id(), "Topic 7", f"New {number}", "text"))
            note = AuditNote("write", "user", target=write.block.id, contents=(write.block.body,))
            files.spent, files.flushes = 0.0, 0
            wall, cpu = measured(lambda write=write, note=note: store.commit(Transaction((write,), (), (note,))))
            ratios.append(wall / (files.spent * 1e3))
            cpus.append(cpu)
        ratio, cpu = statistics.median(ratios), statistics.median(cpus)
        print(f"{what}: {ratio:.2f} x its {files.flushes} flushes and renames, CPU {cpu:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
