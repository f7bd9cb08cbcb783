"""Whether a card is what a host wrote last, by the journal beside the cards.

Owns: this one question, with the answers remembered by card file. Does not own: the journal (`storage.cardjournal`).

What can be noticed: the very file that a host wrote, with other bytes in it: a change in place, also one that puts size
and times back. What cannot: a card that was replaced by another file, as every tool does to change one, and as some
editors do; a card that no host wrote or whose journal is gone; the work of somebody who writes the journal to match.
The bytes of the result do not depend on it: they are checked against the digest in the card, and that against the
card's own name.
"""

from __future__ import annotations

import threading

from rlm_memory_host.artifacts.commit import Parts
from rlm_memory_host.storage.cardjournal import CardIdentity
from rlm_memory_host.storage.cards import CardFile

_REMEMBERED = 512


class Edits:
    """Remembers the last answers. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[CardIdentity, bool]] = {}
        self._lock = threading.Lock()

    def is_edited(self, parts: Parts, file: CardFile) -> bool:
        """Whether a host wrote this card, and wrote other bytes."""
        experiment = file.card.experiment_id
        with self._lock:
            known = self._known.get(experiment)
        if known is not None and known[0] == file.identity:
            return known[1]
        answer = _compare(parts, file)
        with self._lock:
            self._known.pop(experiment, None)
            self._known[experiment] = (file.identity, answer)
            if len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        return answer


def _compare(parts: Parts, file: CardFile) -> bool:
    if parts.catalogue.written(file) in (b"", file.digest):
        return False
    return parts.catalogue.written_now(file) not in (b"", file.digest)
