"""The store against other tools that keep results, on the same bytes in one interleaved run.

    ./dev run python benchmarks/peers.py [--rounds N] [--cards N] [--folder DIR] [--csv FILE [--compare]]
        [--only NAME ...]

Each tool gets an environment of its own (made with uv below a temporary folder, from the package index that is set up)
and a process of its own, and does the same work in turn, round by round: keep a file's bytes, keep the same bytes
again, get them back, and find one of N results by a word. `cp+fsync` is the physical limit that each is compared with.
What the tools promise differs, and the table's notes say how: only the store flushes to disk and verifies what it
gives back.

Prints a Markdown table of medians (wall / CPU milliseconds) and of CPU against `cp+fsync` in the same round; with
`--csv FILE` appends rows, and with `--compare` sets them beside the revision before (`revisions`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import revisions

SIZES = {"1 KiB": 1 << 10, "1 MiB": 1 << 20, "100 MiB": 100 << 20}
PACKAGES = {"diskcache": ["diskcache"], "joblib": ["joblib"], "pins": ["pins"], "mlflow": ["mlflow"]}
NOTES = {
    "cp+fsync": "the limit: a copy, flushed; nothing found again",
    "rlm-memory": "flushed, hashed, verified at the first get; ranked search",
    "diskcache": "not flushed, not verified, no search",
    "joblib": "a pickle, not flushed, not verified; get loads it; no search",
    "pins": "not flushed, not verified; search reads each pin",
    "mlflow": "SQLite tracking; not flushed, not verified; get copies; LIKE, unranked",
}


class Subject(Protocol):
    """What each tool is asked to do. `number` names a result."""

    def record(self, path: str, number: int, words: str) -> None: ...
    def get(self, number: int) -> None: ...
    def search(self, word: str) -> int | None: ...


class Copying:
    """Not a tool: the bytes on the disk and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def record(self, path: str, number: int, _: str) -> None:
        with Path(path).open("rb") as read, (self.folder / str(number)).open("wb") as written:
            while os.copy_file_range(read.fileno(), written.fileno(), 1 << 30):
                pass
            os.fsync(written.fileno())

    def get(self, number: int) -> None:
        (self.folder / str(number)).stat()

    def search(self, _: str) -> int | None:
        return None


