"""k1 and b of the ranking as an operator's settings: what they change, and that nothing kept keeps an old value."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rlm_memory_host import settings
from rlm_memory_host.assembly.text import strengths_of
from rlm_memory_host.cli import main
from rlm_memory_host.contracts.memory import Block, BlockWrite, Transaction, project_layer
from rlm_memory_host.errors import SettingsError
from rlm_memory_host.recall.service import Query, Recall
from rlm_memory_host.storage.postings import Strengths
from rlm_memory_host.textmemory import shelves
from rlm_memory_host.textmemory.opening import open_memory
from rlm_memory_host.textmemory.service import TextMemory
from rlm_memory_host.textmemory.shelves import Shelves
from rlm_memory_host.textmemory.store import MarkdownStore
from scenes import ROOT, Scene

LAYER = project_layer("demo")
LONG = "The pump by the dock, the pump by the quay: " + ", ".join(f"mark{n} harbour{n} buoy{n}" for n in range(30))
TEXTS = {"short": "The pump is blue.", "long": LONG, "rest": "The lamp is red.", "more": "The gate is shut."}


def unread(_block: Block) -> str:
    pytest.fail("a text was read")


def write(store: object, texts: dict[str, str]) -> None:
    blocks = [Block(f"mem_{name}", "Topic", name, text) for name, text in texts.items()]
    store.commit(Transaction(tuple(BlockWrite(LAYER, block) for block in blocks)))  # type: ignore[attr-defined]


def found(texts: dict[str, str], question: str, **strengths: float) -> list[str]:
    """The titles in their order."""
    scene = Scene()
    write(scene.store, texts)
    memory = TextMemory(replace(scene.memory.parts, strengths=Strengths(**strengths)))
    return [item.title for item in Recall(memory).search(ROOT, Query(question)).items]


def test_a_weaker_norm_lets_a_long_memory_that_says_it_twice_come_first() -> None:
    """With the measured one the short memory does."""
    assert found(TEXTS, "pump") == ["short", "long"]
    assert found(TEXTS, "pump", b_topics=0) == ["long", "short"]


def test_a_greater_k1_counts_a_repeated_word_for_more() -> None:
    """Than two words of the question once each."""
    texts = {"both": "pump valve amber", "often": "pump " * 12, "rest": "lamp valve", "more": "gate"}
    assert found(texts, "pump valve")[0] == "both"
    assert found(texts, "pump valve", k1=10, b_topics=0)[0] == "often"


def test_turns_have_a_norm_of_their_own() -> None:
    """What is said of memories changes nothing for them."""

    def spoken(**strengths: float) -> list[str]:
        scene = Scene()
        for text in ("The pump is blue.", "Filler about lamps.", "Filler about gates.", LONG):
            scene.user(text)
            scene.assistant("Noted.")
            scene.end()
        memory = TextMemory(replace(scene.memory.parts, strengths=Strengths(**strengths)))
        items = Recall(memory).search(ROOT, Query("pump")).items
        return [item.text[:12] for item in items if item.kind == "evidence" and "pump" in item.text]

    assert spoken(b_turns=1)[0] == "The pump is "
    assert spoken(b_turns=0)[0] == "The pump by "
    assert spoken(b_turns=1, b_topics=0) == spoken(b_turns=1)


def test_words_that_were_kept_under_other_values_serve_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start from `derived/` ranks as one that read every text: no statistic of the old values is in it."""
    monkeypatch.setattr(shelves, "SAVED_FROM", 2)
    monkeypatch.setattr(shelves, "SAVE_EVERY", 2)
    store = MarkdownStore(tmp_path)
    write(store, TEXTS)
    old = Shelves(store).view([LAYER]).scores("pump")
    assert list((store.folder / "derived").glob("*.words"))
    new = Strengths(k1=2, b_topics=0)
    with monkeypatch.context() as patched:
        patched.setattr(shelves, "words_of", unread)
        started = Shelves(MarkdownStore(tmp_path), new).view([LAYER]).scores("pump")
    monkeypatch.setattr(shelves, "SAVED_FROM", 1_000)
    assert started == pytest.approx(Shelves(MarkdownStore(tmp_path), new).view([LAYER]).scores("pump"))
    assert started != pytest.approx(old)


def test_the_settings_reach_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the table reads back as `config show` prints it."""
    root, config = tmp_path / "state", tmp_path / "rlm-memory.toml"
    write(open_memory(root).store, TEXTS)
    common = ["memory", "--state-root", str(root), "--project", "demo", "--json"]

    def order() -> list[str]:
        assert main([*common, "--config", str(config), "search", "pump"]) == 0
        return [item["title"] for item in json.loads(capsys.readouterr().out)["results"]]

    config.write_text("")
    config.chmod(0o600)
    assert order() == ["short", "long"]
    config.write_text("[memory.ranking]\nb_topics = 0\n")
    assert order() == ["long", "short"]
    assert main(["config", "show", "--config", str(config), "--state-root", str(root)]) == 0
    config.write_text(capsys.readouterr().out)
    loaded = settings.load(config, root).settings
    assert strengths_of(loaded) == Strengths(b_topics=0)


@pytest.mark.parametrize("line", ["k1 = -1", "k1 = 11", "b_topics = 1.1", "b_turns = nan", "b = 0.5"])
def test_a_value_out_of_range_ends_the_start_by_name(tmp_path: Path, line: str) -> None:
    """Which key, before anything is opened."""
    config = tmp_path / "rlm-memory.toml"
    config.write_text(f"[memory.ranking]\n{line}\n")
    config.chmod(0o600)
    with pytest.raises(SettingsError, match=rf"memory\.ranking\.{line.split()[0]}"):
        settings.load(config, tmp_path / "state")


def test_a_projects_own_file_may_not_set_them(tmp_path: Path) -> None:
    """Whoever writes a repository does not choose what is found."""
    (tmp_path / "rlm-memory.toml").write_text("[memory.ranking]\nk1 = 2\n")
    (tmp_path / "rlm-memory.toml").chmod(0o600)
    with pytest.raises(SettingsError, match="memory"):
        settings.load(None, tmp_path / "state", cwd=tmp_path, environ={}, user_folder=tmp_path / "u")
