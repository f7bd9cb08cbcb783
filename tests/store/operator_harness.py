"""What the tests of `rlm-memory experiments` share: a store under a state root, commands in this process, layers."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.artifacts.operators.shelf import Shelf
from rlm_memory_host.errors import HostError
from rlm_memory_host.storage.faults import RecordingLayer
from store_harness import World

DAY = 86_400.0
OLD, NEW = b"old result " * 500, b"new result " * 700


def never() -> None:
    """A check that stops nothing."""


@dataclass
class Office(World):
    """A world whose store lies where the commands look for it."""

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def root(self) -> Path:
        return self.state / "artifacts"

    def open(self, **options: Any) -> ArtifactStore:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state.chmod(0o700)
        return super().open(**options)

    def shelf(self) -> Shelf:
        with self.open() as store:
            return Shelf(store.project(self.scope()).parts)


@dataclass(frozen=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Said]


def command_of(office: Office, capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("ls", "--json")` runs `rlm-memory experiments ls --json` on the office's store and project."""
    from rlm_memory_host.cli.root import application

    def run(*words: str | Path, project: str | None = None) -> Said:
        capsys.readouterr()
        place = ["--state-root", str(office.state), "--project", project or office.project]
        try:
            application()(["experiments", *map(str, words), *place], prog_name="rlm-memory", obj=False)
            code: Any = 0
        except SystemExit as end:
            code = end.code
        except HostError as error:
            return Said(2, capsys.readouterr().out, f"{error.code}: {error}")
        said = capsys.readouterr()
        return Said(code or 0, said.out, said.err)

    return run


class FullDisk(RecordingLayer):
    """A disk with no byte left: what needs a new block fails, renames and unlinks in place do not."""

    def change(self, operation: str, target: str | Path | int, source: str | Path | None = None) -> None:
        super().change(operation, target, source)
        if operation in ("create", "write", "write_at", "copy", "clone", "mkdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
