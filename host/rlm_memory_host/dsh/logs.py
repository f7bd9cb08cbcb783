"""Where DeepSeek Harness keeps its sessions' logs: `<home>/sessions/--<folder>--/<session>/session*.jsonl.zstd`.

Owns: finding them, which of a session's files counts, what the harness calls a folder. Does not own: what is in them.

A session whose log was moved to a newer format has one file for each; the newest counts, and where it is one that is
not known, the session is left alone. Links are not followed. At most `MAX_LOGS` logs are followed, the last written
first.

Source: design page "DeepSeek Harness and MCP", Ways in (Log tailer).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_LOGS: Final = 10_000
_NAME: Final = re.compile(r"session(?:\.v([1-9][0-9]{0,8}))?\.jsonl\.zstd")
_MOST_KEY: Final = 251
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Log:
    """One session's log: its file, the name of its project's folder, and what tells that it changed."""

    path: Path
    project: str
    stamp: tuple[int, int, int]
    """Inode, size in bytes, time of the last change in ns."""


def find(home: Path) -> list[Log]:
    """The logs below a home, the last written first. A folder that cannot be read has none."""
    found: list[Log] = []
    for project in _folders(home / "sessions"):
        if not (project.name.startswith("--") and project.name.endswith("--")):
            continue
        for session in _folders(project):
            log = _newest(session, project.name)
            if log is not None:
                found.append(log)
    found.sort(key=lambda log: (-log.stamp[2], str(log.path)))
    return found


def folder_key(cwd: str) -> str:
    """The name of the folder that the harness keeps a project's sessions in."""
    units = cwd.encode("utf-16-be", "surrogatepass")
    key, was_separator = "", False
    for unit in (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)):
        sign = chr(unit)
        if sign in "/\\:":
            key += "" if was_separator else "-"
        else:
            key += sign if _PLAIN.fullmatch(sign) else f"~{unit:04X}"
        was_separator = sign in "/\\:"
    return f"--{(key.lstrip('-') or 'root')[:_MOST_KEY]}--"


def _newest(session: Path, project: str) -> Log | None:
    newest: tuple[int, Log] | None = None
    for entry in _entries(session):
        name = _NAME.fullmatch(entry.name)
        if name is None or not entry.is_file(follow_symlinks=False):
            continue
        try:
            state = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        version = int(name[1] or 0)
        if newest is None or version > newest[0]:
            newest = version, Log(Path(entry.path), project, (state.st_ino, state.st_size, state.st_mtime_ns))
    return None if newest is None else newest[1]


def _folders(folder: Path) -> Iterator[Path]:
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def opened(log: Log) -> int:
    """A descriptor of a log for reading. Raises OSError; also for what is no file of ours any more."""
    descriptor = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(f"{log.path.name} is not a file of this user")
    return descriptor
