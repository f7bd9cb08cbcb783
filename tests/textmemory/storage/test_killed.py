"""Two real processes write to one store and are killed again and again: whole memories or none, a sound chain."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rlm_memory_host.contracts.memory import Authority, project_layer
from rlm_memory_host.textmemory.opening import open_memory

WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from rlm_memory_host.contracts.memory import AuditNote, Block, BlockWrite, Transaction, new_memory_id, project_layer
from rlm_memory_host.errors import VersionConflict
from rlm_memory_host.textmemory.store import MarkdownStore

layer = project_layer("demo")
store = MarkdownStore(Path(sys.argv[1]))
while True:
    block = Block(id=new_memory_id(), topic=sys.argv[2], title="t", body="a" * 2000)
    note = (AuditNote("write", "model", target=block.id, contents=(block.body,)),)
    store.commit(Transaction((BlockWrite(layer, block),), (), note))
    print(block.id, 1, flush=True)
    try:
        store.commit(Transaction((BlockWrite(layer, replace(block, body="b" * 2000, version=2), 1),), (), note))
        print(block.id, 2, flush=True)
    except VersionConflict:
        pass
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Twelve rounds; after each the store opens clean and every acknowledged state is there."""
    chance = random.Random(7)
    acknowledged: dict[str, int] = {}
    for _ in range(12):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), topic], stdout=subprocess.PIPE, text=True)
            for topic in ("One", "Two")
        ]
        try:
            assert writers[0].stdout is not None
            acknowledged.update(parsed(writers[0].stdout.readline()))
            time.sleep(chance.random() * 0.3)
        finally:
            for writer in writers:
                writer.send_signal(signal.SIGKILL)
        for writer in writers:
            out, _ = writer.communicate()
            for line in out.splitlines():
                for memory_id, version in parsed(line).items():
                    acknowledged[memory_id] = max(version, acknowledged.get(memory_id, 0))
        opened = open_memory(tmp_path)
        with opened.store.lock():
            pass
        blocks = {block.id: block for block in opened.store.snapshot(project_layer("demo")).blocks}
        assert acknowledged.keys() <= blocks.keys()
        assert all(blocks[key].version >= version for key, version in acknowledged.items())
        assert all(block.body in ("a" * 2000, "b" * 2000) for block in blocks.values())
        assert all(block.authority is Authority.MODEL for block in blocks.values())
        assert opened.store.problems() == ()
        assert opened.store.journal.verify_audit().breaks == ()
    assert len(acknowledged) >= 12


def parsed(line: str) -> dict[str, int]:
    """One acknowledgement; nothing for a line that the kill cut off."""
    words = line.split()
    return {words[0]: int(words[1])} if len(words) == 2 and line.startswith("mem_") else {}
