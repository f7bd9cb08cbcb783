"""Whatever text comes in whichever place is refused by name or comes back; nothing is acknowledged and then lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from rlm_memory_host.contracts.memory import Block, BlockWrite, Transaction, project_layer
from rlm_memory_host.errors import HostError
from rlm_memory_host.recall.service import Query
from rlm_memory_host.textmemory.correcting import Correction, correct
from rlm_memory_host.textmemory.forgetting import forget
from rlm_memory_host.textmemory.notes import Note
from scenes import ROOT
from test_cases_text_memory import Real

ODD = [
    "\ud800", "a\udfffb", "x" * 40_000, "\x00", "\u202e" * 50, "🔥" * 300, "\r\n\r", "<!-- memory -->", "-->",
    "\u2028 line", "a\u0300" * 2_000, "[", "```", "'", " ", "\x85x", "ﷺ" * 500, "{0}", "1" * 500, "\ufeff\ufeff",
    "𝕏 " * 50, "status: archived", "\n-->\nid: x", "2026-13-40", "mem_01", "\x1b[31mred",
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_text_is_refused_by_name_or_comes_back(tmp_path: Path, odd: str) -> None:
    """In every argument of every operation, for a model and an operator; a fresh store serves all that was accepted."""
    scene = Real(tmp_path)
    base = scene.memory.record(ROOT, Note("The base fact is here."), operator=True).id
    accepted = {base}

    def record(note: Note, *, operator: bool = False) -> None:
        done = scene.memory.record(ROOT, note, operator=operator)
        if done.state == "active":
            accepted.add(done.id)

    calls: list[Callable[[], object]] = [
        lambda: record(Note(odd)),
        lambda: record(Note("Amber pendants glow.", title=odd)),
        lambda: record(Note("Nine buoys float.", topic=odd)),
        lambda: record(Note("Cables rust slowly.", tags=(odd,))),
        lambda: record(Note("Drift is weekly.", quote=odd)),
        lambda: record(Note("Embers fade.", basis=odd)),
        lambda: record(Note("Flasks leak.", valid_from=odd), operator=True),
        lambda: record(Note("Gears grind.", valid_to=odd), operator=True),
        lambda: scene.recall.search(ROOT, Query(odd)),
        lambda: scene.recall.search(ROOT, Query("fact", topic=odd)),
        lambda: forget(scene.memory, ROOT, target=odd),
        lambda: forget(scene.memory, ROOT, memory_id=odd),
        lambda: correct(scene.memory, ROOT, Correction(odd, base)),
        lambda: correct(scene.memory, ROOT, Correction("x y", supersedes=odd)),
        lambda: scene.user(odd),
        lambda: scene.recall.inject(ROOT),
    ]
    for call in calls:
        with contextlib.suppress(HostError):
            call()
    again = Real(tmp_path)
    assert again.disk.problems() == ()
    assert accepted <= {item.block.id for item in again.memory.blocks(ROOT)}
    assert again.disk.journal.verify_audit().breaks == ()


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize(
    "key", ["created_at", "valid_to", "superseded_by", "workspace_id", "source_session", "project"]
)
def test_no_key_takes_what_the_file_would_not_give_back(tmp_path: Path, key: str, odd: str) -> None:
    """Whoever writes it: refused, or served by a fresh store as it went in."""
    store = Real(tmp_path).disk
    layer = project_layer("demo")
    block = Block("mem_a", "Topic", "Title", "text", **{key: odd})  # type: ignore[arg-type]
    try:
        (stored,) = store.commit(Transaction((BlockWrite(layer, block),)))
    except HostError:
        assert store.snapshot(layer).blocks == ()
        return
    found = Real(tmp_path).disk.get(layer, "mem_a")
    assert found is not None
    assert found.block == stored
