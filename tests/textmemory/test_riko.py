"""Profile `riko`: its document's six tools over one preset's memory, and nothing that the user did not say."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.assembly.sessions import After, Sessions
from rlm_memory_host.contracts.judging import ScriptedJudge
from rlm_memory_host.contracts.memory import Caller, preset_layer
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import HostError, ToolDenied
from rlm_memory_host.guard import Guard
from rlm_memory_host.recall.service import Recall
from rlm_memory_host.settings import load
from rlm_memory_host.textmemory.guarding import guard_of
from rlm_memory_host.textmemory.opening import open_memory
from rlm_memory_host.textmemory.service import Parts, TextMemory
from rlm_memory_host.tools.riko import riko_tools
from rlm_memory_host.tools.text_services import TextServices
from rlm_memory_host.tools.tool import Call, Tool, ToolResult
from scenes import Scene

CODER = Caller(project="demo", session="s1", preset="coder", agent_kind="root")


class Riko(Scene):
    """A replayed session of a preset."""

    def __init__(self) -> None:
        super().__init__(profile="riko")
        self.recall = Recall(self.memory)
        self.tools: dict[str, Tool] = {tool.name: tool for tool in riko_tools(TextServices(self.memory, self.recall))}

    def ask(self, name: str, preset: str | None = "coder", **arguments: Any) -> ToolResult:
        tool = self.tools[name]
        scope = Scope("demo", "s1", None, "root", preset=preset)
        return tool.run(tool.arguments.model_validate(arguments), Call(scope))

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return dict(self.ask(name, **arguments).value)

    def said(self, text: str) -> str:
        """The user says it, and it is remembered; its id."""
        self.user(text)
        return self.call("memory_remember", content=text)["id"]


@pytest.fixture
def riko() -> Riko:
    return Riko()


def test_what_the_user_said_is_remembered_for_the_preset_alone(riko: Riko) -> None:
    """Active, resident, in the preset's layer; another preset and a caller without one see nothing of it."""
    riko.user("The dock is made of oak.")
    done = riko.call("memory_remember", content="The dock is made of oak.")
    assert (done["state"], done["scopeKey"]) == ("active", preset_layer("coder").name)
    assert "The dock is made of oak" in done["resident"]
    shown = riko.call("memory_get_resident")
    assert (shown["resident"], shown["version"]) == (riko.recall.resident(CODER).text, done["version"])
    assert len(shown["version"]) == 24
    assert riko.call("memory_get_resident", preset="writer")["resident"] == ""
    for name, arguments in (("memory_get_resident", {}), ("memory_remember", {"content": "The dock is made of oak."})):
        with pytest.raises(HostError, match="preset"):
            riko.ask(name, preset=None, **arguments)


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("The dock is made of oak.", "The dock is made of stone."),
        ("I don't like tea.", "like tea"),
        ("Is the dock made of oak?", "Is the dock made of oak?"),
        ("> The dock is made of oak.", "The dock is made of oak."),
    ],
)
def test_what_the_user_did_not_say_is_neither_remembered_nor_proposed(riko: Riko, said: str, content: str) -> None:
    """An inference, a part of a sentence, a question, quoted text."""
    kept = riko.said("The pier is made of steel.")
    riko.user(said)
    for name, arguments in (
        ("memory_remember", {"content": content}),
        ("memory_correct", {"id": kept, "content": content}),
    ):
        with pytest.raises(ToolDenied) as refused:
            riko.ask(name, **arguments)
        assert refused.value.code.startswith("QUOTE_")
    assert [item.block.body for item in riko.memory.current(CODER)] == ["The pier is made of steel."]
    assert riko.memory.status(CODER)["candidates"] == 0


def test_a_correction_keeps_the_memory_and_its_history(riko: Riko) -> None:
    """The user's replacement, under the same id."""
    kept = riko.said("The dock is made of oak.")
    riko.user("The dock is made of stone now.")
    done = riko.call("memory_correct", id=kept, content="The dock is made of stone now.")
    assert (done["id"], done["state"]) == (kept, "active")
    assert riko.block(kept, CODER).body == "The dock is made of stone now."
    assert len(riko.store.history(preset_layer("coder"), kept)) == 1


