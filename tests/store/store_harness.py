"""A store in a temporary folder, with a session that records into it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import Bounds, Recorded, RecordRequest, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.storage.objects import file_clock_ns
from rlm_memory_host.storage.paths import ProjectLayout

FINGERPRINT = hashlib.sha256(b"select 1").hexdigest()


@dataclass
class World:
    """Folders of one test: an artifact root and sessions, each with its `exports/`."""

    folder: Path
    project: str = "project-a"

    @property
    def root(self) -> Path:
        return self.folder / "store"

    @property
    def layout(self) -> ProjectLayout:
        return ProjectLayout.of(self.root, self.project)

    def scope(self, project: str | None = None, session: str = "session-1", **more: Any) -> Scope:
        folder = self.folder / "sessions" / session
        (folder / "exports").mkdir(parents=True, exist_ok=True)
        return Scope(project or self.project, session, folder, **more)

    def open(self, **options: Any) -> ArtifactStore:
        return ArtifactStore(self.root, options.pop("bounds", Bounds()), **options)

    def write(self, data: bytes, name: str = "result.bin", session: str = "session-1") -> Path:
        exports = self.scope(session=session).exports
        assert exports is not None
        path = exports / name
        path.write_bytes(data)
        return path

    def record(self, store: ArtifactStore, data: bytes, *, scope: Scope | None = None, **fields: Any) -> Recorded:
        return store.record(scope or self.scope(), request(self.write(data), **fields))

    def let_the_clock_pass(self) -> None:
        """Return when a change of the cards from now on gets another time than the last one got.

        A scan within the tick of the clock in which the folder changed is made again, also at the next start.
        """
        while file_clock_ns() <= self.layout.cards.stat().st_mtime_ns:
            os.sched_yield()

    def objects(self) -> list[Path]:
        return sorted(path for path in self.layout.objects.rglob("*") if path.is_file())

    def cards(self) -> list[Path]:
        return sorted(path for path in self.layout.cards.glob("exp_*.json") if not path.name.endswith(".ext.json"))


def request(path: Path | str, **fields: Any) -> RecordRequest:
    given: dict[str, Any] = {
        "title": "Response by cohort",
        "summary": "Aggregate response per cohort and week.",
        "query_fingerprint": FINGERPRINT,
        "source": "trial-warehouse",
        "source_version": "2026-08-21",
        **fields,
    }
    return RecordRequest(source_path=path, **given)


def fingerprint(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def find(store: ArtifactStore, scope: Scope, query: str = "", **fields: Any) -> list[str]:
    return [hit.experiment_id for hit in store.search(scope, SearchRequest(query, **fields)).results]


def list_all(store: ArtifactStore, scope: Scope, **fields: Any) -> Iterator[Any]:
    cursor = None
    while True:
        page = store.search(scope, SearchRequest(limit=20, cursor=cursor, **fields))
        yield from page.results
        cursor = page.cursor
        if cursor is None:
            return


def tree(folder: Path) -> list[tuple[str, int, str]]:
    """Every file below a folder with size and mode: nothing was left behind when it is unchanged."""
    found = []
    for path in folder.rglob("*"):
        state = path.lstat()
        if not stat.S_ISDIR(state.st_mode):
            found.append((str(path.relative_to(folder)), state.st_size, oct(state.st_mode & 0o777)))
    return sorted(found)


def flip_byte(path: Path) -> None:
    """Change one byte in the middle and put size, mtime and mode back."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    path.chmod(stat.S_IMODE(before.st_mode))


def card_json(project: str, artifact_data: bytes, number: int = 0, **fields: Any) -> tuple[str, dict[str, Any]]:
    """An experiment id and its card as a document, in the shape of the TypeScript package."""
    sha256 = hashlib.sha256(artifact_data).hexdigest()
    identity = {
        "project_id": project,
        "artifact": ids.artifact_id(sha256),
        "query_fingerprint": fingerprint(number),
        "source_version": "v1",
    }
    experiment = ids.experiment_id(**identity)
    moment = "2026-08-21T10:00:00.000Z"
    document = {
        "schemaVersion": 1,
        "experimentId": experiment,
        "artifact": {
            "schemaVersion": 1,
            "artifactId": identity["artifact"],
            "sha256": sha256,
            "bytes": len(artifact_data),
            "mediaType": "text/csv",
            "createdAt": moment,
        },
        "title": f"Run {number}",
        "summary": "A table of another tool.",
        "queryFingerprint": identity["query_fingerprint"],
        "source": "warehouse",
        "sourceVersion": "v1",
        "projectId": project,
        "originSessionId": "session-ts",
        "originAgentKind": "root",
        "rootAgentId": "agent-1",
        "toolCallId": "call-1",
        "pluginVersion": "0.2.0",
        "createdAt": moment,
        "updatedAt": moment,
        "index": {"state": "queued", "projectionRevision": 1, "attempts": 2, "lastAttemptAt": moment},
        **fields,
    }
    return experiment, document
