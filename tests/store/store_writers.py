"""Processes that record until they are killed, and what must hold afterwards.

A fresh interpreter costs half a second of a core, more than all that a writer does before it is killed. So one process
imports everything, has neither a thread nor a store, and forks the writers: each is a process of its own, with its own
descriptors, locks and store, and SIGKILL ends it as it ends any other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import invariants
from store_harness import World, list_all

WORKER = Path(__file__).parent / "store_worker.py"
WAIT_SECONDS = 100


class Nursery:
    """Starts writers in a world, and ends all of them when it is left."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.folder.mkdir(exist_ok=True)
        command = [sys.executable, str(WORKER), "nursery", str(world.folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._writers: list[Writer] = []

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers:
            if writer.code is None:
                writer.kill()
        self._process.communicate(timeout=WAIT_SECONDS)
        assert self._process.returncode == 0

    def start(self, rounds: int) -> Writer:
        """A writer that records so many results, under a name of its own."""
        name = f"w{len(self._writers)}"
        lines = self.world.folder / f"{name}.lines"
        os.mkfifo(lines)
        writer = Writer(self, name, rounds, lines)
        self._writers.append(writer)
        return writer

    def ask(self, text: str) -> str:
        """One line to the process, one line back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


class Writer:
    """A process that records and says so, line by line; a thread of ours keeps the lines."""

    def __init__(self, nursery: Nursery, name: str, rounds: int, lines: Path) -> None:
        self.tried: set[str] = set()
        self.done: dict[str, str] = {}
        self.code: int | None = None
        self._nursery = nursery
        self._lines = lines
        self._has_ended = False
        self._changed = threading.Condition()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self._pid = int(nursery.ask(f"start {name} {rounds}"))

    def _read(self) -> None:
        with self._lines.open() as lines:
            for line in lines:
                with self._changed:
                    match line.split():
                        case ["try", text] if line.endswith("\n"):
                            self.tried.add(text)
                        case ["done", text, experiment] if line.endswith("\n"):
                            self.done[experiment] = text
                        case _:
                            pass
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_for(self, acknowledged: int) -> None:
        """Return when it has been acknowledged so many results, or has ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.done) >= acknowledged or self._has_ended, WAIT_SECONDS)

    def kill(self) -> int:
        """End it on the spot; how it ended."""
        os.kill(self._pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """How it ended, once it has: a signal's number with a minus, as for any process."""
        self._reading.join(WAIT_SECONDS)
        assert not self._reading.is_alive()
        self.code = int(self._nursery.ask(f"wait {self._pid}"))
        return self.code


def check_writers(world: World, writers: list[Writer]) -> int:
    """Everything acknowledged is there and right, and nothing is there that nobody tried."""
    acknowledged = {experiment: text.encode() * 200 for writer in writers for experiment, text in writer.done.items()}
    tried = {text for writer in writers for text in writer.tried}
    with world.open() as store:
        listed = {hit.experiment_id: hit.title for hit in list_all(store, world.scope())}
    assert acknowledged.keys() <= listed.keys()
    assert set(listed.values()) <= tried
    attempted = {experiment: title.encode() * 200 for experiment, title in listed.items()}
    invariants.check_store(world, acknowledged, attempted)
    return len(acknowledged)
