"""One set of rules, two ways to hold the postings: in memory and packed, the same hits in the same order and scores."""

from __future__ import annotations

import gc
import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import Bounds, SearchRequest
from rlm_memory_host.storage import catalogue, index_file
from rlm_memory_host.storage.faults import RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.index import Index
from rlm_memory_host.storage.index_build import Builder, build
from rlm_memory_host.storage.index_memory import MemoryPart
from rlm_memory_host.storage.index_packed import PackedPart
from rlm_memory_host.storage.ranking import Document, Query, weights
from rlm_memory_host.storage.similar_words import distance_from, letters, misspelt
from rlm_memory_host.storage.tokens import document_terms, normalise, query_terms, query_words
from store_harness import World, card_json, find, fingerprint, list_all

SENTENCE = """alpha beta treatment treatments tretment responses response cohort cohorts weekly week weakly rate rates
数据库 连接池 数据 兼容 끝말잇기 café straße run12 run13 C++ C# foo.bar-baz 3.10 the of cohort_rate"""
WORDS = SENTENCE.split()
ODD = ["\x00tag:a", "\ud7ff", "\U0010ffff", "😀", "ﬀ", "a" * 60, "é" * 5]


def key_of(number: int) -> str:
    return "exp_" + ids.base32_lower(hashlib.sha256(b"%d" % number).digest())


def document(number: int, minute: int) -> Document:
    return Document(key_of(number), f"2026-08-21T10:{minute % 60:02}:00.000Z", f"art_{number % 5}", number % 3)


def query_of(text: str, exact: tuple[str, ...], required: tuple[str, ...], since: str | None) -> Query:
    return Query(tuple(query_terms(text)), exact, required, since, tuple(query_words(text)))


texts = st.lists(st.sampled_from([*WORDS, *ODD]), max_size=12).map(" ".join) | st.text(max_size=20)
tags = st.lists(st.sampled_from(["a", "b", "c"]), max_size=2).map(lambda some: [f"tag:{tag}" for tag in some])
typed = st.sampled_from(["treatmnt", "tretmen", "reponses", "cohrot", "weeekly", "wee", "coh", "zzz", "run14", "连接"])
questions = st.tuples(
    st.lists(st.sampled_from(WORDS) | typed, max_size=4).map(" ".join) | st.text(max_size=10),
    st.sampled_from([(), ("tag:a",), ("tag:a", "tag:b"), ("tag:nowhere",)]),
    st.sampled_from([(), ("tag:b",), ("tag:b", "tag:c"), ("tag:nowhere",)]),
    st.sampled_from([None, "2026-08-21T10:03:00.000Z", "2027", "é"]),
)
steps = st.lists(
    st.tuples(st.just("add"), st.integers(0, 14), st.integers(0, 6), texts, tags)
    | st.tuples(st.just("remove"), st.integers(0, 14))
    | st.tuples(st.sampled_from(["pack", "begin", "end", "replace"])),
    max_size=40,
)


def apply(index: Index, plain: Index, step: tuple[Any, ...], pending: list[Any]) -> None:
    """One step for both; packing is for the first alone and must not show."""
    if step[0] == "add":
        _, number, minute, text, some = step
        share = weights([(3.0, document_terms(text)), (1.0, document_terms(text[::-1]))])
        for each in (index, plain):
            each.add(document(number, minute), some, share)
    elif step[0] == "remove":
        assert (index.remove(key_of(step[1])) is None) == (plain.remove(key_of(step[1])) is None)
    elif step[0] == "begin":
        pending[:] = [index.begin_packing()]
    elif step[0] == "replace":
        builder = Builder()
        index.pour_into(builder)
        index.replace(PackedPart(builder.arrays()))
        pending.clear()
    else:
        if step[0] == "pack":
            pending[:] = [index.begin_packing()]
        for begun in pending:
            assert index.end_packing(begun, build(*begun.parts))
        pending.clear()


