"""One suite for every way to a host's tools: both channels of a kernel, both transports of MCP, the loopback API."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from every_way import WAYS, Way, way

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

ABOUT = {
    "title": "Anzahl je Kohorte 每组的数量 🧪", "summary": "one column", "source": "lab | sink", "source_version": "1",
    "query_fingerprint": "0" * 64, "media_type": "text/csv", "tags": ["ways"],
}  # fmt: skip


@pytest.fixture
def serves_all(start_host: Callable[..., Any], tmp_path: Path) -> None:
    """A host with the loopback API, which the others do without."""
    config = tmp_path / "operator.toml"
    config.write_text("[loopback]\nenabled = true\n")
    config.chmod(0o600)
    start_host("--config", str(config))


@pytest.fixture(params=WAYS)
def caller(
    request: pytest.FixtureRequest, serves_all: None, tmp_path: Path, state_root: Path
) -> AbstractAsyncContextManager[Way]:
    """A caller of each kind. Entered by the test, since some clients want to end in the task that began them."""
    folder = tmp_path / "work"
    folder.mkdir()
    return way(request.param, folder, state_root)


DATA = b"cohort,n\n1,7\n"


async def recorded(caller: Way, name: str) -> Any:
    path = caller.exports / name
    path.write_bytes(DATA)
    return (await caller.ask("memory_artifact_record", {**ABOUT, "source_path": str(path)})).value


async def test_a_recorded_result_is_found_and_its_bytes_come_back(caller: AbstractAsyncContextManager[Way]) -> None:
    """Record, search, resolve: the same fields and exact bytes, whatever the way; the second time is known."""
    async with caller as one:
        kept, again = await recorded(one, "counts.csv"), await recorded(one, "other.csv")
        page = (await one.ask("memory_search", {"query": "每组的数量"})).value
        wanted = {"experiment_id": kept["experiment_id"], "current_source_version": "2"}
        resolved = (await one.ask("memory_artifact_resolve", wanted)).value
        assert Path(resolved["path"]).read_bytes() == DATA
    assert kept["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert (kept["bytes"], kept["local_saved"], kept["deduplicated"]) == (len(DATA), True, False)
    assert (again["artifact_id"], again["deduplicated"]) == (kept["artifact_id"], True)
    assert kept["experiment_id"] in [hit["experiment_id"] for hit in page["results"]]
    assert {hit["title"] for hit in page["results"]} == {ABOUT["title"]}
    assert (resolved["freshness"], resolved["source"]) == ("stale", ABOUT["source"])


async def test_a_text_is_kept_and_answers_a_question(caller: AbstractAsyncContextManager[Way]) -> None:
    """A note goes and comes the same way, letter for letter."""
    note = "Cohorts start on Mondays. 队列从星期一开始。 🧪"
    async with caller as one:
        kept = await one.ask("memory_record", {"kind": "decision", "title": "Start of a cohort", "note": note})
        assert kept.code is None, kept
        recalled = await one.ask("memory_recall", {"question": "On which day do cohorts start?"})
    assert note in str(recalled.value)


REFUSED = {
    "an unknown reference": ("memory_artifact_resolve", {"experiment_id": "exp_" + "a" * 52}, "CARD_NOT_FOUND"),
    "a reference that is none": ("memory_artifact_resolve", {"experiment_id": "../../etc"}, "CARD_NOT_FOUND"),
    "an argument too many": ("memory_status", {"project": "another"}, "INVALID_ARGS"),
    "a number out of bounds": ("memory_search", {"query": "x", "limit": 1000}, "INVALID_ARGS"),
    "a missing argument": ("memory_record", {"kind": "decision"}, "INVALID_ARGS"),
    "a file of somebody else's": (
        "memory_artifact_record", {**ABOUT, "source_path": "/etc/passwd"}, "INVALID_PATH",
    ),
}  # fmt: skip


async def test_a_refusal_has_the_same_code_whatever_the_way(caller: AbstractAsyncContextManager[Way]) -> None:
    """Each wrong call is refused by the same name, and nothing came of any."""
    async with caller as one:
        found = {what: await one.ask(name, arguments) for what, (name, arguments, _) in REFUSED.items()}
        page = (await one.ask("memory_search", {"query": ""})).value
    assert {what: said.code for what, said in found.items()} == {what: code for what, (_, _, code) in REFUSED.items()}
    assert not [what for what, said in found.items() if "root:" in said.text]
    assert page["total"] == 0


async def test_every_way_shows_the_same_tools(serves_all: None, tmp_path: Path, state_root: Path) -> None:
    """Names, arguments and which of them are needed."""
    async with AsyncExitStack() as stack:
        shown: dict[str, Any] = {}
        for name in WAYS:
            folder = tmp_path / name.replace(" ", "-")
            folder.mkdir()
            shown[name] = (await stack.enter_async_context(way(name, folder, state_root))).tools
    assert len(shown["kernel"]) >= 9
    assert all(tools == shown["kernel"] for tools in shown.values()), shown
