"""Path rules as pure functions: which text may name a source file, and where things lie in a store. No I/O.

Owns: refusal of empty, relative, device, network-share and alternate-stream paths and of `.` and `..`, containment by
whole components (never by string prefix), the layout of a project. Does not own: links and file types, which only the
file system knows (`sources`). Windows shapes are refused on every system, so a path means the same thing everywhere.

Source: DeepSeek Honcho specification, sections 28.1, 28.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, Literal

from rlm_memory.wire import INVALID_PATH

from rlm_memory_host.contracts import ids
from rlm_memory_host.errors import UnsafeSource

Flavour = Literal["posix", "windows"]

MAX_PATH: Final = 4_096
TEMPORARY_SUFFIX: Final = ".tmp"
CARD_SUFFIX: Final = ".json"
SIDECAR_SUFFIX: Final = ".ext.json"

_TEMPORARY = re.compile(r"(?:object|card|note)-[0-9A-HJKMNP-TV-Z]{26}\.tmp")
_DRIVE = re.compile(r"[A-Za-z]:")
_RESERVED = re.compile(r"(?:CON|PRN|AUX|NUL|COM[0-9¹²³]|LPT[0-9¹²³]|CONIN\$|CONOUT\$)(?:\..*)?", re.IGNORECASE)


def parse_absolute(text: str, flavour: Flavour = "posix") -> tuple[str, ...]:
    """The components of an absolute path below the root (for Windows the drive, upper case, comes first).

    Raises UnsafeSource (INVALID_PATH) with a reason that does not repeat the path.
    """
    if not text:
        raise _refused("it is empty")
    if len(text) > MAX_PATH:
        raise _refused(f"it has {len(text):,} characters, the limit is {MAX_PATH:,}")
    if "\x00" in text:
        raise _refused("it holds a NUL character")
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _refused("it is not text that a file name can hold") from None
    if text.startswith(("\\\\", "//")):
        raise _refused("network shares and device paths are not allowed")
    return _windows(text) if flavour == "windows" else _posix(text)


def components_below(path: Sequence[str], folder: Sequence[str], *, fold: bool = False) -> tuple[str, ...] | None:
    """What of `path` lies below `folder`, compared component by component; None when it is not below it.

    `fold` compares without case, as Windows does.
    """
    depth = len(folder)
    head = [part.casefold() for part in path[:depth]] if fold else list(path[:depth])
    wanted = [part.casefold() for part in folder] if fold else list(folder)
    return tuple(path[depth:]) if head == wanted and len(path) > depth else None


def _posix(text: str) -> tuple[str, ...]:
    if _DRIVE.match(text) or text.startswith("\\"):
        raise _refused("it is a Windows path")
    if not text.startswith("/"):
        raise _refused("it is relative; give an absolute path")
    return _checked(text[1:].split("/"))


def _windows(text: str) -> tuple[str, ...]:
    if not _DRIVE.match(text):
        raise _refused("it has no drive; give an absolute path")
    rest = text[2:].replace("/", "\\")
    if not rest.startswith("\\"):
        raise _refused("it is relative to the current folder of a drive; give an absolute path")
    parts = _checked(rest[1:].split("\\"))
    for part in parts:
        if ":" in part:
            raise _refused("alternate data streams are not allowed")
        if _RESERVED.fullmatch(part.rstrip(" .")):
            raise _refused("device names are not allowed")
        if part != part.rstrip(" ."):
            raise _refused("a component ends in a space or a dot")
        if any(character in '<>"|?*' or character < " " for character in part):
            raise _refused("it holds a character that no file name has")
    return (text[0].upper() + ":", *parts)


def _checked(parts: list[str]) -> tuple[str, ...]:
    if any(part in (".", "..") for part in parts):
        raise _refused("'.' and '..' are not allowed")
    if any(not part for part in parts):
        raise _refused("it has an empty component or names a folder")
    return tuple(parts)


def _refused(reason: str) -> UnsafeSource:
    return UnsafeSource(f"source_path is refused: {reason}", INVALID_PATH)


@dataclass(frozen=True)
class ProjectLayout:
    """Where a project's things lie below an artifact root (section 28.1). No text of a caller is a path part."""

    folder: Path

    @classmethod
    def of(cls, root: Path, project_id: str) -> ProjectLayout:
        """The layout of `project_id` below `root`."""
        return cls(root / "projects" / ids.project_key(project_id))

    @cached_property
    def objects(self) -> Path:
        """The folder of objects."""
        return self.folder / "objects"

    @cached_property
    def cards(self) -> Path:
        """The folder of cards and sidecars."""
        return self.folder / "cards"

    @cached_property
    def temporary(self) -> Path:
        """The folder of files that are being written."""
        return self.folder / "tmp"

    @cached_property
    def journal(self) -> Path:
        """What hosts committed to the cards, in order."""
        return self.folder / "journal"

    @cached_property
    def lock(self) -> Path:
        """The commit lock."""
        return self.folder / "locks" / "commit"

    @cached_property
    def indexer(self) -> Path:
        """The lock of the one host that sends this project's cards to a memory service."""
        return self.folder / "locks" / "indexer"

    def object(self, artifact: str) -> Path:
        """The object of an artifact id (of the right form, or ValueError)."""
        return _object_path(self.objects, artifact)

    def card(self, experiment: str) -> Path:
        """The card of an experiment id (of the right form, or ValueError)."""
        return _card_path(self.cards, experiment)

    def sidecar(self, experiment: str) -> Path:
        """The sidecar of an experiment id (of the right form, or ValueError)."""
        return self.cards / (_experiment(experiment) + SIDECAR_SUFFIX)

    def new_temporary(self, role: Literal["object", "card", "note"]) -> Path:
        """A fresh name in `tmp/` that `is_temporary` recognises."""
        return self.temporary / f"{role}-{ids.new_ulid()}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether a file in `tmp/` is one of ours."""
    return _TEMPORARY.fullmatch(name) is not None


def card_of(name: str) -> str | None:
    """The experiment id that a name in `cards/` stands for as a card; None for sidecars and anything else."""
    experiment = name.removesuffix(CARD_SUFFIX)
    return experiment if experiment != name and ids.is_experiment_id(experiment) else None


# A search asks for both of each of its hits, again and again; putting a path together costs more than a `stat` of it.
@lru_cache(maxsize=4_096)
def _object_path(objects: Path, artifact: str) -> Path:
    if not ids.is_artifact_id(artifact):
        raise ValueError("not an artifact id")
    return objects / artifact[4:6] / artifact


@lru_cache(maxsize=4_096)
def _card_path(cards: Path, experiment: str) -> Path:
    return cards / (_experiment(experiment) + CARD_SUFFIX)


def _experiment(experiment: str) -> str:
    if not ids.is_experiment_id(experiment):
        raise ValueError("not an experiment id")
    return experiment
