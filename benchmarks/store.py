"""How fast the store is, in ratios against plain tools on the same disk, interleaved in one run.

    ./dev run python benchmarks/store.py [--rounds N] [--folder DIR] [--cards N ...] [--indexed N ...]
        [--csv FILE [--compare]]

`--cards` plants so many card files and measures the whole store over them; `--indexed` makes so many documents in an
index alone, for sizes whose files nobody wants to wait for. Prints Markdown tables; with `--csv FILE` appends rows, and
with `--compare` sets them beside the revision before (`revisions`). Ratios are medians of ratios within a round, so a
loaded machine shifts both sides; the CPU columns hold where the wall's do not.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import revisions
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import Bounds, RecordRequest, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.storage import index_file
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.index import Index
from rlm_memory_host.storage.index_build import Builder, build
from rlm_memory_host.storage.index_packed import PackedPart
from rlm_memory_host.storage.ranking import Document, Query

KINDS = ("wall ms", "cpu ms")
ADDED = 40
"""Results that are recorded over the planted cards."""
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


ROWS: list[tuple[str, str, str, float]] = []
_last_work = ""


def table(work: str, case: str, figures: dict[str, float]) -> None:
    """A line of the Markdown table, and rows for the CSV."""
    global _last_work
    if work != _last_work:
        _last_work = work
        print(f"\n**{work}**\n\n| case | figures |\n|---|---|")
    print(f"| {case} | " + ", ".join(f"{name} {value:g}" for name, value in figures.items()) + " |", flush=True)
    ROWS.extend((work, case, name, round(value, 4)) for name, value in figures.items())


def compare(name: str, rounds: list[dict[str, tuple[float, float]]], against: dict[str, int]) -> None:
    for part in rounds[0]:
        wall, cpu = (round(statistics.median(r[part][side] for r in rounds), 3) for side in (0, 1))
        figures = {"wall ms": wall, "cpu ms": cpu}
        if part in against:
            side = against[part]
            ratio = statistics.median(r["store"][side] / max(r[part][side], 1e-6) for r in rounds)
            figures[f"store / this, {'wall' if side == 0 else 'cpu'}"] = round(ratio, 3)
        table(name, part, figures)


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
    letters = random.Random(7)
    words = [f"word{number}" for number in range(2_000)]
    words += ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=letters.randint(4, 10))) for _ in range(2_000)]
    words[2_222] = "treatment"
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


def resident_kb() -> int:
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def one_start(folder: Path, queries: int) -> None:
    """In a process of its own: open a store, search for the first time, then again and again; prints one JSON line."""
    import_cost = timed(lambda: __import__("numpy"))
    gc.freeze()  # As the host does when it listens.
    scope = Scope("cards", "session", folder / "session")
    before = resident_kb()
    store = ArtifactStore(
        folder / "store", Bounds(cards=1_000_000, raised=True), index_folder=folder / "index" if queries else None
    )
    start = timed(lambda: store.search(scope, SearchRequest("anything")))
    memory = resident_kb() - before
    times: dict[str, list[tuple[float, float]]] = {}
    for number in range(queries):
        for name, query in (
            ("one card's number", f"{number * 37}"),
            ("two words", f"word{number} word{number * 3}"),
            ("a word of every card", "run"),
            ("that and two more", f"run word{number} word{number + 9}"),
            ("a slip", "tretment"),
            ("a beginning", "wor"),
            ("an unknown word", "qwertzuiop"),
            ("the newest", ""),
        ):
            times.setdefault(name, []).append(timed(lambda q=query: store.search(scope, SearchRequest(q))))
    adding = [adding_one(store, scope, number) for number in range(ADDED if queries > 1 else 0)]
    store.close()
    report = {
        name: {
            "wall": [quantile([t[0] for t in some], 0.5), quantile([t[0] for t in some], 0.99)],
            "cpu": [quantile([t[1] for t in some], 0.5), quantile([t[1] for t in some], 0.99)],
        }
        for name, some in times.items()
    }
    print(json.dumps({"start": start, "numpy": import_cost, "memory": memory, "searches": report, "adding": adding}))


def adding_one(store: ArtifactStore, scope: Scope, number: int) -> list[float]:
    """Wall and CPU of a record of 100 bytes, and of the search right after it that has to find it."""
    assert scope.exports is not None
    scope.exports.mkdir(parents=True, exist_ok=True)
    path = scope.exports / "added"
    path.write_bytes(b"%100d" % number)
    asked = RecordRequest(path, f"added {number}", "words of it", fingerprint(f"added {number}"), "bench", "v1")
    recording = timed(lambda: store.record(scope, asked))
    found: list[int] = []
    searching = timed(lambda: found.append(store.search(scope, SearchRequest(f"added {number}")).total))
    assert found[0]
    return [*recording, *searching]


def quantile(values: list[float], at: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(len(values) * at))], 3)


def measure_search(bench: Bench, cards: int) -> None:
    """Starts with and without a saved index, searches, memory; each start in a process of its own."""
    plant(bench, cards)
    command = [sys.executable, __file__, "--one-start", str(bench.folder), "--queries"]

    def run(queries: int) -> dict[str, Any]:
        return json.loads(subprocess.run([*command, str(queries)], check=True, capture_output=True, text=True).stdout)

    floor = timed(lambda: [json.loads(path.read_bytes()) for path in (bench.folder / "store").rglob("exp_*.json")])
    cold = run(0)
    run(1)
    warm = run(200)
    floor_figures = {"wall ms": floor[0], "cpu ms": floor[1]}
    table(f"start, {cards:,} cards", "(only opening each card and parsing its JSON)", floor_figures)
    table(f"start, {cards:,} cards", "without a saved index", {"wall ms": cold["start"][0], "cpu ms": cold["start"][1]})
    table(
        f"start, {cards:,} cards",
        "with one",
        {
            "wall ms": warm["start"][0],
            "cpu ms": warm["start"][1],
            "bytes a card": round(warm["memory"] * 1_024 / cards),
            "numpy import ms": warm["numpy"][0],
        },
    )
    for at, name in ((0, "record one more"), (2, "find it right after")):
        figures = {kind: quantile([one[at + side] for one in warm["adding"]], 0.5) for side, kind in enumerate(KINDS)}
        table(f"adding to {cards:,} cards", name, figures)
    for name, times in warm["searches"].items():
        (wall, wall99), (cpu, cpu99) = times["wall"], times["cpu"]
        figures = {"wall ms": wall, "wall p99": wall99, "cpu ms": cpu, "cpu p99": cpu99}
        table(f"search, {cards:,} cards", name, figures)


def measure_index(folder: Path, size: int) -> None:
    """An index without a store: packing, loading, searching, newest cards over it. Runs in this process."""
    work, path = f"index alone, {size:,} cards", folder / "alone.index"
    words = [f"word{number}" for number in range(4_000)]

    def add(to: Builder | Index, number: int) -> None:
        key = ids.artifact_id(fingerprint(number))
        moment = f"2026-08-21T10:{number // 60_000 % 60:02}:{number // 1_000 % 60:02}.{number % 1_000:03}Z"
        facets = (f"artifact_id:{key}", f"query_fingerprint:{number}", "source:bench", f"tag:t{number % 50}")
        shares = {words[(number * 7 + step * step * 13) % len(words)]: 1.0 for step in range(60)}
        to.add(Document("exp_" + key[4:], moment, key, 1), facets, {"run": 2.0, str(number): 1.5} | shares)

    builder = Builder()
    for number in range(size):
        add(builder, number)
    arrays: list[Any] = []
    packing = timed(lambda: arrays.append(builder.arrays()))
    index_file.save(FileLayer(), path, arrays.pop(), {})
    loaded: list[Any] = []
    loading = timed(lambda: loaded.append(index_file.load(FileLayer(), path)))
    index = Index(PackedPart(loaded.pop()[0]))
    table(work, "pack", dict(zip(KINDS, packing, strict=True)))
    table(work, "load", dict(zip(KINDS, loading, strict=True)) | {"MiB": path.stat().st_size >> 20})
    for state in ("packed", "with the newest over it"):
        if state != "packed":
            newest = max(512, size >> 6)
            adding = timed(lambda newest=newest: [add(index, size + number) for number in range(newest)])
            table(work, f"add one of {newest:,}", {"cpu ms": adding[1] / newest})
        for name, ask in (
            ("one card's number", lambda n: Query((f"{n * 37}",))),
            ("two words", lambda n: Query((f"word{n}", f"word{n * 3}"))),
            ("a word of every card", lambda _: Query(("run",))),
            ("that and two more", lambda n: Query(("run", f"word{n}", f"word{n + 9}"))),
            ("that, with a tag", lambda n: Query(("run",), (), (f"tag:t{n % 50}",))),
            ("a beginning", lambda _: Query(("wor",), words=(("wor",),))),
            ("the newest", lambda _: Query()),
        ):
            times = [timed(lambda n=n, ask=ask: index.search(ask(n), 10)) for n in range(200)]
            sides = [sorted(one[side] for one in times) for side in (0, 1)]
            figures = {
                f"{kind} {mark}": quantile(some, at)
                for kind, some in zip(("wall", "cpu"), sides, strict=True)
                for mark, at in (("ms", 0.5), ("p99", 0.99))
            }
            table(work, f"search {state}, {name}", figures)
    begun = timed(lambda: loaded.append(index.begin_packing()))
    repacking = timed(lambda: loaded.append(build(*loaded[0].parts)))
    ended = timed(lambda: index.end_packing(*loaded))
    table(work, "pack again, beside the searches", dict(zip(KINDS, repacking, strict=True)))
    table(work, "of which searches wait", {"wall ms": begun[0] + ended[0]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cards", type=int, nargs="*", default=[10_000], help="sizes of the searched projects")
    parser.add_argument("--csv", type=Path, help="append the figures to this file")
    parser.add_argument("--compare", action="store_true", help="with --csv: beside the revision before")
    parser.add_argument("--indexed", type=int, nargs="*", default=[], help="documents of an index alone")
    parser.add_argument("--one-start", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--queries", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="where to work (on the disk to be measured)")
    given = parser.parse_args()
    if given.one_start:
        one_start(given.one_start, given.queries)
        return
    folder = Path(tempfile.mkdtemp(prefix="rlm-memory-bench-", dir=given.folder))
    try:
        bench = Bench(folder)
        bench.record(bench.source(1))
        if given.rounds:
            measure_records(bench, given.rounds)
        bench.store.close()
        for cards in filter(None, given.cards):
            measure_search(bench, cards)
            shutil.rmtree(folder / "store" / "projects" / ids.project_key("cards"))
        for size in filter(None, given.indexed):
            measure_index(folder, size)
        if given.csv:
            revisions.append(given.csv, ROWS)
            if given.compare:
                print("\n" + revisions.comparison(given.csv))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
