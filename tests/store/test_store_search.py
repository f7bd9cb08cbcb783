"""Results are found by what they say, exactly named ones first, in pages that stay the same."""

from __future__ import annotations

import json
import random
import unicodedata
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_memory_host.artifacts import ArtifactStore, searching
from rlm_memory_host.contracts.records import Bounds, SearchRequest
from rlm_memory_host.errors import StoreError
from rlm_memory_host.storage import catalogue
from rlm_memory_host.storage.faults import RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.index import Index
from rlm_memory_host.storage.ranking import Document, Query, weights
from rlm_memory_host.storage.tokens import document_terms, normalise, query_terms
from store_harness import World, card_json, find, fingerprint, list_all


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Python 3.10 \u517c\u5bb9", ["python", "3.10", "\u517c", "\u5bb9", "\u517c\u5bb9"]),
        ("C C++ C#", ["c", "c++", "c#"]),
        ("the treatment responses", ["treatment", "responses", "respons"]),
        ("the who", ["the", "who"]),
        ("foo.bar-baz", ["foo.bar-baz", "foo", "bar", "baz"]),
        ("3.10-beta", ["3.10-beta", "3.10", "beta"]),
        ("2026.08.21.", ["2026.08.21"]),
        ("cohort_rate", ["cohort_rate"]),
        ("C++11", ["c++11", "c", "11"]),
        ("caf\u00e9", ["caf\u00e9"]),
        ("\uc218\u517c\u6771", ["\uc218", "\u517c", "\u6771", "\uc218\u517c", "\u517c\u6771"]),
        ("ok \U0001f600\U0001f44d\U0001f3fd", ["ok", "\U0001f600", "\U0001f44d\U0001f3fd"]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", ["\u0939\u093f\u0928\u094d\u0926\u0940"]),
        ("Stra\u00dfe", ["strasse", "strass"]),
        ("\uff21\uff22\uff23", ["abc"]),
        ("", []),
        ("... --- +++", []),
    ],
)
def test_how_stored_text_becomes_terms(text: str, terms: list[str]) -> None:
    """The examples of the design page, and their neighbours."""
    assert document_terms(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        (
            "\u6570\u636e\u5e93\u8fde\u63a5\u6c60",
            ["\u6570\u636e", "\u636e\u5e93", "\u5e93\u8fde", "\u8fde\u63a5", "\u63a5\u6c60"],
        ),
        ("\ub05d\ub9d0\uc787\uae30", ["\ub05d\ub9d0", "\ub9d0\uc787", "\uc787\uae30"]),
        ("\u517c", ["\u517c"]),
        ("run run RUN", ["run"]),
    ],
)
def test_how_a_query_becomes_terms(text: str, terms: list[str]) -> None:
    """Pairs only, each term once."""
    assert query_terms(text) == terms


@pytest.mark.parametrize(
    "text", ["CAF\u00c9", "cafe\u0301", "CAFE\u0301", "ca\u200bf\u00e9", "\u202ecaf\u00e9", "caf\u00e9\ufe0f"]
)
def test_spellings_of_one_word_are_one_term(text: str) -> None:
    """Case, composition, zero width and bidi characters do not matter."""
    assert document_terms(text) == ["caf\u00e9"]


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_finds_itself(text: str) -> None:
    """A text's query terms are among its document terms, and normalising twice changes nothing."""
    assert set(query_terms(text)) <= set(document_terms(text))
    assert normalise(normalise(text)) == normalise(text)
    assert unicodedata.is_normalized("NFKC", normalise(text))


@given(st.text(st.characters(codec="ascii"), max_size=60) | st.text("aC+#-. the_run3\n\x1c", max_size=30))
@settings(deadline=None)
def test_plain_text_is_read_as_any_other(text: str) -> None:
    """The fast way of ASCII text gives the terms that the way of all scripts gives."""
    assert document_terms(f"zzz {text} é") == [*document_terms(f"zzz {text}"), "é"]


_SOME = """skies dying lying tying idly gently ugly early only singly news howe atlas cosmos bias andes inning
    outing canning herring earring proceed exceed succeed yes yields youthful sayings generate communism arsenic
    responses treatments weekly rates happily hopping hoped relational the of"""
