"""Forks two writers at a time over one store and kills them: `memory_nursery.py STATE_ROOT`, one seed a line on stdin.

What a writer begins and what was acknowledged to it goes to stdout, a whole line at a time, so that it is known outside
the killed process. Each round ends with the line `killed`. One thread, so forking is safe.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from rlm_memory_host.contracts.memory import (
    AuditNote,
    Block,
    BlockWrite,
    Log,
    LogRow,
    Status,
    Transaction,
    new_memory_id,
    project_layer,
)
from rlm_memory_host.textmemory.opening import open_memory

LAYER = project_layer("demo")


def body_of(memory_id: str, version: int) -> str:
    """The one text that a version of a memory may have."""
    seed = hashlib.sha256(f"{memory_id} {version}".encode()).hexdigest()
    return f"{seed} <!-- memory\n\n" * (1 + int(seed[:2], 16) // 8) + "end"


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write(root: Path, topic: str, seed: int) -> None:
    """New memories, changes of earlier ones and archived ones, with a log row and an audit note each, for ever."""
    chance = random.Random(seed)
    store = open_memory(root).store
    mine = [block for block in store.snapshot(LAYER).blocks if block.topic == topic]
    while True:
        if mine and chance.random() < 0.5:
            before = mine.pop(chance.randrange(len(mine)))
            status = Status.ARCHIVED if chance.random() < 0.2 else Status.ACTIVE
            block = replace(before, version=before.version + 1, status=status)
        else:
            before, block = None, Block(new_memory_id(), topic, "t", "")
        block = replace(block, body=body_of(block.id, block.version))
        note = AuditNote("write", "model", target=block.id, contents=(block.body,))
        row = LogRow(Log.OBSERVATIONS, {"id": f"{block.id}-{block.version}"})
        say("begin", block.id, block.version)
        expected = before.version if before else None
        stored = store.commit(Transaction((BlockWrite(LAYER, block, expected),), (row,), (note,)))
        say("ack", block.id, block.version)
        mine.append(stored[0])


def main(root: Path) -> None:
    for line in sys.stdin:
        seed = int(line)
        chance = random.Random(seed)
        writers: list[int] = []
        for number, topic in enumerate(("One", "Two")):
            pid = os.fork()
            if pid == 0:
                try:
                    write(root, topic, seed * 2 + number)
                finally:
                    os._exit(1)
            writers.append(pid)
        for pid in writers:
            time.sleep(0.05 + chance.random() * 0.15)
            os.kill(pid, signal.SIGKILL)
        for pid in writers:
            _, status = os.waitpid(pid, 0)
            say("status", os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1)
        say("killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