def check_same(index: Index, plain: Index, question: tuple[Any, ...]) -> None:
    query = query_of(*question)
    whole = plain.search(query, 100)
    assert index.search(query, 100) == whole
    for limit, offset in ((1, 0), (3, 2), (5, 4)):
        page = index.search(query, limit, offset)
        assert page.matches == whole.matches[offset : offset + limit]
        assert page.total == whole.total == plain.search(query, limit, offset).total


@given(steps, st.lists(questions, min_size=1, max_size=6))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_packed_and_plain_give_the_same_hits_order_and_scores(
    done: list[tuple[Any, ...]], asked: list[tuple[Any, ...]]
) -> None:
    """Whatever was added, changed, removed and packed in between, for any words, slips, filters and pages."""
    index, plain, pending = Index(), Index(), []
    for step in done:
        apply(index, plain, step, pending)
    for question in asked:
        check_same(index, plain, question)
    assert sorted(index.identities()) == sorted(plain.identities())
    for number in range(15):
        assert index.get(key_of(number)) == plain.get(key_of(number))
    for facet in ("tag:a", "tag:b"):
        assert {item.key for item in index.with_facet(facet)} == {item.key for item in plain.with_facet(facet)}


def test_packed_and_plain_agree_over_many_cards() -> None:
    """Large enough for the dense way, for ties of thousands and for blocks of values."""
    chance = random.Random(11)
    plain, index = Index(), Index()
    for number in range(1_600):
        text = " ".join(["run", str(number), *chance.choices(WORDS, k=chance.choice([2, 2, 9]))])
        card, some = document(number, chance.randrange(9)), [f"tag:{chance.randrange(3)}"]
        for each in (index, plain):
            each.add(card, some, weights([(1.0, document_terms(text))]))
        if number in (500, 1_300):
            apply(index, plain, ("pack",), [])
        if number % 7 == 0:
            apply(index, plain, ("remove", chance.randrange(number + 1)), [])
    for text in (
        "run",
        "run alpha",
        "run tretmen weekly",
        "1599",
        "数据库 run",
        "wee",
        "cohrot",
        "",
        "the",
        "rate rates run",
    ):
        for exact, required, since in (
            ((), (), None),
            (("tag:1",), (), None),
            ((), ("tag:2",), "2026-08-21T10:04:00.000Z"),
        ):
            query = query_of(text, exact, required, since)
            for limit, offset in ((10, 0), (50, 20), (1, 1_200), (2_000, 0)):
                assert index.search(query, limit, offset) == plain.search(query, limit, offset), (text, limit, offset)


@given(st.lists(st.lists(st.tuples(st.sampled_from([0.5, 1.0, 1.5, 3.0]), texts), max_size=4), min_size=1, max_size=12))
@settings(max_examples=80, deadline=None)
def test_texts_that_are_packed_at_once_weigh_what_they_weigh_alone(cards: list[list[tuple[float, str]]]) -> None:
    """Many cards weighed together by arrays as each by itself, to the last bit: also stop words and other scripts."""
    builder, plain = Builder(), Index()
    for number, fields in enumerate(cards):
        card = document(number, number)
        builder.add_texts(card, ["tag:a"], fields)
        plain.add(card, ["tag:a"], weights((weight, document_terms(text)) for weight, text in fields))
    packed = Index(PackedPart(builder.arrays()))
    for text in {text for fields in cards for _, text in fields} | {"the of", "alpha"}:
        check_same(packed, plain, (text, ("tag:a",), (), None))


