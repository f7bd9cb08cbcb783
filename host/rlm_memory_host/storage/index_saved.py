"""What is kept of a project's catalogue between starts: the packed index with the look of the folder that it says.

Owns: where saved indexes lie, which facts go with them. Does not own: the file's format (`index_file`), when one is
saved and what is made of it (`catalogue`). A saved index is derived: that it cannot be read or written is no error.

Source: design page "Exact results", Search.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlm_memory_host.contracts.records import Diagnostic
from rlm_memory_host.storage import index_file
from rlm_memory_host.storage.cardjournal import CardIdentity, Position, Signature
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.index_packed import PackedPart, numpy
from rlm_memory_host.storage.paths import ProjectLayout


@dataclass(frozen=True, slots=True)
class IndexHome:
    """Where saved indexes lie, and the thread that packs and saves them (`submit` runs a call in it, or drops it)."""

    folder: Path
    submit: Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file in the cards folder that is no card of the project, until its identity changes."""

    identity: CardIdentity | None
    diagnostic: Diagnostic


@dataclass(frozen=True, slots=True)
class Saved:
    """What a catalogue knew when its index was packed: how the folder looked, and where in the journal that was."""

    signature: Signature
    doubt: int
    position: Position
    tally: dict[str, Any]
    skipped: Mapping[str, Skipped]


def path_of(home: IndexHome, layout: ProjectLayout) -> Path:
    """The file of a project's index."""
    return home.folder / index_file.index_name(layout.folder.name, layout.folder)


def load(files: FileLayer, home: IndexHome, layout: ProjectLayout) -> tuple[PackedPart, Saved] | None:
    """The saved index of a project; None where there is none, or none that can be trusted."""
    path = path_of(home, layout)
    if not path.exists() or numpy() is None:
        return None
    loaded = index_file.load(files, path)
    if loaded is None or loaded[1].get("project") != layout.folder.name:
        return None
    arrays, facts = loaded
    one, two, three, four = facts["signature"]
    skipped = {
        name: Skipped(None if identity is None else (identity[0], identity[1], identity[2], identity[3]), found)
        for name, identity, *rest in facts["skipped"]
        for found in [Diagnostic(*rest)]
    }
    saved = Saved((one, two, three, four), facts["doubt"], Position(*facts["position"]), facts["tally"], skipped)
    return PackedPart(arrays), saved


def save(files: FileLayer, home: IndexHome, layout: ProjectLayout, packed: PackedPart, saved: Saved) -> None:
    """Keep the index of a project, if the folder for it can be written."""
    facts = {
        "project": layout.folder.name,
        "signature": saved.signature,
        "doubt": saved.doubt,
        "position": [saved.position.generation, saved.position.offset],
        "tally": saved.tally,
        "skipped": [
            [name, item.identity, item.diagnostic.name, item.diagnostic.code, item.diagnostic.reason]
            for name, item in saved.skipped.items()
        ],
    }
    with contextlib.suppress(OSError):
        files.make_folder(home.folder)
        index_file.save(files, path_of(home, layout), packed.arrays, facts)
