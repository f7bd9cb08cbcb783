"""What a project takes on disk, by kind of result, shared bytes counted once; what is left of its bounds.

Owns: the sums. Does not own: the bounds (`contracts.records.Bounds`). An object that several cards name counts once,
under the kind of the card with the smallest id.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import Final

from rlm_memory.wire import codec_name

from rlm_memory_host.artifacts.commit import Parts
from rlm_memory_host.artifacts.operators.shelf import Shelf
from rlm_memory_host.contracts.records import Bounds
from rlm_memory_host.errors import StoreError
from rlm_memory_host.storage.cards import read_card

UNREADABLE_KIND: Final = "unreadable card"
REMOVED_KIND: Final = "removed (undo)"
LOOSE_KIND: Final = "no card"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of result: how many cards and objects, and the objects' bytes."""

    kind: str
    cards: int
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """A project's sums; bytes. `objects` is all there is below `objects/`, each file once."""

    project_key: str
    project_id: str | None
    kinds: tuple[Kind, ...]
    cards: int
    objects: int
    object_bytes: int
    card_bytes: int
    temporary_bytes: int
    bytes_left: int
    cards_left: int


def measure(parts: Parts, bounds: Bounds, project_id: str | None) -> Usage:
    """Add up a project's folder."""
    shelf = Shelf(parts)
    sizes = {name: state.st_size for name, state in shelf.objects()}
    counts: dict[str, list[int]] = {}
    counted: set[str] = set()

    def add(kind: str, artifact: str | None, cards: int = 1) -> None:
        row = counts.setdefault(kind, [0, 0, 0])
        row[0] += cards
        if artifact in sizes and artifact not in counted:
            counted.add(artifact)
            row[1] += 1
            row[2] += sizes[artifact]

    for experiment in sorted(shelf.cards):
        try:
            card = read_card(parts.files, parts.layout, parts.project_id, experiment)
        except StoreError:
            add(UNREADABLE_KIND, None)
            continue
        add(kind_of(card.artifact.media_type), card.artifact.artifact_id)
    named = shelf.named()
    for name in sorted(shelf.removed):
        artifacts = (named[name].artifacts if name in named else None) or {None}
        for number, artifact in enumerate(sorted(artifacts, key=str)):
            add(REMOVED_KIND, artifact, cards=number == 0)
    for artifact in sizes.keys() - counted:
        add(LOOSE_KIND, artifact, cards=0)
    total = sum(sizes.values())
    return Usage(
        project_key=parts.layout.folder.name,
        project_id=project_id,
        kinds=tuple(Kind(kind, *row) for kind, row in sorted(counts.items(), key=lambda item: -item[1][2])),
        cards=len(shelf.cards),
        objects=len(sizes),
        object_bytes=total,
        card_bytes=_folder_bytes(parts, "cards"),
        temporary_bytes=_folder_bytes(parts, "tmp"),
        bytes_left=max(0, bounds.project_bytes - total),
        cards_left=max(0, bounds.cards - len(shelf.cards)),
    )


def kind_of(media_type: str) -> str:
    """What people call a result: its codec, else its bare media type."""
    return codec_name(media_type) or media_type.partition(";")[0].strip()


def _folder_bytes(parts: Parts, name: str) -> int:
    total = 0
    for item in parts.files.scan(parts.layout.folder / name):
        try:
            state = item.stat(follow_symlinks=False)
        except OSError:
            continue
        total += state.st_size if stat.S_ISREG(state.st_mode) else 0
    return total
