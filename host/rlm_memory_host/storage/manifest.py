"""The manifest of an owner's memory: what every file should be, and what a crash may have left to do.

Owns: the document `.state/manifest.json` as an immutable value. Does not own: when it is written (`storage.journal`).

Source: design page "The memory model", Storage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from rlm_memory_host.contracts.memory import FORMAT_VERSION
from rlm_memory_host.errors import FormatVersion, Integrity
from rlm_memory_host.storage.audit import Tail


@dataclass(frozen=True, slots=True)
class FileState:
    """A topic file as this host last left or accepted it: its SHA-256, and how many memories it served.

    `edited` is the SHA-256 of a hand edit that was noticed (and audited) and not yet accepted.
    """

    sha256: str
    blocks: int
    edited: str = ""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A written and flushed temporary file that still has to get its name. Names are relative to the layer."""

    layer: str
    path: str
    temporary: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Pending:
    """What has to be done again after a crash; each step may be repeated. Rows are lines of the logs."""

    files: tuple[StagedFile, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    audit: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of it. `files` is keyed by `<layer name>/<file>`; `serial` grows with every write."""

    serial: int = 0
    files: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    audit: Tail = field(default_factory=Tail)
    pending: Pending = field(default_factory=Pending)
    bindings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Hash of a project root to the project that an operator linked it to."""

    def to_json(self) -> bytes:
        """The document, UTF-8."""
        document = {
            "format": FORMAT_VERSION,
            "serial": self.serial,
            "audit": [self.audit.seq, self.audit.hash],
            "bindings": dict(self.bindings),
            "pending": {
                "files": [[s.layer, s.path, s.temporary, s.before, s.after] for s in self.pending.files],
                "rows": [list(row) for row in self.pending.rows],
                "audit": [dict(row) for row in self.pending.audit],
            },
        }
        rest = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        files = ",".join([_entry(name, state) for name, state in self.files.items()])
        return f'{rest[:-1]},"files":{{{files}}}}}\n'.encode()


@lru_cache(maxsize=16_384)
def _entry(name: str, state: FileState) -> str:
    """One file's state as JSON; remembered, since a change touches few files of many."""
    values = [state.sha256, state.blocks, state.edited] if state.edited else [state.sha256, state.blocks]
    return f"{json.dumps(name, ensure_ascii=False)}:{json.dumps(values, separators=(',', ':'))}"


def parse(data: bytes) -> Manifest:
    """Read the document. Raises FormatVersion for a newer format, Integrity (MANIFEST_DAMAGED) for what is none."""
    try:
        document = cast("dict[str, Any]", json.loads(data))
        version = document["format"]
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise FormatVersion(
                f"the memory was written in format {version}, this release knows {FORMAT_VERSION}; upgrade "
                "rlm-memory-host (until then the memory is read-only)"
            )
        pending = document["pending"]
        return Manifest(
            serial=int(document["serial"]),
            audit=Tail(int(document["audit"][0]), str(document["audit"][1])),
            files={str(name): FileState(*state) for name, state in document["files"].items()},
            bindings={str(root): str(project) for root, project in document["bindings"].items()},
            pending=Pending(
                files=tuple(StagedFile(*staged) for staged in pending["files"]),
                rows=tuple((str(log), str(line)) for log, line in pending["rows"]),
                audit=tuple(pending["audit"]),
            ),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise Integrity(
            "the memory's manifest is damaged; run `rlm-memory memory validate`", "MANIFEST_DAMAGED"
        ) from None
