"""The artifact store as its users see it: record, resolve, search, annotate, status.

Owns: the public calls, freshness, counters, closing. Does not own: how a record is made durable (`project`, `commit`),
where things lie (`storage`). The project always comes from the caller's scope; a reference of another project does
not exist here, in the same words as one that never was.

Synchronous and thread-safe; call it through a worker thread. Nothing in the store is read or written before the first
call that needs it, so a damaged, absent or read-only root never keeps a host from starting.

Source: DeepSeek Honcho specification, sections 26 to 33; design page "Exact results".
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from rlm_memory.wire import ARTIFACT_CORRUPT, ARTIFACT_MISSING, INVALID_SCOPE

from rlm_memory_host.artifacts import searching
from rlm_memory_host.artifacts.checks import check_record, check_search, check_version
from rlm_memory_host.artifacts.commit import Origin, Outcome, Parts
from rlm_memory_host.artifacts.project import Project
from rlm_memory_host.contracts.records import (
    CARD_VERSION,
    UNKNOWN_VERSION,
    ArtifactRef,
    Bounds,
    Diagnostic,
    ExperimentCardV1,
    Freshness,
    IndexStateName,
    Recorded,
    RecordRequest,
    Resolved,
    SearchPage,
    SearchRequest,
)
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import Disposed, Integrity, SettingsError, StoreError, ToolCancelled
from rlm_memory_host.storage.cards import CardReader, encode_sidecar, publish, read_sidecar, write_temporary
from rlm_memory_host.storage.catalogue import Catalogue, utc_text
from rlm_memory_host.storage.files import FileLayer, writing
from rlm_memory_host.storage.locks import CommitLock
from rlm_memory_host.storage.objects import Progress, Stager, Verdict, Verifier
from rlm_memory_host.storage.paths import ProjectLayout
from rlm_memory_host.storage.sources import open_source

CLOSE_SECONDS: Final = 10.0
"""How long closing waits for calls in flight; they are told to stop at once."""


def _now() -> datetime:
    return datetime.now(UTC)


def freshness_of(recorded: str, current: str | None) -> Freshness:
    """How a recorded source version stands to the current one (section 30.2). Texts are equal only when identical.

    None asks for no comparison; `unknown` and the empty text say that nobody knows.
    """
    if current is None:
        return "not_checked"
    if current in ("", UNKNOWN_VERSION) or recorded == UNKNOWN_VERSION:
        return "unverifiable"
    return "fresh" if current == recorded else "stale"


class ArtifactStore:
    """Exact results of all projects below one artifact root.

    `integrity` "cached" hashes an object at its first resolve in a process and whenever its file changed, "always" each
    time. `index_state` is what new cards say about remote indexing. `clock` gives the time of cards.
    """

    def __init__(
        self,
        root: Path,
        bounds: Bounds,
        *,
        integrity: Literal["cached", "always"] = "cached",
        files: FileLayer | None = None,
        clock: Callable[[], datetime] = _now,
        index_state: IndexStateName = "disabled",
    ) -> None:
        if not root.is_absolute():
            raise SettingsError("the artifact root must be an absolute path")
        self._root = root
        self._bounds = bounds
        self._integrity = integrity
        self._files = files or FileLayer()
        self._clock = clock
        self._index_state: IndexStateName = index_state
        self._stager = Stager(self._files)
        self._verifier = Verifier(self._files, always=integrity == "always")
        self._projects: dict[str, Project] = {}
        self._counters: Counter[str] = Counter()
        self._closed = False
        self._in_flight = 0
        self._changed = threading.Condition()

    # -- calls -------------------------------------------------------------------------------------------------------

    def record(
        self,
        scope: Scope,
        request: RecordRequest,
        *,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Recorded:
        """Keep the bytes of a file in the caller's `exports/`, and a card; both are durable when this returns.

        `progress` is called with (bytes done, bytes in all); `cancelled` is asked between steps of the copying and
        ends it with nothing recorded. Raises StoreError (VALIDATION, INVALID_SCOPE), UnsafeSource, TooLarge, Quota,
        Unwritable, LockTimeout, FormatVersion, Disposed, ToolCancelled.
        """

        def check() -> None:
            if self._closed:
                raise Disposed("the store is closing; nothing was recorded")
            if cancelled is not None and cancelled():
                raise ToolCancelled("cancelled; nothing was recorded")

        with self._call("record"):
            checked = check_record(request, self._bounds)
            project = self.project(scope)
            origin = Origin(scope, self._clock, self._index_state)
            with open_source(self._files, scope, checked.source_path, self._bounds.artifact_bytes) as source:
                outcome = project.record(origin, checked, source, check=check, progress=progress)
            self._counters["deduplicated"] += outcome.deduplicated
            self._counters["repaired"] += outcome.repaired
            return _recorded(outcome)

    def resolve(self, scope: Scope, experiment_id: str, current_source_version: str | None = None) -> Resolved:
        """The verified bytes of an experiment, and what its card says.

        Raises NotFound, Integrity (ARTIFACT_MISSING, ARTIFACT_CORRUPT, or VALIDATION for a damaged card),
        FormatVersion, Disposed, StoreError (VALIDATION) for a version that is no text.
        """
        with self._call("resolve"):
            current = check_version(current_source_version)
            parts = self.project(scope).parts
            card = parts.cards.read(experiment_id)
            path = parts.layout.object(card.artifact.artifact_id)
            verdict = self._verifier.verify(
                path, card.artifact.sha256, card.artifact.bytes, self._check_open, for_resolve=True
            )
            if not verdict.sound:
                self._counters["damaged"] += 1
                raise _damaged(card, verdict)
            freshness = freshness_of(card.source_version, current)
            self._counters[freshness] += 1
            return _resolved(card, path, verdict, freshness, current)

    def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        """Cards of the caller's project that match, best first. Raises StoreError (INVALID_ARGUMENT), Disposed."""
        with self._call("search"):
            checked = check_search(request, self._bounds)
            parts = self.project(scope).parts

            def read(experiment: str) -> tuple[ExperimentCardV1, bool] | None:
                try:
                    card = parts.cards.read(experiment)
                except StoreError:
                    return None
                return card, self._is_available(parts.layout, card)

            page = searching.search(parts.catalogue, parts.layout.folder.name, checked, read)
            if request.limit > checked.limit:
                note = f"at most {checked.limit} results a page here; the cursor leads to the next"
                page = dataclasses.replace(page, warnings=(*page.warnings, note))
            return page

    def annotate(
        self, scope: Scope, experiment_id: str, annotation: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """The sidecar of an experiment, after taking in the fields of `annotation` (None only reads).

        A field that is given replaces the stored one. Raises NotFound, Unwritable, StoreError (VALIDATION, over
        64 KiB), Disposed.
        """
        with self._call("annotate"):
            parts = self.project(scope).parts
            parts.cards.read(experiment_id)
            if annotation is None:
                return read_sidecar(self._files, parts.layout, experiment_id)
            encode_sidecar(experiment_id, annotation)
            with parts.lock.held():
                stored = {**(read_sidecar(self._files, parts.layout, experiment_id) or {}), **annotation}
                self._write_sidecar(parts, experiment_id, encode_sidecar(experiment_id, stored))
            return stored

    def status(self, scope: Scope) -> dict[str, Any]:
        """Health and counts: numbers and settings only, no name, text, path or id (section 33)."""
        with self._call("status"):
            project = self.project(scope)
            catalogue = project.parts.catalogue
            catalogue.refresh()
            counted = project.parts.lock.book()[1]
            return {
                "enabled": True,
                "schema_version": CARD_VERSION,
                "integrity": self._integrity,
                "bounds": dataclasses.asdict(self._bounds),
                "project": {
                    **catalogue.counts(),
                    "bytes": max(counted or 0, catalogue.object_bytes),
                    "temporary_files": len(project.temporary_files()),
                },
                "skipped": dict(Counter(diagnostic.code for diagnostic in catalogue.diagnostics())),
                "calls": dict(self._counters),
            }

    def diagnostics(self, scope: Scope) -> list[Diagnostic]:
        """Files in the cards folder that are no card of this project, and why. For operators."""
        with self._call("diagnostics"):
            catalogue = self.project(scope).parts.catalogue
            catalogue.refresh()
            return catalogue.diagnostics()

    def close(self) -> None:
        """Admit nothing more, stop what streams, wait a bounded time for what commits. Calls then raise Disposed."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._in_flight == 0, timeout=CLOSE_SECONDS)
        self._stager.close()

    def __enter__(self) -> ArtifactStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _call(self, name: str) -> Generator[None]:
        with self._changed:
            self._check_open()
            self._in_flight += 1
            self._counters[name] += 1
        try:
            yield
        except StoreError as error:
            with self._changed:
                self._counters[f"failed:{error.code}"] += 1
            raise
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise Disposed("the store is closed")

    def project(self, scope: Scope) -> Project:
        """The pieces of the caller's project, for what operators do (`operators`, `removal`, `export`, `importers`).

        Raises StoreError (INVALID_SCOPE) where the caller has no project.
        """
        project_id = scope.project_id
        if not project_id:
            raise StoreError("this caller has no project", INVALID_SCOPE)
        with self._changed:
            project = self._projects.get(project_id)
            if project is None:
                layout = ProjectLayout.of(self._root, project_id)
                lock = CommitLock(self._files, layout.lock)
                catalogue = Catalogue(self._files, layout, project_id, lock)
                cards = CardReader(self._files, layout, project_id)
                parts = Parts(
                    self._files, layout, project_id, self._bounds, lock, catalogue, cards, self._stager, self._verifier
                )
                project = self._projects[project_id] = Project(parts)
            return project

    def _is_available(self, layout: ProjectLayout, card: ExperimentCardV1) -> bool:
        path = layout.object(card.artifact.artifact_id)
        try:
            state = self._files.stat(path)
        except OSError:
            return False
        return state.st_size == card.artifact.bytes and not self._verifier.is_damaged(path, state)

    def _write_sidecar(self, parts: Parts, experiment_id: str, data: bytes) -> None:
        layout = parts.layout
        commits, counted = parts.lock.read()
        before = parts.catalogue.signature(commits)
        temporary = layout.new_temporary("note")
        with writing():
            write_temporary(self._files, temporary, data)
            publish(self._files, temporary, layout.sidecar(experiment_id))
            self._files.fsync_folder(layout.cards)
        if counted is not None:
            parts.lock.write(commits + 1, counted)
            commits += 1
        parts.catalogue.note_sidecar(before, parts.catalogue.signature(commits))


def _recorded(outcome: Outcome) -> Recorded:
    card = outcome.card
    warnings = ("the stored bytes were damaged; this record replaced them",) if outcome.repaired else ()
    return Recorded(
        experiment_id=card.experiment_id,
        artifact_id=card.artifact.artifact_id,
        sha256=card.artifact.sha256,
        bytes=card.artifact.bytes,
        local_saved=True,
        deduplicated=outcome.deduplicated,
        honcho_queued=card.index.state in ("queued", "indexed"),
        index_state=card.index.state,
        warnings=warnings,
    )


def _resolved(
    card: ExperimentCardV1, path: Path, verdict: Verdict, freshness: Freshness, current: str | None
) -> Resolved:
    warnings: tuple[str, ...] = ()
    if freshness == "stale":
        warnings = (f"stale: recorded from source version {card.source_version!r}, current is {current!r}",)
    elif freshness == "unverifiable":
        warnings = (f"freshness cannot be told: recorded {card.source_version!r}, current {current!r}",)
    return Resolved(
        path=path,
        experiment_id=card.experiment_id,
        artifact=ArtifactRef(
            artifact_id=card.artifact.artifact_id,
            sha256=card.artifact.sha256,
            bytes=card.artifact.bytes,
            media_type=card.artifact.media_type,
            created_at=card.artifact.created_at,
        ),
        title=card.title,
        summary=card.summary,
        source=card.source,
        source_version=card.source_version,
        query_fingerprint=card.query_fingerprint,
        shape=card.shape,
        columns=card.columns,
        tags=card.tags or (),
        created_at=card.created_at,
        updated_at=card.updated_at,
        session_id=card.origin_session_id,
        freshness=freshness,
        verified_at=utc_text(datetime.fromtimestamp(verdict.at, UTC)),
        warnings=warnings,
    )


def _damaged(card: ExperimentCardV1, verdict: Verdict) -> Integrity:
    """The reference and both digests; no path and no content."""
    name, sha256 = card.experiment_id, card.artifact.sha256
    if verdict.identity is None:
        return Integrity(
            f"the bytes of {name} (sha256 {sha256}) are missing from the store; record the same result again",
            ARTIFACT_MISSING,
        )
    return Integrity(
        f"the bytes of {name} are corrupt: recorded sha256 {sha256}, found {verdict.actual}; "
        "recording the same result again repairs them",
        ARTIFACT_CORRUPT,
    )
