"""What leaves a session, without secrets and without the paths of this machine's stores.

Owns: the one redactor of captured turns, of questions to a remote memory and of the outbox. Does not own: what counts
as a secret (`guard`).

Source: design page "Honcho, the outbox, capture and recall", Capture and recall.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rlm_memory_host.guard import Guard
from rlm_memory_host.textmemory.guarding import redaction_of

STORE_PATH: Final = "[path of the memory's store]"
_REST: Final = r"[^\s\"'`<>|]*"


class Redaction:
    """Deterministic and thread-safe. `roots` are the folders whose paths are taken out, whatever follows them."""

    def __init__(self, guard: Guard, roots: Iterable[Path]) -> None:
        self._clean = redaction_of(guard)
        names = sorted({str(root) for root in roots}, key=len, reverse=True)
        self._paths = re.compile("|".join(f"{re.escape(name)}{_REST}" for name in names)) if names else None

    def captured(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The text that may be kept, and the names of the patterns that were found in it."""
        if self._paths is not None:
            text = self._paths.sub(STORE_PATH, text)
        return self._clean(text)

    def __call__(self, text: str) -> str:
        """The text that may leave."""
        return self.captured(text)[0]
