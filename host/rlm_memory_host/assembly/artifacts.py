"""The artifact store from the settings.

Owns: its bounds, whether there is one, whether its cards are sent. Does not own: the store (`artifacts`), the guard
before it (`guarded`), the reconciler (`artifacts.indexing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlm_memory_host.assembly.guarded import GuardedArtifacts
from rlm_memory_host.assembly.indexed import IndexedArtifacts
from rlm_memory_host.contracts.cards import CardOutbox
from rlm_memory_host.contracts.delivery import Redactor
from rlm_memory_host.contracts.records import Bounds
from rlm_memory_host.guard import Guard
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.process import private_folder
from rlm_memory_host.settings import Settings
from rlm_memory_host.tools.artifacts import ArtifactPort

if TYPE_CHECKING:
    from rlm_memory_host.artifacts import ArtifactStore


def bounds_of(settings: Settings) -> Bounds:
    """The store's bounds that the settings ask for."""
    artifacts = settings.artifacts
    return Bounds(
        artifact_bytes=artifacts.max_artifact_bytes,
        project_bytes=artifacts.max_project_bytes,
        cards=artifacts.max_cards,
        title=artifacts.max_title_chars,
        summary=artifacts.max_summary_chars,
        tags=artifacts.max_tags,
        tag=artifacts.max_tag_chars,
        columns=artifacts.max_columns,
        column=artifacts.max_column_chars,
        search_results=artifacts.max_search_results,
        raised=artifacts.allow_larger,
    )


def index_folder_of(settings: Settings) -> Path:
    """Where the indexes of large projects are kept between starts, by hosts and commands alike."""
    return settings.state_root / "index"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """The opened store: as tools see it, and itself for the host's own work."""

    store: ArtifactStore
    guarded: ArtifactPort


def open_store(settings: Settings, guard: Guard) -> Artifacts | None:
    """The artifact store behind the guard, None where it is switched off. Raises StoreError."""
    if not settings.artifacts.enabled:
        return None
    from rlm_memory_host.artifacts import ArtifactStore

    store = ArtifactStore(
        private_folder(settings.artifact_root),
        bounds_of(settings),
        integrity=settings.artifacts.integrity,
        index_state="pending" if sends_cards(settings) else "disabled",
        index_folder=index_folder_of(settings),
    )
    return Artifacts(store, GuardedArtifacts(store, guard))


def sends_cards(settings: Settings) -> bool:
    """Whether descriptions of results go to a memory service."""
    return settings.honcho is not None and settings.honcho.index_cards


def with_cards(
    artifacts: Artifacts, cards: CardOutbox | None, settings: Settings, redact: Redactor, metrics: Metrics
) -> ArtifactPort:
    """The store with its reconciler, started; without one where no card is sent, or nothing can be sent now."""
    indexer = None
    if cards is not None and settings.honcho is not None:
        from rlm_memory_host.artifacts.indexing.indexer import Indexer, IndexPolicy

        policy = IndexPolicy(settings.honcho.index_interval_seconds, settings.honcho.index_batch)
        store = artifacts.store
        indexer = Indexer(store.parts_of, cards, redact, policy, projects=store.known_projects)
        indexer.start()
    return IndexedArtifacts(artifacts.guarded, indexer, metrics)
