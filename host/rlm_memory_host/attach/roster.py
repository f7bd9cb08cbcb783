"""Attachments on disk: what lets a host that starts again take its kernels up again.

Owns: `<state root>/attachments/<name>.json`, one per connection file, mode 0600, replaced as a whole (temp, fsync,
rename). Does not own: the kernel's key, which stays in the connection file. A crash leaves the old or the new entry;
a `.tmp` left over is removed at the next start. An entry that cannot be read is removed: the kernel attaches anew.

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from rlm_memory_host.process import ProcessId, write_private

MAX_ENTRY_BYTES: Final = 64 << 10


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Entry:
    """One kernel: where, which process, which session and generation. `generation` counts from 1."""

    connection_file: Annotated[str, Field(pattern=r"^/")]
    fingerprint: str
    pid: int | None
    started: int
    session: Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{26}$")]
    generation: Annotated[int, Field(ge=1)]
    cwd: Annotated[str, Field(pattern=r"^/")]
    extension: str
    past: list[str] = Field(default_factory=list)
    """Message-header sessions of this kernel's earlier processes; their requests are stale."""
    current: str | None = None

    @property
    def process(self) -> ProcessId | None:
        """The kernel's process, None when it was never told."""
        return ProcessId(self.pid, self.started) if self.pid is not None else None


@dataclass(frozen=True, slots=True)
class Roster:
    """The folder of entries. Synchronous; called from the host's loop, entries are small."""

    folder: Path

    def save(self, entry: Entry) -> None:
        """Write or replace an entry, durably."""
        write_private(self._path(Path(entry.connection_file)), json.dumps(asdict(entry)).encode())

    def remove(self, connection_file: Path) -> None:
        """Forget a kernel; one that is not there is fine."""
        self._path(connection_file).unlink(missing_ok=True)

    def get(self, connection_file: Path) -> Entry | None:
        """The entry of a connection file, None when there is none or it is unreadable."""
        return _read(self._path(connection_file))

    def load(self) -> list[Entry]:
        """Every entry; unreadable ones and left-over temp files are removed."""
        entries: list[Entry] = []
        for path in sorted(self.folder.iterdir()):
            entry = _read(path) if path.suffix == ".json" and not path.name.startswith(".") else None
            if entry is None or path != self._path(Path(entry.connection_file)):
                path.unlink(missing_ok=True)
            else:
                entries.append(entry)
        return entries

    def _path(self, connection_file: Path) -> Path:
        return self.folder / f"{hashlib.sha256(os.fsencode(connection_file)).hexdigest()[:32]}.json"


def _read(path: Path) -> Entry | None:
    try:
        with path.open("rb") as file:
            return TypeAdapter(Entry).validate_json(file.read(MAX_ENTRY_BYTES))
    except (OSError, ValidationError):
        return None
