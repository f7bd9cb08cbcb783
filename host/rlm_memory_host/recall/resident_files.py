"""The resident text as files, for agent hosts that put a file into their prompt: `derived/resident*.txt`.

Owns: which files there are, when they are made again, their index `resident.json`. Does not own: the text (`giving`),
writing a file (the store: whole, mode 0600, in one rename). Nothing here is ever read back as memory: a file is
compared with what it should be, and replaced.

`resident.txt` is what a session of no project sees, `resident-<project key>.txt` one of that project, with a preset
`resident-<project key>+<preset key>.txt`: the bytes that the Python API and MCP give of the full tier, without what one
session alone keeps. A file of a preset is kept once a session of it asked here; one that nobody keeps up any more is
removed. A text comes before the index that names its hash: a reader between the two sees a hash that does not fit, and
reads again.

A look costs a few `stat` calls. Texts are made again when the manifest, a log or a file of ours is another than at the
last look, when the health changed, and every `AGAIN_SECONDS`, since a memory can begin and cease to hold by the clock.
A file that says what it should is not written. Where the memories cannot be read, the files stay as they are, but for
what was forgotten or changed here since.

Source: design pages "The memory model", Storage, and "Recall", Resident text.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlm_memory_host.contracts.memory import (
    GLOBAL,
    Caller,
    Layer,
    LayerKind,
    Located,
    preset_layer,
    project_layer,
)
from rlm_memory_host.errors import HostError
from rlm_memory_host.recall.giving import Giving
from rlm_memory_host.recall.resident import Resident

INDEX: Final = "resident.json"
AGAIN_SECONDS: Final = 60.0
MOST_FILES: Final = 64
"""Files that are kept; of more projects than that, the first by name."""
_WATCHED: Final = (".state/manifest.json", "queue", "habits", "queue/candidates.ndjson", "queue/conflicts.ndjson",
                   "habits/signals.ndjson")  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Whose text a file holds: a project's, a preset's, both, or of neither."""

    project: str = ""
    preset: str = ""

    @classmethod
    def of(cls, caller: Caller) -> Place:
        """The place of a caller. Raises ToolInput for a preset that is no name."""
        return cls(
            project_layer(caller.project).key if caller.project else "",
            preset_layer(caller.preset).key if caller.preset else "",
        )

    @property
    def name(self) -> str:
        """The file's name."""
        project = f"-{self.project}" if self.project else ""
        return f"resident{project}{'+' if self.preset else ''}{self.preset}.txt"

    def layers(self, *, alone: bool) -> tuple[Layer, ...]:
        """The layers whose memories stand in it, in the order in which callers see them; `alone`: its preset's."""
        preset = (Layer(LayerKind.PRESET, self.preset),) if self.preset else ()
        if alone:
            return preset
        return (*((Layer(LayerKind.PROJECT, self.project),) if self.project else ()), GLOBAL, *preset)


class ResidentFiles:
    """Keeps the files of one owner's folder. Thread-safe: one look at a time, any other is dropped."""

    def __init__(
        self, giving: Giving, folder: Path, warning: Callable[[], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._giving = giving
        self._folder = folder
        self._warning = warning
        self._clock = clock
        self._asked: dict[Place, str | None] = {}
        self._made: dict[Place, Resident] = {}
        self._seen: object = None
        self._made_at = 0.0
        self._looking = threading.Lock()

    def asked(self, caller: Caller) -> str:
        """The file of a caller, which is kept from now on; its name in `derived/`. Raises ToolInput."""
        place = Place.of(caller)
        if place not in self._asked:
            self._asked = dict([*self._asked.items(), (place, caller.preset)][-MOST_FILES:])
        return place.name

    def sources(self) -> object:
        """A value that changes whenever something was written that a file is made of."""
        return (self._warning(), *(_state(self._folder / name) for name in _WATCHED))

    def look(self) -> None:
        """Make the files what they should be, where they are not."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            if self._stamp() != self._seen or self._clock() - self._made_at >= AGAIN_SECONDS:
                self._make()
                self._made_at = self._clock()
                self._seen = self._stamp()
        finally:
            self._looking.release()

    def _make(self) -> None:
        places, made = self._places(), dict[str, Resident]()
        standing: dict[Layer, list[Located]] = {}
        for place in places:
            try:
                for layer in place.layers(alone=self._is_riko):
                    if layer not in standing:
                        standing[layer] = self._giving.standing(layer)
                items = [item for layer in place.layers(alone=self._is_riko) for item in standing[layer]]
                made[place.name] = self._giving.resident_of(items, self._asked.get(place), "full", self._warning())
            except (HostError, OSError):
                if (last := self._made.get(place)) is not None:
                    layers = place.layers(alone=self._is_riko)
                    made[place.name] = self._giving.still_said(last, layers, self._asked.get(place))
                continue
            self._made[place] = made[place.name]
        self._made = {place: last for place, last in self._made.items() if place in places}
        for name, resident in made.items():
            self._keep(name, resident.text.encode())
        index = {
            name: {
                "hash": item.hash, "signature": item.signature, "tier": item.tier, "chars": len(item.text),
                "memories": len(item.included), "omitted": item.omitted,
            }
            for name, item in made.items()
        }  # fmt: skip
        self._keep(INDEX, json.dumps(index, sort_keys=True, indent=1).encode() + b"\n")
        self._drop_others({INDEX, *(place.name for place in places)})

    def _drop_others(self, kept: set[str]) -> None:
        with contextlib.suppress(OSError):
            for path in (self._folder / "derived").glob("resident*"):
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    def _keep(self, name: str, data: bytes) -> None:
        store = self._giving.memory.store
        if store.derived(name) != data:
            store.keep_derived(name, data)

    @property
    def _is_riko(self) -> bool:
        return self._giving.memory.parts.profile == "riko"

    def _places(self) -> list[Place]:
        try:
            projects = sorted(entry.name for entry in os.scandir(self._folder / "projects") if entry.is_dir())
        except OSError:
            projects = []
        found = {Place(), *(Place(key) for key in projects[:MOST_FILES]), *self._asked}
        return sorted(place for place in found if place.preset or not self._is_riko)

    def _stamp(self) -> object:
        derived = (f"derived/{name}" for name in (INDEX, *(place.name for place in self._places())))
        return (self.sources(), *(_state(self._folder / name) for name in derived))


def _state(path: Path) -> tuple[int, ...]:
    try:
        found = path.lstat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)
