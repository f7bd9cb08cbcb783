"""A stream of batches is recorded as it comes, and comes back as the table of all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rlm_memory import codecs, errors
from rlm_memory.codecs import parquet_file, tables

pytestmark = pytest.mark.compat


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of seven rows, so that batches are joined and cut."""
    monkeypatch.setattr(parquet_file, "group_rows", lambda table: 7)


def batches(schema: pa.Schema | None = None) -> list[pa.RecordBatch]:
    """Batches of four rows, each with a dictionary of its own, a nested column and a view."""
    made: list[pa.RecordBatch] = []
    for at in range(8):
        words = [f"w{(at + step) % 5}" for step in range(3)]
        columns = [
            pa.array([*words, None]).dictionary_encode(),
            pa.array([[at], None, [], [1, None]]),
            pa.array(range(4 * at, 4 * at + 4), pa.int8()),
            pa.array(["x" * at] * 4, pa.string_view()),
        ]
        fields = [pa.field(name, one.type) for name, one in zip("dlnv", columns, strict=True)]
        fields[2] = fields[2].with_nullable(False).with_metadata({"unit": "mm"})
        made.append(pa.record_batch(columns, schema=schema or pa.schema(fields, metadata={"k": "v"})))
    return made


def reader(some: Any, schema: pa.Schema) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, some)


def test_a_stream_comes_back_as_its_table(tmp_path: Path) -> None:
    """Schema and metadata, the order of dictionary values over all batches, nested values, row groups of one size."""
    some = batches()
    whole = pa.Table.from_batches(some)
    encoded = codecs.encode(reader(some, whole.schema), tmp_path)
    back = codecs.decode(encoded.path, encoded.media_type)
    assert list(tmp_path.iterdir()) == [encoded.path]
    assert back.schema.equals(whole.schema, check_metadata=True)
    assert back.to_pylist() == whole.to_pylist()
    values = [one["d"].unify_dictionaries().chunk(0).dictionary.to_pylist() for one in (back, whole)]
    assert values[0] == values[1]
    assert encoded.shape == [32, 4]
    assert encoded.summary == "Arrow RecordBatchReader, 32 rows x 4 columns: d, l, n, v"
    part = codecs.decode(encoded.path, encoded.media_type, columns=["d"], filters=[("n", ">", 29)])
    assert part["d"].to_pylist() == whole["d"].to_pylist()[30:]
    assert codecs.encode(reader(some, whole.schema), tmp_path).path.read_bytes() == encoded.path.read_bytes()


def test_a_stream_without_batches_is_a_table_without_rows(tmp_path: Path) -> None:
    """And one without columns keeps its rows."""
    schema = batches()[0].schema
    encoded = codecs.encode(reader([], schema), tmp_path)
    back = codecs.decode(encoded.path, encoded.media_type)
    assert back.num_rows == 0
    assert back.schema.equals(schema, check_metadata=True)


def test_a_stream_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    """A fault of the source goes on as it is."""
    some = batches()

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from some[:5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        codecs.encode(reader(breaking(), some[0].schema), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    """By column, and lossy does once for each column what was said."""
    table = pa.table({"m": pa.array([(1, 2, 3)] * 20, pa.month_day_nano_interval())})
    with pytest.raises(errors.NotExact, match="'m'"):
        codecs.encode(table.to_reader(4), tmp_path)
    assert list(tmp_path.iterdir()) == []
    encoded = codecs.encode(table.to_reader(4), tmp_path, lossy=True)
    assert encoded.changes == ["column 'm': becomes text"]
    assert codecs.decode(encoded.path, encoded.media_type)["m"].type == pa.string()


def test_what_the_file_holds_is_compared_with_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nested column that the file gives back otherwise is refused, though memory had it right."""
    some = batches()
    real = parquet_file.read

    def other(file: Any, names: Any = None, groups: Any = None) -> Any:
        found = real(file, names, groups)
        if groups != [3] or "l" not in found.column_names:
            return found
        return found.set_column(found.column_names.index("l"), "l", found["l"].take(pa.array(range(6, -1, -1))))

    monkeypatch.setattr(parquet_file, "read", other)
    assert tables.parquet_file.read is other
    with pytest.raises(errors.NotExact, match="'l'"):
        codecs.encode(reader(some, some[0].schema), tmp_path)
    assert list(tmp_path.iterdir()) == []
