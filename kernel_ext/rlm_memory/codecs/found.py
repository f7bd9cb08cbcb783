"""Rows that polars found, given on in the form that a result wants.

Owns: the hand-over. A polars frame goes on as it is; numbers go to pandas as one array that may be written to, made by
one copy out of polars' chunks; all else goes by way of Arrow, one column at a time. Does not own: finding (`scan`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlm_memory.codecs.libraries import need, numpy


@dataclass(frozen=True, slots=True)
class Found:
    """As much of an Arrow table as decoding asks for, over a polars frame; `types` are those that Arrow leads to."""

    frame: Any
    types: dict[str, Any]

    @property
    def column_names(self) -> list[str]:
        return list(self.types)

    @property
    def num_rows(self) -> int:
        return self.frame.height

    def __getitem__(self, name: str) -> Any:
        """One column as a ChunkedArray."""
        return self.frame.get_column(name).to_frame().to_arrow().column(0)

    def numbers(self, name: str) -> Any:
        """One column as a numpy array of its own, None where it holds nulls or is not of numbers."""
        series = self.frame.get_column(name)
        if series.null_count() or not (series.dtype.is_numeric() or series.dtype == need("polars", "").Boolean):
            return None
        return numpy().concatenate([chunk.to_numpy() for chunk in series.get_chunks()])

    def take(self, rows: Any) -> Found:
        """The rows of these numbers, an Arrow array."""
        return Found(self.frame[numpy().asarray(rows)], self.types)

    def select(self, names: list[str]) -> Found:
        """Column by column: polars' own `select` plans a query, which costs more than the rows of a small slice."""
        columns = [self.frame.get_column(name) for name in names]
        return Found(need("polars", "").DataFrame(columns), {name: self.types[name] for name in names})

    def to_arrow(self) -> Any:
        return self.frame.to_arrow()

    def to_polars(self) -> Any:
        """The frame, where polars reads the file's types as it reads Arrow's; else by way of Arrow."""
        return self.frame if dict(self.frame.schema) == self.types else to_polars(self.to_arrow())


def to_arrow(table: Any) -> Any:
    """Rows as an Arrow table."""
    return table.to_arrow() if isinstance(table, Found) else table


def to_polars(table: Any) -> Any:
    """Rows as a polars frame. Raises `errors.Invalid` without polars."""
    return table.to_polars() if isinstance(table, Found) else need("polars", "as_='polars'").from_arrow(table)


def for_pandas(table: Any, name: str, kind: str) -> Any:
    """One column for a decoder: numbers as numpy where no conversion is needed, else Arrow."""
    if kind == "number" and isinstance(table, Found) and (numbers := table.numbers(name)) is not None:
        return numbers
    return table[name]
