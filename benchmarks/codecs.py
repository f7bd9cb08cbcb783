"""What recording a frame and reading a slice cost, beside plain tools, interleaved in one run.

    python benchmarks/codecs.py [--rows 8000000] [--rounds 5] [--out FOLDER]

Prints Markdown and, with --out, writes the same rows as CSV. Slices are compared like for like: those that end in a
polars frame with polars' own, those that end in a pandas frame with each tool's way to one. Every measurement is its
own process, which imports only what its work needs, so that peaks of memory are its own; growth is that of the first
run over what the imports took, the times are the smallest of the runs after it. Peers take turns within a round, and
the ratios are medians of the rounds' ratios to the first peer. The load of the machine is printed before and after.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEYS = ("wall", "cpu", "peak", "growth")
WANTED = ["g01", "g17", "g33"]
COLUMNS = ["group", "rate", "k"]


def ordinary(mebibytes: int = 100) -> Any:
    """Ten ordinary columns of about this size in memory."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = mebibytes * (1 << 20) // 76
    words = np.array([f"word {at:03d}" for at in range(500)], dtype=object)
    return pd.DataFrame(
        {
            "a": rng.random(rows),
            "b": rng.random(rows),
            "c": rng.integers(0, 10**6, rows),
            "d": rng.integers(0, 100, rows).astype("int32"),
            "e": rng.random(rows).astype("float32"),
            "f": rng.random(rows) > 0.5,
            "g": pd.array(words[rng.integers(0, 500, rows)], dtype="string[pyarrow]"),
            "h": pd.Categorical.from_codes(rng.integers(0, 40, rows), [f"g{at:02d}" for at in range(40)]),
            "i": pd.Timestamp("2030-01-01") + pd.to_timedelta(rng.integers(0, 10**8, rows), unit="s"),
            "j": pd.array(rng.integers(0, 9, rows), dtype="Int16"),
        }
    )


def make_slices(folder: Path, rows: int) -> None:
    """The same rows of 50 columns unsorted and sorted by group, recorded."""
    import numpy as np
    import pandas as pd
    from rlm_memory import codecs

    rng = np.random.default_rng(0)
    names = np.array([f"g{at:02d}" for at in range(40)], dtype=object)
    frame = pd.DataFrame(
        {
            "group": pd.array(names[rng.integers(0, 40, rows)], dtype="string[pyarrow]"),
            "rate": rng.random(rows),
            "k": rng.integers(0, 1000, rows),
            **{f"x{at:02d}": rng.integers(0, 1000, rows) / 8 for at in range(47)},
        }
    )
    codecs.encode(frame, folder).path.rename(folder / "unsorted.parquet")
    frame = frame.sort_values("group", ignore_index=True)
    codecs.encode(frame, folder).path.rename(folder / "sorted.parquet")


def slice_ours(path: str) -> Any:
    return _slice_ours(path, None)


def slice_ours_polars(path: str) -> Any:
    return _slice_ours(path, "polars")


def _slice_ours(path: str, form: str | None) -> Any:
    from rlm_memory import codecs

    kind = "application/vnd.apache.parquet; codec=frame"
    return codecs.decode(Path(path), kind, columns=COLUMNS, filters=[("group", "in", WANTED)], as_=form)


def slice_polars(path: str) -> Any:
    import polars as pl

    return pl.scan_parquet(path).filter(pl.col("group").is_in(WANTED)).select(COLUMNS).collect()


def slice_polars_pandas(path: str) -> Any:
    return slice_polars(path).to_pandas()


def slice_pandas(path: str) -> Any:
    import pandas as pd

    return pd.read_parquet(path, columns=COLUMNS, filters=[("group", "in", WANTED)])


def slice_pyarrow(path: str) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(path).to_table(columns=COLUMNS, filter=ds.field("group").isin(WANTED)).to_pandas()


def slice_duckdb(path: str) -> Any:
    import duckdb

    names = ", ".join(f"'{name}'" for name in WANTED)
    return duckdb.sql(f'select "group", rate, k from read_parquet(\'{path}\') where "group" in ({names})').df()


def record_ours(folder: str) -> Any:
    """Encode, which proves that the file reads back, then copy durably and hash as the host does."""
    from rlm_memory import codecs

    return _keep(codecs.encode(FRAME, Path(folder)).path)


def record_plain(folder: str) -> Any:
    """`to_parquet` with the same compression, then the same copy and hash; nothing is proven."""
    path = Path(folder) / "plain.parquet"
    FRAME.to_parquet(path, compression="zstd")
    return _keep(path)


