"""A RecordBatchReader as Parquet, one row group in memory at a time.

Owns: cutting the stream into row groups, the union of each column's dictionaries, and the proof of what is gone by the
time that the file can be read: columns that only the file proves are kept beside it, in an Arrow file of their own,
until they were compared. Order: groups as they come (each column decoded and compared in memory) -> notes -> footer ->
the kept columns against the file, group by group. Whatever happens, the file beside is removed.

Does not own: a column's form (`arrow_columns`), the layout of an Arrow table (`arrow_tables`), which this follows but
for one thing: long lists of dictionary values stay in the footer, since row group 0 is written before they are known.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import arrow_columns, arrow_tables, files, notes, parquet_file, physical, tables
from rlm_memory.codecs.libraries import pyarrow
from rlm_memory.codecs.results import Encoded, Terms
from rlm_memory.codecs.stored import Stored


def encode_stream(reader: Any, folder: Path, terms: Terms) -> Encoded:
    """Consume the reader. Raises `errors.NotExact` at the first group that cannot be kept; leaves no file then."""
    schema = reader.schema
    if not len(schema):
        return tables.encode_arrow(reader.read_all(), folder, terms)
    names = parquet_file.unique_names(schema.names)
    with files.publishing(folder, ".parquet") as (part, final), _beside(folder) as kept:
        work = _Stream(schema, names, terms)
        with _Kept(kept) as keeper:
            work.write(part, reader, keeper)
        file = parquet_file.open_file(part)
        if file.metadata.num_rows != work.rows:
            raise errors.StoreUnavailable("The file holds fewer rows than were written; nothing was recorded.")
        if not terms.changes:
            _compare(file, kept, names, work)
    return tables.arrow_facts(final, "Arrow RecordBatchReader", schema.names, work.rows, work.head, terms)


@contextmanager
def _beside(folder: Path) -> Generator[Path]:
    path = folder / f"{files.PART}{secrets.token_hex(8)}.arrow"
    files.account_for(path)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


class _Kept:
    """Columns that only the file proves, one batch or more a row group, on the disk beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def keep(self, table: Any) -> None:
        if table.num_columns and self._writer is None:
            self._writer = pyarrow().ipc.new_stream(str(self._path), table.schema)
        if table.num_columns:
            self._writer.write_table(table)


class _Stream:
    """What is known of the stream so far."""

    def __init__(self, schema: Any, names: list[str], terms: Terms) -> None:
        self.rows = 0
        self.head: Any = None
        self.stored: list[Stored] = []
        self._schema, self._names, self._terms = schema, names, terms
        self._dictionaries: dict[int, Any] = {}

    def write(self, path: Path, reader: Any, keeper: _Kept) -> None:
        """Every group into the file, then the notes. The losses of later groups are those of the first."""
        groups = _groups(reader, self._schema)
        main = self._take(next(groups), keeper)
        with parquet_file.writer(path, main.schema) as out:
            out.write_table(main)
            for group in groups:
                main = self._take(group, keeper)
                out.write_table(main)
            out.add_key_value_metadata({notes.KEY: notes.dumps(self._note())})

    def _take(self, table: Any, keeper: _Kept) -> Any:
        """The physical columns of one group, proven as far as memory can."""
        terms = self._terms if self.head is None else Terms(lossy=True)
        wheres = [f"column {field.name!r}" for field in self._schema]
        self.stored = [
            arrow_columns.encode_chunked(table.column(at), wheres[at], terms, field)
            for at, field in enumerate(self._schema)
        ]
        terms.settle()
        if not self._terms.changes:
            if terms.found:
                where, why, _ = terms.found[0]
                raise errors.NotExact(f"{where}, in a later part of the stream, cannot be kept: {why}", where=where)
            for at, one in enumerate(self.stored):
                if one.proof != "native":
                    tables.prove(wheres[at], table.column(at), one.note, one.main, [])
            proven = [at for at, one in enumerate(self.stored) if one.proof == "file"]
            keeper.keep(pyarrow().table([table.column(at) for at in proven], names=[self._names[at] for at in proven]))
        self._unite(table)
        self.head = table.slice(0, 20) if self.head is None else self.head
        self.rows += table.num_rows
        return pyarrow().table([one.main for one in self.stored], names=self._names)

    def _unite(self, table: Any) -> None:
        """Dictionary values in the order in which the whole stream shows them."""
        pa = pyarrow()
        for at, field in enumerate(self._schema):
            if pa.types.is_dictionary(field.type):
                chunks = table.column(at).chunks
                if at in self._dictionaries:
                    known = self._dictionaries[at]
                    empty = pa.array([], field.type.index_type)
                    chunks = [
                        pa.DictionaryArray.from_arrays(empty, known, ordered=field.type.ordered),
                        *chunks,
                    ]
                self._dictionaries[at] = arrow_columns.dictionary_values(pa.chunked_array(chunks, field.type))

    def _note(self) -> dict[str, Any]:
        columns = [dict(one.note) for one in self.stored]
        for at, values in self._dictionaries.items():
            if "dictionary" in columns[at]:
                columns[at]["dictionary"] = arrow_columns.pack(physical.to_plain(values))
        return arrow_tables.table_note(self._schema, self.rows, columns, self._names)


def _groups(reader: Any, schema: Any) -> Iterator[Any]:
    """Tables of one row group each, at least one; batches are joined and cut to that size."""
    pa = pyarrow()
    waiting: list[Any] = []
    rows = size = 0
    given = False
    for batch in reader:
        waiting.append(batch)
        rows += batch.num_rows
        size = size or parquet_file.group_rows(pa.Table.from_batches([batch]))
        while rows >= size:
            table = pa.Table.from_batches(waiting, schema)
            yield table.slice(0, size)
            given = True
            waiting, rows = table.slice(size).to_batches(), rows - size
    if rows or not given:
        yield pa.Table.from_batches(waiting, schema)


def _compare(file: Any, kept: Path, names: list[str], work: _Stream) -> None:
    """The columns that only the file proves, as the file has them, against those that were kept."""
    pa = pyarrow()
    proven = [at for at, one in enumerate(work.stored) if one.proof == "file"]
    if not proven:
        return
    with pa.OSFile(str(kept)) as source, pa.ipc.open_stream(source) as originals:
        for group in range(file.metadata.num_row_groups):
            read = parquet_file.read(file, [names[at] for at in proven], [group])
            original = _of_rows(originals, read.num_rows)
            for place, at in enumerate(proven):
                where = f"column {work.head.column_names[at]!r}"
                tables.prove(where, original.column(place), work.stored[at].note, read.column(place), [])


def _of_rows(originals: Any, rows: int) -> Any:
    """The batches of one group; a group was written whole, so none goes beyond it."""
    batches: list[Any] = []
    while sum(batch.num_rows for batch in batches) < rows:
        batches.append(originals.read_next_batch())
    return pyarrow().Table.from_batches(batches, originals.schema)
