"""Which project a root may open: an id that a repository carries is a claim, and an operator decides.

Owns: the bindings of roots to projects (in the manifest), the rule for a claim. Does not own: how a root's own id is
made (`attach.project`).

Source: design page "The memory model", Layers and scope.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from rlm_memory_host.contracts.memory import AuditNote
from rlm_memory_host.errors import ToolInput
from rlm_memory_host.textmemory.store import MarkdownStore

CLAIM: Final = Path(".memory") / "project.id"
_MAX_CLAIM: Final = 256
_ID: Final = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


def claim_of(root: Path) -> str | None:
    """The project id that a repository carries; None when it carries none or something else."""
    path = root / CLAIM
    try:
        if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
            return None
        with path.open("rb") as file:
            text = file.read(_MAX_CLAIM + 1).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if len(text) <= _MAX_CLAIM and _ID.fullmatch(text) else None


def project_for(store: MarkdownStore, root: Path, own_id: str) -> str:
    """The project that `root` opens: the one it is linked to when its claim says the same, else its own."""
    claim = claim_of(root)
    if claim is None:
        return own_id
    return claim if claim == store.journal.manifest().bindings.get(_key(root)) else own_id


def bind(store: MarkdownStore, root: Path, project_id: str) -> None:
    """Link a root to a project, durably and audited. Raises ToolInput."""
    if _ID.fullmatch(project_id) is None:
        raise ToolInput("project: must be 1 to 200 printable characters")
    if not root.is_dir():
        raise ToolInput("root: there is no such folder")
    with store.lock():
        known = dict(store.journal.manifest().bindings)
        known[_key(root)] = project_id
        store.journal.commit((), (), [AuditNote("link", "operator", "project", _key(root))], bindings=known)


def _key(root: Path) -> str:
    return hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