def _keep(path: Path) -> str:
    copy = path.with_suffix(".copy")
    digest = hashlib.sha256()
    with path.open("rb") as source, copy.open("wb") as target:
        while block := source.read(1 << 20):
            digest.update(block)
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    return digest.hexdigest()


FRAME: Any = None
WORK: dict[str, tuple[Callable[[str], Any], list[str]]] = {
    "polars": (slice_polars, ["polars"]),
    "ours as polars": (slice_ours_polars, ["polars", "rlm_memory.codecs.slicing"]),
    "polars to pandas": (slice_polars_pandas, ["polars", "pandas", "pyarrow"]),
    "ours": (slice_ours, ["pandas", "pyarrow.parquet", "polars", "rlm_memory.codecs.slicing"]),
    "pandas": (slice_pandas, ["pandas", "pyarrow.parquet", "pyarrow.dataset"]),
    "pyarrow to pandas": (slice_pyarrow, ["pyarrow.dataset", "pandas"]),
    "DuckDB to pandas": (slice_duckdb, ["duckdb", "pandas"]),
    "to_parquet, copy, hash": (record_plain, []),
    "ours, copy, hash": (record_ours, []),
}
"""The work of each peer, and the libraries that are imported before anything is measured."""

TABLES: dict[str, list[str]] = {
    "to a polars frame": ["polars", "ours as polars"],
    "to a pandas frame": ["polars to pandas", "ours", "pandas", "pyarrow to pandas", "DuckDB to pandas"],
}
RECORD = ["to_parquet, copy, hash", "ours, copy, hash"]
REPEATS = {"slice": 5, "record": 1}


def one(work: str, target: str) -> None:
    """In a child: imports, once to warm up, whose growth of memory counts, then the runs of which the best counts."""
    global FRAME
    run, needs = WORK[work]
    for name in needs:
        importlib.import_module(name)
    if work in RECORD:
        FRAME = ordinary()
    base = _memory("VmRSS")
    run(target)
    growth = _memory("VmHWM") - base
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(REPEATS["record" if work in RECORD else "slice"]):
        wall, cpu = time.perf_counter(), time.process_time()
        run(target)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    print(json.dumps({"wall": min(walls), "cpu": min(cpus), "peak": _memory("VmHWM"), "growth": growth}))


def _memory(name: str) -> float:
    """MiB; ru_maxrss would show the parent's peak, which a child inherits."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def measure(work: str, target: str) -> dict[str, float]:
    return json.loads(
        subprocess.check_output([sys.executable, __file__, "--one", work, target], text=True).splitlines()[-1]
    )


def table(title: str, peers: list[str], target: str, rounds: int) -> list[list[str]]:
    """Rows of one comparison: medians, and medians of ratios to the first peer."""
    found: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            found[peer].append(measure(peer, target))
    rows: list[list[str]] = []
    for peer in peers:
        middle = {key: statistics.median(run[key] for run in found[peer]) for key in KEYS}
        ratios = {
            key: statistics.median(run[key] / base[key] for run, base in zip(found[peer], found[peers[0]], strict=True))
            for key in KEYS
        }
        cells = [
            f"{middle['wall']:.3f}",
            f"{middle['cpu']:.3f}",
            f"{middle['peak']:.0f}",
            f"{middle['growth']:.0f}",
            *(f"{ratios[key]:.2f}" for key in ratios),
        ]
        rows.append([title, peer, *cells])
    return rows


HEAD = ["what", "peer", "wall s", "CPU s", "peak MiB", "growth MiB", *(f"{key} ratio" for key in KEYS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--files", type=Path, help="a folder with unsorted.parquet and sorted.parquet of a run before")
    parser.add_argument("--one", nargs=2)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
        return
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        files = options.files or Path(folder)
        if options.files is None:
            make_slices(files, options.rows)
        rows = table("record 100 MiB", RECORD, folder, options.rounds)
        for order in ("unsorted", "sorted"):
            for form, peers in TABLES.items():
                rows += table(f"{order} {form}", peers, str(files / f"{order}.parquet"), options.rounds)
    loads.append(os.getloadavg()[0])
    print(f"Load of {os.cpu_count()} cores before and after: {loads[0]:.1f}, {loads[1]:.1f}\n")
    print("\n".join("| " + " | ".join(row) + " |" for row in [HEAD, ["---"] * len(HEAD), *rows]))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "codecs.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([HEAD, *rows])


if __name__ == "__main__":
    main()
