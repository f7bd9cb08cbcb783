"""What a host does from time to time and at its end: one part that breaks takes nothing else along."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rlm_memory_host.assembly.parts import assemble
from rlm_memory_host.assembly.sessions import Sessions
from rlm_memory_host.recall.resident_files import ResidentFiles
from rlm_memory_host.settings import Settings


async def test_a_part_that_breaks_keeps_neither_the_other_looks_nor_the_end_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Sessions are still looked at, the log says what broke once, and the artifact store is closed all the same."""
    root = tmp_path / "state"
    root.mkdir(mode=0o700)
    with ThreadPoolExecutor(2) as pool:
        parts = await assemble(Settings(state_root=root), None, pool)
        assert parts.store is not None
        done: list[str] = []

        def breaks(_self: object) -> None:
            raise ValueError("an unforeseen one")

        close = type(parts.store).close
        monkeypatch.setattr(ResidentFiles, "look", breaks)
        monkeypatch.setattr(Sessions, "look", lambda _self: done.append("sessions"))
        monkeypatch.setattr(type(parts.store), "close", lambda self: (done.append("store"), close(self)))
        for _ in range(3):
            parts.look()
        with pytest.raises(ValueError, match="unforeseen"):
            parts.close()
        await parts.sending.close(0.0)
    assert done == ["sessions", "sessions", "sessions", "store"]
    assert [record.getMessage().split()[0] for record in caplog.records if "look" in record.getMessage()] == [
        "look_failed"
    ]
