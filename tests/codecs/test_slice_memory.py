"""A slice holds its rows, not the file: the growth of a fresh process stays far below what the whole would take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from rlm_memory import codecs

pytestmark = pytest.mark.compat

ROWS = 2_300_000
BOUND_MIB = {"polars": 100, "pyarrow": 60}
"""Far below the file, and a quarter of its frame; polars keeps arenas for each of its threads."""

PROGRAM = """
import sys
from pathlib import Path
from rlm_memory import codecs
from rlm_memory.codecs import libraries, scan, slicing
folder, engine = Path(sys.argv[1]), sys.argv[2]
if engine == "pyarrow":
    scan.optional = lambda name: None if name == "polars" else libraries.optional(name)
kind = "application/vnd.apache.parquet; codec=frame"
part = {"columns": ["v0", "name"], "filters": [("k", "in", [7, 8])]}
codecs.decode(folder / "small.parquet", kind, **part)  # imports, threads, arenas

def held(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) // 1024

Path("/proc/self/clear_refs").write_text("5")
before = held("VmRSS")
got = [len(codecs.decode(folder / "big.parquet", kind, **part))]
got.append(len(codecs.decode(folder / "big.parquet", kind, rows=(1_000_000, 1_000_010))))
got.append(len(codecs.decode(folder / "big.parquet", kind, columns=["k"], sample=5, rows=(0, 100_000))))
print(*got, held("VmHWM") - before)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of about 200 MB, and a small one of the same columns."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, rows in (("big", ROWS), ("small", 20_000)):
        frame = pd.DataFrame({f"v{at}": rng.random(rows) for at in range(12)})
        frame["k"] = np.arange(rows) * 1000 // rows
        frame["name"] = pd.array(np.char.add("n", rng.integers(0, 50, rows).astype("U2")), dtype="string[pyarrow]")
        codecs.encode(frame, folder).path.rename(folder / f"{name}.parquet")
    assert (folder / "big.parquet").stat().st_size > 180 << 20
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says what a process held at most")
@pytest.mark.parametrize("engine", ["polars", "pyarrow"])
def test_a_slice_of_a_large_file_holds_little(engine: str, folder: Path) -> None:
    """By filter, by rows and by a sample of rows, from either engine."""
    said = subprocess.check_output([sys.executable, "-c", PROGRAM, str(folder), engine], text=True).split()
    assert [int(count) for count in said[:3]] == [ROWS // 500, 10, 5]
    assert int(said[3]) < BOUND_MIB[engine]


def test_a_stream_is_written_as_it_comes(tmp_path: Path) -> None:
    """A reader of 400 MB of batches is recorded in a process that holds a fraction of them."""
    program = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa
from rlm_memory import codecs
from rlm_memory.codecs import tables

def held(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) // 1024

def batches(count):
    for at in range(count):
        values = np.arange(at * 250_000, (at + 1) * 250_000, dtype="float64")
        yield pa.record_batch([pa.array(values + part) for part in range(5)], names=list("abcde"))

def record(count):
    schema = next(batches(1)).schema
    return codecs.encode(pa.RecordBatchReader.from_batches(schema, batches(count)), Path(sys.argv[1]))

record(2)
before = held("VmRSS")
made = record(40)
print(made.shape, held("VmHWM") - before)
found = codecs.decode(made.path, made.media_type, rows=(9_999_998, 10_000_000))
print(found.column("e").to_pylist())
"""
    said = subprocess.check_output([sys.executable, "-c", program, str(tmp_path)], text=True).splitlines()
    assert said[0].startswith("[10000000, 5] ")
    assert said[1] == "[10000002.0, 10000003.0]"
    assert int(said[0].split()[-1]) < 150
    assert pa.__version__
