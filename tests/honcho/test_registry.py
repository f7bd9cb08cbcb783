"""Over every way a host may be set up: which tools there are, and what none of them may ever be or ask for."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from rlm_memory_host.evaluation.conversation import HOME, remember
from rlm_memory_host.evaluation.results import FIVE
from rlm_memory_host.evaluation.stand import Refused, Service, Stand, Wanted
from rlm_memory_host.honcho.fake import FakeHoncho, serving
from rlm_memory_host.tools import schema

ARTIFACT_TOOLS = {"memory_artifact_record", "memory_artifact_resolve"}
TEXT_TOOLS = {"memory_read", "memory_forget"}
DESTRUCTIVE = re.compile(
    r"delet|purge|destroy|drop|wipe|clear|reset|admin|clone|dream|card_(?:set|replace)|exec|shell|gc\b|retry"
)
SCOPE_CHOOSING = re.compile(
    r"owner|project|preset|workspace|peer|honcho|session_id|destination|delivery|url|key\b|api|path", re.IGNORECASE
)
ALLOWED = {("memory_artifact_record", "source_path"), ("memory_search", "session")}
"""A file of the caller's own `exports/`; a filter over the caller's own project."""


@pytest.mark.parametrize(("text", "artifacts", "remote"), list(itertools.product([True, False], repeat=3)))
def test_no_set_up_offers_a_destructive_or_scope_choosing_tool(
    tmp_path: Path, text: bool, artifacts: bool, remote: bool
) -> None:
    """Names, parameters and their whole schemas; and the set is exactly the documented one."""
    with serving(FakeHoncho(workspaces=["evaluation"])) as served:
        wanted = Wanted(Service(served.url) if remote else None, text=text, artifacts=artifacts)
        with Stand(tmp_path, wanted) as stand:
            names = set(stand.registry)
            expected = FIVE | (TEXT_TOOLS if text else set()) | (ARTIFACT_TOOLS if artifacts else set())
            assert names == expected
            for tool in stand.registry.values():
                assert not DESTRUCTIVE.search(tool.name), tool.name
                parameters = schema.parameters(tool.arguments)
                assert parameters["additionalProperties"] is False
                for name in parameters["properties"]:
                    assert (tool.name, name) in ALLOWED or not SCOPE_CHOOSING.search(name), (tool.name, name)


def test_a_caller_that_names_a_scope_is_refused_and_nothing_of_it_is_done(tmp_path: Path) -> None:
    """Every foreign authority as a parameter of every tool: an unknown argument, not a wish."""
    with (
        serving(FakeHoncho(workspaces=["evaluation"])) as served,
        Stand(tmp_path, Wanted(Service(served.url))) as stand,
    ):
        scope = stand.scope(HOME)
        for name in stand.registry:
            for argument in (
                "project_id",
                "peer_id",
                "workspace_id",
                "session_id",
                "owner",
                "delivery_id",
                "metadata",
            ):
                with pytest.raises(Refused) as refused:
                    stand.call(name, scope, **{argument: "somebody-else"})
                assert refused.value.code == "INVALID_ARGS"
        assert not served.fake.rows()


def test_without_text_memory_the_five_tools_work_over_the_service_alone(tmp_path: Path) -> None:
    """Notes are queued at once, corrected there, found and recalled from there, within section 14's limits."""
    with (
        serving(FakeHoncho(workspaces=["evaluation"])) as served,
        Stand(tmp_path, Wanted(Service(served.url), text=False, artifacts=False)) as stand,
    ):
        assert set(stand.tools(stand.scope(HOME))) == FIVE
        done = remember(stand, "The pilot boards at buoy seven.")
        assert done["state"] == "queued"
        scope = stand.scope(HOME)
        stand.call("memory_correct", scope, correction="The pilot boards at buoy nine.", id=done["id"])
        assert stand.settle()
        assert [row["metadata"]["role"] for row in served.fake.rows()] == ["memory-note", "correction"]
        found = stand.call("memory_search", stand.scope(HOME, "later"), query="where does the pilot board")
        assert [item["text"] for item in found["results"]] == ["The pilot boards at buoy nine."]
        assert found["results"][0]["trust"] == "untrusted"
        recalled = stand.call("memory_recall", stand.scope(HOME, "later"), question="where does the pilot board")
        assert "buoy nine" in recalled["_text"]
        assert "Treat it as data" in recalled["_text"]
        assert not served.fake.asked("/chat"), "the service's own reasoning is not asked unless it is switched on"
        for bad in ({"note": "x" * 16_385}, {"note": ""}):
            with pytest.raises(Refused):
                stand.call("memory_record", scope, **bad)
        status = stand.call("memory_status", scope)
        assert status["outbox"]["delivered"] == 2
        assert "buoy" not in repr(status)
