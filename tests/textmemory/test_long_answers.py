"""Answers that would be larger than 64,000 bytes: pages, cursors, and a notebook that has all of it anyway."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from rlm_memory import textmemory, wire
from rlm_memory.finding import Host
from rlm_memory.steps import Ask, Meet, Steps
from rlm_memory_host.contracts.memory import MAX_OUTPUT_BYTES, Block, BlockWrite, Transaction, project_layer
from rlm_memory_host.contracts.records import SearchHit, SearchPage, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import ToolInput
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.recall.service import Query, Recall
from rlm_memory_host.tools import paging
from rlm_memory_host.tools.artifacts import ArtifactPort
from rlm_memory_host.tools.hybrid import CardSources
from rlm_memory_host.tools.memories import memory_tools
from rlm_memory_host.tools.schema import problem_with
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Call
from scenes import PLAIN, Scene
from test_tools import SCOPES, call

LAYER = project_layer("demo")
SHAPES = {
    "English": "The pump was checked and ran at {n} rpm. ",
    "Chinese": "第{n}台水泵经过检查，运行正常，转速稳定。",
    "quotes": '"{n}"\\\\',
}


def kept(scene: Scene, name: str, *texts: str) -> str:
    """One memory that went through these texts."""
    block: Block | None = None
    for at, text in enumerate(texts):
        new = Block(name, f"Topic {name}", f"Pump {name}", text, version=at + 1)
        new = replace(block, body=text, version=at + 1) if block else new
        scene.store.commit(Transaction((BlockWrite(LAYER, new, block.version if block else None, "update"),)))
        block = new
    return name


def long_text(shape: str, number: int, size: int) -> str:
    """A text of at most `size` bytes, unlike that of any other number."""
    piece = SHAPES[shape].format(n=number)
    return (piece * (size // len(piece.encode()) + 1)).encode()[:size].decode("utf-8", "ignore").strip()


def pages(scene: Scene, name: str, who: str = "none", **arguments: Any) -> list[dict[str, Any]]:
    """All pages of an answer, each held to its bound."""
    found = [call(scene, name, who, **arguments)]
    while found[-1]["more"]:
        assert found[-1]["cursor"], "what is left out can be had"
        found.append(call(scene, name, who, **arguments, cursor=found[-1]["cursor"]))
    assert found[-1]["cursor"] is None
    for page in found:
        assert len(json.dumps(page, ensure_ascii=False).encode()) <= MAX_OUTPUT_BYTES
    return found


def in_a_notebook(scene: Scene, steps: Steps[Any]) -> Any:
    """What a notebook's call gives, against this memory's tools."""
    sent: object = None
    while True:
        try:
            step = steps.send(sent)
        except StopIteration as done:
            return done.value
        if isinstance(step, Meet):
            sent = Host(True)
            continue
        assert isinstance(step, Ask)
        value = call(scene, step.payload["name"], "none", **step.payload["arguments"])
        assert wire.encoded_size(value) <= MAX_OUTPUT_BYTES
        sent = wire.success(value, "text")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_history_comes_in_pages_that_are_the_whole(shape: str) -> None:
    """Many long versions of two memories: nothing is lost, nothing comes twice, and each page says what it is of."""
    scene = Scene()
    texts = [long_text(shape, number, 30_000) for number in range(9)]
    ids = [kept(scene, "mem_a", *texts), kept(scene, "mem_b", "A short one.")]
    found = pages(scene, "memory_read", ids=ids, history=True)
    assert len(found) > 3
    items = [item for page in found for item in page["items"]]
    assert "".join(item["text"] for item in items if item["id"] == "mem_a") == texts[-1]
    states: dict[int, str] = {}
    for item in items:
        for state in item.get("history", ()):
            states[state["number"]] = states.get(state["number"], "") + state["text"]
    assert list(states.values()) == texts[:-1]
    assert {item["history_total"] for item in items if "history_total" in item} == {8}
    assert items[-1]["id"] == "mem_b"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_notebook_reads_and_finds_all_of_it(shape: str) -> None:
    """One call, as if there were no bound; each message has it."""
    scene = Scene()
    texts = [long_text(shape, number, 32_000) for number in range(6)]
    kept(scene, "mem_a", *texts)
    (item,) = in_a_notebook(scene, textmemory.read("mem_a", history=True))
    assert item.text == texts[-1]
    assert [state["text"] for state in item.value["history"]] == texts[:-1]
    for at in range(5):
        kept(scene, f"mem_{at}", long_text(shape, at, 32_000))
    found = in_a_notebook(scene, textmemory.search("pump", limit=4))
    assert len(found) == 4
    assert all(len(item.text) > 9_000 for item in found)
    assert not found.warnings


@pytest.mark.parametrize("is_always", [False, True])
def test_a_notebook_never_glues_two_versions_together(is_always: bool) -> None:
    """What changes between two pages is read again; what never rests comes in parts, each of one version."""
    scene = Scene()
    texts = [long_text("English", number, 30_000) for number in range(6)]
    kept(scene, "mem_a", *texts)

    def changes() -> None:
        texts.append(long_text("Chinese", len(texts), 30_000))
        (old,) = scene.store.snapshot(LAYER).blocks
        new = replace(old, body=texts[-1], version=len(texts))
        scene.store.commit(Transaction((BlockWrite(LAYER, new, old.version, "update"),)))

    steps, sent, asked = textmemory.read("mem_a", history=True), cast("object", None), 0
    while True:
        try:
            step: Any = steps.send(sent)
        except StopIteration as done:
            found = done.value
            break
        if isinstance(step, Meet):
            sent = Host(True)
            continue
        if step.payload["arguments"].get("cursor"):
            asked += 1
            if is_always or asked == 2:
                changes()
        sent = wire.success(call(scene, "memory_read", "none", **step.payload["arguments"]), "text")
    assert all(item.text in ("", texts[item.version - 1]) for item in found)
    if not is_always:
        assert [(item.version, len(item.value["history"])) for item in found] == [(7, 6)]
        assert [state["text"] for state in found[0].value["history"]] == texts[:-1]
    assert bool(found.warnings) is is_always


def test_a_search_goes_on_in_its_order() -> None:
    """All hits that `limit` asks for, in the order that one answer would have had."""
    scene = Scene()
    for at in range(12):
        kept(scene, f"mem_{at:02}", "pump " * (at + 1) + long_text("Chinese", at, 20_000))
    found = pages(scene, "memory_search", query="pump", limit=10)
    ids = [item["id"] for page in found for item in page["results"]]
    assert len(found) > 2
    assert ids == [item.id for item in Recall(scene.memory).search(PLAIN, Query("pump", limit=10)).items]
    newest = pages(scene, "memory_search", limit=10)
    assert len({item["id"] for page in newest for item in page["results"]}) == 10


class LongCards:
    """An artifact store whose searches find 20 cards with long summaries. It does nothing else."""

    def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        hits = [
            SearchHit(
                experiment_id=f"exp_{at:02}", artifact_id="", title=f"Pump run {at}", summary="水泵" * 1_000,
                source="lab", source_version="1", query_fingerprint="", shape=None, columns=None, tags=(),
                media_type="", bytes=1, created_at="", updated_at="2026-01-01", session_id="s", index_state="pending",
                local_available=True, matched=("title",), score=20.0 - at,
            )
            for at in range(20)
        ]  # fmt: skip
        assert request.cursor is None, "an answer with memories asks for the first cards alone"
        return SearchPage(tuple(hits[: request.limit]), 20)


@pytest.mark.parametrize("who", ["root", "none"])
def test_memories_and_results_come_in_pages_together(who: str) -> None:
    """All cards and memories once; an agent has its memories on the first page, and they are not spent twice."""
    scene = Scene()
    kept(scene, "mem_a", "The pump is blue.")
    kept(scene, "mem_b", "The pump is loud.")
    cards = CardSources(cast("ArtifactPort", LongCards()), None, Metrics())
    scene.__dict__["services"] = TextServices(scene.memory, Recall(scene.memory), cards=cards)
    found = pages(scene, "memory_search", who, query="pump", limit=50)
    names = [item.get("id") or item["experiment_id"] for page in found for item in page["results"]]
    assert len(found) > 1
    assert sorted(names) == [f"exp_{at:02}" for at in range(20)] + ["mem_a", "mem_b"]
    assert [name for name in names if name.startswith("exp")] == [f"exp_{at:02}" for at in range(20)]
    first = {item.get("id") for item in found[0]["results"]}
    assert who == "none" or {"mem_a", "mem_b"} <= first
    assert not [warning for page in found for warning in page["warnings"]]


def test_what_a_page_left_out_does_not_count_as_given() -> None:
    """An agent that lost the cursor asks again for the rest; what it has is not given twice."""
    scene = Scene()
    for name in ("mem_a", "mem_b", "mem_c"):
        kept(scene, name, long_text("English", 1, 31_000))
    ids = ["mem_a", "mem_b", "mem_c"]
    first = call(scene, "memory_read", ids=ids)
    assert ([item["id"] for item in first["items"]], first["more"]) == (["mem_a", "mem_b"], True)
    again = call(scene, "memory_read", ids=ids)
    assert ([item["id"] for item in again["items"]], again["repeated"]) == (["mem_c"], ["mem_a", "mem_b"])
    scene.events("s1", {"type": "session/compact"})
    assert [item["id"] for page in pages(scene, "memory_read", "root", ids=ids) for item in page["items"]] == ids


def test_the_text_says_that_there_is_more_and_how_to_get_it() -> None:
    """For a model that sees no JSON."""
    scene = Scene()
    kept(scene, "mem_a", *(long_text("English", at, 30_000) for at in range(4)))
    services = TextServices(scene.memory, Recall(scene.memory))
    tool = {tool.name: tool for tool in memory_tools(services)}["memory_read"]
    result = tool.run(tool.arguments.model_validate({"ids": ["mem_a"], "history": True}), Call(SCOPES["none"]))
    assert f'cursor="{result.value["cursor"]}"' in result.text
    assert problem_with(result.value, tool.output) is None


def test_a_change_between_two_pages_is_told() -> None:
    """The place is the same, the text may not be."""
    scene = Scene()
    kept(scene, "mem_a", *(long_text("English", at, 30_000) for at in range(4)))
    first = call(scene, "memory_read", ids=["mem_a"], history=True, force=True)
    old = scene.store.snapshot(LAYER).blocks[0]
    scene.store.commit(Transaction((BlockWrite(LAYER, replace(old, body="Short.", version=5), 4, "update"),)))
    second = call(scene, "memory_read", ids=["mem_a"], history=True, force=True, cursor=first["cursor"])
    assert paging.CHANGED in second["warnings"]


@pytest.mark.parametrize("cursor", ["m.", "m.W10", "m.é", "WzEsMl0", "m." + "A" * 900])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    """By name, with what to do."""
    scene = Scene()
    kept(scene, "mem_a", "Short.")
    with pytest.raises(ToolInput, match="cursor: it is not one"):
        call(scene, "memory_read", ids=["mem_a"], cursor=cursor)


def test_a_cursor_is_good_for_its_call_alone() -> None:
    """Other ids or another question are another answer."""
    scene = Scene()
    for name in ("mem_a", "mem_b"):
        kept(scene, name, *(long_text("English", at, 30_000) for at in range(4)))
    cursor = call(scene, "memory_read", ids=["mem_a"], history=True, force=True)["cursor"]
    others: list[dict[str, Any]] = [{"ids": ["mem_b"], "history": True}, {"ids": ["mem_a"], "history": False}]
    for wrong in others:
        with pytest.raises(ToolInput, match="belongs to another call"):
            call(scene, "memory_read", cursor=cursor, **wrong)
    with pytest.raises(ToolInput, match="belongs to another call"):
        call(scene, "memory_search", query="pump", cursor=cursor)


def test_recall_in_a_notebook_names_what_one_answer_cannot_hold() -> None:
    """Recall has no pages; the ids of what is missing lead to it."""
    scene = Scene()
    for at in range(4):
        kept(scene, f"mem_{at}", long_text("Chinese", at, 31_000) + " pump")
    value = call(scene, "memory_recall", "none", question="pump")
    assert wire.encoded_size(value) <= MAX_OUTPUT_BYTES
    given = {item["id"] for item in value["items"]}
    (told,) = [warning for warning in value["warnings"] if "memory_read gives them" in warning]
    assert given | {name.strip() for name in told.partition(": ")[2].split(",")} == {f"mem_{at}" for at in range(4)}