INFLECTED = _SOME.split()


@given(st.lists(st.sampled_from(INFLECTED) | st.from_regex(r"[a-z]{1,12}", fullmatch=True), max_size=6), st.data())
@settings(deadline=None)
def test_why_a_text_matched_is_what_its_terms_say(words: list[str], data: st.DataObject) -> None:
    """Looking for a term in a text finds it exactly where it is among the text's terms: words, stems, stop words."""
    text = " ".join(words)
    terms = document_terms(text)
    assert {term for word in words for term in document_terms(word) if term[0] != word[0]} == set()
    one = data.draw(st.sampled_from([*terms, *INFLECTED, "die", "sky", "hope", "respons"]))
    assert searching._has(text, frozenset([one])) is (one in terms)


def fill(world: World, store: ArtifactStore, titles: list[str], **fields: object) -> list[str]:
    return [
        world.record(store, title.encode(), title=title, query_fingerprint=fingerprint(number), **fields).experiment_id
        for number, title in enumerate(titles)
    ]


def test_words_in_any_form_find_a_result_and_say_why(world: World, store: ArtifactStore) -> None:
    """Stems, parts of names, tags, columns, numbers of a shape, another script."""
    done = world.record(
        store,
        b"x",
        title="Treatment responses by cohort",
        summary="\u6570\u636e\u5e93\u8fde\u63a5\u6c60 overview",
        tags=("Ward-7",),
        columns=("weekly_rate", "C#"),
        shape=(1_234, 5),
        source="trial_warehouse",
    )
    world.record(
        store, b"y", title="Unrelated", summary="nothing", source="elsewhere", query_fingerprint=fingerprint(1)
    )
    for query, reason in {
        "response": "title",
        "RESPONDED cohorts": "title",
        "\u8fde\u63a5": "summary",
        "weekly": "columns",
        "c#": "columns",
        "1234": "shape",
        "warehouse": "source",
        "ward": "tags",
        "ward-7": "exact:tag",
    }.items():
        page = store.search(world.scope(), SearchRequest(query))
        assert [hit.experiment_id for hit in page.results] == [done.experiment_id], query
        assert reason in page.results[0].matched, query
        assert page.total == 1
    assert find(store, world.scope(), "nowhere") == []


def test_exact_names_come_before_words(world: World, store: ArtifactStore) -> None:
    """Ids, digest, fingerprint, tag and version as the query rank first, however often others say the word."""
    loud = fill(world, store, [f"alpha {n} alpha alpha" for n in range(4)], summary="alpha " * 50)
    quiet = world.record(
        store, b"q", title="beta", tags=("alpha",), source_version="alpha 9", query_fingerprint="a" * 64
    )
    for query, reason in {
        "alpha": "exact:tag",
        "ALPHA": "exact:tag",
        "alpha 9": "exact:source_version",
        quiet.experiment_id: "exact:experiment_id",
        f"alpha {quiet.experiment_id}": "exact:experiment_id",
        quiet.artifact_id: "exact:artifact_id",
        quiet.sha256: "exact:artifact_id",
        "a" * 64: "exact:query_fingerprint",
    }.items():
        first = store.search(world.scope(), SearchRequest(query)).results[0]
        assert (first.experiment_id, first.matched[0]) == (quiet.experiment_id, reason)
    assert set(find(store, world.scope(), "alpha")) == {quiet.experiment_id, *loud}


