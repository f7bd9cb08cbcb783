"""The words of a layer: the same scores however they came to be there, and a file that counts only when it is right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlm_memory_host.contracts.memory import Block, BlockWrite, Transaction, new_memory_id, project_layer
from rlm_memory_host.errors import VersionConflict
from rlm_memory_host.storage import postings
from rlm_memory_host.storage.postings import Corpus
from rlm_memory_host.textmemory import shelves, topicset
from rlm_memory_host.textmemory.shelves import Shelves
from rlm_memory_host.textmemory.store import MarkdownStore

LAYER = project_layer("demo")
WORDS = ["amber", "buoy", "cable", "drift", "ember", "flask", "数据", "库"]
TEXTS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.lists(st.sampled_from(WORDS), max_size=12), max_size=12
)


def corpus_of(texts: dict[str, list[str]]) -> Corpus:
    corpus = Corpus(0.75)
    for key, terms in texts.items():
        corpus.add(key, terms)
    return corpus


@given(TEXTS, TEXTS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), st.integers(1, 5))
def test_scores_do_not_depend_on_how_they_came_about(
    first: dict[str, list[str]], then: dict[str, list[str]], query: list[str], most: int
) -> None:
    """Replaced, removed, packed and started again, with numpy and without: what a fresh collection says."""
    fresh = corpus_of({**first, **then})
    changed = corpus_of(first)
    for key, terms in then.items():
        changed.add(key, terms)
    changed.add("gone!", ["amber", "zebra"])
    changed.remove("gone!")
    wanted = fresh.scores(query)
    packed = changed.pack({"files": [1]})
    assert b"zebra" not in packed
    loaded = Corpus.unpack(packed, 0.75)
    assert loaded is not None
    assert loaded[1] == {"files": [1]}
    for corpus in (changed, loaded[0]):
        assert corpus.scores(query) == pytest.approx(wanted)
        best = sorted(wanted, key=lambda key: (-wanted[key], key))
        cut = corpus.scores(query, most)
        assert len(cut) == min(most, len(wanted))
        assert sorted(cut.values(), reverse=True) == pytest.approx([wanted[key] for key in best[:most]])


def test_without_numpy_the_scores_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain sums in the same order."""
    rng = random.Random(4)
    corpus = corpus_of({f"k{n}": rng.choices(WORDS, k=9) for n in range(300)})
    for number in range(0, 300, 7):
        corpus.remove(f"k{number}")
    with_arrays = corpus.scores(["amber", "库", "drift"], 20)
    monkeypatch.setattr(postings, "numpy", lambda: None)
    assert corpus.scores(["amber", "库", "drift"], 20) == pytest.approx(with_arrays)


@given(st.data())
def test_a_damaged_file_of_words_is_none(data: st.DataObject) -> None:
    """Any flipped byte, any cut, any text: never a wrong answer, and never an error."""
    whole = corpus_of({"a": ["amber", "buoy"], "b": ["buoy"]}).pack({"files": []})
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[at] ^= data.draw(st.integers(1, 255))
    assert Corpus.unpack(bytes(flipped), 0.75) is None
    assert Corpus.unpack(whole[:at], 0.75) is None
    assert Corpus.unpack(data.draw(st.binary(max_size=60)), 0.75) is None


def add(store: MarkdownStore, *bodies: str, topic: str = "Topic") -> list[Block]:
    blocks = [Block(new_memory_id(), topic, body[:40], body) for body in bodies]
    return list(store.commit(Transaction(tuple(BlockWrite(LAYER, block) for block in blocks))))


def test_a_large_layer_starts_from_its_words_and_reads_what_changed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second start reads no text again but those of the files that changed; a purged word is in no kept file."""
    monkeypatch.setattr(shelves, "SAVED_FROM", 20)
    monkeypatch.setattr(shelves, "SAVE_EVERY", 20)
    store = MarkdownStore(tmp_path)
    add(store, *(f"The marker{number} stands by the buoy." for number in range(30)))
    add(store, *(f"The other{number} lies in the flask." for number in range(30)), topic="Second")
    first = Shelves(store).view([LAYER])
    read: list[str] = []

    def counting(block: Block) -> str:
        read.append(block.id)
        return f"{block.topic} {block.title} {block.body}"

    monkeypatch.setattr(shelves, "words_of", counting)
    again = Shelves(MarkdownStore(tmp_path)).view([LAYER])
    assert not read
    assert again.scores("marker7") == first.scores("marker7") != {}
    (late,) = add(store, "The zebra came late.", topic="Second")
    third = Shelves(MarkdownStore(tmp_path)).view([LAYER])
    assert list(third.scores("zebra")) == [(LAYER.name, late.id)]
    assert len(read) == 31
    assert sorted(third.scores("other4", 1)) == sorted(first.scores("other4", 1))


def test_a_hand_edit_that_was_not_seen_yet_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many files were listed just now, a write looks at its own file all the same."""
    monkeypatch.setattr(topicset, "MANY", 0)
    monkeypatch.setattr(topicset, "PAUSE", 1e9)
    store = MarkdownStore(tmp_path)
    (block,) = add(store, "The rig runs at 40 C.")
    snapshot = store.snapshot(LAYER)
    path = store.roots.locate(LAYER.name, "topic.md")
    edited = path.read_bytes().replace(b"40 C", b"45 C")
    with path.open("r+b") as file:
        file.write(edited)
    write = BlockWrite(LAYER, Block(block.id, "Topic", "t", "The rig runs at 50 C.", version=2), 1)
    with pytest.raises(VersionConflict):
        store.commit(Transaction((write,), revisions={LAYER: snapshot.revision}))
    assert path.read_bytes() == edited
    add(store, "Another one.", topic="Elsewhere")
    assert path.read_bytes() == edited
    assert "45 C" in store.snapshot(LAYER).blocks[-1].body + store.snapshot(LAYER).blocks[0].body
