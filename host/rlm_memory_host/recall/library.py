"""The searchable form of captured turns: kept up with their log, derived, in memory.

Owns: one corpus of turns per session, with speaker and date in their words. Does not own: the log, the layers
(`textmemory.shelves`), eligibility, fusion. Thread-safe: one lock.

Source: design page "Recall", Tokens and ranking.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from rlm_memory_host.contracts.memory import Evidence, TextStore
from rlm_memory_host.recall.fusion import lend_to_neighbours
from rlm_memory_host.storage.postings import MEASURED, Corpus, Strengths
from rlm_memory_host.storage.tokens import document_terms, query_terms


@dataclass(slots=True)
class _Turns:
    corpus: Corpus
    turns: dict[str, Evidence] = field(default_factory=dict[str, Evidence])
    order: list[str] = field(default_factory=list[str])
    seq: int = -1


class Library:
    """Corpora of turns over one store."""

    def __init__(self, store: TextStore, strengths: Strengths = MEASURED) -> None:
        self._store = store
        self._strengths = strengths
        self._sessions: dict[str, _Turns] = {}
        self._lock = threading.RLock()

    def turn(self, key: str) -> Evidence:
        """A captured turn that a search gave."""
        with self._lock:
            return next(turns.turns[key] for turns in self._sessions.values() if key in turns.turns)

    def turn_scores(self, sessions: Iterable[str], query: str) -> dict[str, float]:
        """Scores of captured turns, with a fifth lent to their neighbours."""
        terms = query_terms(query)
        found: dict[str, float] = {}
        with self._lock:
            for session in sessions:
                turns = self._turns(session)
                found |= lend_to_neighbours(turns.corpus.scores(terms), turns.order)
        return found

    def _turns(self, session: str) -> _Turns:
        turns = self._sessions.get(session)
        if turns is None:
            turns = self._sessions[session] = _Turns(Corpus(self._strengths.b_turns, self._strengths.k1))
        for item in self._store.evidence(session, turns.seq):
            turns.turns[item.id] = item
            turns.order.append(item.id)
            turns.corpus.add(item.id, document_terms(f"{item.speaker} {item.ts[:10]} {item.text}"))
            turns.seq = max(turns.seq, item.seq)
        return turns