class Ours:
    def __init__(self, folder: Path) -> None:
        from rlm_memory_host.artifacts import ArtifactStore
        from rlm_memory_host.contracts.records import Bounds, RecordRequest, SearchRequest
        from rlm_memory_host.contracts.scope import Scope

        self.asks, self.searches = RecordRequest, SearchRequest
        self.scope = Scope("bench", "session", folder / "session")
        assert self.scope.exports is not None
        self.exports = self.scope.exports
        self.exports.mkdir(parents=True)
        bounds = Bounds(project_bytes=1 << 50, cards=1_000_000, raised=True)
        self.store = ArtifactStore(folder / "store", bounds, index_folder=folder / "index")
        self.ids: dict[int, str] = {}

    def place(self, path: str) -> str:
        """The source has to lie below the session's exports; linking it there is not part of the work."""
        target = self.exports / "source"
        target.unlink(missing_ok=True)
        shutil.copyfile(path, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
        return str(target)

    def record(self, path: str, number: int, words: str) -> None:
        print_ = hashlib.sha256(str(number).encode()).hexdigest()
        done = self.store.record(self.scope, self.asks(path, f"result {number}", words, print_, "bench", "v1"))
        self.ids[number] = done.experiment_id

    def get(self, number: int) -> None:
        self.store.resolve(self.scope, self.ids[number])

    def search(self, word: str) -> int | None:
        return self.store.search(self.scope, self.searches(word)).total


class DiskCache:
    def __init__(self, folder: Path) -> None:
        import diskcache

        self.cache = diskcache.Cache(str(folder), size_limit=1 << 40)

    def record(self, path: str, number: int, _: str) -> None:
        with Path(path).open("rb") as file:
            self.cache.set(number, file, read=True)

    def get(self, number: int) -> None:
        found = self.cache.get(number, read=True)
        if hasattr(found, "close"):
            found.close()

    def search(self, _: str) -> int | None:
        return None


class Joblib:
    def __init__(self, folder: Path) -> None:
        import joblib

        self.folder, self.joblib = folder, joblib

    def record(self, path: str, number: int, _: str) -> None:
        self.joblib.dump(Path(path).read_bytes(), self.folder / str(number))

    def get(self, number: int) -> None:
        self.joblib.load(self.folder / str(number))

    def search(self, _: str) -> int | None:
        return None


class Pins:
    def __init__(self, folder: Path) -> None:
        import pins

        self.board = pins.board_folder(str(folder))

    def record(self, path: str, number: int, words: str) -> None:
        self.board.pin_upload([path], name=f"result-{number}", title=f"result {number}", description=words)

    def get(self, number: int) -> None:
        self.board.pin_download(f"result-{number}")

    def search(self, word: str) -> int | None:
        return len(self.board.pin_search(word, as_df=False))


class MLflow:
    def __init__(self, folder: Path) -> None:
        import mlflow

        self.client = mlflow.MlflowClient(f"sqlite:///{folder / 'tracking.db'}")
        self.experiment = self.client.create_experiment("bench", artifact_location=(folder / "artifacts").as_uri())
        self.runs: dict[int, str] = {}

    def record(self, path: str, number: int, words: str) -> None:
        run = self.client.create_run(self.experiment, tags={"words": words}, run_name=f"result {number}")
        self.client.log_artifact(run.info.run_id, path)
        self.client.set_terminated(run.info.run_id)
        self.runs[number] = run.info.run_id

    def get(self, number: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.client.download_artifacts(self.runs[number], "", folder)

    def search(self, word: str) -> int | None:
        return len(self.client.search_runs([self.experiment], f"tags.words LIKE '%{word}%'", max_results=50_000))


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "cp+fsync": Copying,
    "rlm-memory": Ours,
    "diskcache": DiskCache,
    "joblib": Joblib,
    "pins": Pins,
    "mlflow": MLflow,
}


def serve(name: str, folder: Path) -> None:
    """One tool in its own process: a JSON line for each thing to do, one with wall and CPU milliseconds back."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    folder.mkdir()
    subject = SUBJECTS[name](folder)
    replies.write("{}\n")
    replies.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        arguments = asked["arguments"]
        if asked["do"] == "record" and hasattr(subject, "place"):
            arguments[0] = subject.place(arguments[0])
        wall, cpu = time.perf_counter(), time.process_time()
        value = getattr(subject, asked["do"])(*arguments)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        replies.write(json.dumps({"wall": wall * 1e3, "cpu": cpu * 1e3, "value": value}) + "\n")
        replies.flush()


class Served:
    """The other end of `serve`."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        command = [python, __file__, "--serve", name, str(folder / name)]
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self.process = subprocess.Popen(command, text=True, **pipes)
        self._answer()

    def do(self, work: str, *arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": work, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended:\n{self.log.read_text()[-2_000:]}")
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment(folder: Path, packages: list[str]) -> str:
    """The Python of a fresh environment with these packages."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([uv, "pip", "install", "-q", "--python", python, *packages], check=True)
    return python


def measure(served: dict[str, Served], folder: Path, rounds: int, cards: int) -> dict[tuple[str, str], list[Any]]:
    """(work, tool) -> what each round took."""
    found: dict[tuple[str, str], list[Any]] = {}
    number = 0
    for size_name, size in SIZES.items():
        for _ in range(rounds if size > 1 << 20 else rounds * 3):
            number += 1
            path = folder / "source"
            path.write_bytes(os.urandom(size))
            for name, each in served.items():
                for work, arguments in (
                    (f"record {size_name}", ("record", str(path), number, "words of it")),
                    (f"get {size_name}, first", ("get", number)),
                    (f"get {size_name}, again", ("get", number)),
                    (f"record {size_name} again", ("record", str(path), number, "words of it")),
                ):
                    found.setdefault((work, name), []).append(each.do(*arguments))
    path = folder / "source"
    for at in range(cards):
        path.write_bytes(b"%d" % at)
        for each in served.values():
            each.do("record", str(path), 10_000 + at, f"word{at} of result {at} {'rare' if at % 97 == 0 else ''}")
    for turn in range(rounds):
        for name, each in served.items():
            for kind, word in (("a rare word", "rare"), ("a word of every result", "result")):
                answer = each.do("search", word)
                if answer["value"] is not None:
                    found.setdefault((f"search {cards} results, {kind}", name), []).append(answer | {"turn": turn})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cards", type=int, default=300, help="results among which one is searched")
    parser.add_argument("--folder", type=Path, help="where to work (on the disk to be measured)")
    parser.add_argument("--csv", type=Path, help="append the figures to this file")
    parser.add_argument("--compare", action="store_true", help="with --csv: beside the revision before")
    parser.add_argument("--only", nargs="*", choices=[*SUBJECTS], default=[*SUBJECTS])
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve[0], Path(given.serve[1]))
        return
    folder = Path(tempfile.mkdtemp(prefix="rlm-memory-peers-", dir=given.folder))
    served: dict[str, Served] = {}
    try:
        for name in given.only:
            packages = PACKAGES.get(name)
            python = sys.executable if packages is None else environment(folder / f"env-{name}", packages)
            served[name] = Served(name, python, folder)
        found = measure(served, folder, given.rounds, given.cards)
    finally:
        for each in served.values():
            each.close()
        shutil.rmtree(folder)
    rows = report(found, given.only)
    if given.csv:
        revisions.append(given.csv, rows)
        if given.compare:
            print("\n" + revisions.comparison(given.csv))


def report(found: dict[tuple[str, str], list[Any]], names: list[str]) -> list[revisions.Row]:
    """Print the tables; the rows for the CSV."""
    rows: list[revisions.Row] = []
    print(f"| wall / CPU ms, medians | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for work in dict.fromkeys(work for work, _ in found):
        cells = []
        for name in names:
            some = found.get((work, name))
            figures = (
                [] if some is None else [statistics.median(item[kind] for item in some) for kind in ("wall", "cpu")]
            )
            rows += [
                (work, name, kind, round(value, 4)) for kind, value in zip(("wall ms", "cpu ms"), figures, strict=False)
            ]
            cells.append(" / ".join(f"{value:.3g}" for value in figures) or "-")
        print(f"| {work} | {' | '.join(cells)} |")
    print("\n" + "\n".join(f"- {name}: {NOTES[name]}" for name in names))
    rows += against_the_limit(found, names)
    return rows


def against_the_limit(found: dict[tuple[str, str], list[Any]], names: list[str]) -> list[revisions.Row]:
    """How many times the limit's wall and CPU each took, as medians of ratios within a round."""
    rows: list[revisions.Row] = []
    if "cp+fsync" not in names:
        return rows
    others = [name for name in names if name != "cp+fsync"]
    print(f"\n| times cp+fsync, wall / CPU | {' | '.join(others)} |\n|---|{'---|' * len(others)}")
    for work in dict.fromkeys(work for work, _ in found if work.startswith("record")):
        cells: list[str] = []
        for name in others:
            ratios: list[float] = []
            for kind in ("wall", "cpu"):
                pairs = zip(found[work, name], found[work, "cp+fsync"], strict=True)
                ratios.append(statistics.median(one[kind] / max(limit[kind], 1e-3) for one, limit in pairs))
                rows.append((work, name, f"{kind} / cp+fsync", round(ratios[-1], 4)))
            cells.append(" / ".join(f"{ratio:.3g}" for ratio in ratios))
        print(f"| {work} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    main()
