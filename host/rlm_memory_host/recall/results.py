"""Recorded results that speak of what a user just said, as items of an injection. Pure but for the search it is given.

Owns: which cards are near enough to be put before a model unasked, and what is said of one. Does not own: the search
(`artifacts`), seats and characters (`budget`).

A search for a whole message finds whatever shares a word with it. So a card counts only where it shares two telling
words with the message, or all where the message has fewer: four letters or more, or a character of a script without
spaces. Words are counted, not terms: one that stands beside its stem, or a joined one beside its parts, is one.

Source: design page "Recall, resident text, guard, audit, health, tools", Recall: the channel of experiment cards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rlm_memory_host.contracts.memory import Authority, Caller
from rlm_memory_host.contracts.records import SearchHit, SearchPage, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import HostError
from rlm_memory_host.recall import fusion
from rlm_memory_host.recall.items import Found
from rlm_memory_host.storage.tokens import telling_words

SEATS: Final = 2
LOOKED_AT: Final = 10
SHARED: Final = 2
TELLING_LETTERS: Final = 4
SUMMARY_CHARS: Final = 200

Search = Callable[[Scope, SearchRequest], SearchPage]


def for_message(search: Search, caller: Caller, message: str) -> Sequence[Found]:
    """The recorded results of the caller's project that a message speaks of, best first, at most `SEATS`.

    A search that fails finds nothing: an injection never fails for it.
    """
    telling = telling_words(message, TELLING_LETTERS)
    if not telling or not caller.project:
        return ()
    scope = Scope(project_id=caller.project, session_id=caller.session, session_dir=None, agent_kind=caller.agent_kind)
    try:
        hits = search(scope, SearchRequest(query=message, limit=LOOKED_AT)).results
    except (HostError, OSError):
        return ()
    near = [hit for hit in hits if not hit.removed and _is_near(hit, telling)][:SEATS]
    scores = fusion.scaled({hit.experiment_id: hit.score for hit in near})
    return [_item(hit, fusion.WEIGHTS["card"] * scores[hit.experiment_id]) for hit in near]


def _is_near(hit: SearchHit, telling: frozenset[str]) -> bool:
    said = telling_words(" ".join((hit.title, hit.summary, *hit.tags, *(hit.columns or ()))), TELLING_LETTERS)
    return len(telling & said) >= min(SHARED, len(telling))


def _item(hit: SearchHit, score: float) -> Found:
    shape = " x ".join(str(size) for size in hit.shape or ())
    about = "; ".join(part for part in (shape, f"from {hit.source} {hit.source_version}") if part)
    return Found(
        id=hit.experiment_id,
        kind="experiment-card",
        title=hit.title,
        text=f"{hit.title}: {hit.summary[:SUMMARY_CHARS]} ({about}; memory_artifact_resolve verifies its bytes)",
        layer="project",
        date=hit.updated_at,
        authority=Authority.MODEL,
        score=score,
        matched=hit.matched,
        labels=("a recorded result",) if hit.local_available else ("a recorded result whose bytes are not here",),
    )