def test_an_empty_query_lists_the_newest_first(world: World) -> None:
    """By time of update; results of one moment by id."""
    moments = iter(datetime(2026, 8, 21, tzinfo=UTC) + timedelta(seconds=n // 2) for n in (0, 1, 2, 3, 4, 9))
    with world.open(clock=lambda: next(moments)) as store:
        done = fill(world, store, [f"run {n}" for n in range(5)])
        cards = [store.resolve(world.scope(), experiment) for experiment in done]
        expected = sorted(sorted(cards, key=lambda card: card.experiment_id), key=lambda c: c.updated_at, reverse=True)
        assert find(store, world.scope()) == [card.experiment_id for card in expected]
        oldest = expected[-1]
        world.record(store, oldest.title.encode(), title="again", query_fingerprint=oldest.query_fingerprint)
        assert find(store, world.scope(), limit=1) == [oldest.experiment_id]


def test_filters_narrow_what_is_found(world: World) -> None:
    """Tag, source, session and time, alone and with words."""
    moments = iter(datetime(2026, 8, day, tzinfo=UTC) for day in range(1, 31))
    with world.open(clock=lambda: next(moments)) as store:
        scope = world.scope(session="session-2")
        one = world.record(store, b"1", title="alpha", tags=("Red",), source="Lake")
        two = world.record(store, b"2", title="alpha", tags=("blue",), source="sea")
        three = store.record(scope, _request(world, b"3", session="session-2", title="alpha beta", tags=("red",)))
        ids = {1: one.experiment_id, 2: two.experiment_id, 3: three.experiment_id}
        for fields, expected in (
            ({"tag": "red"}, {1, 3}),
            ({"tag": "re"}, set()),
            ({"source": "lake"}, {1}),
            ({"session": "session-2"}, {3}),
            ({"since": store.resolve(scope, ids[2]).updated_at}, {2, 3}),
            ({"since": "2027-01-01"}, set()),
            ({"tag": "RED", "session": "session-1"}, {1}),
            ({"kind": "experiment-card"}, {1, 2, 3}),
            ({"kind": "fact"}, set()),
        ):
            for query in ("", "alpha"):
                page = store.search(scope, SearchRequest(query, **fields))
                assert {hit.experiment_id for hit in page.results} == {ids[n] for n in expected}, (fields, query)
                assert page.total == len(expected)


def _request(world: World, data: bytes, session: str, **fields: object):
    from store_harness import request

    return request(world.write(data, session=session), **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 0},
        {"limit": 51},
        {"limit": True},
        {"since": "yesterday"},
        {"cursor": "nonsense"},
        {"cursor": "W10"},
        {"cursor": "\u00e9"},
        {"cursor": ""},
        {"query": "q" * 2_001},
        {"tag": 7},
    ],
)
def test_a_bad_search_is_refused_by_name(world: World, store: ArtifactStore, fields: dict[str, object]) -> None:
    """With the argument in the message."""
    with pytest.raises(StoreError, match=next(iter(fields))) as caught:
        store.search(world.scope(), SearchRequest(**fields))  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("query", ["", "alpha", "alpha run"])
def test_pages_show_everything_once_while_results_are_added(world: World, store: ArtifactStore, query: str) -> None:
    """A cursor sees the collection of its first page."""
    done = fill(world, store, [f"run alpha {n}" for n in range(12)])
    seen: list[str] = []
    cursor = None
    for round_ in range(10):
        page = store.search(world.scope(), SearchRequest(query, limit=5, cursor=cursor))
        assert page.total == 12
        seen += [hit.experiment_id for hit in page.results]
        cursor = page.cursor
        if cursor is None:
            break
        world.record(store, f"new {round_}".encode(), title="alpha alpha", query_fingerprint=fingerprint(f"n{round_}"))
    assert sorted(seen) == sorted(done)
    assert len(find(store, world.scope(), query, limit=20)) == 14


def test_a_cursor_is_good_for_its_own_query_and_project(world: World, store: ArtifactStore) -> None:
    """Any other use is refused, and after a restart the page says that it starts from a new view."""
    fill(world, store, [f"alpha {n}" for n in range(4)])
    cursor = store.search(world.scope(), SearchRequest("alpha", limit=2)).cursor
    assert cursor is not None
    for scope, query, tag in (
        (world.scope(), "beta", None),
        (world.scope(), "alpha", "t"),
        (world.scope("b"), "alpha", None),
    ):
        with pytest.raises(StoreError, match="cursor"):
            store.search(scope, SearchRequest(query, cursor=cursor, tag=tag))
    page = store.search(world.scope(), SearchRequest("alpha", limit=2, cursor=cursor))
    assert (len(page.results), page.cursor, page.warnings) == (2, None, ())


def test_a_page_is_never_longer_than_its_bound_and_says_so(world: World) -> None:
    """The rest comes by cursor."""
    with world.open(bounds=Bounds(search_results=3)) as store:
        fill(world, store, [f"alpha {n}" for n in range(5)])
        page = store.search(world.scope(), SearchRequest("alpha", limit=50))
        assert (len(page.results), page.total) == (3, 5)
        assert page.cursor
        assert page.warnings


