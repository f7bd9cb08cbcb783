"""The journal of an owner's memory: all-or-nothing changes of several files, logs and the audit chain.

Owns: the write lock, the manifest, recovery. Does not own: the audit log's file and salts (`auditlog`), what a change
is (`textmemory.store`) or where a layer's folder lies (a function given by it checks that).

Order of writes, under the lock: salts -> temporary files, each flushed -> manifest (temp, flush, rename, flush folder):
the one commit point -> rename the temporary files, flush their folders -> append rows, flush -> append audit records,
flush. The manifest carries everything that follows it, so that the next holder of the lock does it again:

- a crash before the manifest's rename leaves temporary files, which nobody names: the next sweep takes them;
- one after it leaves files without their name, rows or records missing: they are completed from the manifest, and each
  step may be repeated (a temporary file is gone when it was renamed; rows are compared with the log's end; records have
  sequence numbers).

Source: design page "The memory model", Storage; "Quality", Faults.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.memory import LOCK_SECONDS, AuditNote, Log
from rlm_memory_host.errors import HostError, LayerUnavailable, LockTimeout, Unwritable
from rlm_memory_host.storage import audit, ndjson
from rlm_memory_host.storage.audit import Verification
from rlm_memory_host.storage.auditlog import AuditLog, OnFault, is_there, make_durable, tail_of_file
from rlm_memory_host.storage.files import FileLayer, writing
from rlm_memory_host.storage.locks import CommitLock
from rlm_memory_host.storage.manifest import FileState, Manifest, Pending, StagedFile, parse

MANIFEST_BYTES: Final = 256 << 20
_LOG_FOLDERS: Final[Mapping[Log, str]] = {
    Log.CANDIDATES: "queue",
    Log.CONFLICTS: "queue",
    Log.OBSERVATIONS: "queue",
    Log.ALIASES: "queue",
    Log.SIGNALS: "habits",
    Log.TOMBSTONES: "habits",
    Log.JOBS: ".state",
    Log.PURGES: ".state",
}

_OWN_FOLDERS: Final = (".state", "queue", "habits", "evidence", "derived")

Locate = Callable[[str, str], Path]
"""(layer name, path below it) -> the checked absolute path. Raises LayerUnavailable."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to put in place. `blocks` None for files that the manifest does not follow (history)."""

    layer: str
    path: str
    data: bytes
    blocks: int | None = None


