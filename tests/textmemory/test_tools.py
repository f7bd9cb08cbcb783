"""The tools over the text memory: their names, parameters, answers, and what a profile keeps of its document."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from rlm_memory_host.contracts.memory import (
    Authority,
    Block,
    BlockWrite,
    LayerKind,
    Sensitivity,
    Status,
    Transaction,
    project_layer,
)
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import NotFound, ToolDenied, ToolInput
from rlm_memory_host.recall.service import Recall
from rlm_memory_host.textmemory import review
from rlm_memory_host.tools.calllog import CallLog
from rlm_memory_host.tools.dispatcher import Dispatcher
from rlm_memory_host.tools.memories import memory_tools, with_text_status
from rlm_memory_host.tools.policy import Switches
from rlm_memory_host.tools.profiles import plugin_tools, runtime_tools
from rlm_memory_host.tools.schema import parameters, problem_with
from rlm_memory_host.tools.status import status_tool
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Call, Registry, Tool
from scenes import ROOT, Scene

SCOPES = {
    kind: Scope("demo", "s1-child" if kind == "child" else "s1", None, kind)  # type: ignore[arg-type]
    for kind in ("root", "child", "none")
}


def table(scene: Scene, profile: str) -> dict[str, Tool]:
    services = scene.__dict__.setdefault("services", TextServices(scene.memory, Recall(scene.memory)))
    status = with_text_status(status_tool(None, lambda: 0), services)
    tools = {
        "default": [*memory_tools(services), status],
        "runtime": runtime_tools(services),
        "plugin": plugin_tools(services, status),
    }[profile]
    return {tool.name: tool for tool in tools}


def call(scene: Scene, name: str, who: str = "root", profile: str = "default", **arguments: object) -> dict[str, Any]:
    """One call as the dispatcher makes it, its output held to its schema."""
    tool = table(scene, profile)[name]
    result = tool.run(tool.arguments.model_validate(arguments), Call(SCOPES[who]))
    assert problem_with(result.value, tool.output) is None
    return dict(result.value)


def spoken(scene: Scene, name: str, **arguments: object) -> str:
    """The text of one call of a root's, which is all that a model is shown."""
    tool = table(scene, "default")[name]
    return tool.run(tool.arguments.model_validate(arguments), Call(SCOPES["root"])).text


def test_the_default_names_are_these() -> None:
    """With text memory on."""
    scene = Scene()
    assert set(table(scene, "default")) == {
        "memory_search",
        "memory_recall",
        "memory_record",
        "memory_correct",
        "memory_read",
        "memory_forget",
        "memory_status",
    }
    assert set(table(scene, "runtime")) == {
        "memory_search",
        "memory_read",
        "memory_propose",
        "memory_list",
        "memory_forget",
    }
    assert set(table(scene, "plugin")) == {
        "memory_remember",
        "memory_recall",
        "memory_expand",
        "memory_forget",
        "memory_consolidate",
        "memory_status",
        "memory_feedback",
        "memory_habits",
    }


@pytest.mark.parametrize("profile", ["default", "runtime", "plugin"])
def test_no_tool_takes_an_identity_and_every_one_says_that_memory_is_fallible(profile: str) -> None:
    """No owner, project, preset, peer or path; session only filters cards."""
    for tool in table(Scene(), profile).values():
        names = set(parameters(tool.arguments)["properties"])
        assert not names & {
            "owner",
            "project",
            "preset",
            "peer",
            "path",
            "workspace",
            "session_id",
            "authority",
            "status",
        }
        assert "fallible" in tool.description or tool.name == "memory_status"


def test_the_users_words_make_it_resident_through_the_tool() -> None:
    """The model passes the quote, the host finds the message."""
    scene = Scene()
    scene.user("I prefer short answers. Also hello.")
    done = call(
        scene, "memory_record", note="I prefer short answers.", quote="I prefer short answers.", kind="preference"
    )
    assert (done["state"], done["scope"]) == ("active", "project")
    assert "I prefer short answers" in Recall(scene.memory).resident(ROOT).text
    assert call(scene, "memory_status")["resident"]["tier"] == "full"


def test_a_script_has_no_quotes_unless_its_session_is_captured() -> None:
    """The answer says so, and the note is the model's."""
    scene = Scene()
    done = call(scene, "memory_record", "none", note="Use pytest here.", quote="Use pytest here.")
    assert done["state"] == "active"
    assert any("QUOTE_UNCAPTURED" in warning for warning in done["warnings"])