def test_memories_are_suppressed_restored_and_forgotten_at_the_users_word(riko: Riko) -> None:
    """Without a cue nothing moves; an unclear target is asked back; what remains is said."""
    kept = riko.said("The dock is made of oak.")
    riko.user("How is the weather?")
    assert riko.call("memory_suppress", id=kept)["state"] == "candidate"
    riko.user("Do not mention that the dock is made of oak.")
    assert riko.call("memory_suppress", target="dock oak")["state"] == "done"
    assert riko.call("memory_get_resident")["resident"] == ""
    riko.user("Restore that the dock is made of oak.")
    assert riko.call("memory_restore", id=kept)["state"] == "done"
    assert "oak" in riko.call("memory_get_resident")["resident"]
    riko.said("The dock lamp is green.")
    riko.user("Forget the dock.")
    unclear = riko.ask("memory_forget", target="dock")
    assert (unclear.value["state"], unclear.value["confirmationRequired"]) == ("confirm", True)
    assert {item["id"] for item in unclear.value["candidates"]} >= {kept}
    assert kept in unclear.text
    riko.user("Forget that the dock is made of oak.")
    gone = riko.call("memory_forget", id=kept)
    assert (gone["state"], gone["rawSessionRetained"]) == ("done", True)
    with pytest.raises(HostError):
        riko.ask("memory_forget", id=kept, target="dock")


def test_a_private_claim_stays_out_of_the_resident_text(riko: Riko) -> None:
    """`sensitivity` only makes it stricter."""
    riko.user("The dock code is kept by Bo.")
    riko.call("memory_remember", content="The dock code is kept by Bo.", sensitivity="sensitive")
    assert riko.call("memory_get_resident")["resident"] == ""


def test_recall_is_off_by_default_and_the_settings_turn_it_on(riko: Riko) -> None:
    """The injection holds the resident text alone; then also what is remembered and not resident."""
    riko.said("The dock is made of oak.")
    riko.user("The pier is made of steel.")
    riko.end()
    riko.user("Do you remember what my pier is made of?")
    text = riko.recall.inject(CODER)
    assert "oak" in text
    assert "steel" not in text
    riko.user("Do you remember what my pier is made of?")
    assert "steel" in Recall(riko.memory, injects=True).inject(CODER)
    assert riko.recall.inject(replace(CODER, agent_kind="child")) == ""


def test_the_settings_take_the_profile(tmp_path: Path) -> None:
    """And what they say of recall."""
    config = tmp_path / "rlm-memory.toml"
    config.write_text('[memory]\nprofile = "riko"\nrecall = true\n')
    config.chmod(0o600)
    found = load(config, tmp_path / "state").settings.memory
    assert (found.profile, found.recall) == ("riko", True)


def test_a_session_without_a_preset_degrades_nothing(tmp_path: Path) -> None:
    """It is captured, gets nothing, and what would be learned from it is left out."""
    opened = open_memory(tmp_path)
    sessions = Sessions(opened.store, Redaction(Guard(), (tmp_path,)), opened.health, "user")
    memory = TextMemory(Parts(opened.store, guard_of(opened.guard), sessions.capture, profile="riko"))
    with ThreadPoolExecutor(1) as pool:
        sessions.serve(memory, Recall(memory), After(None, ScriptedJudge(['{"facts": []}']), pool))
        rows = [
            {"type": "session", "agent": "root"},
            {"type": "user/message", "content": "The cooling pump (CP-7) is new.", "turn": 1},
            {"type": "turn/end", "turn": 1, "reason": "completed"},
        ]
        scope = Scope("demo", "s1", None, "root")
        sessions.replay(scope, [json.dumps({"session": "s1", "seq": seq, **row}) for seq, row in enumerate(rows)])
        assert sessions.inject(scope).text == ""
        sessions.ended(scope)
    assert opened.health.status == "active"
    assert len(list(opened.store.evidence("s1"))) == 1
