"""A project's folder as it lies on disk: cards, removed cards, sidecars, objects, and which card names which object.

Owns: the names of removed cards, finding an id by its first characters, listing projects. Does not own: changing
anything (`removal`), the view in memory that searches (`storage.catalogue`). Everything is read from the disk, so that
what an operator is told does not depend on a cache, and a damaged card is seen as well as a good one.

A removed card lies beside the others as `<experimentId>.<ULID>.card.removed`, its sidecar as `….note.removed`; the ULID
says when. A rename within one folder takes no space, so that removing works on a full disk.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rlm_memory.wire import INVALID_ARGUMENT

from rlm_memory_host.artifacts.commit import Parts
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import MAX_CARD_BYTES
from rlm_memory_host.errors import StoreError
from rlm_memory_host.storage.cards import card_identity, not_found
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.paths import SIDECAR_SUFFIX, ProjectLayout, card_of

MIN_PREFIX: Final = 8
"""Fewest characters that name an experiment."""

_REMOVED = re.compile(r"(exp_[a-z2-7]{52})\.([0-9A-HJKMNP-TV-Z]{26})\.(card|note)\.removed")
_ARTIFACT = re.compile(rb"art_[a-z2-7]{52}")
_PROJECT_KEY = re.compile(r"[a-z2-7]{52}")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

Role = Literal["card", "note"]


@dataclass(frozen=True, slots=True)
class Removed:
    """A card that was removed and can still be brought back. `mark` is the ULID of the removal."""

    experiment_id: str
    mark: str

    @property
    def at(self) -> float:
        """When it was removed, seconds since 1970."""
        number = 0
        for character in self.mark[:10]:
            number = number << 5 | _CROCKFORD.index(character)
        return number / 1_000

    def path(self, layout: ProjectLayout, role: Role) -> Path:
        """Where the card or its sidecar lies now."""
        return layout.cards / f"{self.experiment_id}.{self.mark}.{role}.removed"


def removed_of(name: str) -> tuple[Removed, Role] | None:
    """What a file in `cards/` is when it is a removed card or its sidecar."""
    match = _REMOVED.fullmatch(name)
    if match is None:
        return None
    return Removed(match[1], match[2]), "card" if match[3] == "card" else "note"


@dataclass(frozen=True, slots=True)
class Named:
    """What one card file names: artifact ids, or None where the file says nothing that can be read."""

    identity: tuple[int, int, int, int]
    artifacts: frozenset[str] | None


class Shelf:
    """One look at a project's folder. Reading only; a new look is a new object."""

    def __init__(self, parts: Parts) -> None:
        self.files: FileLayer = parts.files
        self.layout = parts.layout
        self.cards: dict[str, os.DirEntry[str]] = {}
        """Card files by experiment id, whatever is in them."""
        self.removed: dict[str, Removed] = {}
        """Removed cards by file name."""
        self.loose_notes: list[Path] = []
        """Sidecars, in place or removed, without their card."""
        self.strays: list[str] = []
        """Names in `cards/` that are none of ours."""
        self._scan()

    def _scan(self) -> None:
        sidecars: dict[str, Path] = {}
        removed_notes: dict[tuple[str, str], Path] = {}
        for item in self.files.scan(self.layout.cards):
            experiment, gone = card_of(item.name), removed_of(item.name)
            if experiment is not None:
                self.cards[experiment] = item
            elif item.is_dir(follow_symlinks=False):
                # Nobody of us makes one, and what deletes files must not stumble over it each time.
                self.strays.append(item.name)
            elif gone is not None and gone[1] == "card":
                self.removed[item.name] = gone[0]
            elif gone is not None:
                removed_notes[gone[0].experiment_id, gone[0].mark] = Path(item.path)
            elif ids.is_experiment_id(item.name.removesuffix(SIDECAR_SUFFIX)):
                sidecars[item.name.removesuffix(SIDECAR_SUFFIX)] = Path(item.path)
            else:
                self.strays.append(item.name)
        marks = {(gone.experiment_id, gone.mark) for gone in self.removed.values()}
        self.loose_notes += [path for name, path in sidecars.items() if name not in self.cards]
        self.loose_notes += [path for name, path in removed_notes.items() if name not in marks]

    def removals(self, experiment: str | None = None) -> list[Removed]:
        """What was removed and is still there, the newest first."""
        found = [gone for gone in self.removed.values() if experiment in (None, gone.experiment_id)]
        return sorted(found, key=lambda gone: (gone.mark, gone.experiment_id), reverse=True)

    def objects(self) -> Iterator[tuple[str, os.stat_result]]:
        """Artifact ids that have a file, and its state, whoever names them."""
        for folder in self.files.scan(self.layout.objects):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for item in self.files.scan(Path(folder.path)):
                if ids.is_artifact_id(item.name) and item.name[4:6] == folder.name:
                    try:
                        state = item.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if stat.S_ISREG(state.st_mode):
                        yield item.name, state

    def named(self, known: dict[str, Named] | None = None) -> dict[str, Named]:
        """What every card and removed card names, by file name. Unchanged files that are in `known` are not read."""
        result: dict[str, Named] = {}
        for name in [item.name for item in self.cards.values()] + list(self.removed):
            path = self.layout.cards / name
            try:
                identity = card_identity(self.files.stat(path))
                before = (known or {}).get(name)
                if before is not None and before.identity == identity:
                    result[name] = before
                else:
                    result[name] = Named(identity, _artifacts_in(self.files.read_all(path, MAX_CARD_BYTES)))
            except FileNotFoundError:
                continue
            except OSError:
                result[name] = Named((0, 0, 0, 0), None)
        return result


