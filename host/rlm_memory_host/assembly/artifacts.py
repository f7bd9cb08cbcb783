"""The artifact store from the settings.

Owns: its bounds, whether there is one. Does not own: the store (`artifacts`), the guard before it (`guarded`).
"""

from __future__ import annotations

from pathlib import Path

from rlm_memory_host.assembly.guarded import GuardedArtifacts
from rlm_memory_host.contracts.records import Bounds
from rlm_memory_host.guard import Guard
from rlm_memory_host.process import private_folder
from rlm_memory_host.settings import Settings
from rlm_memory_host.tools.artifacts import ArtifactPort


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


def open_store(settings: Settings, guard: Guard) -> ArtifactPort | None:
    """The artifact store behind the guard, None where it is switched off. Raises StoreError."""
    if not settings.artifacts.enabled:
        return None
    from rlm_memory_host.artifacts import ArtifactStore

    store = ArtifactStore(
        private_folder(settings.artifact_root),
        bounds_of(settings),
        integrity=settings.artifacts.integrity,
        index_folder=index_folder_of(settings),
    )
    return GuardedArtifacts(store, guard)
