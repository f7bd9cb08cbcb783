"""Cards on their way out and back: what a card says, who sends it, what a crash leaves, what a search finds."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.artifacts import ArtifactStore, removal
from rlm_memory_host.artifacts.indexing.indexer import Indexer, IndexPolicy
from rlm_memory_host.assembly.indexed import IndexedArtifacts
from rlm_memory_host.contracts.cards import CardAnswer, MemoryCards, Projection, RemoteCard
from rlm_memory_host.contracts.records import Bounds, Recorded, RecordRequest, SearchRequest
from rlm_memory_host.contracts.remote import Queued
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import Disposed
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.storage.faults import Crashed, CrashingLayer, RecordingLayer
from rlm_memory_host.tools.hybrid import CardSources, search_cards

FAR = 1_000_000
STARTED = datetime(2026, 8, 21, tzinfo=UTC)


class Desk:
    """A store that sends its cards to a provider in memory; passes of the reconciler are made by hand."""

    def __init__(self, folder: Path, outbox: MemoryCards | None = None, **store: Any) -> None:
        self.folder = folder
        self.outbox = outbox or MemoryCards()
        self.now = STARTED
        self.store = ArtifactStore(folder / "store", Bounds(), index_state="pending", clock=lambda: self.now, **store)
        self.indexer = Indexer(
            self.store.parts_of, self.outbox, str, IndexPolicy(interval_seconds=60), now=lambda: self.now
        )
        self.outbox.listen(self.indexer._heard)
        self.metrics = Metrics()
        self.port = IndexedArtifacts(self.store, self.indexer, self.metrics)

    def scope(self, project: str = "trial-a", session: str = "session-1") -> Scope:
        folder = self.folder / "sessions" / session
        (folder / "exports").mkdir(parents=True, exist_ok=True)
        return Scope(project, session, folder)

    def record(self, data: bytes = b"abc", *, project: str = "trial-a", **changes: Any) -> Recorded:
        scope = self.scope(project)
        assert scope.exports is not None
        path = scope.exports / "result.bin"
        path.write_bytes(data)
        given = {
            "title": "Response by cohort",
            "summary": "Aggregate response per cohort.",
            "query_fingerprint": hashlib.sha256(b"q").hexdigest(),
            "source": "warehouse",
            "source_version": "v1",
            **changes,
        }
        return self.port.record(scope, RecordRequest(source_path=path, **given))

    def hear(self) -> None:
        """Let the reconciler write down what it heard."""
        while not self.indexer._news.empty():
            name = self.indexer._news.get()
            if name is not None:
                self.indexer._guarded(lambda name=name: self.indexer._conclude(name))

    def index(self, experiment: str, project: str = "trial-a") -> Any:
        return self.store.parts_of(project).cards.read(experiment).index

    def state(self, experiment: str) -> str:
        return self.index(experiment).state

    def close(self) -> None:
        self.indexer.close()
        self.store.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def test_a_record_is_queued_before_its_answer_and_indexed_when_the_service_says_so(desk: Desk) -> None:
    """`queued` says durable here; `indexed` only follows from the service's own word."""
    done = desk.record()
    assert (done.local_saved, done.honcho_queued, done.index_state) == (True, True, "queued")
    assert desk.state(done.experiment_id) == "queued"
    desk.outbox.deliver()
    desk.hear()
    assert desk.state(done.experiment_id) == "indexed"
    again = desk.record()
    assert (again.index_state, again.honcho_queued, again.deduplicated) == ("indexed", True, True)
    assert sum(desk.outbox.admitted.values()) == 1


def test_marking_changes_nothing_that_describes_and_loses_no_page(desk: Desk) -> None:
    """`updated_at` stays, and a hit that is marked between two pages is still on its page."""
    names = [desk.record(bytes([n]), title=f"Response {n}").experiment_id for n in range(4)]
    before = [desk.store.parts_of("trial-a").cards.read(name).updated_at for name in names]
    first = desk.store.search(desk.scope(), SearchRequest("response", limit=2))
    desk.now += timedelta(hours=1)
    desk.outbox.deliver()
    desk.hear()
    second = desk.store.search(desk.scope(), SearchRequest("response", limit=2, cursor=first.cursor))
    shown = {hit.experiment_id for page in (first, second) for hit in page.results}
    assert shown == set(names)
    assert not second.warnings
    assert [desk.store.parts_of("trial-a").cards.read(name).updated_at for name in names] == before
    assert desk.store.status(desk.scope())["project"]["indexed"] == 4


