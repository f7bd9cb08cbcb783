"""How far each log was read: one small file for each, below the state root.

Owns: `<state root>/dsh/tail/<digest>.json`. Does not own: the log, what was captured of it (that is evidence, durable
before its cursor moves).

Order of writes: what a turn gives is kept first, then the cursor is replaced as a whole (temporary file, flush,
rename, flush of the folder). Killed between the two: the same turns are read again, and capture knows them. A cursor
that is lost or cannot be read is the beginning of the log. No path, name or text of a session stands in one.

Source: design page "DeepSeek Harness and MCP", Ways in (Log tailer).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from rlm_memory_host.process import private_folder, write_private

FORMAT: Final = 1
MAX_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where reading goes on: before the frame in which the first turn began that did not end yet.

    `head` is the digest of the log's first frame, which says whether it is still the same log. `turn` is the last turn
    that was read to its end.
    """

    head: str = ""
    offset: int = 0
    turn: int = 0


class Cursors:
    """The cursors of a state root. Not thread-safe: one pass reads at a time."""

    def __init__(self, state_root: Path) -> None:
        self._root = state_root
        self._folder = state_root / "dsh" / "tail"

    def load(self, log: Path) -> Cursor:
        """The cursor of a log; the beginning where none is kept."""
        try:
            with self._path(log).open("rb") as file:
                value: object = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError):
            return Cursor()
        row = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        head, offset, turn = row.get("head"), row.get("offset"), row.get("turn")
        if row.get("format") != FORMAT or not isinstance(head, str) or type(offset) is not int or type(turn) is not int:
            return Cursor()
        return Cursor(head, max(0, offset), turn)

    def save(self, log: Path, cursor: Cursor) -> None:
        """Keep it durably. Raises OSError, SettingsError."""
        private_folder(self._root / "dsh")
        private_folder(self._folder)
        data = json.dumps({"format": FORMAT, **asdict(cursor)}, sort_keys=True).encode("ascii")
        write_private(self._path(log), data + b"\n")

    def _path(self, log: Path) -> Path:
        digest = hashlib.sha256(str(log).encode("utf-8", "surrogateescape")).hexdigest()
        return self._folder / f"{digest[:32]}.json"
