"""A pass over all logs of a harness's home, and how it went.

Owns: which logs are read in a pass, what a failure of one does to it, the counts of the status (no id, path or text).
Does not own: one log (`reading`), when passes are made (`following`), what is captured (given).

A log that fails is tried again in the next pass; the others are read on. What `take` refuses for good (the session's id
belongs to another project) leaves that log alone until it changes.

Source: design page "DeepSeek Harness and MCP", Ways in (Log tailer).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.dsh import logs
from rlm_memory_host.dsh.cursors import Cursors
from rlm_memory_host.dsh.frames import Stopped
from rlm_memory_host.dsh.gathering import Turn
from rlm_memory_host.dsh.header import Header
from rlm_memory_host.dsh.reading import LogReader, Terms
from rlm_memory_host.errors import HostError
from rlm_memory_host.logs import LOGGER, where

FOR_GOOD: Final = frozenset({"DENIED", "INVALID_ARGUMENT"})
"""Codes of a session that may not be captured here at all."""

Captured = Callable[[Header, Turn], bool]
"""Take a turn; whether anything of it was new. Raises HostError."""


class Tail:
    """The logs of one home. `look` is called by one thread at a time; `status` and `stop` by any."""

    def __init__(self, home: Path | None, cursors: Cursors, captured: Captured, folders: Sequence[Path] = ()) -> None:
        """`home` None: there is none, and nothing to read. `folders`: only sessions in these or below; none: all."""
        self._home, self._captured = home, captured
        self._stop = threading.Event()
        self._terms = Terms(self._take, cursors, folders, self._stop.is_set)
        self._readers: dict[Path, LogReader] = {}
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._told: dict[str, Any] = {"passes": 0, "files": 0, "behind_files": 0, "behind_bytes": 0, "skipped": {}}

    def stop(self) -> None:
        """End a pass that runs after the turn it is at."""
        self._stop.set()

    def look(self) -> None:
        """One pass. Raises nothing: what fails is part of the status."""
        found = logs.find(self._home) if self._home is not None else []
        beyond, found = max(0, len(found) - logs.MAX_LOGS), found[: logs.MAX_LOGS]
        known = {log.path for log in found}
        for path in [path for path in self._readers if path not in known]:
            del self._readers[path]
        for log in found:
            self._readers.setdefault(log.path, LogReader(log.path, log.project, behind=log.stamp[1]))
        self._tell(beyond, isover=False)
        for number, log in enumerate(found, 1):
            if self._stop.is_set():
                return
            if self._readers[log.path].stamp != log.stamp:
                self._read(log)
            if number % 64 == 0:
                self._tell(beyond, isover=False)
        self._tell(beyond, isover=True)

    def status(self) -> dict[str, Any]:
        """Passes, files, what is behind, skipped with its reasons, turns: numbers and names alone."""
        with self._lock:
            return {**self._told, "turns": dict(self._counts)}

    def _read(self, log: logs.Log) -> None:
        reader = self._readers[log.path]
        try:
            reader.read(log, self._terms)
        except Stopped:
            return
        except HostError as error:
            reader.skipped = error.code.lower().replace("_", "-")
            if error.code in FOR_GOOD:
                reader.stamp = log.stamp
                reader.behind = 0
            else:
                LOGGER.warning("dsh_log_refused code=%s", error.code)
        except OSError as error:
            reader.skipped = "unreadable"
            LOGGER.warning("dsh_log_unreadable errno=%s", error.errno)
        except Exception as error:
            reader.skipped = "failed"
            LOGGER.error("dsh_log_failed %s", where(error))

    def _take(self, header: Header, turn: Turn) -> None:
        if self._stop.is_set():
            raise Stopped
        if not turn.is_whole:
            outcome = "oversized"
        elif len(turn.events) < 2:
            outcome = "empty"
        else:
            outcome = "captured" if self._captured(header, turn) else "left"
        with self._lock:
            self._counts[outcome] += 1

    def _tell(self, beyond: int, *, isover: bool) -> None:
        readers = list(self._readers.values())
        skipped = Counter(reader.skipped for reader in readers if reader.skipped)
        if beyond:
            skipped["too-many-logs"] = beyond
        behind = [reader.behind for reader in readers if reader.behind > 0]
        with self._lock:
            self._told = {
                "passes": self._told["passes"] + isover,
                "files": sum(not reader.skipped for reader in readers),
                "behind_files": len(behind),
                "behind_bytes": sum(behind),
                "skipped": dict(sorted(skipped.items())),
                "unread_lines": sum(reader.unread for reader in readers),
            }


def home_of(named: Path | None, variable: str) -> Path | None:
    """The home whose logs are read: the named one, that of `DSH_HOME`, `~/.dsh`; None where there is no such folder."""
    home = named or (Path(variable) if variable else None)
    with suppress(RuntimeError):
        home = home or Path.home() / ".dsh"
    return home.absolute() if home is not None and home.is_dir() else None