def utc_now() -> datetime:
    """The clock that is used when none is given."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class Journal:
    """One owner's journal; thread-safe, safe for several processes. `locate` checks paths inside layers."""

    def __init__(
        self,
        files: FileLayer,
        folder: Path,
        locate: Locate,
        *,
        clock: Callable[[], datetime] = utc_now,
        lock_seconds: float = LOCK_SECONDS,
        on_fault: OnFault = lambda _feature, _code: None,
    ) -> None:
        self.files = files
        self.folder = folder
        self.clock = clock
        self._locate = locate
        self._on_fault = on_fault
        self._lock_seconds = lock_seconds
        self._lock = CommitLock(files, folder / ".state" / "locks" / "write", seconds=lock_seconds)
        self._holder = threading.local()
        self._cached: tuple[tuple[int, int, int], Manifest] | None = None
        self._completed = -1
        self._audit = AuditLog(files, folder, on_fault)
        self._manifest_path = folder / ".state" / "manifest.json"
        self._log_paths = {log: folder / below / f"{log.value}.ndjson" for log, below in _LOG_FOLDERS.items()}
        self._unfinished: tuple[StagedFile, ...] = ()

    # -- the lock ------------------------------------------------------------------------------------------------------
    @contextmanager
    def lock(self) -> Generator[None]:
        """Hold the owner's write lock, re-entrant; whatever a crash left is completed first. Raises LockTimeout."""
        if getattr(self._holder, "depth", 0):
            yield
            return
        self._refuse_links()
        try:
            self.make_folders(".state/locks")
            held = self._lock.held()
            held.__enter__()
        except LockTimeout:
            message = f"another writer kept the memory's lock for {self._lock_seconds:.0f} s; try again"
            raise LockTimeout(message) from None
        try:
            self._holder.depth = 1
            self.complete()
            yield
        finally:
            self._holder.depth = 0
            held.__exit__(None, None, None)

    def _refuse_links(self) -> None:
        """The owner's own folders are no links, as those of the layers are none. Looked at before every write."""
        for name in _OWN_FOLDERS:
            try:
                state = self.files.stat(self.folder / name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Unwritable(f"the memory's folder {name} cannot be looked at ({error.strerror})") from error
            if not stat.S_ISDIR(state.st_mode):
                if name != ".state":  # health is kept there
                    self._on_fault("storage", "LINK_IN_PATH")
                raise LayerUnavailable(f"the memory's folder {name} is a link or a file; put the folder back")

    def make_folders(self, below: str) -> Path:
        """The folder `below` the owner's, made durably where it is missing."""
        return make_durable(self.files, self.folder / below)

    # -- the manifest --------------------------------------------------------------------------------------------------
    def manifest(self) -> Manifest:
        """The manifest as it is on disk now; an empty one when there is none. Raises FormatVersion, Integrity."""
        try:
            state = self.files.stat(self._manifest_path)
        except FileNotFoundError:
            return Manifest()
        identity = (state.st_ino, state.st_size, state.st_mtime_ns)
        if self._cached is None or self._cached[0] != identity:
            try:
                data = self.files.read_all(self._manifest_path, MANIFEST_BYTES)
            except FileNotFoundError:
                return Manifest()
            self._cached = identity, parse(data)
        return self._cached[1]

    def complete(self) -> None:
        """Do again what the manifest says is to be done. Needs the lock."""
        manifest = self.manifest()
        if manifest.serial == self._completed:
            return
        self._publish_files(manifest.pending.files)
        self._publish_rows(manifest.pending.rows)
        self._audit.publish(manifest.pending.audit)
        self._completed = manifest.serial

    # -- changes -------------------------------------------------------------------------------------------------------
    def commit(
        self,
        new_files: Sequence[NewFile] = (),
        rows: Sequence[tuple[Log, Mapping[str, Any]]] = (),
        notes: Sequence[AuditNote] = (),
        *,
        states: Mapping[str, FileState | None] | None = None,
        bindings: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Put files in place, append rows and audit records: all or nothing. Needs the lock.

        `states` are manifest entries to set without writing their file (None forgets one). Raises Unwritable.
        """
        old = self.manifest()
        records = self._audit.records(notes, old.audit, stamp(self.clock()))
        staged = self._stage(new_files, old)
        entries = dict(old.files)
        for file, made in zip(new_files, staged, strict=True):
            if file.blocks is not None:
                entries[f"{file.layer}/{file.path}"] = FileState(made.after, file.blocks)
        for name, state in (states or {}).items():
            if state is None:
                entries.pop(name, None)
            else:
                entries[name] = state
        lines = tuple((log.value, ndjson.encode(row)[:-1].decode()) for log, row in rows)
        new = Manifest(
            serial=old.serial + 1,
            files=entries,
            audit=audit.tail_of(records[-1]) if records else old.audit,
            pending=Pending((*self._unfinished, *staged), lines, tuple(records)),
            bindings=old.bindings if bindings is None else bindings,
        )
        self._write_manifest(new, staged)
        self._publish(old, new)
        return new

    def _stage(self, new_files: Sequence[NewFile], old: Manifest) -> list[StagedFile]:
        staged: list[StagedFile] = []
        try:
            for file in new_files:
                target = self._locate(file.layer, file.path)
                make_durable(self.files, target.parent)
                temporary = target.with_name(f".{ids.new_ulid()}.tmp")
                state = old.files.get(f"{file.layer}/{file.path}")
                made = StagedFile(
                    file.layer,
                    file.path,
                    temporary.name,
                    state.sha256 if state else "",
                    hashlib.sha256(file.data).hexdigest(),
                )
                staged.append(made)
                with writing():
                    descriptor = self.files.create(temporary)
                    try:
                        self.files.write(descriptor, file.data)
                        self.files.fsync(descriptor)
                    finally:
                        os.close(descriptor)
        except Exception:
            self._discard(staged)
            raise
        return staged

    def _write_manifest(self, manifest: Manifest, staged: Sequence[StagedFile]) -> None:
        """The commit point. An error after its rename still counts as committed."""
        data = manifest.to_json()
        try:
            ndjson.replace(self.files, self._manifest_path, data)
        except Unwritable:
            self._cached = None
            try:
                is_there = self.manifest().serial == manifest.serial
            except (HostError, OSError):
                is_there = False
            if not is_there:
                self._discard(staged)
                raise
        state = self.files.stat(self._manifest_path)
        self._cached = (state.st_ino, state.st_size, state.st_mtime_ns), manifest

    def _publish(self, old: Manifest, new: Manifest) -> None:
        try:
            self._publish_files(new.pending.files)
        except Unwritable:
            self._take_back(old, new)
            raise
        try:
            self._publish_rows(new.pending.rows)
            self._audit.publish(new.pending.audit)
            self._completed = new.serial
        except Unwritable as error:
            self._on_fault("audit", error.code)

    def _take_back(self, old: Manifest, new: Manifest) -> None:
        """Undo a commit none of whose files has its name yet; otherwise it stays to be completed."""
        staged = new.pending.files
        try:
            if all(is_there(self.files, self._temporary_of(file)) for file in staged):
                ndjson.replace(self.files, self._manifest_path, replace(old, serial=new.serial + 1).to_json())
                self._cached = None
                self._discard(staged)
        except (HostError, OSError):
            self._on_fault("storage", "PENDING_CHANGE")

    def _publish_files(self, staged: Iterable[StagedFile]) -> None:
        """Give the files their names. One whose layer is unavailable now is carried over to the next manifest."""
        folders: dict[Path, None] = {}
        self._unfinished = ()
        for file in staged:
            try:
                temporary = self._temporary_of(file)
            except LayerUnavailable:
                self._unfinished = (*self._unfinished, file)
                continue
            if not is_there(self.files, temporary):
                continue
            with writing():
                self.files.rename(temporary, self._locate(file.layer, file.path))
            folders[temporary.parent] = None
        with writing():
            for folder in folders:
                self.files.fsync_folder(folder)

    def _publish_rows(self, rows: Sequence[tuple[str, str]]) -> None:
        by_log: dict[str, list[bytes]] = {}
        for log, line in rows:
            by_log.setdefault(log, []).append(line.encode() + b"\n")
        for name, lines in by_log.items():
            path = self.log_path(Log(name))
            if not tail_of_file(self.files, path, sum(map(len, lines))).endswith(b"".join(lines)):
                make_durable(self.files, path.parent)
                ndjson.append(self.files, path, lines)

    # -- the audit log, and others -------------------------------------------------------------------------------------
    @property
    def audit_path(self) -> Path:
        """The audit log."""
        return self._audit.path

    def log_path(self, log: Log) -> Path:
        """The file of a log."""
        return self._log_paths[log]

    def verify_audit(self) -> Verification:
        """Check the whole chain against the manifest. Raises OSError, FormatVersion, Integrity."""
        manifest = self.manifest()
        return self._audit.verify(manifest.audit, manifest.pending.audit)

    def audit_fault(self) -> str:
        """Why the log does not end with the record that the manifest remembers; "" when it does. A quick look."""
        return self._audit.fault(self.manifest().audit)

    def _temporary_of(self, file: StagedFile) -> Path:
        return self._locate(file.layer, file.path).with_name(file.temporary)

    def _discard(self, staged: Iterable[StagedFile]) -> None:
        for file in staged:
            ndjson.discard(self.files, self._temporary_of(file))
