"""One look at the folder of a project's cards: what it looks like, and which cards differ from what is known.

Owns: listing and comparing. Does not own: what is made of it (`catalogue`), the files' format (`cards`).

Source: design page "Exact results", Search.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from rlm_memory_host.storage.cardjournal import CardIdentity, Entry, Signature
from rlm_memory_host.storage.cards import CardFile, card_identity
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.paths import ProjectLayout, card_of


def signature_of(files: FileLayer, layout: ProjectLayout, commits: int) -> Signature | None:
    """What the folder looks like now, by one `stat`; None when there is none."""
    try:
        state = files.stat(layout.cards)
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns, commits


def compare(
    files: FileLayer, layout: ProjectLayout, known: Mapping[str, CardIdentity | None]
) -> tuple[list[str], dict[str, os.stat_result]]:
    """(experiments that are gone, state of each card file that is new or another one than is known)."""
    seen: set[str] = set()
    changed: dict[str, os.stat_result] = {}
    for item in files.scan(layout.cards):
        experiment = card_of(item.name)
        if experiment is None:
            continue
        seen.add(experiment)
        with contextlib.suppress(OSError):
            state = item.stat(follow_symlinks=False)
            if known.get(experiment) != card_identity(state):
                changed[experiment] = state
    return [experiment for experiment in known if experiment not in seen], changed


def count_cards(files: FileLayer, layout: ProjectLayout) -> int:
    """Files that have the name of a card, whatever is in them."""
    return sum(card_of(entry.name) is not None for entry in files.scan(layout.cards))


def written_in(file: CardFile, written: Mapping[str, Entry]) -> bytes:
    """What a host wrote into the very file (by its inode) that the card is now; empty for any other file."""
    entry = written.get(file.card.experiment_id)
    return entry.digest if entry is not None and entry.identity[0] == file.identity[0] else b""


def is_edited(file: CardFile, written: bytes) -> bool:
    """Whether the file has other bytes than a host wrote into it, as far as is known."""
    return bool(written) and written != file.digest
