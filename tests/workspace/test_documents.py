"""The README does what it says, and no document points at nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/**/*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every command of the console blocks; `host run|stop` stands for two, and an indented line goes on."""
    lines = [line for block in blocks("console") for line in block.replace("|\n", "|").splitlines()]
    return [
        " ".join([*words[:-1], last])
        for words in (re.sub(r"\|\s+", "|", line).split() for line in lines)
        for last in words[-1].split("|")
    ]


@pytest.mark.kernel
def test_the_python_of_the_readme_runs_in_two_sessions(start_kernel: Callable[..., object]):
    first, second, texts = blocks("python")
    outcome = start_kernel().run(first)
    assert outcome.error is None, outcome.error
    assert "Body mass by species and year" in outcome.data[-1]["text/plain"]
    kernel = start_kernel()
    assert kernel.run("%load_ext rlm_memory").error is None
    *setting, stale, whole, part = second.strip().splitlines()
    assert kernel.run("\n".join(setting)).error is None
    assert "stale" in kernel.run(stale).ok()
    assert kernel.run(f"({whole.split('#')[0].strip()}).shape").ok() == "(9, 3)"
    assert kernel.run(f"({part.strip()}).shape").ok() == "(3, 2)"
    assert "Cohorts start on Mondays" in kernel.run(texts).ok()


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_readme_exists(line: str):
    program, *words = line.split()
    command = {
        "./dev": [sys.executable, str(ROOT / "dev")],
        "rlm-memory": [str(Path(sys.executable).parent / "rlm-memory"), *words],
    }[program]
    result = subprocess.run([*command, "--help"], text=True, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert words[-1] in result.stdout


def test_every_command_that_works_is_in_the_readme():
    """What the command line offers and what the README lists are the same; neither runs ahead."""
    from rlm_memory_host.cli.root import application

    def leaves(command: object, words: tuple[str, ...]) -> set[str]:
        below = getattr(command, "commands", None)
        if below is None:
            return {" ".join(words)}
        return set().union(*(leaves(child, (*words, name)) for name, child in below.items()))

    listed = {line for line in commands() if line.startswith("rlm-memory ")}
    assert listed == leaves(application(), ("rlm-memory",))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_between_documents_leads_somewhere(path: Path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    for page in ROOT.glob("docs/**/*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "README.md" or f"({name})" in index, f"docs/README.md does not list {name}"