def test_the_collector_of_garbage_runs_again_after_a_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However reading the cards ended; one that was off before stays off."""
    monkeypatch.setattr(catalogue, "PACK_FROM", 1)
    plant(world, range(3))
    seen: list[bool] = []

    def failing(*_: object) -> None:
        seen.append(gc.isenabled())
        raise OSError

    with world.open() as store:
        find(store, world.scope())
        assert gc.isenabled()
    with world.open() as store, monkeypatch.context() as patch:
        patch.setattr(catalogue, "document_of", failing)
        with pytest.raises(OSError):
            find(store, world.scope())
    assert (seen, gc.isenabled()) == ([False], True)
    gc.disable()
    try:
        with world.open() as store:
            find(store, world.scope())
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_scores_do_not_depend_on_what_came_before() -> None:
    """An index that saw many cards go ranks as one that never had them."""
    fresh, worn = Index(), Index()
    for number in range(40):
        worn.add(document(number, 1), [], weights([(1.0, ["alpha", f"w{number}"])]))
    for number in range(40):
        if number % 2:
            worn.remove(key_of(number))
        else:
            fresh.add(document(number, 1), [], weights([(1.0, ["alpha", f"w{number}"])]))
    assert worn.search(Query(("alpha", "w4")), 50) == fresh.search(Query(("alpha", "w4")), 50)


# -- similar words ---------------------------------------------------------------------------------------------------


def edits_by_table(one: str, two: str) -> int:
    rows = [[max(i, j) if not i or not j else 0 for j in range(len(two) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(two) + 1):
            swapped = i > 1 and j > 1 and one[i - 1] == two[j - 2] and one[i - 2] == two[j - 1]
            rows[i][j] = min(
                rows[i - 1][j] + 1,
                rows[i][j - 1] + 1,
                rows[i - 1][j - 1] + (one[i - 1] != two[j - 1]),
                *([rows[i - 2][j - 2] + 1] if swapped else []),
            )
    return rows[-1][-1]


@given(st.text("abcé", min_size=1, max_size=9), st.text("abcé", max_size=9))
@settings(deadline=None)
def test_edits_are_counted_as_by_the_textbook(one: str, two: str) -> None:
    """Against the table of dynamic programming; and the sieve of letters drops nothing within reach."""
    edits = distance_from(one)(two)
    assert edits == edits_by_table(one, two)
    assert (letters(one) ^ letters(two)).bit_count() <= 2 * edits


def test_two_slips_only_where_one_finds_nothing() -> None:
    """Nearest in length first, then by name; a beginning is no slip."""
    assert misspelt("tretment", ["treatment", "tretments", "trement", "trteamnt", "tretment"], 1) == [
        "treatment",
        "trement",
    ]
    assert misspelt("responses", ["respons", "response", "responsive"], 2) == ["respons"]


@pytest.fixture(params=["plain", "packed"])
def any_index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[World], ArtifactStore]:
    """Opens a store that holds its cards in memory, or packed from the first on."""
    monkeypatch.setattr(catalogue, "PACK_FROM", 1 if request.param == "packed" else 1 << 40)
    monkeypatch.setattr(catalogue, "NEWEST", 2)
    return lambda world: world.open(index_folder=world.folder / "index")


def titled(world: World, store: ArtifactStore, *titles: str, **fields: Any) -> list[str]:
    return [
        world.record(store, title.encode(), title=title, query_fingerprint=fingerprint(title), **fields).experiment_id
        for title in titles
    ]


def test_a_slip_finds_what_was_meant_and_says_so(world: World, any_index: Callable[[World], ArtifactStore]) -> None:
    """In the match, where it was found, and in a line for the page."""
    with any_index(world) as store:
        treatment, other = titled(world, store, "Treatment by ward", "Entirely different", summary="Nothing else.")
        for query, reason, said in (
            ("tretment", "typo:title", "treatment"),
            ("trteament", "typo:title", "treatment"),
            ("treat", "prefix:title", "treatment"),
            ("diffrent", "typo:title", "different"),
        ):
            page = store.search(world.scope(), SearchRequest(query))
            assert [hit.experiment_id for hit in page.results] == [other if query == "diffrent" else treatment], query
            assert page.results[0].matched == (reason,), query
            assert len(page.warnings) == 1
            assert query in page.warnings[0], query
            assert said in page.warnings[0], query
        assert store.search(world.scope(), SearchRequest("treatment")).warnings == ()
        assert find(store, world.scope(), "xylophone") == []


def test_a_similar_word_never_displaces_an_exact_match(
    world: World, any_index: Callable[[World], ArtifactStore]
) -> None:
    """A word that occurs is taken at its word; and who has a word comes before who has only a similar one."""
    with any_index(world) as store:
        loud = titled(
            world, store, *(f"treatment treatment treatments {n}" for n in range(6)), summary="treatment " * 9
        )
        (quiet,) = titled(
            world, store, "A long title of a result about many things and one tretment", summary="s " * 300
        )
        assert find(store, world.scope(), "tretment") == [quiet]
        (named,) = titled(world, store, "cohort " + "of many other words " * 5, summary="more " * 200)
        found = find(store, world.scope(), "cohort treatmnets", limit=20)
        assert found[0] == named
        assert sorted(found[1:]) == sorted(loud)
        (tagged,) = titled(world, store, "untitled", tags=("treatmnets",))
        assert find(store, world.scope(), "treatmnets")[0] == tagged


def test_names_with_digits_stand_for_no_others(world: World, any_index: Callable[[World], ArtifactStore]) -> None:
    """run12 is not run13, 3.10 is not 3.11, and a short word has no slips."""
    with any_index(world) as store:
        titled(world, store, "run13", "python 3.11", "cat", "数据库连接池")
        for query in ("run12", "3.10", "car", "据数"):
            assert find(store, world.scope(), query) == [], query


# -- one corpus, two stores --------------------------------------------------------------------------------------------


def plant(world: World, numbers: range) -> list[str]:
    """Cards put there by hand, with words of several scripts."""
    world.layout.cards.mkdir(parents=True, exist_ok=True, mode=0o700)
    done = []
    for number in numbers:
        chance = random.Random(number)
        experiment, card = card_json(world.project, f"{number % 50}".encode(), number)
        minute = f"2026-08-21T10:{chance.randrange(5):02}:00.000Z"
        card |= {"title": " ".join(["run", *chance.choices(WORDS, k=3)]), "tags": [chance.choice("abc")]}
        card |= {"summary": " ".join(chance.choices(WORDS, k=9)), "updatedAt": minute, "shape": [number, 3]}
        world.layout.card(experiment).write_text(json.dumps(card))
        done.append(experiment)
    return done


ASKED = [
    {"query": query, **more}
    for query, more in (
        ("", {}),
        ("", {"tag": "b"}),
        ("run", {"source": "warehouse", "since": "2026-08-21T10:02Z"}),
        ("treatmnt", {}),
        ("wee cohrot", {"tag": "b"}),
        ("数据库", {}),
        ("run 7 café weekly", {}),
        ("a", {}),
        ("nothing at all", {}),
    )
]


def answers(store: ArtifactStore, world: World) -> list[Any]:
    found: list[Any] = []
    for asked in ASKED:
        found.append(list(list_all(store, world.scope(), **asked)))
        page = store.search(world.scope(), SearchRequest(limit=3, **asked))
        found.append((page.total, page.warnings, len(page.results), page.cursor is None))
    status = store.status(world.scope())["project"]
    return [found, status]


def test_a_store_with_an_index_answers_as_one_without(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same corpus through records, cards by hand, another host, removals and restarts."""
    monkeypatch.setattr(catalogue, "PACK_FROM", 20)
    monkeypatch.setattr(catalogue, "NEWEST", 5)
    indexed = {"index_folder": world.folder / "index"}
    plant(world, range(60))

    def compare(store: ArtifactStore) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "PACK_FROM", 1 << 40)
            with world.open() as plain:
                expected = answers(plain, world)
        assert answers(store, world) == expected

    with world.open(**indexed) as store:
        compare(store)
        for number in range(12):
            world.record(
                store, b"%d" % number, title=f"recorded tretment {number}", query_fingerprint=fingerprint(number)
            )
        compare(store)
        planted = plant(world, range(60, 70))
        with world.open() as other:
            world.record(other, b"other", title="by another host", query_fingerprint=fingerprint("other"))
        world.layout.card(planted[3]).unlink()
        compare(store)
    with world.open(**indexed) as store:
        compare(store)
        world.layout.card(planted[4]).unlink()
        compare(store)
    with world.open(**indexed) as store:
        compare(store)
    assert list((world.folder / "index").glob("*.index"))


