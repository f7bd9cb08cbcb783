"""An artifact store over another one: each layer around the store says only what it does otherwise.

Owns: handing every call on as it came. Does not own: what a layer adds (`guarded`, `indexed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlm_memory_host.contracts.records import Recorded, RecordRequest, Resolved, SearchHit, SearchPage, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.tools.artifacts import ArtifactPort


class ArtifactsOver:
    """An `ArtifactPort` that does what the one below it does. Thread-safe as it is."""

    def __init__(self, store: ArtifactPort) -> None:
        self._store = store

    def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        """As the store does."""
        return self._store.search(scope, request)

    def look(self, scope: Scope, experiments: Sequence[str]) -> dict[str, SearchHit | None]:
        """As the store does."""
        return self._store.look(scope, experiments)

    def record(
        self,
        scope: Scope,
        request: RecordRequest,
        *,
        progress: Callable[[int, int], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Recorded:
        """As the store does."""
        return self._store.record(scope, request, progress=progress, cancelled=cancelled)

    def resolve(self, scope: Scope, experiment_id: str, current_source_version: str | None = None) -> Resolved:
        """As the store does."""
        return self._store.resolve(scope, experiment_id, current_source_version)

    def status(self, scope: Scope) -> dict[str, Any]:
        """As the store does."""
        return self._store.status(scope)

    def annotate(
        self, scope: Scope, experiment_id: str, annotation: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """As the store does."""
        return self._store.annotate(scope, experiment_id, annotation)

    def close(self) -> None:
        """As the store does."""
        self._store.close()
