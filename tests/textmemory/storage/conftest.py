"""Stores in folders of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rlm_memory_host.contracts.memory import AuditNote, Block, BlockWrite, Layer, Transaction, project_layer
from rlm_memory_host.textmemory.store import MarkdownStore

PROJECT = project_layer("demo")
Write = Callable[..., Block]


@pytest.fixture
def store(tmp_path: Path) -> MarkdownStore:
    """An empty store."""
    return MarkdownStore(tmp_path)


def write(
    store: MarkdownStore, block: Block, *, layer: Layer = PROJECT, expected: int | None = None, change: str = "update"
) -> Block:
    """Store one block, with its audit record."""
    note = AuditNote("write", "model", layer.name, block.id, contents=(block.body,))
    return store.commit(Transaction((BlockWrite(layer, block, expected, change),), (), (note,)))[0]
