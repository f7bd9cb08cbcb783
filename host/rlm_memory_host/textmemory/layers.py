"""Where layers lie, and the proof that a path lies inside its layer.

Owns: the folders of an owner, their canonical form, refusal of equal, nested and linked roots, the component-wise check
before each write. Does not own: what is in them. A layer that cannot be opened is unavailable and nothing takes its
place; the reason names the two roots to the operator only.

Source: design page "The memory model", Layers and scope.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlm_memory_host.contracts.memory import GLOBAL, HABIT, Layer, LayerKind, name_key
from rlm_memory_host.errors import LayerUnavailable
from rlm_memory_host.storage.files import FileLayer

_FOLDERS = {LayerKind.SESSION: "sessions", LayerKind.PROJECT: "projects", LayerKind.PRESET: "presets"}


@dataclass(frozen=True, slots=True)
class BadRoot:
    """A layer that is refused. `roots` are for the operator's eyes."""

    layer: Layer
    code: str
    roots: tuple[Path, ...]


class Roots:
    """The layers' folders of one owner. `repositories` are project layers that an operator keeps in a repository."""

    def __init__(
        self, files: FileLayer, state_root: Path, owner: str, repositories: Mapping[Layer, Path] | None = None
    ) -> None:
        self._files = files
        self.folder = state_root.resolve() / "memory" / name_key(owner, "owner")
        self._repositories = dict(repositories or {})
        self._seen: dict[Layer, tuple[int, int]] = {}
        self._folders: dict[Layer, Path] = {}
        self._ways: dict[Path, tuple[Path, tuple[str, ...]]] = {}
        self.last_refusal: BadRoot | None = None
        """Of a path that was looked at since, for the operator."""
        self.refused: dict[Layer, BadRoot] = {}
        """Found at the start; they stay refused until the next one."""
        for bad in self._check():
            self.refused[bad.layer] = bad

    def is_in_repository(self, layer: Layer) -> bool:
        """Whether an operator keeps this project's memory in its repository."""
        return layer in self._repositories

    def folder_of(self, layer: Layer) -> Path:
        """Where the layer lies; nothing is looked at."""
        if (known := self._folders.get(layer)) is None:
            known = self._folders[layer] = self._placed(layer)
        return known

    def _placed(self, layer: Layer) -> Path:
        if layer in self._repositories:
            return self._repositories[layer]
        if layer.kind in _FOLDERS:
            return self.folder / _FOLDERS[layer.kind] / layer.key
        return self.folder / ("habits" if layer.kind is LayerKind.HABIT else "global")

    def open(self, layer: Layer) -> Path:
        """The layer's folder, checked; it need not exist yet. Raises LayerUnavailable."""
        if layer in self.refused:
            raise LayerUnavailable(f"the {layer.kind} layer is unavailable ({self.refused[layer].code})")
        folder = self.folder_of(layer)
        state = self._walk(layer, *self._way_to(layer, folder))
        if state is not None:
            identity = (state.st_dev, state.st_ino)
            if self._seen.setdefault(layer, identity) != identity:
                self._refuse(layer, "ROOT_REPLACED", folder)
        return folder

    def _way_to(self, layer: Layer, folder: Path) -> tuple[Path, tuple[str, ...]]:
        """(where the walk to a layer's folder begins, the components that follow)."""
        way = self._ways.get(folder)
        if way is None:
            top = folder if layer in self._repositories else self.folder
            way = self._ways[folder] = top, folder.relative_to(top).parts
        return way

    def locate(self, layer_name: str, path: str) -> Path:
        """A path below a layer, every component checked: no link, no `..`, nothing outside. Raises LayerUnavailable."""
        layer = Layer.parse(layer_name)
        folder = self.open(layer)
        parts = path.split("/")
        if not path or any(part in ("", ".", "..") or "\\" in part or "\x00" in part for part in parts):
            raise LayerUnavailable("a path leaves its layer", "INVALID_PATH")
        self._walk(layer, folder, tuple(parts))
        return folder.joinpath(*parts)

    def existing(self) -> tuple[Layer, ...]:
        """The layers that have a folder, by kind and key; strangers among the folders are not in it."""
        found = [layer for layer in (GLOBAL, HABIT) if self._lstat(self.folder_of(layer)) is not None]
        for kind, name in _FOLDERS.items():
            for entry in sorted(self._files.scan(self.folder / name), key=lambda entry: entry.name):
                try:
                    found.append(Layer(kind, entry.name))
                except Exception:
                    continue
        return tuple(found) + tuple(layer for layer in self._repositories if layer not in found)

    # -- checks --------------------------------------------------------------------------------------------------------
    def _walk(self, layer: Layer, top: Path, parts: Iterable[str]) -> os.stat_result | None:
        """The state of the last component; None when it is not there yet."""
        here = str(top)
        state = self._lstat(here)
        if state is not None and not stat.S_ISDIR(state.st_mode):
            self._refuse(layer, "ROOT_NOT_A_FOLDER", Path(here))
        for part in parts:
            here = f"{here}{os.sep}{part}"
            state = self._lstat(here)
            if state is None:
                return None
            if stat.S_ISLNK(state.st_mode):
                self._refuse(layer, "LINK_IN_PATH", Path(here))
        return state

    def _lstat(self, path: str | Path) -> os.stat_result | None:
        try:
            return self._files.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LayerUnavailable(f"a layer's folder cannot be read ({error.strerror})") from error

    def _refuse(self, layer: Layer, code: str, *roots: Path) -> None:
        self.last_refusal = BadRoot(layer, code, roots)
        raise LayerUnavailable(f"the {layer.kind} layer is unavailable ({code})")

    def _check(self) -> list[BadRoot]:
        """Equal, nested and linked roots, among those that exist and those that are configured."""
        bad: list[BadRoot] = []
        real: list[tuple[Path, Layer, Path]] = []
        home = Path.home().resolve()
        for layer in self.existing():
            folder = self.folder_of(layer)
            try:
                canonical = folder.resolve(strict=False)
            except (OSError, RuntimeError):
                bad.append(BadRoot(layer, "ROOT_UNRESOLVABLE", (folder,)))
                continue
            if layer in self._repositories:
                if canonical == Path(canonical.anchor) or home.is_relative_to(canonical):
                    bad.append(BadRoot(layer, "ROOT_TOO_WIDE", (folder,)))
                    continue
                self._repositories[layer] = self._folders[layer] = canonical
            elif canonical != folder:
                bad.append(BadRoot(layer, "ROOT_IS_A_LINK", (folder, canonical)))
            real.append((canonical, layer, folder))
        real.append((self.folder / ".state", GLOBAL, self.folder / ".state"))
        real.sort(key=lambda item: item[0].parts)
        bad.extend(_overlaps(real))
        return bad


def _overlaps(real: list[tuple[Path, Layer, Path]]) -> Iterable[BadRoot]:
    """Sorted by components, a root that holds another comes before it with only its own descendants between."""
    stack: list[tuple[Path, Layer, Path]] = []
    for item in real:
        while stack and not item[0].is_relative_to(stack[-1][0]):
            stack.pop()
        if stack:
            code = "ROOTS_EQUAL" if item[0] == stack[-1][0] else "ROOTS_NESTED"
            yield BadRoot(item[1], code, (item[2], stack[-1][2]))
            yield BadRoot(stack[-1][1], code, (stack[-1][2], item[2]))
        stack.append(item)