# -- the saved index ---------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Path]:
    """A store of 40 cards whose index was saved, and the index's file."""
    monkeypatch.setattr(catalogue, "PACK_FROM", 20)
    with world.open() as store:
        world.record(store, b"own", title="recorded here")
    plant(world, range(40))
    world.let_the_clock_pass()
    with world.open(index_folder=world.folder / "index") as store:
        find(store, world.scope(), "run")
    (path,) = (world.folder / "index").iterdir()
    return world, path


def reads_of(world: World) -> tuple[int, list[str]]:
    """How many cards a new start reads for a search of which it shows none, and what another search finds."""
    layer = RecordingLayer()
    with world.open(index_folder=world.folder / "index", files=layer) as store:
        store.search(world.scope(), SearchRequest("xylophone"))
        reads = sum(look.name == "open" and look.target.endswith(".json") for look in layer.looks)
        return reads, find(store, world.scope(), "run treatmnt", limit=20)


def plainly(world: World) -> list[str]:
    with world.open() as store:
        return find(store, world.scope(), "run treatmnt", limit=20)


def test_a_start_with_a_saved_index_reads_no_card(saved: tuple[World, Path]) -> None:
    """Nor scans the folder; one stat says that nobody touched it."""
    world, _ = saved
    assert reads_of(world) == (0, plainly(world))


