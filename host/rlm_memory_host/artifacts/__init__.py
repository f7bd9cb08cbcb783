"""Recording, resolving and searching exact results: decisions over storage, no transport and no network."""

from rlm_memory_host.artifacts.store import ArtifactStore

__all__ = ["ArtifactStore"]
