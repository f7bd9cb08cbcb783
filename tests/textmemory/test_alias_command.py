"""`rlm-memory memory aliases`: an operator lists the other names of memories, gives one and takes one back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from real_scenes import Real
from rlm_memory_host.cli import main
from rlm_memory_host.recall.service import Query
from rlm_memory_host.textmemory import aliases
from scenes import ROOT
from test_memory_command import Desk, add, desk

__all__ = ["desk"]
KEY = "ghp_" + "x9Y8" * 9


@pytest.fixture
def pump(desk: Desk) -> str:
    """A memory among others."""
    add(desk, "The dock is made of oak.", "--title", "Dock")
    return add(desk, "It moves 12 litres a minute.", "--title", "Cooling pump")


def test_a_name_is_given_listed_used_and_taken_back(desk: Desk, pump: str) -> None:
    """A question that says it finds the memory, until it is taken back; each step is audited, without the name."""
    assert desk.run("aliases") == (0, [])
    code, made = desk.agreed("aliases", "--add", "CP-7", pump, action=f"memory aliases --add CP-7 {pump}")
    assert (code, made["alias"], made["id"]) == (0, "CP-7", pump)
    assert [(row["alias"], row["is_there"], row["hidden"]) for row in desk.run("aliases")[1]] == [("CP-7", True, False)]
    assert [hit["id"] for hit in desk.run("search", "where is cp-7")[1]["results"] if hit["is_exact"]] == [pump]
    code, ended = desk.agreed("aliases", "--remove", "cp-7", action="memory aliases --remove cp-7")
    assert (code, [row["alias"] for row in ended]) == (0, ["CP-7"])
    assert desk.run("aliases") == (0, [])
    assert desk.run("search", "where is cp-7")[1]["results"] == []
    records = [json.loads(line) for line in (desk.root / "memory/local/audit.ndjson").read_text().splitlines()]
    mine = [(item["actor"], item["target"], item["code"]) for item in records if item["op"] == "alias"]
    assert mine == [("operator", pump, "ADDED"), ("operator", pump, "REMOVED")]
    assert "CP-7" not in json.dumps(records)
    assert main(["audit", "verify", "--state-root", str(desk.root)]) == 0


@pytest.mark.parametrize("words", [("--add", "CP-7", "mem_a"), ("--remove", "CP-7")])
def test_nobody_at_the_terminal_changes_no_name(desk: Desk, words: tuple[str, ...]) -> None:
    """A person's word for exactly this name."""
    code, text = desk.run("aliases", *words)
    assert (code, "--token" in text) == (2, True)
    assert desk.run("aliases") == (0, [])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x", "2 to 60 characters"),
        ("a name of far too many words", "at most 4 words"),
        ("12", "must be a name"),
        ("Dock", "this title"),
        (KEY, "github_pat"),
    ],
)
def test_what_is_no_name_is_refused(desk: Desk, pump: str, name: str, said: str) -> None:
    """And a secret is not repeated."""
    code, text = desk.agreed("aliases", "--add", name, pump, action=f"memory aliases --add {name} {pump}")
    assert (code, said in text, KEY in text) == (2, True, False)
    assert desk.run("aliases") == (0, [])


def test_bad_use_ends_with_two(desk: Desk, pump: str) -> None:
    """Both at once, no id, an id that is not there, a name that nobody gave."""
    assert desk.run("aliases", "--add", "CP-7", "--remove", "CP-7", pump)[0] == 2
    assert desk.run("aliases", "--add", "CP-7")[0] == 2
    assert desk.agreed("aliases", "--add", "CP-7", "mem_x", action="memory aliases --add CP-7 mem_x")[0] == 2
    assert desk.agreed("aliases", "--remove", "CP-7", action="memory aliases --remove CP-7")[0] == 2


def test_the_name_of_a_memory_that_is_gone_or_sensitive_is_told_as_that(desk: Desk, pump: str) -> None:
    """It is listed, so that it can be taken back; a sensitive memory gets no new one."""
    dock = next(row["id"] for row in desk.run("ls")[1] if row["title"] == "Dock")
    for name, memory_id in (("CP-7", pump), ("Pier", dock)):
        assert (
            desk.agreed("aliases", "--add", name, memory_id, action=f"memory aliases --add {name} {memory_id}")[0] == 0
        )
    assert desk.agreed("edit", pump, "--sensitivity", "sensitive")[0] == 0
    rows = {row["id"]: row for row in desk.run("aliases")[1]}
    assert (rows[pump]["hidden"], "CP-7" in json.dumps(rows)) == (True, False)
    assert rows[dock]["alias"] == "Pier"
    code, text = desk.agreed("aliases", "--add", "CP-8", pump, action=f"memory aliases --add CP-8 {pump}")
    assert (code, "sensitive" in text) == (2, True)


def test_what_was_taken_back_comes_again_when_the_user_says_it(tmp_path: Path) -> None:
    """The last word counts, and it is a person's either way."""
    scene = Real(tmp_path)
    memory_id = scene.says("The pump moves 12 litres a minute.", title="").id
    title = scene.block(memory_id).title
    aliases.give(scene.memory, ROOT, "CP-7", memory_id)
    aliases.take_back(scene.memory, ROOT, "CP-7")
    assert not [hit for hit in scene.recall.search(ROOT, Query("CP-7")).items if hit.is_exact]
    scene.user(f"{title}, also called CP-7, hums.")
    message = scene.capture.latest_user_message("s1")
    assert message is not None
    assert aliases.learn(scene.memory, ROOT, message) == 1
    assert [hit.id for hit in scene.recall.search(ROOT, Query("CP-7")).items if hit.is_exact] == [memory_id]