def test_other_words_are_a_new_revision_and_news_of_the_old_one_is_old(desk: Desk) -> None:
    """What was said of revision one while two is on its way marks nothing."""
    done = desk.record()
    desk.record(title="Response by arm")
    assert len(desk.outbox.pending) == 2
    first, second = desk.outbox.pending
    assert first != second
    desk.outbox.arrived[first] = desk.outbox.pending.pop(first)
    desk.outbox._told(first, "delivered", "")
    desk.hear()
    assert desk.state(done.experiment_id) == "queued"
    desk.outbox.deliver()
    desk.hear()
    assert desk.state(done.experiment_id) == "indexed"


def test_an_outbox_that_refuses_leaves_the_card_pending_and_the_reconciler_sends_it(desk: Desk) -> None:
    """The record succeeds and says that nothing is queued; the next look sends it, once."""
    desk.outbox.problem = "STORE_FULL"
    done = desk.record()
    assert (done.local_saved, done.honcho_queued, done.index_state) == (True, False, "pending")
    assert any("STORE_FULL" in warning for warning in done.warnings)
    desk.outbox.problem = ""
    assert desk.indexer.reconcile("trial-a") == 1
    assert desk.state(done.experiment_id) == "queued"
    assert desk.indexer.reconcile("trial-a") == 0
    assert sum(desk.outbox.admitted.values()) == 1


def test_a_card_with_nothing_to_say_stays_here_with_its_reason(desk: Desk) -> None:
    """Recorded, disabled, and the reason is in the answer and in the status."""
    done = desk.record(summary="/data/x/y.csv")
    assert (done.local_saved, done.honcho_queued, done.index_state) == (True, False, "disabled")
    assert any("EMPTY_AFTER_REDACTION" in warning for warning in done.warnings)
    assert desk.port.status(desk.scope())["indexing"]["skipped_codes"] == {"EMPTY_AFTER_REDACTION": 1}
    assert desk.indexer.reconcile("trial-a") == 0
    assert desk.record(summary="Aggregate response.").index_state == "queued"


def test_a_refused_card_fails_with_its_code_and_is_tried_again_ever_more_rarely(desk: Desk) -> None:
    """Dead letter: failed; after a pause that doubles it gets another chance through the same delivery."""
    done = desk.record()
    desk.outbox.refuse("REMOTE_REJECTED")
    desk.hear()
    index = desk.index(done.experiment_id)
    assert (index.state, index.last_error_code) == ("failed", "REMOTE_REJECTED")
    desk.now += timedelta(seconds=60)
    assert desk.indexer.reconcile("trial-a") == 0
    desk.now += timedelta(seconds=61)
    assert desk.indexer.reconcile("trial-a") == 1
    assert desk.state(done.experiment_id) == "queued"
    desk.outbox.refuse("REMOTE_REJECTED")
    desk.hear()
    desk.now += timedelta(seconds=200)
    assert desk.indexer.reconcile("trial-a") == 0
    desk.now += timedelta(days=2)
    assert desk.indexer.reconcile("trial-a") == 1
    desk.outbox.deliver()
    desk.hear()
    assert desk.state(done.experiment_id) == "indexed"


def test_what_an_operator_drops_is_not_sent_again(desk: Desk) -> None:
    """Dropped is dropped; only recording it with other words sends it."""
    done = desk.record()
    (delivery,) = desk.outbox.pending
    desk.outbox.pending.clear()
    desk.outbox._told(delivery, "dropped", "")
    desk.hear()
    index = desk.index(done.experiment_id)
    assert (index.state, index.last_error_code) == ("disabled", "DROPPED_BY_OPERATOR")
    assert desk.indexer.reconcile("trial-a") == 0


def test_a_result_removed_here_is_taken_back_where_that_can_be_helped(desk: Desk) -> None:
    """A waiting delivery of a removed result leaves the outbox; bringing the result back sends it again."""
    done = desk.record()
    removal.remove(desk.store.parts_of("trial-a"), done.experiment_id)
    desk.indexer.reconcile("trial-a")
    assert not desk.outbox.pending
    removal.bring_back(desk.store.parts_of("trial-a"), done.experiment_id)
    desk.indexer.reconcile("trial-a")
    assert len(desk.outbox.pending) == 1


