"""How fast the store is, in ratios against plain tools on the same disk, interleaved in one run.

    ./dev run python benchmarks/store.py [--rounds N] [--folder DIR] [--cards N]

Prints one JSON line a measurement: medians of wall and CPU milliseconds, and the ratio that `docs/store.md` quotes.
Ratios are medians of ratios within a round, so a loaded machine shifts both sides.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import Bounds, RecordRequest, SearchRequest
from rlm_memory_host.contracts.scope import Scope

SIZES = {"1 KiB": 1 << 10, "1 MiB": 1 << 20, "100 MiB": 100 << 20}


def fingerprint(number: object) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scope = Scope("bench", "session", folder / "session")
        assert self.scope.exports is not None
        self.exports = self.scope.exports
        self.exports.mkdir(parents=True)
        self.store = ArtifactStore(folder / "store", Bounds(project_bytes=1 << 50, cards=1_000_000, raised=True))
        self.count = 0

    def request(self, path: Path) -> RecordRequest:
        self.count += 1
        return RecordRequest(
            path, f"Result {self.count}", "A summary of it.", fingerprint(self.count), "bench", "v1", tags=("bench",)
        )

    def source(self, size: int) -> Path:
        path = self.exports / f"source-{self.count}"
        with path.open("wb") as file:
            left = size
            while left:
                left -= file.write(os.urandom(min(left, 1 << 20)))
            os.fsync(file.fileno())
        return path

    def record(self, path: Path) -> str:
        return self.store.record(self.scope, self.request(path)).experiment_id


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU milliseconds of the process."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def copy_and_flush(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        while os.copy_file_range(read.fileno(), written.fileno(), 1 << 30):
            pass
        os.fsync(written.fileno())


def copy_and_hash(source: Path, target: Path) -> None:
    digest = hashlib.sha256()
    with source.open("rb") as read, target.open("wb") as written:
        while block := read.read(1 << 20):
            digest.update(block)
            written.write(block)
        written.flush()
        os.fsync(written.fileno())


def flush_floor(source: Path, target: Path) -> None:
    """The flushes that an object and a card cannot do without: two files and the folder of each."""
    for name, data in ((target, source.read_bytes()), (target.with_suffix(".card"), b"x" * 800)):
        with name.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        name.rename(name.with_name(name.name + ".done"))
        folder = os.open(name.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compare(name: str, rounds: list[dict[str, tuple[float, float]]], against: dict[str, int]) -> None:
    medians = {
        part: [round(statistics.median(r[part][side] for r in rounds), 3) for side in (0, 1)] for part in rounds[0]
    }
    ratios = {
        f"{'wall' if side == 0 else 'cpu'} / {part}": round(
            statistics.median(r["store"][side] / max(r[part][side], 1e-6) for r in rounds), 3
        )
        for part, side in against.items()
    }
    print(json.dumps({"name": name, "wall and cpu ms": medians, "ratios": ratios}), flush=True)


def measure_records(bench: Bench, rounds: int) -> None:
    for name, size in SIZES.items():
        results: list[dict[str, tuple[float, float]]] = []
        again: list[dict[str, tuple[float, float]]] = []
        first: list[dict[str, tuple[float, float]]] = []
        for _ in range(rounds if size > 1 << 20 else rounds * 5):
            path = bench.source(size)
            target = bench.folder / f"copy-{bench.count}"
            result: dict[str, tuple[float, float]] = {}
            result["cp+fsync"] = timed(lambda p=path, t=target: copy_and_flush(p, t.with_suffix(".a")))
            result["copy+hash"] = timed(lambda p=path, t=target: copy_and_hash(p, t.with_suffix(".b")))
            result["flushes"] = timed(lambda p=path, t=target: flush_floor(p, t.with_suffix(".c")))
            done: list[str] = []
            result["store"] = timed(lambda p=path, d=done: d.append(bench.record(p)))
            results.append(result)
            bench.count -= 1
            request = bench.request(path)
            same = lambda q=request: bench.store.record(bench.scope, q)  # noqa: E731
            again.append({"hash": timed(lambda p=path: hash_file(p)), "store": timed(same)})
            resolve = lambda d=done: bench.store.resolve(bench.scope, d[0])  # noqa: E731
            first.append({"hash": timed(lambda p=path: hash_file(p)), "store": timed(resolve), "again": timed(resolve)})
            path.unlink()
            for file in bench.folder.glob("copy-*"):
                file.unlink()
        compare(f"record {name}", results, {"cp+fsync": 0, "copy+hash": 1, "flushes": 0})
        compare(f"record {name} with identical bytes", again, {"hash": 0})
        compare(f"resolve {name}", first, {"hash": 0, "again": 0})


def plant(bench: Bench, cards: int) -> None:
    """Cards written straight into the store of a project of their own."""
    words = [f"word{number}" for number in range(4_000)]
    key = ids.project_key("cards")
    folder = bench.folder / "store" / "projects" / key / "cards"
    folder.mkdir(parents=True)
    moment = "2026-08-21T10:00:00.000Z"
    sha256 = hashlib.sha256(b"x").hexdigest()
    for number in range(cards):
        some = [words[(number * 7 + step * step * 13) % len(words)] for step in range(60)]
        identity = {
            "artifact": ids.artifact_id(sha256),
            "query_fingerprint": fingerprint(number),
            "source_version": "v",
        }
        experiment = ids.experiment_id(project_id="cards", **identity)
        document = {
            "schemaVersion": 1,
            "experimentId": experiment,
            "artifact": {
                "schemaVersion": 1,
                "artifactId": identity["artifact"],
                "sha256": sha256,
                "bytes": 1,
                "mediaType": "text/plain",
                "createdAt": moment,
            },
            "title": f"run {number} {' '.join(some[:6])}",
            "summary": " ".join(some),
            "queryFingerprint": identity["query_fingerprint"],
            "source": "bench",
            "sourceVersion": "v",
            "projectId": "cards",
            "originSessionId": "s",
            "originAgentKind": "none",
            "pluginVersion": "0",
            "createdAt": moment,
            "updatedAt": moment,
            "index": {"state": "disabled", "projectionRevision": 0, "attempts": 0},
        }
        (folder / f"{experiment}.json").write_text(json.dumps(document))


def measure_search(bench: Bench, cards: int) -> None:
    plant(bench, cards)
    scope = Scope("cards", "session", bench.folder / "session")
    start = timed(lambda: bench.store.search(scope, SearchRequest("anything")))
    times: dict[str, list[float]] = {"rare": [], "two words": [], "every card": [], "newest": []}
    for number in range(200):
        for name, query in (
            ("rare", f"run {number * 37 % cards}"),
            ("two words", f"word{number} word{number * 3}"),
            ("every card", "run"),
            ("newest", ""),
        ):
            times[name].append(timed(lambda q=query: bench.store.search(scope, SearchRequest(q)))[1])
    report = {name: [round(statistics.median(t), 3), round(sorted(t)[-3], 3)] for name, t in times.items()}
    print(json.dumps({"name": f"search {cards:,} cards", "start ms": start, "median and p99 CPU ms": report}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cards", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where to work (on the disk to be measured)")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rlm-memory-bench-", dir=given.folder))
    try:
        bench = Bench(folder)
        bench.record(bench.source(1))
        measure_records(bench, given.rounds)
        measure_search(bench, given.cards)
        bench.store.close()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
