"""What is asked of a Parquet footer again and again: row groups, leaf columns, bounds of values, the notes.

Owns: these answers, each worked out once for a version of a file. Asking pyarrow for the statistics of ten thousand
column chunks, one object each, costs as much as a small slice. Nothing here is changed by its readers.

Does not own: which footers are remembered (`parquet_file`), what bounds rule out (`filters`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rlm_memory.codecs import notes

Bounds = tuple[Any, Any]
"""Smallest and largest value of a chunk; those of times as integers in the unit that is written."""


class Footer:
    """One parsed footer. Safe for threads: what two of them work out at once is the same."""

    def __init__(self, metadata: Any, schema: Any, arrow_schema: Any) -> None:
        self.metadata = metadata
        self.arrow_schema = arrow_schema
        self._schema = schema
        self._bounds: dict[int, list[Bounds | None]] = {}

    @cached_property
    def note(self) -> dict[str, Any]:
        """The notes of the file. Raises `errors.Integrity`, `errors.Unsupported`."""
        return notes.loads(self.metadata.metadata)

    @cached_property
    def edges(self) -> list[int]:
        """The row where each row group starts, and the number of rows."""
        edges = [0]
        for number in range(self.metadata.num_row_groups):
            edges.append(edges[-1] + self.metadata.row_group(number).num_rows)
        return edges

    @cached_property
    def leaves(self) -> dict[str, list[int]]:
        """Leaf column numbers under each top-level name."""
        names = self.arrow_schema.names
        paths = [self._schema.column(at).path for at in range(len(self._schema))]
        leaves: dict[str, list[int]] = {name: [] for name in names}
        at = 0
        for name in names:
            while at < len(paths) and (paths[at] == name or paths[at].startswith(f"{name}.")):
                leaves[name].append(at)
                at += 1
        return leaves

    def type_of(self, name: str) -> Any:
        """The Arrow type of a top-level column."""
        return self.arrow_schema.field(self.arrow_schema.get_field_index(name)).type

    def bounds(self, leaf: int) -> list[Bounds | None]:
        """The bounds of a leaf column in each row group; None where they were not written."""
        known = self._bounds.get(leaf)
        if known is None:
            times = self._schema.column(leaf).logical_type.type == "TIMESTAMP"
            known = [self._of_group(number, leaf, times) for number in range(self.metadata.num_row_groups)]
            self._bounds[leaf] = known
        return known

    def _of_group(self, number: int, leaf: int, times: bool) -> Bounds | None:
        statistics = self.metadata.row_group(number).column(leaf).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        return (statistics.min_raw, statistics.max_raw) if times else (statistics.min, statistics.max)