def _artifacts_in(data: bytes) -> frozenset[str] | None:
    """Every artifact id that a card's bytes may name, also where they are no card that this release reads."""
    found = {match.decode() for match in _ARTIFACT.findall(data)}
    try:
        document: Any = json.loads(data)
        named: Any = document["artifact"]["artifactId"]
    except (ValueError, RecursionError, KeyError, TypeError):
        named = None
    if ids.is_artifact_id(named):
        found.add(named)
    return frozenset(found) or None


def find_experiment(parts: Parts, text: str, *, removed: bool = False) -> str:
    """The experiment id that `text`, an id or its first characters, names in this project (or among the removed).

    Raises NotFound, and StoreError (INVALID_ARGUMENT) where several begin so or the text is too short.
    """
    if ids.is_experiment_id(text):
        return text
    if len(text) < MIN_PREFIX or not text.startswith(ids.EXPERIMENT_PREFIX):
        raise StoreError(
            f"an experiment is named by its id, or by {MIN_PREFIX} or more of its first characters (exp_…)",
            INVALID_ARGUMENT,
        )
    shelf = Shelf(parts)
    names = {gone.experiment_id for gone in shelf.removed.values()} if removed else set(shelf.cards)
    found = [name for name in names if name.startswith(text)]
    if not found:
        raise not_found()
    if len(found) > 1:
        raise StoreError(f"{len(found)} experiments begin like that; give more characters", INVALID_ARGUMENT)
    return found[0]


def projects(files: FileLayer, root: Path) -> list[tuple[str, str | None]]:
    """(project key, project id) of every project in an artifact root; the id is None where no card tells it."""
    found: list[tuple[str, str | None]] = []
    for item in files.scan(root / "projects"):
        if _PROJECT_KEY.fullmatch(item.name) and item.is_dir(follow_symlinks=False):
            found.append((item.name, _project_id(files, ProjectLayout(Path(item.path)))))
    return sorted(found, key=lambda project: (project[1] is None, project[1] or project[0]))


def _project_id(files: FileLayer, layout: ProjectLayout) -> str | None:
    for item in files.scan(layout.cards):
        if card_of(item.name) is None and removed_of(item.name) is None:
            continue
        try:
            document: Any = json.loads(files.read_all(Path(item.path), MAX_CARD_BYTES))
            told: Any = document["projectId"]
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            continue
        if isinstance(told, str) and _is_of(told, layout.folder.name):
            return told
    return None


def _is_of(project_id: str, key: str) -> bool:
    try:
        return ids.project_key(project_id) == key
    except UnicodeEncodeError:
        return False
