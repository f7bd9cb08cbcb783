"""Sensitive texts on the command line: hidden unless a person says so, and then it is in the audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.cli import consent, main, reveal
from rlm_memory_host.contracts.memory import Candidate, Sensitivity, Transaction, project_layer
from rlm_memory_host.textmemory import rows
from rlm_memory_host.textmemory.opening import open_memory
from test_memory_command import Desk, add, desk

__all__ = ["desk"]
WORDS = ("zebra", "Quagga", "okapi")
"""Of the sensitive memory: in its text before and after, its title and topic, its tag."""


@pytest.fixture
def sensitive(desk: Desk) -> str:
    """One sensitive memory with a history, and one that everybody may see."""
    add(desk, "The dock is made of oak.", "--title", "Dock")
    found = add(desk, "The zebra is old.", "--title", "Quagga", "--topic", "Quagga ward", "--tag", "okapi")
    assert desk.agreed("edit", found, "--body", "The zebra is ill.", "--sensitivity", "sensitive")[0] == 0
    return found


def printed(desk: Desk, *arguments: str) -> tuple[str, Any]:
    """What a command prints for people, and for programs."""
    common = ["memory", "--state-root", str(desk.root), "--project", "demo"]
    main([*common, *arguments])
    text = desk.capsys.readouterr().out
    main([*common, "--json", *arguments])
    out = desk.capsys.readouterr().out
    return text, json.loads(out)


def says_nothing(text: str) -> bool:
    return not [word for word in WORDS if word.casefold() in text.casefold()]


@pytest.mark.parametrize("command", ["ls", "ls --all", "show ID", "history ID", "search zebra", "review"])
def test_a_sensitive_text_is_hidden_by_default(desk: Desk, sensitive: str, command: str) -> None:
    """Title, text, topic, tag and file alike, for people and for programs; the others are shown."""
    candidate = Candidate(
        "cand_a", project_layer("demo").name, "new", "Quagga", "Quagga", "A zebra.", sensitivity=Sensitivity.PROVISIONAL
    )
    open_memory(desk.root).store.commit(Transaction(rows=(rows.log_row(candidate),)))
    text, value = printed(desk, *command.replace("ID", sensitive).split())
    assert says_nothing(text.replace("search zebra", ""))
    assert says_nothing(json.dumps(value))
    if command == "search zebra":
        assert "left out: sensitive-" in text
    else:
        assert reveal.HIDDEN in text
        assert '"hidden": true' in json.dumps(value)
    if command.startswith("ls"):
        assert "Dock" in text
        assert [row["hidden"] for row in value] == [False, True]


@pytest.mark.parametrize("command", ["ls", "show ID", "history ID", "review"])
def test_it_is_shown_on_a_persons_word_and_that_is_audited(desk: Desk, sensitive: str, command: str) -> None:
    """A token for exactly this; nobody at the terminal sees nothing."""
    words = command.replace("ID", sensitive).split()
    code, text = desk.run(*words, "--show-sensitive")
    assert (code, says_nothing(text)) == (2, True)
    other = consent.remember(open_memory(desk.root).store, f"memory {' '.join(words)}")
    assert desk.run(*words, "--show-sensitive", "--token", other)[0] == 2
    code, value = desk.agreed(*words, "--show-sensitive", action=f"memory {' '.join(words)} --show-sensitive")
    assert code == 0
    log = (desk.root / "memory/local/audit.ndjson").read_text()
    records = [json.loads(line) for line in log.splitlines()]
    revealed = [item["target"] for item in records if item["op"] == "reveal"]
    if command == "review":
        assert revealed == []
        return
    assert "zebra" in json.dumps(value)
    assert reveal.HIDDEN not in json.dumps(value)
    assert revealed == [sensitive]
    assert says_nothing(log)


def test_a_state_that_was_sensitive_stays_hidden(desk: Desk, sensitive: str) -> None:
    """Though a person relaxed the memory since."""
    assert desk.agreed("edit", sensitive, "--body", "The gate is red.", "--sensitivity", "normal")[0] == 0
    _, value = printed(desk, "history", sensitive)
    assert [row["hidden"] for row in value] == [False, True]
    assert "ill" not in json.dumps(value)


def test_a_change_prints_no_sensitive_text(desk: Desk, sensitive: str) -> None:
    """A word for pinning is none for reading."""
    for words in (("pin", sensitive), ("edit", sensitive, "--tag", "okapi")):
        code, value = desk.agreed(*words)
        assert (code, value["hidden"], says_nothing(json.dumps(value))) == (0, True, True)


def test_an_export_of_sensitive_memories_is_audited(desk: Desk, sensitive: str, tmp_path: Path) -> None:
    """Without them nobody is asked, and they are not in it."""
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    assert desk.run("export", str(plain))[0] == 0
    assert says_nothing(plain.read_text())
    assert desk.agreed("export", str(whole), "--sensitive", action="memory export --sensitive")[0] == 0
    assert "zebra" in whole.read_text()
    records = [json.loads(line) for line in (desk.root / "memory/local/audit.ndjson").read_text().splitlines()]
    assert [item["code"] for item in records if item["op"] == "export"] == ["SENSITIVE_2"]