def plant(world: World, numbers: range, **fields: object) -> list[str]:
    """Cards put straight into the store, as another host or an operator would."""
    world.layout.cards.mkdir(parents=True, exist_ok=True, mode=0o700)
    done = []
    for number in numbers:
        experiment, document = card_json(world.project, f"{number}".encode(), number, **fields)
        kind = "alpha" if number % 997 == 0 else "beta"
        document |= {"title": f"run {number} {kind}", "summary": "word " * 40}
        world.layout.card(experiment).write_text(json.dumps(document))
        done.append(experiment)
    return done


def test_cards_that_others_add_change_and_remove_are_noticed(world: World, store: ArtifactStore) -> None:
    """At once, without a restart."""
    world.record(store, b"first")
    assert len(find(store, world.scope())) == 1
    planted = plant(world, range(1, 4))
    assert len(find(store, world.scope())) == 4
    assert find(store, world.scope(), "2") == [planted[1]]
    experiment, document = card_json(world.project, b"2", 2)
    document["title"] = "entirely different"
    fresh = world.layout.temporary / "edit"
    fresh.write_text(json.dumps(document))
    fresh.replace(world.layout.card(experiment))
    assert find(store, world.scope(), "entirely") == [experiment]
    assert find(store, world.scope(), "beta 2") != [experiment]
    world.layout.card(planted[0]).unlink()
    assert planted[0] not in find(store, world.scope())
    with world.open() as other:
        new = world.record(other, b"by another host", title="neighbour", query_fingerprint=fingerprint("n"))
    assert find(store, world.scope(), "neighbour") == [new.experiment_id]


class CoarseLayer(FileLayer):
    """A file system whose clock ticks only when a test says so, as those with whole seconds do for a while."""

    tick = 10**18

    def stat(self, path: Path) -> Any:
        state = super().stat(path)
        return SimpleNamespace(
            st_ino=state.st_ino,
            st_size=state.st_size,
            st_dev=state.st_dev,
            st_mtime_ns=self.tick,
            st_ctime_ns=self.tick,
        )


