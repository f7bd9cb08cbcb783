"""Taking results elsewhere: a folder or zip with objects, cards, sidecars, digests and the means to check them."""

from rlm_memory_host.artifacts.export.bundle import Bundle, Exported, export

__all__ = ["Bundle", "Exported", "export"]
