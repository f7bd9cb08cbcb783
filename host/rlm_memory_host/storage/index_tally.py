"""Sums over the cards of an index, kept as cards come and go: artifacts, their bytes, states, cards changed by others.

Owns: the sums. Does not own: the documents (`index`). Not thread-safe; its owner holds a lock.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlm_memory_host.storage.index import Index
from rlm_memory_host.storage.index_cards import artifact_facet
from rlm_memory_host.storage.ranking import Document


class Tally:
    """What `facts` gives back after a restart. `fresh` holds artifacts of documents that are not in the index yet."""

    def __init__(self, facts: dict[str, Any] | None = None) -> None:
        given = facts or {}
        self.bytes: int = given.get("bytes", 0)
        self.artifacts: int = given.get("artifacts", 0)
        self.states: Counter[str] = Counter(given.get("states", {}))
        self.edited: set[str] = set(given.get("edited", ()))
        self.fresh: set[str] = set()

    def facts(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "bytes": self.bytes,
            "artifacts": self.artifacts,
            "states": dict(self.states),
            "edited": sorted(self.edited),
        }

    def count_in(self, index: Index, document: Document, *, edited: bool) -> None:
        """Count a document that is about to be added."""
        if not self._is_held(index, document.artifact):
            self.artifacts += 1
            self.bytes += document.size
        self.states[document.state] += 1
        (self.edited.add if edited else self.edited.discard)(document.key)

    def recount(self, before: Document, after: Document) -> None:
        """Count a document that changed in its place: its state, and that a host wrote it."""
        self.states[before.state] -= 1
        self.states[after.state] += 1
        self.edited.discard(after.key)

    def count_out(self, index: Index, document: Document) -> None:
        """Take out a document that was just removed."""
        if not self._is_held(index, document.artifact):
            self.artifacts -= 1
            self.bytes -= document.size
        self.states[document.state] -= 1
        self.edited.discard(document.key)

    def _is_held(self, index: Index, artifact: str) -> bool:
        return artifact in self.fresh or next(iter(index.with_facet(artifact_facet(artifact))), None) is not None