def test_cards_that_hosts_recorded_since_are_read_and_no_others(saved: tuple[World, Path]) -> None:
    """The journal beside the cards names them; the folder is not scanned."""
    world, _ = saved
    with world.open() as other:
        find(other, world.scope(), "run")
        done = titled(world, other, "one more run", "and another run")
        other.annotate(world.scope(), done[0], {"codec": "x"})
    layer = RecordingLayer()
    with world.open(index_folder=world.folder / "index", files=layer) as store:
        assert find(store, world.scope(), "another") == [done[1]]
        opened = {
            Path(look.target).stem for look in layer.looks if look.name == "open" and look.target.endswith(".json")
        }
        assert opened == set(done)
        assert not [look for look in layer.looks if look.name == "scan" and look.target == str(world.layout.cards)]


def test_an_open_store_follows_other_hosts_by_the_journal(world: World) -> None:
    """Their records are found at once, without a scan of the folder."""
    layer = RecordingLayer()
    with world.open(files=layer) as store, world.open() as other:
        titled(world, other, "first")
        # The first look scans the folder; one made in the tick of the clock of the last change would be made again.
        world.let_the_clock_pass()
        find(store, world.scope(), "first")
        layer.looks.clear()
        for number in range(5):
            (done,) = titled(world, other, f"number {number} alpha{number}")
            assert find(store, world.scope(), f"alpha{number}") == [done]
        assert not [look for look in layer.looks if look.name == "scan" and look.target == str(world.layout.cards)]


BREAKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "one byte": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "the last byte": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "longer": lambda data: data + b"x",
    "not ours": lambda data: b"SQLite format 3\x00" + data[16:],
    "header length": lambda data: data[:12] + struct.pack("<Q", 1 << 60) + data[20:],
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_damaged_index_is_no_index(saved: tuple[World, Path], how: str) -> None:
    """The cards are read instead, the answers are right, and a good index is there for the next start."""
    world, path = saved
    path.chmod(0o600)
    path.write_bytes(BREAKS[how](path.read_bytes()))
    reads, found = reads_of(world)
    assert reads == 41
    assert found == plainly(world)
    assert reads_of(world) == (0, found)


