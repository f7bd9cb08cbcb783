"""A search for experiment cards here and at the memory service, side by side, as one list.

Owns: the two deadlines, the merge, what is said of a result that only the service knows. Does not own: ranking here
(`artifacts`), which rows of the service are the caller's (`assembly.cards`).

The service is asked in a thread of its own while the local search runs, and waited for at most until its deadline; the
local part has its own, longer one. Neither's failure takes the other's results away. The merge is a pure function of
the two answers: exact matches here first, then by score (a local one counts whole, a remote one half, both together
where both found it), then by id. A card that the service found and that is here is shown as it is here. One that is
not here is shown as the service tells it, bounded and untrusted, and says so: its bytes are not here, or it was removed
here. Later pages are local ones.

Source: DeepSeek Honcho specification, sections 30.1, 31.4.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from rlm_memory_host.contracts.cards import CARD_CLASSIFICATION, CardAnswer, CardSearch, RemoteCard
from rlm_memory_host.contracts.records import SearchHit, SearchPage, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.tools.artifacts import ArtifactPort, fitting_page

REMOTE_SECONDS: Final = 1.5
LOCAL_SECONDS: Final = 30.0
MAX_QUERY: Final = 2_000
"""Characters of a query that leave this machine."""
REMOTE_WEIGHT: Final = 0.5
SEATS: Final = 3
"""One of so many places of a page is kept for what only the service found."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CardSources:
    """Where cards are looked for; `remote` None: only here."""

    artifacts: ArtifactPort
    remote: CardSearch | None
    metrics: Metrics
    remote_seconds: float = REMOTE_SECONDS
    local_seconds: float = LOCAL_SECONDS


def search_cards(sources: CardSources, scope: Scope, request: SearchRequest) -> dict[str, Any]:
    """The value of a page: results, total, cursor, warnings. Raises as the local search does."""
    narrowed = request.cursor or request.tag or request.source or request.since or request.session
    if sources.remote is None or narrowed or not request.query.strip():
        page = fitting_page(sources.artifacts, scope, request)
        _count(sources.metrics, page.results)
        return page.to_value()
    began = time.monotonic()
    remote, query = sources.remote, request.query[:MAX_QUERY]
    answer = _begin(
        lambda: remote.search(
            query, project=scope.project_id, limit=request.limit, deadline_seconds=sources.remote_seconds
        )
    )
    local = _begin(lambda: fitting_page(sources.artifacts, scope, request))
    page = _awaited(local, sources.local_seconds)
    found = _remote(answer, sources.remote_seconds - (time.monotonic() - began))
    value = _joined(sources, scope, request, page, found)
    sources.metrics.observe("card_merge_seconds", time.monotonic() - began)
    return value


