"""The text memory at 20,000 memories: start, read, one write against its own flushes, and hostile texts.

Run: `python benchmarks/textmemory.py [memories]`. Numbers are milliseconds, medians; a write is given as the ratio of
its wall time to the time spent in its flushes (target: at most 1.2), the start as wall and CPU (target: at most 500).

Source: design page "Quality", Targets.
"""

from __future__ import annotations

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
    Transaction,
    new_memory_id,
    project_layer,
)
from rlm_memory_host.guard import Guard, Sink
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.textmemory.opening import open_memory

LAYER = project_layer("benchmark")
TOPICS = 40


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


def fill(root: Path, memories: int) -> None:
    """Store the memories in one commit a topic."""
    store = open_memory(root).store
    for topic in range(TOPICS):
        blocks = [
            Block(new_memory_id(), f"Topic {topic}", f"Title {topic} {number}", "The rig runs at forty degrees. " * 8)
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
        starts = [measured(lambda: open_memory(root).store.get(LAYER, "mem_none")) for _ in range(5)]
        wall, cpu = (statistics.median(each) for each in zip(*starts, strict=True))
        print(f"start: wall {wall:.0f}, CPU {cpu:.0f}")
        store = open_memory(root).store
        wall, cpu = measured(lambda: store.snapshot(LAYER))
        print(f"first whole snapshot: wall {wall:.0f}, CPU {cpu:.0f}")
        writes(root)
    guard = Guard()
    for name, text in (
        ("32 KiB of prose", "The rig runs at forty degrees. " * 1_000),
        ("32 KiB of key words", "token " * 5_000),
    ):
        fields = {"body": text}
        times = [measured(lambda fields=fields: guard(fields, Authority.MODEL, Sink.BLOCK))[1] for _ in range(5)]
        print(f"guard, {name}: CPU {statistics.median(times):.1f}")


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
        print(f"{what}: {ratio:.2f} x its {files.flushes} flushes, CPU {cpu:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