def test_while_the_circuit_is_open_the_reconciler_hands_nothing_new_in(desk: Desk) -> None:
    """It waits with the rest."""
    desk.outbox.problem = "STORE_FULL"
    done = desk.record()
    desk.outbox.problem, desk.outbox.is_away = "", True
    assert desk.indexer.reconcile("trial-a") == 0
    desk.outbox.is_away = False
    assert desk.indexer.reconcile("trial-a") == 1
    assert desk.state(done.experiment_id) == "queued"


def test_a_pass_is_bounded(tmp_path: Path) -> None:
    """So many cards a time, and the next pass goes on."""
    desk = Desk(tmp_path)
    desk.indexer._policy = IndexPolicy(60, batch=3)
    desk.outbox.problem = "STORE_FULL"
    for number in range(7):
        desk.record(bytes([number]))
    desk.outbox.problem = ""
    assert [desk.indexer.reconcile("trial-a") for _ in range(4)] == [3, 3, 1, 0]
    desk.close()


def test_one_host_owns_a_project_and_finds_what_another_left_pending(tmp_path: Path) -> None:
    """The second host records and does not send; the first finds it. Its end hands the project over."""
    outbox = MemoryCards()
    one, two = Desk(tmp_path, outbox), Desk(tmp_path, outbox)
    one.record(b"one")
    left = two.record(b"two")
    assert (left.honcho_queued, left.index_state) == (False, "pending")
    assert any("another host" in warning for warning in left.warnings)
    assert two.indexer.reconcile("trial-a") == 0
    outbox.listen(one.indexer._heard)
    assert one.indexer.reconcile("trial-a") == 1
    assert one.record(b"b", project="trial-b").honcho_queued, "another project is another lock"
    one.close()
    assert two.record(b"three").honcho_queued
    two.close()


def test_an_owner_whose_lock_was_taken_writes_nothing_more(desk: Desk) -> None:
    """A stale owner hears of a delivery and leaves the card to the new one."""
    done = desk.record()
    path = desk.store.parts_of("trial-a").layout.indexer
    path.unlink()
    other = Desk(desk.folder, MemoryCards())
    assert other.indexer.reconcile("trial-a") == 1
    desk.outbox.deliver()
    desk.hear()
    assert desk.state(done.experiment_id) == "queued"
    assert desk.indexer.status()["errors"] == 1
    other.close()


def test_a_restart_recognises_what_was_delivered_while_nobody_was_told(tmp_path: Path) -> None:
    """Queued here, gone from the outbox: the same delivery is handed in again, to be found at the service."""
    outbox = MemoryCards()
    one = Desk(tmp_path, outbox)
    done = one.record()
    one.close()
    outbox.deliver()
    two = Desk(tmp_path, outbox)
    assert two.indexer.reconcile("trial-a") == 1
    outbox.deliver()
    two.hear()
    assert two.state(done.experiment_id) == "indexed"
    assert len(outbox.arrived) == 1
    two.close()


def test_the_reconciler_s_own_thread_begins_with_what_an_earlier_life_left(tmp_path: Path) -> None:
    """No record is needed: a start looks at the projects in the store."""
    handed_in = threading.Event()

    class Telling(MemoryCards):
        def queue(self, projection: Projection) -> Queued:
            told = super().queue(projection)
            if told.queued:
                handed_in.set()
            return told

    outbox = Telling()
    outbox.problem = "STORE_FULL"
    one = Desk(tmp_path, outbox)
    done = one.record()
    one.close()
    outbox.problem = ""
    two = Desk(tmp_path, outbox)
    two.indexer._projects = two.store.known_projects
    two.indexer.start()
    assert handed_in.wait(30)
    two.close()
    three = Desk(tmp_path, outbox)
    assert three.state(done.experiment_id) == "queued"
    three.close()


def test_after_the_host_began_to_end_nothing_is_taken_and_the_words_say_so(desk: Desk) -> None:
    """The result is kept; its card is sent after the next start."""
    desk.record(b"first")
    desk.indexer.close()
    done = desk.record(b"second")
    assert (done.local_saved, done.honcho_queued) == (True, False)
    assert any("next start" in warning for warning in done.warnings)
    desk.store.close()
    with pytest.raises(Disposed):
        desk.record(b"third")