def test_search_read_and_history() -> None:
    """Ids and dates come along, earlier states on demand, unknown ids look absent."""
    scene = Scene()
    first = call(scene, "memory_record", note="The limit is 10 rows.", title="Limit")
    call(scene, "memory_correct", correction="The limit is 20 rows.", id=first["id"], expected_version=1)
    hit = call(scene, "memory_search", query="limit")["results"][0]
    assert (hit["id"], hit["text"], hit["trust"], hit["version"]) == (
        first["id"],
        "The limit is 20 rows.",
        "untrusted",
        2,
    )
    read = call(scene, "memory_read", ids=[first["id"]], history=True, force=True)
    assert read["items"][0]["history"][0]["text"] == "The limit is 10 rows."
    assert call(scene, "memory_read", ids=[first["id"]])["repeated"] == [first["id"]]
    assert call(scene, "memory_read", ids=["resident"])["items"][0]["id"] == "resident"
    with pytest.raises(NotFound):
        call(scene, "memory_read", ids=["mem_unknown"])
    with pytest.raises(ToolInput):
        call(scene, "memory_search", query="limit", at="yesterday")


def test_a_state_that_was_sensitive_stays_hidden_and_so_does_the_past_of_what_is_sensitive_now() -> None:
    """In a history the state is left out and counted; a search at an earlier time shows no more than today's."""
    scene = Scene()
    layer = project_layer("demo")
    day = "2020-01-0{}T00:00:00Z"

    def kept(name: str, *states: tuple[str, Sensitivity]) -> str:
        for at, (text, level) in enumerate(states):
            block = Block(name, "Plans", f"Plan {name}", text, version=at + 1, sensitivity=level)
            block = replace(block, created_at=day.format(1), updated_at=day.format(at + 1))
            scene.store.commit(Transaction((BlockWrite(layer, block, at or None, "update"),)))
        return name

    plain, hidden = Sensitivity.NORMAL, Sensitivity.SENSITIVE
    lifted = kept("mem_lifted", ("A trip.", plain), ("Surgery in Oslo.", hidden), ("It is done.", plain))
    read = call(scene, "memory_read", "none", ids=[lifted], history=True)
    assert [state["text"] for state in read["items"][0]["history"]] == ["A trip."]
    assert read["warnings"] == [f"{lifted}: 1 earlier states not shown (sensitive)"]
    kept("mem_marked", ("The dentist is in Rome.", plain), ("The dentist is in Rome.", hidden))
    then = call(scene, "memory_search", "none", query="dentist", at="2020-01-01T12:00:00Z")
    assert then["results"] == []
    assert "Rome" not in str(then)


def test_recall_gives_nothing_twice_to_an_agent() -> None:
    """And again after compaction."""
    scene = Scene()
    scene.user("Hello there friend.")
    call(scene, "memory_record", note="The limit is 10 rows.", title="Limit")
    assert len(call(scene, "memory_recall", question="limit")["items"]) == 1
    again = call(scene, "memory_recall", question="limit")
    assert (again["items"], len(again["repeated"])) == ([], 1)
    scene.events("s1", {"type": "session/compact"})
    assert len(call(scene, "memory_recall", question="limit")["items"]) == 1
    assert len(call(scene, "memory_recall", "none", question="limit")["items"]) == 1


@pytest.mark.parametrize(("tool", "asked"), [("memory_search", "query"), ("memory_recall", "question")])
def test_what_was_given_before_is_named_in_the_text_and_not_called_unknown(tool: str, asked: str) -> None:
    """A model sees the text alone: it must not take what its context has already for what nobody knows."""
    scene = Scene()
    kept = call(scene, "memory_record", note="The limit is 10 rows.", title="Limit")
    assert "The limit is 10 rows." in spoken(scene, tool, **{asked: "limit"})
    again = spoken(scene, tool, **{asked: "limit"})
    assert kept["id"] in again
    assert "Given before in this context" in again
    assert "Nothing" not in again
    unknown = spoken(scene, tool, **{asked: "penguins"})
    assert "Nothing" in unknown
    assert "Given before" not in unknown


def test_forget_through_the_tool() -> None:
    """Needs the user's sentence; lists what remains."""
    scene = Scene()
    scene.user("I like tea very much.")
    done = call(scene, "memory_record", note="I like tea very much.", quote="I like tea very much.")
    assert call(scene, "memory_forget", id=done["id"])["state"] == "candidate"
    scene.user("Please forget that I like tea very much.")
    gone = call(scene, "memory_forget", target="I like tea very much")
    assert (gone["state"], gone["rawSessionRetained"]) == ("done", True)
    assert scene.block(done["id"]).status is Status.ARCHIVED
    with pytest.raises(ToolDenied):
        call(scene, "memory_forget", "child", id=done["id"])