def _joined(
    sources: CardSources, scope: Scope, request: SearchRequest, page: SearchPage | None, found: CardAnswer
) -> dict[str, Any]:
    warnings = [f"the memory service gave nothing: {found.problem}"] if found.problem else []
    known = sources.artifacts.look(scope, [card.experiment_id for card in found.cards]) if found.cards else {}
    usable = [card for card in found.cards if card.experiment_id in known or card.source_version]
    if len(usable) < len(found.cards):
        sources.metrics.count("scope_rejections", "card-unverifiable", len(found.cards) - len(usable))
    if page is None:
        warnings.append("the local search did not finish in time; only what the memory service knows is shown")
        page = SearchPage((), 0)
    extra = extras(page.results, usable, known)
    seats = min(len(extra), max(1, request.limit // SEATS) if request.limit > 1 else 0)
    if seats and len(page.results) + seats > request.limit:
        page = fitting_page(sources.artifacts, scope, replace(request, limit=request.limit - seats))
        extra = extras(page.results, usable, known)
    room = request.limit - len(page.results)
    results = merge(page.results, usable, extra[:room])
    _count(sources.metrics, results)
    warnings += _told(results)
    value = SearchPage(results, page.total + len(extra), page.cursor, (*page.warnings, *warnings))
    return value.to_value()


def extras(
    local: Sequence[SearchHit], remote: Sequence[RemoteCard], known: Mapping[str, SearchHit | None]
) -> list[SearchHit]:
    """What the service found and the page here does not have, best first: as it is here, or as the service tells it."""
    shown = {hit.experiment_id for hit in local}
    found: list[SearchHit] = []
    for card in remote:
        if card.experiment_id in shown:
            continue
        shown.add(card.experiment_id)
        here = known.get(card.experiment_id)
        if here is not None and here.artifact_id == card.artifact_id:
            found.append(replace(here, matched=("semantic",), found_in=("local", "remote")))
        else:
            found.append(_elsewhere(card, is_removed=card.experiment_id in known))
    return found


def merge(
    local: Sequence[SearchHit], remote: Sequence[RemoteCard], extra: Sequence[SearchHit]
) -> tuple[SearchHit, ...]:
    """One order: exact matches here, then by score, then by id. Pure."""
    here = _scaled({hit.experiment_id: hit.score for hit in local})
    there = _scaled({card.experiment_id: card.score for card in remote})
    ranked: list[tuple[bool, float, str, SearchHit]] = []
    for hit in (*local, *extra):
        name = hit.experiment_id
        score = here.get(name, 0.0) + REMOTE_WEIGHT * there.get(name, 0.0)
        is_exact = any(reason.startswith("exact:") for reason in hit.matched)
        if name in here and name in there:
            hit = replace(hit, matched=(*hit.matched, "semantic"), found_in=("local", "remote"))
        ranked.append((not is_exact, -round(score, 9), name, replace(hit, score=round(score, 6))))
    return tuple(hit for *_, hit in sorted(ranked, key=lambda entry: entry[:3]))


def _elsewhere(card: RemoteCard, *, is_removed: bool) -> SearchHit:
    return SearchHit(
        experiment_id=card.experiment_id,
        artifact_id=card.artifact_id,
        title=card.title,
        summary=card.summary,
        source=card.source,
        source_version=card.source_version or "unknown",
        query_fingerprint=card.query_fingerprint,
        shape=card.shape,
        columns=card.columns,
        tags=card.tags,
        media_type="",
        bytes=0,
        created_at=card.created_at,
        updated_at=card.created_at,
        session_id=card.session_id,
        index_state="indexed",
        local_available=False,
        matched=("semantic",),
        score=card.score,
        found_in=("remote",),
        removed=is_removed,
    )


def _told(results: Sequence[SearchHit]) -> list[str]:
    removed = sum(hit.removed for hit in results)
    absent = sum(hit.found_in == ("remote",) for hit in results) - removed
    warnings: list[str] = []
    if removed:
        warnings.append(f"{removed} of these results were removed here; the memory service still lists them")
    if absent:
        warnings.append(f"{absent} of these results are known to the memory service only; their bytes are not here")
    return warnings


def _scaled(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores to 0..1; the worst of several keeps a tenth, so that being found counts."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    if high <= low:
        return dict.fromkeys(scores, 1.0)
    return {key: 0.1 + 0.9 * (score - low) / (high - low) for key, score in scores.items()}


def _count(metrics: Metrics, results: Sequence[SearchHit]) -> None:
    for hit in results:
        metrics.count("card_hits", "both" if len(hit.found_in) > 1 else "".join(hit.found_in))


# -- two threads, two deadlines ----------------------------------------------------------------------------------------


def _begin(work: Callable[[], T]) -> queue.SimpleQueue[tuple[T | None, Exception | None]]:
    done: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((None, error))

    threading.Thread(target=run, name=f"{CARD_CLASSIFICATION}-search", daemon=True).start()
    return done


def _awaited(done: queue.SimpleQueue[tuple[T | None, Exception | None]], seconds: float) -> T | None:
    """What it gave; None where it did not finish in time. Raises what it raised."""
    try:
        given, error = done.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return None
    if error is not None:
        raise error
    return given


def _remote(done: queue.SimpleQueue[tuple[CardAnswer | None, Exception | None]], seconds: float) -> CardAnswer:
    try:
        given, error = done.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return CardAnswer(problem="remote-timeout")
    return CardAnswer(problem="remote-failed") if error is not None or given is None else given
