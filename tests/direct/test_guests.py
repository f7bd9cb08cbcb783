"""Guest sessions of the host's own programs: opened at the door, served over the direct channel, ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from hosts import host_says
from rlm_memory_host.attach.guest import GuestSession, open_guest
from rlm_memory_host.errors import HostError, ToolError

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

StartHost = Callable[..., subprocess.Popen[bytes]]


async def record(guest: GuestSession, name: str) -> str:
    """Record a small file as that guest; its experiment id."""
    assert guest.session_dir is not None
    path = guest.session_dir / "exports" / f"{name}.txt"
    path.write_text(name)
    arguments = {
        "source_path": str(path), "title": name, "summary": f"text {name}", "query_fingerprint": "0" * 63 + "1",
        "source": "test", "source_version": "1", "media_type": "text/plain",
    }  # fmt: skip
    return str((await guest.call("memory_artifact_record", arguments)).value["experiment_id"])


async def test_a_guest_records_searches_and_resolves(state_root: Path, tmp_path: Path, start_host: StartHost) -> None:
    """It has a session folder to record from, and what it records is found by another guest of the same project."""
    start_host()
    async with open_guest(state_root, tmp_path, "one") as one, open_guest(state_root, tmp_path, "two") as two:
        assert one.session != two.session
        assert one.session_dir is not None
        identity = await record(one, "kept")
        found = await two.call("memory_search", {"query": "kept"})
        assert [item["experiment_id"] for item in found.value["results"]] == [identity]
        assert found.value["results"][0]["session_id"] == one.session
        assert "kept" in found.text
        resolved = await two.call("memory_artifact_resolve", {"experiment_id": identity})
        assert Path(resolved.value["path"]).read_text() == "kept"
        names = [tool["name"] for tool in await two.list()]
        assert {"memory_search", "memory_artifact_record", "memory_status"} <= set(names)


async def test_projects_of_guests_are_told_by_their_folders(
    state_root: Path, tmp_path: Path, start_host: StartHost
) -> None:
    """Guests in two folders never see each other's results."""
    start_host()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with open_guest(state_root, tmp_path / "a", "a") as a, open_guest(state_root, tmp_path / "b", "b") as b:
        identity = await record(a, "mine")
        assert (await b.call("memory_search", {"query": "mine"})).value["results"] == []
        with pytest.raises(HostError) as refused:
            await b.call("memory_artifact_resolve", {"experiment_id": identity})
        assert refused.value.code == "CARD_NOT_FOUND"


async def test_the_session_ends_with_the_line(state_root: Path, tmp_path: Path, start_host: StartHost) -> None:
    """The status names a guest while it is there; afterwards it is gone, and so is its folder, the user's files not."""
    start_host()
    async with open_guest(state_root, tmp_path, "seen") as guest, open_guest(state_root, tmp_path, "kept") as keeper:
        status = host_says(state_root, {"type": "status"})
        assert status is not None
        assert {item["label"]: item["pid"] for item in status["guests"]} == {"seen": os.getpid(), "kept": os.getpid()}
        folder, kept = guest.session_dir, keeper.session_dir
        assert folder is not None
        assert kept is not None
        (folder / "exports" / ("0" * 16 + ".parquet")).write_text("about to be recorded")
        (kept / "exports" / "mine.csv").write_text("a,b")
    await until(lambda: (host_says(state_root, {"type": "status"}) or {})["guests"] == [])
    assert not folder.exists()
    assert (kept / "exports" / "mine.csv").exists()


async def test_errors_carry_their_codes(state_root: Path, tmp_path: Path, start_host: StartHost) -> None:
    """Unknown tools, wrong arguments and oversized ones are told apart, and the session goes on."""
    start_host()
    async with open_guest(state_root, tmp_path, "errors") as guest:
        for call, arguments, code in (
            ("no_such_tool", {}, "UNKNOWN_TOOL"),
            ("memory_search", {"limit": "ten"}, "INVALID_ARGS"),
            ("memory_artifact_resolve", {"experiment_id": "exp_" + "a" * 52}, "CARD_NOT_FOUND"),
        ):
            with pytest.raises(ToolError) as refused:
                await guest.call(call, arguments)
            assert refused.value.code == code
            assert str(refused.value)
        with pytest.raises(HostError, match="the limit is") as large:
            await guest.call("memory_search", {"query": "x" * (1 << 20)})
        assert large.value.code == "PAYLOAD_TOO_LARGE"
        assert (await guest.call("memory_status")).value


async def test_a_hundred_calls_at_once(state_root: Path, tmp_path: Path, start_host: StartHost) -> None:
    """Each gets its own answer."""
    start_host()
    async with open_guest(state_root, tmp_path, "many") as guest:
        identities = [await record(guest, f"item{number}") for number in range(5)]
        answers = await asyncio.gather(
            *(guest.call("memory_artifact_resolve", {"experiment_id": identities[n % 5]}) for n in range(100))
        )
        assert [answer.value["experiment_id"] for answer in answers] == [identities[n % 5] for n in range(100)]


async def test_a_guest_starts_a_host_and_outlives_it(state_root: Path, tmp_path: Path) -> None:
    """No host runs: one is started. It is killed: the next call has another one, a new session, and the old results."""
    async with open_guest(state_root, tmp_path, "phoenix") as guest:
        first, identity = guest.session, await record(guest, "survivor")
        folder = guest.session_dir
        assert folder is not None
        (folder / "exports" / "survivor.txt").unlink()
        status = host_says(state_root, {"type": "status"})
        assert status is not None
        killed = psutil.Process(status["pid"])
        killed.kill()
        with contextlib.suppress(psutil.NoSuchProcess):
            killed.wait(10)
        resolved = await again(lambda: guest.call("memory_artifact_resolve", {"experiment_id": identity}))
        assert resolved.value["experiment_id"] == identity
        assert guest.session != first
        assert not folder.exists()


async def test_a_silent_host_is_noticed(state_root: Path, tmp_path: Path, start_host: StartHost) -> None:
    """A stopped host process: a waiting call tells its progress, then ends with HOST_LOST; the next works again."""
    host = start_host()
    async with open_guest(state_root, tmp_path, "patient") as guest:
        waited: list[float] = []
        host.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(HostError) as lost:
                await guest.call("memory_status", on_progress=waited.append)
        finally:
            host.send_signal(signal.SIGCONT)
        assert lost.value.code == "HOST_LOST"
        assert waited == sorted(waited)
        assert len(waited) >= 2
        assert (await guest.call("memory_status")).value


async def again(call: Callable[[], Any]) -> Any:
    """The call's result; a first try that the host's death ended is repeated."""
    try:
        return await call()
    except HostError as error:
        if error.code != "HOST_LOST":
            raise
        return await call()


async def until(condition: Callable[[], bool]) -> None:
    """Poll for an outcome within half a minute."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)
