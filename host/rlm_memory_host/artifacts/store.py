"""The artifact store as its users see it: record, resolve, search, annotate, status.

Owns: the public calls, freshness, counters, closing. Does not own: how a record is made durable (`project`, `commit`),
where things lie (`storage`). The project always comes from the caller's scope; a reference of another project does
not exist here, in the same words as one that never was.

Synchronous and thread-safe; call it through a worker thread. Nothing in the store is read or written before the first
call that needs it, so a damaged, absent or read-only root never keeps a host from starting.

Source: DeepSeek Honcho specification, sections 26 to 33; design page "Exact results".
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from rlm_memory.wire import INVALID_SCOPE

from rlm_memory_host.artifacts import searching
from rlm_memory_host.artifacts.answers import CARD_EDITED, EDITED, damaged, recorded, resolved
from rlm_memory_host.artifacts.checks import check_record, check_search, check_version
from rlm_memory_host.artifacts.commit import Origin, Parts
from rlm_memory_host.artifacts.edits import Edits
from rlm_memory_host.artifacts.operators.shelf import Shelf, projects
from rlm_memory_host.artifacts.project import Project
from rlm_memory_host.contracts.records import (
    CARD_VERSION,
    Bounds,
    Diagnostic,
    ExperimentCardV1,
    IndexStateName,
    Recorded,
    RecordRequest,
    Resolved,
    SearchHit,
    SearchPage,
    SearchRequest,
)
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import Disposed, SettingsError, StoreError, ToolCancelled, Unwritable
from rlm_memory_host.storage.cards import CardReader, encode_sidecar, publish, read_sidecar, write_temporary
from rlm_memory_host.storage.catalogue import Catalogue
from rlm_memory_host.storage.files import FileLayer, writing
from rlm_memory_host.storage.index_saved import IndexHome
from rlm_memory_host.storage.locks import CommitLock
from rlm_memory_host.storage.objects import Progress, Stager, Verifier
from rlm_memory_host.storage.paths import ProjectLayout
from rlm_memory_host.storage.sources import open_source

CLOSE_SECONDS: Final = 10.0
"""How long closing waits for calls in flight; they are told to stop at once."""


def _now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def _recording() -> Generator[None]:
    """Say with a failure to write what became of the record: every step of it was undone."""
    try:
        yield
    except Unwritable as error:
        raise Unwritable(f"{error}; nothing was recorded", error.code) from error


class ArtifactStore:
    """Exact results of all projects below one artifact root.

    `integrity` "cached" hashes an object at its first resolve in a process and whenever its file changed, "always" each
    time. `index_state` is what new cards say about remote indexing. `clock` gives the time of cards. `index_folder` is
    where the indexes of large projects are kept between starts (extra `rlm-memory-host[index]`); None: nowhere.
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
        index_folder: Path | None = None,
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
        self._edits = Edits()
        self._indexing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rlm-memory-index")
        self._home = None if index_folder is None else IndexHome(index_folder, self._in_background)
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
            with (
                open_source(self._files, scope, checked.source_path, self._bounds.artifact_bytes) as source,
                _recording(),
            ):
                outcome = project.record(origin, checked, source, check=check, progress=progress)
            self._counters["deduplicated"] += outcome.deduplicated
            self._counters["repaired"] += outcome.repaired
            return recorded(outcome)

    def resolve(self, scope: Scope, experiment_id: str, current_source_version: str | None = None) -> Resolved:
        """The verified bytes of an experiment, and what its card says.

        Raises NotFound, Integrity (ARTIFACT_MISSING, ARTIFACT_CORRUPT, or VALIDATION for a damaged card),
        FormatVersion, Disposed, StoreError (VALIDATION) for a version that is no text.
        """
        with self._call("resolve"):
            current = check_version(current_source_version)
            parts = self.project(scope).parts
            file = parts.cards.read_file(experiment_id)
            card = file.card
            path = parts.layout.object(card.artifact.artifact_id)
            verdict = self._verifier.verify(
                path, card.artifact.sha256, card.artifact.bytes, self._check_open, for_resolve=True
            )
            if not verdict.sound:
                self._counters["damaged"] += 1
                raise damaged(card, verdict)
            answer = resolved(card, path, verdict, current, is_edited=self._edits.is_edited(parts, file))
            self._counters[answer.freshness] += 1
            return answer

    def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        """Cards of the caller's project that match, best first. Raises StoreError (INVALID_ARGUMENT), Disposed."""
        with self._call("search"):
            checked = check_search(request, self._bounds)
            parts = self.project(scope).parts
            page = searching.search(parts.catalogue, parts.layout.folder.name, checked, self._reader(parts))
            if request.limit > checked.limit:
                note = f"at most {checked.limit} results a page here; the cursor leads to the next"
                page = dataclasses.replace(page, warnings=(*page.warnings, note))
            return page

    def look(self, scope: Scope, experiments: Sequence[str]) -> dict[str, SearchHit | None]:
        """What the caller's project has of these: a hit, None for one that was removed here; others are left out.

        Raises Disposed.
        """
        with self._call("look"):
            parts = self.project(scope).parts
            read = self._reader(parts)
            found: dict[str, SearchHit | None] = {}
            missing: set[str] = set()
            for experiment in experiments:
                card = read(experiment)
                if card is None:
                    missing.add(experiment)
                else:
                    found[experiment] = searching.hit_of(*card, (), 0.0)
            removed = {gone.experiment_id for gone in Shelf(parts).removals()} if missing else set[str]()
            return found | dict.fromkeys(missing & removed)

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
        """Files in the cards folder that are no card of this project, and cards that no host wrote so, with the reason.

        For operators: it looks at every file's state, so it also finds cards that were edited in place.
        """
        with self._call("diagnostics"):
            parts = self.project(scope).parts
            parts.catalogue.look_again()
            edited = [
                Diagnostic(parts.layout.card(name).name, CARD_EDITED, EDITED) for name in parts.catalogue.edited()
            ]
            return [*parts.catalogue.diagnostics(), *edited]

    def close(self) -> None:
        """Admit nothing more, stop what streams, wait a bounded time for what commits. Calls then raise Disposed."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._in_flight == 0, timeout=CLOSE_SECONDS)
        self._stager.close()
        self._indexing.shutdown(wait=True, cancel_futures=True)

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

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run a call in the thread of the indexes; dropped when the store is closing: an index can be made again."""
        with contextlib.suppress(RuntimeError):
            self._indexing.submit(work)

    def _check_open(self) -> None:
        if self._closed:
            raise Disposed("the store is closed")

    def project(self, scope: Scope) -> Project:
        """The pieces of the caller's project, for what operators do (`operators`, `removal`, `export`, `importers`).

        Raises StoreError (INVALID_SCOPE) where the caller has no project.
        """
        if not scope.project_id:
            raise StoreError("this caller has no project", INVALID_SCOPE)
        return self._project(scope.project_id)

    def parts_of(self, project_id: str) -> Parts:
        """The pieces of a project, for the host's own work on it (`indexing`); no caller's word comes here."""
        return self._project(project_id).parts

    def known_projects(self) -> list[str]:
        """The projects in this artifact root whose id a card tells."""
        return [name for _, name in projects(self._files, self._root) if name is not None]

    def _reader(self, parts: Parts) -> Callable[[str], tuple[ExperimentCardV1, bool] | None]:
        def read(experiment: str) -> tuple[ExperimentCardV1, bool] | None:
            try:
                card = parts.cards.read(experiment)
            except StoreError:
                return None
            return card, self._is_available(parts.layout, card)

        return read

    def _project(self, project_id: str) -> Project:
        with self._changed:
            project = self._projects.get(project_id)
            if project is None:
                layout = ProjectLayout.of(self._root, project_id)
                lock = CommitLock(self._files, layout.lock)
                catalogue = Catalogue(self._files, layout, project_id, lock, self._home)
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
        parts.catalogue.note_change("sidecar", experiment_id, before, parts.catalogue.signature(commits))
