"""The texts for agents: what they promise is so, and the example holds nothing of anybody's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp_clients import SCRIPT
from rlm_memory_host import skills
from rlm_memory_host.tools.artifacts import artifact_tools
from rlm_memory_host.tools.memories import memory_tools


class Untouched(yaml.SafeLoader):
    """Leaves the harness's own expressions as text."""


Untouched.add_constructor("tag:yaml.org,2002:js", lambda loader, node: f"!!js {loader.construct_scalar(node)}")


def test_every_tool_that_the_skill_names_exists() -> None:
    """A model that follows the text calls no tool that is not there."""
    nothing: Any = None
    known = {tool.name for tool in [*artifact_tools(nothing), *memory_tools(nothing)]}
    named = set(re.findall(r"`(memory_[a-z_]+)`", skills.text("rlm-memory.md")))
    assert {"memory_search", "memory_artifact_resolve", "memory_artifact_record", "memory_forget"} <= named
    assert named <= known


def test_the_example_holds_expressions_and_no_values() -> None:
    """Key and workspace come from the environment; nothing in the file is anybody's."""
    [row] = yaml.load(skills.text("honcho-mcp.yml"), Untouched)
    assert row["name"] == "@deepseek-ai/dsh-mcp-client"
    assert row["config"]["transport"] == "streamable-http"
    assert all(value.startswith("!!js ") and "process.env." in value for value in row["config"]["headers"].values())
    assert "elf-hosted" in skills.text("honcho-mcp.yml")


@pytest.mark.parametrize("phrase", ["erify the\ncatalogue", "no delivery guarantee", "Do not poll", "Delete nothing"])
def test_the_honcho_skill_says_what_it_must(phrase: str) -> None:
    """The catalogue is verified, compliance is no guarantee, nobody polls, nothing is destroyed."""
    assert phrase in skills.text("honcho-mcp.md")


def test_the_command_prints_them(tmp_path: Path) -> None:
    """From an installed package, wherever it is called; an unknown name is refused with those there are."""
    names = subprocess.run([SCRIPT, "skill"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert names == list(skills.NAMES)
    for name in names:
        shown = subprocess.run([SCRIPT, "skill", name], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert shown.stdout == skills.text(name)
    refused = subprocess.run([SCRIPT, "skill", "no"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "honcho-mcp.md" in refused.stderr