def test_a_crash_at_any_change_of_the_disk_ends_with_one_card_delivered(tmp_path: Path) -> None:
    """The process ends at each write, flush and rename of a record and its marks; the next start finishes the job."""
    recording = RecordingLayer()
    whole = Desk(tmp_path / "whole", files=recording)
    whole.record()
    whole.outbox.deliver()
    whole.hear()
    whole.close()
    steps = len(recording.changes)
    assert steps > 12
    for at in range(1, steps + 1):
        folder = tmp_path / f"crash-{at}"
        outbox = MemoryCards()
        layer = CrashingLayer(at)
        first = Desk(folder, outbox, files=layer)
        done: Recorded | None = None
        try:
            done = first.record()
            outbox.deliver()
            first.hear()
        except Crashed:
            pass
        with contextlib.suppress(Crashed):
            first.close()
        second = Desk(folder, outbox)
        second.indexer.reconcile("trial-a")
        outbox.deliver()
        second.hear()
        kept = second.store.search(second.scope(), SearchRequest()).results
        assert len(kept) >= (done is not None)
        for hit in kept:
            assert hit.index_state == "indexed", f"step {at}"
        assert len(outbox.arrived) == len(kept), f"step {at}"
        second.close()


# -- searching here and there ------------------------------------------------------------------------------------------
def found(desk: Desk, query: str, remote: Any, **more: Any) -> dict[str, Any]:
    sources = CardSources(desk.port, remote, desk.metrics, **more)
    return search_cards(sources, desk.scope(), SearchRequest(query, limit=more.pop("limit", 10) if more else 10))


class Scripted:
    """A remote that answers with these cards."""

    def __init__(self, *cards: RemoteCard, problem: str = "") -> None:
        self.answer = CardAnswer(cards, problem)
        self.asked = 0

    def search(self, query: str, *, project: str, limit: int, deadline_seconds: float) -> CardAnswer:
        self.asked += 1
        return self.answer


def remote_card(experiment: str, artifact: str, score: float = 1.0, **changes: Any) -> RemoteCard:
    given: dict[str, Any] = {
        "title": "From there", "summary": "Told by the service.", "source": "warehouse", "source_version": "v1",
        "query_fingerprint": "0" * 64, "shape": None, "columns": None, "tags": (), "session_id": "s",
        "created_at": "2026-08-21T00:00:00Z", **changes,
    }  # fmt: skip
    return RemoteCard(experiment, artifact, score=score, **given)


ELSEWHERE = ("exp_" + "a" * 52, "art_" + "a" * 52)


def test_a_card_that_only_meaning_finds_is_shown_as_it_is_here(desk: Desk) -> None:
    """The service's words lead to it; title, version and availability are the local card's."""
    done = desk.record()
    told = remote_card(done.experiment_id, done.artifact_id, title="An older title")
    value = found(desk, "patients getting better", Scripted(told))
    (hit,) = value["results"]
    assert (hit["title"], hit["local_available"], hit["found_in"]) == ("Response by cohort", True, ["local", "remote"])
    assert hit["matched"] == ["semantic"]


def test_a_card_that_is_not_here_says_so_and_one_that_was_removed_says_that(desk: Desk) -> None:
    """Neither is offered as if its bytes were here."""
    done = desk.record()
    removal.remove(desk.store.parts_of("trial-a"), done.experiment_id)
    value = found(desk, "cohort", Scripted(remote_card(done.experiment_id, done.artifact_id), remote_card(*ELSEWHERE)))
    by_id = {hit["experiment_id"]: hit for hit in value["results"]}
    assert by_id[done.experiment_id]["removed"]
    assert not by_id[done.experiment_id]["local_available"]
    assert not by_id[ELSEWHERE[0]]["removed"]
    assert not by_id[ELSEWHERE[0]]["local_available"]
    assert len(value["warnings"]) == 2


