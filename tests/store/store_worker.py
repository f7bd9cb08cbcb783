"""What tests run in processes of its own: `python store_worker.py COMMAND FOLDER ARGUMENTS`."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from rlm_memory_host import artifacts, storage
from rlm_memory_host.contracts.records import SearchRequest
from rlm_memory_host.errors import StoreError
from rlm_memory_host.storage.faults import CrashingLayer
from store_harness import World, fingerprint, request


def crash(world: World, at: str) -> None:
    """End at a step of a first record."""
    store = world.open(files=CrashingLayer(int(at), exit_code=86))
    world.record(store, b"new result " * 700)


def record_same(world: World, name: str, rounds: str, size: str) -> None:
    """Record the same bytes again and again under different titles, from a session of its own."""
    data = b"A" * int(size)
    with world.open() as store:
        scope = world.scope(session=name)
        for number in range(int(rounds)):
            path = world.write(data, f"{number}.bin", session=name)
            done = store.record(scope, request(path, title=f"{name}-{number}"))
            assert done.bytes == len(data)


def record_different(world: World, name: str, rounds: str) -> None:
    """Record different bytes and print the ids."""
    with world.open() as store:
        scope = world.scope(session=name)
        done = {}
        for number in range(int(rounds)):
            text = f"{name}-{number}"
            path = world.write(text.encode(), f"{number}.bin", session=name)
            recorded = store.record(scope, request(path, title=text, query_fingerprint=fingerprint(text)))
            done[recorded.experiment_id] = text
    print(json.dumps(done))


def record_mixed(world: World, name: str, rounds: str) -> None:
    """Record in turn what all others record and what nobody else does; print each as soon as it is acknowledged.

    A line before says what is tried. The reader of the lines outlives this process, however it ends.
    """
    with world.open() as store:
        scope = world.scope(session=name)
        for number in range(int(rounds)):
            text = f"shared-{number % 7}" if number % 3 == 0 else f"{name}-{number}"
            path = world.write(text.encode() * 200, f"{number}.bin", session=name)
            print(f"try {text}", flush=True)
            done = store.record(scope, request(path, title=text, query_fingerprint=fingerprint(text)))
            print(f"done {text} {done.experiment_id}", flush=True)
            path.unlink()


def nursery(world: World) -> None:
    """Fork writers: `start NAME ROUNDS` is answered with a pid, `wait PID` with how it ended, once it has."""
    for line in sys.stdin:
        match line.split():
            case ["start", name, rounds]:
                # Opened before the fork: a writer that is killed at once has its lines end, too.
                lines = os.open(world.folder / f"{name}.lines", os.O_WRONLY)
                pid = os.fork()
                if not pid:
                    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                    os.dup2(lines, 1)
                    os.close(lines)
                    record_mixed(world, name, rounds)
                    return
                os.close(lines)
                print(pid, flush=True)
            case ["wait", pid]:
                print(os.waitstatus_to_exitcode(os.waitpid(int(pid), 0)[1]), flush=True)
            case _:
                raise SystemExit(f"no such request: {line}")


def read_newest(world: World, stop: str, size: str) -> None:
    """Load the newest card in a loop until a file appears; any error or short data ends it badly."""
    loads = 0
    with world.open() as store:
        scope = world.scope(session="reader")
        while not Path(stop).exists() or not loads:
            page = store.search(scope, SearchRequest(limit=1))
            for hit in page.results:
                assert len(store.resolve(scope, hit.experiment_id).path.read_bytes()) == int(size)
                loads += 1
    print(loads)


def measure_memory(world: World, megabytes: str) -> None:
    """Record a large file and print by how many KiB the peak grew."""
    path = world.write(b"", "large.bin")
    block = os.urandom(1 << 20)
    with path.open("wb") as file:
        for _ in range(int(megabytes)):
            file.write(block)
    del block
    with world.open() as store:
        world.record(store, b"warm")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        store.record(world.scope(), request(path))
        done = store.record(world.scope(), request(path, title="again"))
        store.resolve(world.scope(), done.experiment_id)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(after - before)


def unprivileged(world: World) -> None:
    """As nobody, over a store that nobody may write: reading works, recording is refused by name."""
    # Nobody may be unable to read the environment, which can lie in a private folder: import first.
    for package in (artifacts, storage):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    with world.open() as store:
        scope = world.scope()
        hits = store.search(scope, SearchRequest())
        resolved = store.resolve(scope, hits.results[0].experiment_id)
        answers = {"total": hits.total, "bytes": len(resolved.path.read_bytes())}
        for name in ("same.bin", "other.bin"):
            assert scope.exports is not None
            try:
                store.record(scope, request(scope.exports / name))
                answers[name] = "recorded"
            except StoreError as error:
                answers[name] = error.code
    print(json.dumps(answers))


if __name__ == "__main__":
    globals()[sys.argv[1]](World(Path(sys.argv[2])), *sys.argv[3:])
