"""The artifact store with what follows from a record: its card goes to a memory service, and numbers are counted.

Owns: that order (durable here first), the metrics of records and resolves. Does not own: the reconciler
(`artifacts.indexing`), the guard before the store (`guarded`).

Source: DeepSeek Honcho specification, sections 29.1, 33.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlm_memory_host.artifacts.indexing.indexer import Indexer
from rlm_memory_host.assembly.over import ArtifactsOver
from rlm_memory_host.contracts.records import Recorded, RecordRequest, Resolved, SearchPage, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import HostError
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.tools.artifacts import ArtifactPort


class IndexedArtifacts(ArtifactsOver):
    """An `ArtifactPort` over another one. `indexer` None: cards stay here. Thread-safe as the parts are."""

    def __init__(self, store: ArtifactPort, indexer: Indexer | None, metrics: Metrics) -> None:
        super().__init__(store)
        self._indexer = indexer
        self._metrics = metrics

    def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        """As the store does."""
        with self._metrics.timing("card_local_seconds"):
            return super().search(scope, request)

    def record(
        self,
        scope: Scope,
        request: RecordRequest,
        *,
        progress: Callable[[int, int], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Recorded:
        """As the store does; then the card is queued, and what became of that is in the answer."""
        self._metrics.count("artifact_record", "attempt")
        try:
            with self._metrics.timing("artifact_record_seconds"):
                recorded = super().record(scope, request, progress=progress, cancelled=cancelled)
        except HostError as error:
            self._metrics.count("artifact_record", error.code)
            raise
        what = "deduplicated" if recorded.deduplicated else "saved"
        self._metrics.count("artifact_record", what)
        self._metrics.count("artifact_bytes", what, recorded.bytes)
        return recorded if self._indexer is None else self._indexer.recorded(scope.project_id, recorded)

    def resolve(self, scope: Scope, experiment_id: str, current_source_version: str | None = None) -> Resolved:
        """As the store does."""
        try:
            with self._metrics.timing("artifact_resolve_seconds"):
                resolved = super().resolve(scope, experiment_id, current_source_version)
        except HostError as error:
            self._metrics.count("artifact_resolve", error.code)
            raise
        self._metrics.count("artifact_resolve", resolved.freshness)
        return resolved

    def status(self, scope: Scope) -> dict[str, Any]:
        """As the store does, with the reconciler's numbers."""
        return {**super().status(scope), "indexing": None if self._indexer is None else self._indexer.status()}

    def close(self) -> None:
        """The reconciler first: it writes into the store."""
        if self._indexer is not None:
            self._indexer.close()
        super().close()