def test_a_card_without_a_version_counts_only_where_it_is_or_was_here(desk: Desk) -> None:
    """Its identity cannot be recomputed, so it must be known."""
    done = desk.record(source_version="/data/x/y.csv")
    known = remote_card(done.experiment_id, done.artifact_id, source_version="")
    value = found(desk, "anything", Scripted(known, remote_card(*ELSEWHERE, source_version="")))
    assert [hit["experiment_id"] for hit in value["results"]] == [done.experiment_id]
    assert desk.metrics.value("scope_rejections", "card-unverifiable") == 1


def test_exact_matches_here_come_first_and_the_order_is_always_the_same(desk: Desk) -> None:
    """A tag that matches whole beats what the service likes best; equal scores go by id."""
    exact = desk.record(b"one", tags=("cohort",), title="A", summary="Nothing alike.")
    words = desk.record(b"two", title="The cohort of cohort", summary="cohort")
    others = [remote_card("exp_" + letter * 52, "art_" + letter * 52, 5.0) for letter in "cab"]
    first = found(desk, "cohort", Scripted(*others))
    names = [hit["experiment_id"] for hit in first["results"]]
    assert names[0] == exact.experiment_id
    assert words.experiment_id in names
    assert names == [hit["experiment_id"] for hit in found(desk, "cohort", Scripted(*reversed(others)))["results"]]


def test_the_service_gets_a_third_of_a_full_page_and_no_local_hit_is_lost(desk: Desk) -> None:
    """Its hits take places, and the cursor leads to the local ones that made room."""
    names = {desk.record(bytes([n]), title=f"Cohort {n}").experiment_id for n in range(6)}
    sources = CardSources(desk.port, Scripted(remote_card(*ELSEWHERE)), desk.metrics)
    first = search_cards(sources, desk.scope(), SearchRequest("cohort", limit=3))
    assert len(first["results"]) == 3
    assert ELSEWHERE[0] in {hit["experiment_id"] for hit in first["results"]}
    seen = {hit["experiment_id"] for hit in first["results"]} - {ELSEWHERE[0]}
    cursor = first["cursor"]
    while cursor:
        page = search_cards(sources, desk.scope(), SearchRequest("cohort", limit=3, cursor=cursor))
        seen |= {hit["experiment_id"] for hit in page["results"]}
        cursor = page["cursor"]
    assert seen == names


def test_a_service_that_hangs_or_fails_takes_no_local_hit_away(desk: Desk) -> None:
    """Its deadline is its own; the answer says why it gave nothing."""
    done = desk.record()
    release = threading.Event()

    class Hanging:
        def search(self, query: str, **_: Any) -> CardAnswer:
            release.wait(30)
            return CardAnswer()

    class Broken:
        def search(self, query: str, **_: Any) -> CardAnswer:
            raise RuntimeError("broken")

    for remote, code in ((Hanging(), "remote-timeout"), (Broken(), "remote-failed"), (Scripted(problem="X"), "X")):
        value = found(desk, "cohort", remote, remote_seconds=0.05)
        assert [hit["experiment_id"] for hit in value["results"]] == [done.experiment_id]
        assert any(code in warning for warning in value["warnings"])
    release.set()


def test_a_local_search_that_hangs_takes_no_remote_hit_away(desk: Desk) -> None:
    """The other way round."""
    done = desk.record()
    release = threading.Event()

    class Stuck:
        look = desk.port.look

        def search(self, scope: Any, request: Any) -> Any:
            release.wait(30)
            return desk.port.search(scope, request)

    told = Scripted(remote_card(done.experiment_id, done.artifact_id))
    value = search_cards(
        CardSources(Stuck(), told, desk.metrics, local_seconds=0.05), desk.scope(), SearchRequest("cohort")
    )
    assert [hit["experiment_id"] for hit in value["results"]] == [done.experiment_id]
    release.set()


@pytest.mark.parametrize("narrowed", [{"tag": "x"}, {"source": "x"}, {"since": "2026-01-01"}, {"session": "x"}])
def test_lists_filters_and_later_pages_ask_nobody_else(desk: Desk, narrowed: dict[str, str]) -> None:
    """Only a question in words leaves the machine."""
    remote = Scripted()
    sources = CardSources(desk.port, remote, desk.metrics)
    search_cards(sources, desk.scope(), SearchRequest("cohort", **narrowed))
    search_cards(sources, desk.scope(), SearchRequest(""))
    assert remote.asked == 0
