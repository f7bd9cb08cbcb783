"""Writing and reading the Parquet files themselves.

Owns: row-group size, compression, statistics, page checksums (written and verified), names that every reader takes, and
reading columns by exact name. Does not own: what the columns mean.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import files, footers
from rlm_memory.codecs.footers import Footer
from rlm_memory.codecs.libraries import parquet, pyarrow

GROUP_BYTES = 16 << 20
"""Aim of one row group, bytes in memory: small enough to prune, large enough to compress."""
GROUP_ROWS = (10_000, 262_144)
"""Smallest and largest row group, rows."""


def unique_names(wanted: Iterable[str]) -> list[str]:
    """Column names that Parquet and its readers take: no NUL, no lone surrogate, none twice."""
    names: list[str] = []
    seen: set[str] = set()
    for text in wanted:
        name = text.encode("utf-8", "replace").decode().replace("\x00", "\N{SYMBOL FOR NULL}")
        number, base = 1, name
        while name in seen:
            number += 1
            name = f"{base} ({number})"
        seen.add(name)
        names.append(name)
    return names


def group_rows(table: Any) -> int:
    """Rows a row group, from the width of a row in memory."""
    if not table.num_rows:
        return GROUP_ROWS[1]
    width = max(1, table.nbytes // table.num_rows)
    return int(min(max(GROUP_BYTES // width, GROUP_ROWS[0]), GROUP_ROWS[1]))


def write(path: Path, table: Any, metadata: dict[bytes, bytes]) -> None:
    """Write one table; `metadata` goes into the footer only."""
    with writer(path, table.schema) as out:
        out.write_table(table, row_group_size=group_rows(table))
        out.add_key_value_metadata(metadata)


def writer(path: Path, schema: Any) -> Any:
    """A writer with our compression, statistics and page checksums."""
    return parquet().ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        write_statistics=True,
        write_page_checksum=True,
        use_dictionary=_dictionary_columns(schema),
        store_schema=True,
        version="2.6",
    )


def _dictionary_columns(schema: Any) -> Any:
    """Dictionary pages help text; for floats they cost a failed try a page."""
    types = pyarrow().types
    return [field.name for field in schema if not types.is_floating(field.type)] or False


_footers: dict[tuple[int, ...], Footer] = {}
_lock = threading.Lock()
_FOOTERS_REMEMBERED = 4
_FOOTER_BYTES = 4 << 20
"""Longest footer that is remembered; parsed by pyarrow too it takes several times that."""


def open_file(path: Path, footer: Footer | None = None) -> Any:
    """A pyarrow ParquetFile that verifies page checksums. Raises `errors.Integrity` where the file is not Parquet.

    Read without a memory map, whose pages would count as memory held. A footer that is known is not parsed again.
    """
    pa = pyarrow()
    known = None if footer is None else footer.metadata
    try:
        return parquet().ParquetFile(path, metadata=known, page_checksum_verification=True)
    except pa.ArrowInvalid as fault:
        raise errors.Integrity("The recorded file is not readable as Parquet.") from fault


def footer_of(path: Path) -> Footer:
    """The parsed footer. Raises `errors.Integrity` where the file is not Parquet.

    Those of the last few files are remembered, by the version of the file: parsing one of ten thousand column chunks
    costs as much as a small slice.
    """
    key = files.identity(path)
    with _lock:
        footer = _footers.pop(key, None)
    if footer is None:
        footer = Footer(footers.octets_of(path))
    if len(footer.octets) <= _FOOTER_BYTES:
        with _lock:
            _footers[key] = footer
            while len(_footers) > _FOOTERS_REMEMBERED:
                del _footers[next(iter(_footers))]
    return footer


def read(file: Any, names: list[str] | None = None, groups: list[int] | None = None) -> Any:
    """A table of exactly these columns (in this order) of these row groups, all by default.

    Raises `errors.Integrity` for a page whose checksum does not match.
    """
    pa = pyarrow()
    try:
        whole = file.read(names) if groups is None else file.read_row_groups(groups, names)
    except (pa.ArrowInvalid, OSError) as fault:
        raise errors.Integrity(f"The recorded file is damaged: {str(fault)[:200]}") from fault
    if names is None:
        return whole
    try:
        # Reading "a.b" by name also brings the field b of a struct a.
        return whole.select(names)
    except KeyError as fault:
        raise errors.Integrity("The recorded file is damaged: its notes name columns that it does not have.") from fault
