"""The one that sends a project's cards: at each record, and again for what an earlier life or an outage left behind.

Owns: the reconciler's thread, the lock that makes it the only one of a project, which card is looked at when. Does not
own: the card's words (`marking`), what leaves (`projection`), the outbox (behind `contracts.cards`).

A record is durable before anything here runs; then, still before its answer: projection, admission to the outbox, the
card says `queued`. What cannot be done stays `pending` and is done later by the reconciler: at the start, every
`interval_seconds`, and at most `batch` cards a time. A card that waits, is a dead letter or was delivered while nobody
was told is recognised by its delivery id, which follows from its words: nothing is sent twice for a restart.

One host at a time owns a project's cards (`locks/indexer`, an advisory lock that falls with its process); another one
leaves its own cards pending, for the owner to find. An owner whose lock was taken from under it writes nothing more.

Threads: `record` in any; the reconciler's own, which alone waits and looks; outcomes are handed to it.

Source: DeepSeek Honcho specification, sections 29, 33; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from rlm_memory_host.artifacts.commit import Parts
from rlm_memory_host.artifacts.indexing import marking
from rlm_memory_host.artifacts.indexing.projection import project_card
from rlm_memory_host.contracts.cards import DROPPED, CardOutbox, Projection, Skipped
from rlm_memory_host.contracts.delivery import Redactor
from rlm_memory_host.contracts.delivery_ports import Outcome
from rlm_memory_host.contracts.records import ExperimentCardV1, IndexStateV1, Recorded
from rlm_memory_host.errors import HostError, StoreError, Unwritable
from rlm_memory_host.logs import LOGGER, RateLimited, where
from rlm_memory_host.process import FileLock
from rlm_memory_host.storage.index_cards import utc_text

UNSETTLED: Final = frozenset({"pending", "queued", "failed"})
LONGEST_SECONDS: Final = 86_400.0
"""The longest pause between two attempts at a card that the service refuses."""
STOP_SECONDS: Final = 5.0
_HELD_ELSEWHERE: Final = "another host sends this project's cards; it will find this one"
_ENDING: Final = "the host is ending; it is done after its next start"

PartsOf = Callable[[str], Parts]
"""The pieces of a project, by its id."""


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """How often the reconciler looks, and at how many cards a time."""

    interval_seconds: float = 60.0
    batch: int = 256


@dataclass(slots=True)
class _Tracked:
    """A delivery of this process whose outcome is awaited."""

    project: str
    experiment: str
    revision: str
    is_marked: bool = False
    outcome: tuple[Outcome, str] | None = None


class Indexer:
    """One for a host. `projects` names those whose cards an earlier life may have left behind."""

    def __init__(
        self,
        parts_of: PartsOf,
        outbox: CardOutbox,
        redact: Redactor,
        policy: IndexPolicy | None = None,
        *,
        projects: Callable[[], Iterable[str]] = tuple,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._parts_of = parts_of
        self._outbox = outbox
        self._redact = redact
        self._policy = policy or IndexPolicy()
        self._projects = projects
        self._now = now
        self._owned: dict[str, FileLock] = {}
        self._known: set[str] = set()
        self._tracked: dict[str, _Tracked] = {}
        self._by_card: dict[tuple[str, str], str] = {}
        self._counters: Counter[str] = Counter()
        self._log = RateLimited(LOGGER)
        self._lock = threading.Lock()
        self._news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # -- life --------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin to listen and to look."""
        self._outbox.listen(self._heard)
        self._thread = threading.Thread(target=self._run, name="card-indexing", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End, and give the projects back; twice is once. What is under way is finished, `STOP_SECONDS` at most."""
        self._outbox.listen(None)
        self._stopping.set()
        self._news.put(None)
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        with self._lock:
            for lock in self._owned.values():
                lock.release()
            self._owned.clear()

    def status(self) -> dict[str, Any]:
        """Numbers and codes, content-free."""
        with self._lock:
            named = ("attempts", "queued", "indexed", "failed", "skipped", "passes", "errors", "withdrawn")
            skipped = {
                key.removeprefix("skipped:"): n for key, n in self._counters.items() if key.startswith("skipped:")
            }
            return {
                **{name: self._counters[name] for name in named},
                "skipped_codes": skipped,
                "awaited": len(self._tracked),
                "projects_owned": len(self._owned),
                "interval_seconds": self._policy.interval_seconds,
                "batch": self._policy.batch,
            }

    # -- at a record -------------------------------------------------------------------------------------------------
    def recorded(self, project: str, answer: Recorded) -> Recorded:
        """Send what was just recorded; the answer with what became of that. Never raises for it."""
        if answer.index_state not in ("pending", "failed"):
            return answer
        try:
            if not self._is_owner(project):
                why = _ENDING if self._stopping.is_set() else _HELD_ELSEWHERE
                return replace(answer, warnings=(*answer.warnings, f"not queued: {why}"))
            card = self._look(project, answer.experiment_id)
        except (HostError, OSError) as error:
            self._count("errors")
            code = getattr(error, "code", "STORE_UNAVAILABLE")
            self._log.warning(code, "card_not_queued code=%s", code)
            return replace(answer, warnings=(*answer.warnings, f"not queued yet: {code}; it is tried again"))
        if card is None:
            return answer
        warnings = answer.warnings
        if card.index.state == "disabled" and card.index.last_error_code:
            warnings = (*warnings, f"not sent to the memory service: {card.index.last_error_code}")
        return replace(
            answer,
            honcho_queued=card.index.state in ("queued", "indexed"),
            index_state=card.index.state,
            warnings=warnings,
        )

    # -- looking at one card -----------------------------------------------------------------------------------------
    def _look(self, project: str, experiment: str) -> ExperimentCardV1 | None:
        """Bring one card forward; the card as it is then."""
        parts = self._parts_of(project)
        card = parts.cards.read(experiment)
        made = project_card(card, self._redact)
        if isinstance(made, Skipped):
            self._count("skipped")
            self._count(f"skipped:{made.code}")
            return self._mark(parts, experiment, marking.disabled(made.code))
        revision = made.revision
        self._count("attempts")
        delivery = self._outbox.delivery_id(made)
        self._track(delivery, _Tracked(project, experiment, revision))
        try:
            if self._hand_in(delivery, made):
                marked = self._mark(parts, experiment, marking.queued(revision, utc_text(self._now())))
                self._count("queued")
                return marked
        except BaseException:
            self._untrack(delivery)
            raise
        finally:
            self._settled(delivery)
        self._untrack(delivery)
        return parts.cards.read(experiment)

    def _hand_in(self, delivery: str, made: Projection) -> bool:
        place = self._outbox.place(delivery)
        if place == "pending":
            return True
        if place == "dead":
            return self._outbox.revive(delivery)
        told = self._outbox.queue(made)
        if not told.queued:
            self._count("errors")
            raise Unwritable("the outbox did not take the card in", told.problem or None)
        return True

    def _mark(self, parts: Parts, experiment: str, change: marking.Change) -> ExperimentCardV1 | None:
        if not self._is_owner(parts.project_id):
            raise StoreError("another host owns this project's cards by now")
        return marking.mark(parts, experiment, change)

    # -- outcomes ----------------------------------------------------------------------------------------------------
    def _heard(self, delivery: str, outcome: Outcome, code: str) -> None:
        with self._lock:
            tracked = self._tracked.get(delivery)
            if tracked is None:
                return
            tracked.outcome = (outcome, code)
            is_ready = tracked.is_marked
        if is_ready:
            self._news.put(delivery)

    def _settled(self, delivery: str) -> None:
        """The card says what was done; an outcome that was faster is told now."""
        with self._lock:
            tracked = self._tracked.get(delivery)
            if tracked is None:
                return
            tracked.is_marked = True
            is_known = tracked.outcome is not None
        if is_known:
            self._news.put(delivery)

    def _conclude(self, delivery: str) -> None:
        with self._lock:
            tracked = self._tracked.get(delivery)
        if tracked is None or tracked.outcome is None:
            return
        outcome, code = tracked.outcome
        change = {
            "delivered": marking.indexed(tracked.revision),
            "dead": marking.failed(tracked.revision, code or "REMOTE_REJECTED", utc_text(self._now())),
            "dropped": marking.disabled(DROPPED),
        }[outcome]
        self._mark(self._parts_of(tracked.project), tracked.experiment, change)
        if outcome == "dead":
            # An operator may still give it another chance.
            tracked.outcome = None
        else:
            self._untrack(delivery)
        self._count({"delivered": "indexed", "dead": "failed", "dropped": "skipped"}[outcome])

    # -- the reconciler ----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        with self._lock:
            self._known.update(self._found())
        self._pass()
        while True:
            try:
                delivery = self._news.get(timeout=self._policy.interval_seconds)
            except queue.Empty:
                self._pass()
                continue
            if delivery is None:
                return
            # Also while the host ends: what was heard is written down.
            self._guarded(lambda name=delivery: self._conclude(name))

    def _found(self) -> set[str]:
        try:
            return set(self._projects())
        except (HostError, OSError) as error:
            LOGGER.error("card_projects_unknown %s", where(error))
            return set()

    def _pass(self) -> None:
        """One look at every project this host has to do with; bounded, and ended by `close`."""
        self._count("passes")
        with self._lock:
            projects = sorted(self._known)
        for project in projects:
            if self._stopping.is_set():
                return
            self._guarded(lambda name=project: self.reconcile(name))

    def reconcile(self, project: str) -> int:
        """Bring forward at most a batch of a project's cards; how many were looked at. Raises StoreError."""
        if not self._is_owner(project):
            return 0
        parts = self._parts_of(project)
        parts.catalogue.refresh()
        waiting = parts.catalogue.in_states(UNSETTLED)
        self._withdraw_removed(project, set(waiting), parts)
        looked = 0
        for experiment in waiting:
            if looked >= self._policy.batch or self._stopping.is_set():
                break
            if self._is_due(project, experiment, parts):
                looked += 1
                self._guarded(lambda name=experiment: self._look(project, name))
        return looked

    def _is_due(self, project: str, experiment: str, parts: Parts) -> bool:
        try:
            index = parts.cards.read(experiment).index
        except StoreError:
            return False
        with self._lock:
            delivery = self._by_card.get((project, experiment))
            tracked = None if delivery is None else self._tracked.get(delivery)
        if tracked is not None and index.state == "queued" and tracked.revision == index.projection_revision:
            return False
        if index.state != "queued" and self._outbox.is_open():
            return False
        return index.state != "failed" or self._has_rested(index)

    def _has_rested(self, index: IndexStateV1) -> bool:
        if index.last_attempt_at is None:
            return True
        pause = min(LONGEST_SECONDS, self._policy.interval_seconds * 2.0 ** min(index.attempts, 30))
        return (self._now() - datetime.fromisoformat(index.last_attempt_at)).total_seconds() >= pause

    def _withdraw_removed(self, project: str, waiting: set[str], parts: Parts) -> None:
        """A result that was removed here is not sent any more where that can still be helped."""
        with self._lock:
            missing = [
                (card, name) for (of, card), name in self._by_card.items() if of == project and card not in waiting
            ]
        for experiment, delivery in missing:
            if not parts.layout.card(experiment).exists():
                self._untrack(delivery)
                if self._outbox.withdraw(delivery):
                    self._count("withdrawn")

    # -- ownership and bookkeeping -----------------------------------------------------------------------------------
    def _is_owner(self, project: str) -> bool:
        with self._lock:
            self._known.add(project)
            held = self._owned.get(project)
            if held is not None and held.is_kept():
                return True
            self._owned.pop(project, None)
            if self._stopping.is_set():
                return False
            path = self._parts_of(project).layout.indexer
            if not path.parent.is_dir():
                return False
            lock = FileLock(path)
            if not lock.acquire():
                return False
            self._owned[project] = lock
            return True

    def _track(self, delivery: str, tracked: _Tracked) -> None:
        with self._lock:
            before = self._by_card.get((tracked.project, tracked.experiment))
            if before not in (None, delivery):
                self._tracked.pop(before, None)
            self._tracked[delivery] = tracked
            self._by_card[tracked.project, tracked.experiment] = delivery

    def _untrack(self, delivery: str) -> None:
        with self._lock:
            tracked = self._tracked.pop(delivery, None)
            if tracked is not None and self._by_card.get((tracked.project, tracked.experiment)) == delivery:
                del self._by_card[tracked.project, tracked.experiment]

    def _guarded(self, step: Callable[[], object]) -> None:
        """A fault at one card or project ends neither the others nor the thread."""
        try:
            step()
        except (HostError, OSError) as error:
            self._count("errors")
            code = getattr(error, "code", type(error).__name__)
            self._log.warning(code, "card_indexing_failed code=%s", code)
        except Exception as error:
            self._count("errors")
            self._log.warning(type(error).__name__, "card_indexing_failed %s", where(error))

    def _count(self, name: str) -> None:
        with self._lock:
            self._counters[name] += 1
