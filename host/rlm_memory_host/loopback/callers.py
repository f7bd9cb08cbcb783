"""From a session's header to the scope of a call: project, folder, root or child.

Owns: which project a session belongs to for good, its folder, what a session that is neither root nor child may do.
Does not own: what a header means (`dsh.header`), how a folder tells its project (`attach.project`).

A session's id is chosen by its harness and may be chosen twice. The first project that a session is seen in is written
into the session's folder; from any other it is refused, also after a restart, so that two projects never share a
session's words.

Source: DeepSeek Honcho specification, sections 10, 26.4 and 28.1; design page "DeepSeek Harness and MCP", Ways in.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rlm_memory_host.attach import folders
from rlm_memory_host.attach.project import Project
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.dsh.header import Header
from rlm_memory_host.errors import HostError, ToolDenied, ToolInput
from rlm_memory_host.process import private_folder, write_private

KEPT: Final = 1_024
PROJECT_MARK: Final = ".project"
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Callers:
    """Scopes of sessions. Its methods may block and may be called from any thread."""

    def __init__(self, sessions_root: Path, rlm_root: Path | None, project_of: Callable[[Path], Project]) -> None:
        """`rlm_root`: the folder of an RLM provider, whose `sessions/<id>/exports` is then what records read from."""
        self._root, self._rlm_root, self._project_of = sessions_root, rlm_root, project_of
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], tuple[Project, Path]] = OrderedDict()

    def scope(self, header: Header, call_id: str | None = None) -> Scope:
        """The scope of a call of that session. Raises ToolInput, ToolDenied, HostError.

        A session of which it cannot be told whether it is a root's has a child's authority.
        """
        project, folder = self._place(header)
        return Scope(
            project_id=project.id,
            session_id=header.session,
            session_dir=folder,
            agent_kind=header.agent or "child",
            call_id=call_id,
            preset=header.preset,
            project_told=project.told,
        )

    def _place(self, header: Header) -> tuple[Project, Path]:
        if header.cwd is None or not Path(header.cwd).is_absolute() or "\0" in header.cwd:
            raise ToolInput("header.cwd: an absolute folder is needed; it tells the project")
        key = (header.session, header.cwd)
        with self._lock:
            known = self._known.get(key)
            return known if known is not None else self._first(header.session, key, Path(header.cwd))

    def _first(self, session: str, key: tuple[str, str], cwd: Path) -> tuple[Project, Path]:
        project = self._project_of(cwd)
        own = private_folder(private_folder(self._root) / _folder_name(session))
        _bind(own / PROJECT_MARK, project.id)
        place = self._known[key] = (project, self._exports(session, own))
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return place

    def _exports(self, session: str, own: Path) -> Path:
        if self._rlm_root is None:
            return folders.make(own)
        if not _PLAIN.fullmatch(session):
            raise ToolInput("header.id: not a plain name, so it has no folder below loopback.rlm_root")
        return self._rlm_root / "sessions" / session


def _folder_name(session: str) -> str:
    return f"dsh-{hashlib.sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _bind(mark: Path, project: str) -> None:
    """Write the project of a session, once. Raises ToolDenied where it is another one's."""
    wanted = hashlib.sha256(project.encode("utf-8", "surrogatepass")).hexdigest()
    try:
        kept = mark.read_text("ascii").strip()
    except FileNotFoundError:
        write_private(mark, wanted.encode() + b"\n")
        return
    except (OSError, UnicodeDecodeError) as error:
        raise HostError("the session's folder cannot be read") from error
    if kept != wanted:
        raise ToolDenied("a session of that id belongs to another project; give the session an id of its own")
