"""Which project a kernel works in, told from its folder when the operator named none.

Owns: the rule. All worktrees of a repository are one project (they share git's common directory); a folder outside a
repository is its own. Does not own: a boundary. A kernel can change its folder, so a project keeps apart what would be
mixed up by accident, not kernels of one user from each other. No git program runs and nothing of the repository is
obeyed: two small files are read. An id that a repository carries is a claim; `claimed` (the text memory's bindings)
says whether an operator linked this root to it.

Source: design page "Kernel <-> host", Host side; DeepSeek Honcho specification, sections 10 and 28.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

MAX_POINTER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Project:
    """A project's id and how it was told. The id holds no path."""

    id: str
    told: Literal["configured", "linked", "git", "path"]


Claimed = Callable[[Path, str], str]
"""From a root and its own id to the id that the root opens: its own, unless an operator linked it to its claim."""


def _unclaimed(_root: Path, own_id: str) -> str:
    return own_id


def project_of(cwd: Path, configured: str | None, claimed: Claimed = _unclaimed) -> Project:
    """The project of a kernel in `cwd` (absolute; need not exist any more)."""
    if configured is not None:
        return Project(configured, "configured")
    real = cwd.resolve(strict=False)
    for folder in (real, *real.parents):
        common = _common_directory(folder / ".git")
        if common is not None:
            return _opened(folder, Project(f"git-{_digest(common)}", "git"), claimed)
    return _opened(real, Project(f"path-{_digest(real)}", "path"), claimed)


def _opened(root: Path, own: Project, claimed: Claimed) -> Project:
    opened = claimed(root, own.id)
    return own if opened == own.id else Project(opened, "linked")


def _common_directory(git: Path) -> Path | None:
    """Git's common directory that `.git` stands for, None when it is not a repository's."""
    try:
        if git.is_dir():
            return git.resolve() if (git / "HEAD").exists() else None
        pointer = _small_text(git)
        if pointer is None or not pointer.startswith("gitdir:"):
            return None
        folder = (git.parent / pointer.removeprefix("gitdir:").strip()).resolve()
        if not folder.is_dir():
            return None
        common = _small_text(folder / "commondir")
        return folder if common is None else (folder / common).resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def _small_text(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(MAX_POINTER_BYTES).decode("utf-8", "replace").strip()


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:32]