def test_an_index_of_other_rules_or_another_project_is_no_index(
    saved: tuple[World, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another release's, another Python's, one that was moved here from elsewhere, a folder, a link."""
    world, path = saved
    expected = plainly(world)
    monkeypatch.setattr(index_file, "FORMAT", 999)
    assert reads_of(world) == (41, expected)
    monkeypatch.undo()
    monkeypatch.setattr(catalogue, "PACK_FROM", 20)
    assert reads_of(world)[1] == expected

    other = World(world.folder, "project-b")
    plant(other, range(30))
    with other.open(index_folder=world.folder / "index") as store:
        find(store, other.scope(), "run")
    foreign = next(item for item in path.parent.iterdir() if item != path)
    path.write_bytes(foreign.read_bytes())
    assert reads_of(world) == (41, expected)
    path.unlink()
    path.mkdir()
    assert reads_of(world) == (41, expected)
    path.rmdir()
    path.symlink_to(foreign)
    assert reads_of(world) == (41, expected)


def test_an_index_folder_that_cannot_be_written_is_no_trouble(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is found; only the next start has more to read."""
    monkeypatch.setattr(catalogue, "PACK_FROM", 20)
    plant(world, range(30))
    (world.folder / "index").write_text("a file where the folder should be")
    with world.open(index_folder=world.folder / "index") as store:
        assert store.search(world.scope(), SearchRequest("run")).total == 30
    with world.open(index_folder=world.folder / "index") as store:
        assert store.search(world.scope(), SearchRequest("run")).total == 30


def test_cards_that_were_skipped_stay_counted_after_a_restart(saved: tuple[World, Path]) -> None:
    """They are not read again until they change."""
    world, _ = saved
    bad = world.layout.cards / f"exp_{'b' * 52}.json"
    bad.write_text("{")
    assert reads_of(world)[0] == 1
    with world.open(index_folder=world.folder / "index") as store:
        assert [item.name for item in store.diagnostics(world.scope())] == [bad.name]


def test_a_cursor_sees_its_collection_until_the_index_is_packed_and_then_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages go on; nothing fails."""
    monkeypatch.setattr(catalogue, "PACK_FROM", 20)
    plant(world, range(30))
    with world.open(index_folder=world.folder / "index") as store:
        cursor = store.search(world.scope(), SearchRequest("run", limit=10)).cursor
        store._indexing.shutdown(wait=True)
        page = store.search(world.scope(), SearchRequest("run", limit=10, cursor=cursor))
        assert len(page.results) == 10
        assert page.total == 30


def test_what_is_packed_is_a_part_like_any_other() -> None:
    """An empty one, too."""
    empty = build(MemoryPart())
    assert (len(empty), empty.get(key_of(1)), empty.remove(key_of(1))) == (0, None, None)
    assert Index(empty).search(Query(("alpha",), ("tag:a",), words=(("alpha",),)), 10).total == 0
    assert Index(empty).search(Query(), 10).matches == []


def test_a_saved_index_comes_back_byte_for_byte(tmp_path: Path) -> None:
    """With documents of odd names, and none."""
    for count in (0, 1, 30):
        builder = Builder()
        for number in range(count):
            builder.add(
                document(number, number), ["tag:é\x00"], weights([(1.0, document_terms(normalise("数据 alpha")))])
            )
        part = PackedPart(builder.arrays())
        path = tmp_path / f"{count}.index"
        index_file.save(FileLayer(), path, part.arrays, {"n": count})
        loaded = index_file.load(FileLayer(), path)
        assert loaded is not None
        arrays, facts = loaded
        assert facts == {"n": count}
        for name in arrays.__dataclass_fields__:
            assert getattr(arrays, name).tobytes() == getattr(part.arrays, name).tobytes()
        assert not list(tmp_path.glob("*.tmp"))


def test_bounds_are_not_the_indexs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """More cards than a host may add are found all the same."""
    monkeypatch.setattr(catalogue, "PACK_FROM", 20)
    plant(world, range(30))
    with world.open(bounds=Bounds(cards=5), index_folder=world.folder / "index") as store:
        assert store.search(world.scope(), SearchRequest("run")).total == 30