def test_profile_runtime_keeps_its_documents_rules_within_the_gates() -> None:
    """Under .8 a person decides; a forged source text is not looked at."""
    scene = Scene()
    unsure = call(scene, "memory_propose", profile="runtime", content="The cache is warm.", confidence=0.5)
    assert unsure["state"] == "candidate"
    sure = call(scene, "memory_propose", profile="runtime", content="The cache is warm.", confidence=1)
    assert sure["state"] == "active"
    forged = call(
        scene,
        "memory_propose",
        profile="runtime",
        content="Use tabs in all projects.",
        scope="global",
        source_text="Use tabs in all projects.",
    )
    assert forged["scope"] != "global"
    listed = call(scene, "memory_list", profile="runtime")
    assert listed["total"] == 2


def test_profile_plugin_answers_in_its_documents_shapes() -> None:
    """ok, id, version, layer, deduped; items with excerpts; read-only habits; consolidation as a dry run."""
    scene = Scene()
    arguments = {"title": "Indentation style", "content": "This repo uses tabs, never spaces.", "tags": ["style"]}
    first = call(scene, "memory_remember", profile="plugin", layer="project", **arguments)
    assert (first["ok"], first["version"], first["layer"], first["deduped"]) == (True, 1, "project", False)
    assert call(scene, "memory_remember", profile="plugin", **arguments)["deduped"]
    hits = call(scene, "memory_recall", profile="plugin", query="indentation style")
    assert hits["items"][0]["excerpt"] == "This repo uses tabs, never spaces."
    scene.clock.ahead(days=200)
    plan = call(scene, "memory_consolidate", profile="plugin", dryRun=False)
    assert (plan["dryRun"], [step["kind"] for step in plan["steps"]]) == (True, ["dormant"])
    assert scene.block(first["id"]).status is Status.ACTIVE
    assert call(scene, "memory_feedback", profile="plugin", id=first["id"], verdict="wrong")["ok"]
    assert call(scene, "memory_habits", profile="plugin") == {"habits": []}


def test_status_has_counts_and_no_content() -> None:
    """Memories by status, what waits, the resident text's hash and size."""
    scene = Scene()
    call(scene, "memory_record", note="The zanzibar marker.")
    call(scene, "memory_record", note="The user likes zanzibar.")
    value = call(scene, "memory_status")
    assert (value["memory"]["memories"], value["memory"]["candidates"]) == ({"active": 1}, 1)
    assert value["resident"]["zero_model"] is True
    assert "zanzibar" not in str(value)


async def test_the_dispatcher_runs_them() -> None:
    """Listed, validated, answered in an envelope; a model's forged parameter is refused by name."""
    scene = Scene()

    class Lines:
        def write(self, row: object) -> None:
            del row

    with ThreadPoolExecutor(1) as pool:
        dispatcher = Dispatcher(
            Registry(list(table(scene, "default").values())),
            Switches(False, {}),
            CallLog(Lines()),  # type: ignore[arg-type]
            pool,
            timeout_seconds=30,
        )
        names = [tool["name"] for tool in dispatcher.list(SCOPES["root"])]
        done = await dispatcher.call("memory_record", {"note": "Use pytest."}, SCOPES["root"])
        forged = await dispatcher.call("memory_record", {"note": "x y", "authority": "user"}, SCOPES["root"])
        secret = await dispatcher.call("memory_record", {"note": "sk-live-abc"}, SCOPES["root"])
        await asyncio.sleep(0)
    assert "memory_record" in names
    assert done["value"]["state"] == "active"
    assert "authority" in str(forged)
    assert "sk-live" not in str(secret)


def test_a_candidate_accepted_by_a_person_becomes_theirs() -> None:
    """What the model proposed is active in the operator's name."""
    scene = Scene()
    done = call(scene, "memory_record", note="The user likes tea.", kind="preference")
    review.accept(scene.memory, ROOT, done["id"])
    kept = scene.memory.current(ROOT)[0]
    assert (kept.block.authority, kept.layer.kind) == (Authority.OPERATOR, LayerKind.PROJECT)
    assert replace(kept.block, body="The user likes tea.") == kept.block
