"""Fixtures of the store's tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlm_memory_host.artifacts import ArtifactStore
from store_harness import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Folders for a store and its sessions."""
    return World(tmp_path)


@pytest.fixture
def store(world: World) -> Iterator[ArtifactStore]:
    """An empty store with the default bounds."""
    with world.open() as opened:
        yield opened


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder where flushing costs nothing, if the system has one: for tests that make hundreds of small stores.

    What they check is which steps are made, in which order; that the disk obeys is not theirs to prove.
    """
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="rlm-memory-test-", dir=memory) as folder:
        yield Path(folder)
