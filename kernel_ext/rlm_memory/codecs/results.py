"""What encoding gives: the file and the facts about it that a card shows.

Owns: `Encoded` and the list of what was, or would be, changed. Does not own: any conversion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlm_memory import errors


@dataclass(frozen=True, slots=True)
class Encoded:
    """A recorded object as a file, proven to read back.

    `path` lies in the folder that was given; `shape` counts rows and columns or the array's axes; `columns` holds at
    most 256 names of at most 128 characters; `summary` is made from the schema and shows no value; `preview` is a
    bounded head (at most 32 KiB of JSON); `changes` says what `lossy=True` altered, empty when the file is exact.
    """

    path: Path
    media_type: str
    shape: list[int] | None
    columns: list[str] | None
    summary: str
    preview: dict[str, Any] | None
    codec: str
    changes: list[str]


@dataclass(slots=True)
class Terms:
    """What cannot be kept exactly, collected while encoding, so that one refusal can name all of it."""

    lossy: bool = False
    found: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    def give_up(self, where: str, why: str, change: str) -> None:
        """Note a loss: `where` names the column or place, `why` the reason, `change` what lossy does instead."""
        self.found.append((where, why, change))

    @property
    def changes(self) -> list[str]:
        return [f"{where}: {change}" for where, _, change in self.found]

    def settle(self) -> None:
        """Raise `errors.NotExact` for what was found, unless the caller accepted losses."""
        if self.lossy or not self.found:
            return
        where, why, _ = self.found[0]
        more = f" ({len(self.found) - 1} more like it)" if len(self.found) > 1 else ""
        changes = "; ".join(self.changes[:20]) + ("; ..." if len(self.found) > 20 else "")
        raise errors.NotExact(
            f"{where} cannot be kept exactly: {why}{more}. lossy=True would change: {changes}",
            where=where,
            changes=changes,
        )


MAX_COLUMNS = 256
MAX_COLUMN_CHARACTERS = 128


def bounded_names(names: list[str]) -> list[str]:
    """The first 256 column names, each cut to 128 characters, as a card holds them."""
    clean = (name.encode("utf-8", "replace").decode() for name in names[:MAX_COLUMNS])
    return [name if len(name) <= MAX_COLUMN_CHARACTERS else name[: MAX_COLUMN_CHARACTERS - 1] + "…" for name in clean]
