"""What was destroyed here stays known, so that the service's copies never come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rlm_memory_host.assembly.asking import FAILED, asked
from rlm_memory_host.delivery.destroyed import NAME, Destroyed
from rlm_memory_host.delivery.folders import FOLDER


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / FOLDER
    folder.mkdir()
    return folder / NAME


def test_a_note_stands_whatever_became_of_the_one_before(tmp_path: Path, path: Path) -> None:
    """A line that a crash cut off swallows nothing that is noted after it."""
    destroyed = Destroyed(tmp_path)
    with destroyed.noting(["mem_one"], "a session"):
        pass
    path.write_bytes(path.read_bytes() + b"memory mem_tw")
    with destroyed.noting(["mem_three"]):
        pass
    assert [destroyed.holds(name) for name in ("mem_one", "mem_two", "mem_three")] == [True, False, True]
    assert destroyed.holds("mem_unknown", "a session")


def test_what_failed_to_be_destroyed_is_not_noted(tmp_path: Path, path: Path) -> None:
    """The note is taken back, and what was noted before stays."""
    destroyed = Destroyed(tmp_path)
    with destroyed.noting(["mem_one"]):
        pass
    with pytest.raises(RuntimeError), destroyed.noting(["mem_two"]):
        raise RuntimeError("the disk")
    assert [destroyed.holds(name) for name in ("mem_one", "mem_two")] == [True, False]


async def test_a_question_that_breaks_in_any_way_is_told_and_not_raised() -> None:
    """An answer that nobody thought of costs the remote part of a search alone."""

    async def broken() -> str:
        raise KeyError("peer_id")

    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(asked, loop, broken(), 5.0) == (None, FAILED)