def test_a_card_added_in_the_tick_of_a_scan_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time stamps are coarse the folder may look unchanged; it is looked at again until it cannot."""
    layer = CoarseLayer()
    monkeypatch.setattr(catalogue, "file_clock_ns", lambda: layer.tick)
    plant(world, range(2))
    with world.open(files=layer) as store:
        assert len(find(store, world.scope())) == 2
        plant(world, range(2, 3))
        assert len(find(store, world.scope())) == 3


def test_broken_cards_never_keep_the_good_ones_from_being_found(world: World) -> None:
    """Malformed, of the future, of another project, misnamed, a folder, a link: skipped, counted, never served."""
    good = plant(world, range(3))
    cards = world.layout.cards
    foreign, document = card_json("project-b", b"foreign")
    (cards / f"{foreign}.json").write_text(json.dumps(document))
    future, document = card_json(world.project, b"future")
    (cards / f"{future}.json").write_text(json.dumps(document | {"schemaVersion": 9}))
    (cards / f"exp_{'a' * 52}.json").write_text((cards / f"{good[0]}.json").read_text())
    (cards / f"exp_{'b' * 52}.json").write_text("{")
    (cards / f"exp_{'c' * 52}.json").write_bytes(b"\x00" * 400_000)
    (cards / f"exp_{'d' * 52}.json").mkdir()
    (cards / f"exp_{'e' * 52}.json").symlink_to(cards / f"{good[0]}.json")
    (cards / "notes.txt").write_text("not a card")
    (cards / f"{good[0]}.ext.json").write_text("{")
    with world.open() as store:
        assert sorted(find(store, world.scope())) == sorted(good)
        codes = {diagnostic.name[:8]: diagnostic.code for diagnostic in store.diagnostics(world.scope())}
        assert codes == {
            foreign[:8]: "INVALID_SCOPE",
            future[:8]: "UNSUPPORTED_VERSION",
            "exp_aaaa": "VALIDATION",
            "exp_bbbb": "VALIDATION",
            "exp_cccc": "VALIDATION",
            "exp_dddd": "UNSAFE_FILESYSTEM_ENTRY",
            "exp_eeee": "UNSAFE_FILESYSTEM_ENTRY",
        }
        assert store.status(world.scope())["project"]["skipped"] == 7


def test_no_call_reads_every_card(world: World) -> None:
    """After the first look, a search reads the cards it shows, a record none but its own, and results are complete."""
    plant(world, range(3_000))
    layer = RecordingLayer()
    with world.open(files=layer) as store:
        scope = world.scope()
        assert store.search(scope, SearchRequest("alpha")).total == 4
        layer.looks.clear()
        store.search(scope, SearchRequest("beta", limit=10))
        assert sum(look.target.endswith(".json") for look in layer.looks) == 10
        layer.looks.clear()
        done = world.record(store, b"new", title="omega")
        assert {Path(look.target).stem for look in layer.looks if look.target.endswith(".json")} == {done.experiment_id}
        assert find(store, scope, "omega") == [done.experiment_id]
        assert not [look for look in layer.looks if look.name == "scan" and look.target == str(world.layout.cards)]


@pytest.mark.slow
def test_twenty_thousand_cards_are_found_completely(world: World) -> None:
    """With the bound raised: every match, counted, in pages; once the index is there, only what is shown is read."""
    plant(world, range(20_000))
    layer = RecordingLayer()
    with world.open(bounds=Bounds(cards=30_000, raised=True), files=layer) as store:
        find(store, world.scope(), "nothing")
        layer.looks.clear()
        page = store.search(world.scope(), SearchRequest("alpha", limit=50))
        assert (page.total, len(page.results)) == (21, 20)
        assert page.cursor is not None
        assert sum(look.name == "open" and look.target.endswith(".json") for look in layer.looks) == 20
        assert len({hit.experiment_id for hit in list_all(store, world.scope(), query="alpha")}) == 21


# -- the index against a plain computation ----------------------------------------------------------------------------


def test_the_index_ranks_as_a_plain_computation_does() -> None:
    """Through adding, replacing, removing and compaction, for pages and filters, against scoring every document."""
    chance = random.Random(7)
    words = [f"w{n}" for n in range(12)]
    index = Index()
    plain: dict[str, tuple[str, list[str], list[str]]] = {}
    for step in range(1_500):
        key = f"k{chance.randrange(40):02}"
        if chance.random() < 0.2:
            index.remove(key)
            plain.pop(key, None)
        else:
            terms = chance.choices(words, weights=range(1, 13), k=chance.randint(1, 9))
            updated = f"2026-01-{chance.randint(1, 4):02}"
            tags = chance.sample(["tag:a", "tag:b", "tag:c"], chance.randint(0, 2))
            index.add(Document(key, updated), tags, weights([(1.0, terms)]))
            plain[key] = (updated, terms, tags)
        if step % 10:
            continue
        query = Query(
            tuple(chance.sample(words, chance.randint(0, 4))),
            ("tag:a",) if chance.random() < 0.3 else (),
            ("tag:b",) if chance.random() < 0.3 else (),
            "2026-01-02" if chance.random() < 0.3 else None,
        )
        limit, offset = chance.randint(1, 8), chance.randint(0, 5)
        found = index.search(query, limit, offset)
        matches, total = found.matches, found.total
        everything = index.search(query, 1_000).matches
        assert [match.key for match in matches] == [match.key for match in everything][offset : offset + limit]
        assert {match.key for match in everything} == expected_keys(plain, query)
        assert total == len(everything)
        order = [(not match.exact, -match.score) for match in everything]
        assert order == sorted(order)
        for one, two in pairwise(everything):
            if (bool(one.exact), one.score) == (bool(two.exact), two.score):
                assert (one.updated_at, two.key) > (two.updated_at, one.key) or one.updated_at > two.updated_at


def expected_keys(plain: dict[str, tuple[str, list[str], list[str]]], query: Query) -> set[str]:
    found = set()
    for key, (updated, terms, tags) in plain.items():
        if not set(query.required) <= set(tags) or (query.since and updated < query.since):
            continue
        if (not query.terms and not query.exact) or set(query.terms) & set(terms) or set(query.exact) & set(tags):
            found.add(key)
    return found
