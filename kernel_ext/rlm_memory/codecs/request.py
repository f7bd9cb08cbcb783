"""What a caller asks of a recorded file: columns, filters, rows, a sample, a form.

Owns: the request as one value. Does not own: checking it against a file, which its reader does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller asked for, as it was given."""

    columns: Any = None
    filters: Any = None
    rows: Any = None
    sample: Any = None
    seed: int = 0
    as_: str | None = None

    @property
    def is_whole(self) -> bool:
        return self.columns is None and self.filters is None and self.rows is None and self.sample is None
