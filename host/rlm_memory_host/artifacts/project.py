"""One project's part of a store: recording bytes and cards in the right order, and undoing a record that failed.

Owns: which way a record takes (hash first, or copy), folders, the sweep of temp files. Does not own: the single steps
(`storage`), the part under the lock (`commit`), what a caller may say (`checks`), the public face (`store`).

Order of writes of a record:

1. temp object written, hashed, flushed; the source checked again        nothing visible; temp swept after 24 h
2. [commit lock] quota checked, bytes counted in the lock's file         count too high; recounted at the bound
3. temp renamed to `objects/<2>/<id>`, its folder flushed                orphan object, served to nobody
4. card written to a temp file, flushed                                  as above, and a temp file
5. card renamed into `cards/`: the commit point                          committed, or after a power cut not
6. `cards/` flushed [lock released], catalogue told                      committed
7. the caller gets its answer

What follows a line's number is what a crash after that step leaves. An error (disk full, say) undoes its own steps
before the lock is released: the tree is as it was.

Bytes already there are not copied: a source of a stored size is hashed first when a sample of it looks like a stored
object. The stored object is verified before anybody is told "deduplicated"; a damaged one is replaced.

Bounds are checked under the lock, so cards and published bytes never exceed them; beside them, `tmp/` holds at most
the sum of the records in flight, each of a permitted size (section 28.5).

Thread-safe, and safe with other hosts in the same root. Source: DeepSeek Honcho specification, sections 28 and 29.1.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Final

from rlm_memory_host.artifacts.commit import Origin, Outcome, Parts, commit, count_object_bytes, refuse_bytes
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import RecordRequest
from rlm_memory_host.errors import Unwritable
from rlm_memory_host.storage.files import writing
from rlm_memory_host.storage.objects import Check, Progress, Verdict, discard, hash_descriptor, reporter
from rlm_memory_host.storage.paths import is_temporary
from rlm_memory_host.storage.sources import Source

GRACE_SECONDS: Final = 24 * 3_600
"""Age after which a temp file belongs to nobody any more."""
_ATTEMPTS: Final = 10
"""How often a commit meets another object than the one that was verified before it gives up."""
_SAMPLE_BYTES: Final = 4_096
_SMALL_BYTES: Final = 64 << 10
"""Up to here hashing costs less than looking at stored objects."""
_SAMPLED_OBJECTS: Final = 8
"""Stored objects of the source's size that are sampled before it is simply copied."""


class Project:
    """The objects and cards of one project."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._prepared = False

    # -- record ------------------------------------------------------------------------------------------------------

    def record(
        self, origin: Origin, request: RecordRequest, source: Source, *, check: Check, progress: Progress | None
    ) -> Outcome:
        """Keep the source's bytes and a card; durable when it returns. See the module for the order."""
        self.prepare()
        self.parts.catalogue.refresh()
        self._refuse_hopeless(source.size)
        outcome = None
        sha256 = self._hash_if_known(source, check, progress)
        if sha256 is not None:
            found = self._verify(sha256, source.size, check)
            if found.sound:
                outcome = commit(self.parts, origin, request, (sha256, source.size), None, found)
        return outcome or self._copy(origin, request, source, check, progress)

    def _copy(
        self, origin: Origin, request: RecordRequest, source: Source, check: Check, progress: Progress | None
    ) -> Outcome:
        staged = self.parts.stager.stage(self.parts.layout, source, check, progress)
        try:
            for _ in range(_ATTEMPTS):
                found = self._verify(staged.sha256, staged.size, check)
                outcome = commit(self.parts, origin, request, (staged.sha256, staged.size), staged, found)
                if outcome is not None:
                    return outcome
            raise Unwritable("the stored bytes keep changing; try again")
        except Exception:
            discard(self.parts.files, staged.path)
            raise

    def _hash_if_known(self, source: Source, check: Check, progress: Progress | None) -> str | None:
        """The source's digest when these bytes are stored already; None to go on and copy.

        A small source is hashed at once; of a larger one a sample must look like a stored object first.
        """
        candidates = self._candidates(source.size)
        if source.size > _SMALL_BYTES:
            candidates = [name for name in candidates if self._looks_like(source, name)]
        if not candidates:
            return None
        sha256 = hash_descriptor(source.descriptor, source.size, check, reporter(progress, source.size))
        if not self.parts.catalogue.has_artifact(ids.artifact_id(sha256)):
            return None
        source.verify_unchanged()
        return sha256

    def _candidates(self, size: int) -> list[str]:
        return self.parts.catalogue.artifacts_of_size(size, _SAMPLED_OBJECTS)

    def _looks_like(self, source: Source, artifact: str) -> bool:
        offsets = (0, source.size // 2, max(0, source.size - _SAMPLE_BYTES))
        try:
            descriptor = self.parts.files.open_read(self.parts.layout.object(artifact))
        except OSError:
            return False
        try:
            return all(
                os.pread(descriptor, _SAMPLE_BYTES, offset) == os.pread(source.descriptor, _SAMPLE_BYTES, offset)
                for offset in offsets
            )
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def _verify(self, sha256: str, size: int, check: Check) -> Verdict:
        path = self.parts.layout.object(ids.artifact_id(sha256))
        return self.parts.verifier.verify(path, sha256, size, check, for_resolve=False)

    def _refuse_hopeless(self, size: int) -> None:
        """Refuse before a byte is copied what could not be published anyway, unless it may be there already."""
        bound = self.parts.bounds.project_bytes
        used = max(self.parts.lock.book()[1] or 0, self.parts.catalogue.object_bytes)
        if used + size > bound and not self._candidates(size):
            refuse_bytes(count_object_bytes(self.parts.files, self.parts.layout), size, bound)

    # -- folders and temp files --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the project's folders, durably, and sweep; once in a process, and again when they have vanished."""
        if self._prepared and self._is_there():
            return
        layout = self.parts.layout
        missing = [layout.folder]
        while not missing[-1].exists():
            missing.append(missing[-1].parent)
        with writing():
            for folder in (*reversed(missing), layout.objects, layout.cards, layout.temporary, layout.lock.parent):
                if self.parts.files.make_folder(folder):
                    self.parts.files.fsync_folder(folder.parent)
        for path, age in self.temporary_files():
            if age > GRACE_SECONDS:
                discard(self.parts.files, path)
        self._prepared = True

    def _is_there(self) -> bool:
        try:
            self.parts.files.stat(self.parts.layout.temporary)
        except OSError:
            return False
        return True

    def temporary_files(self) -> list[tuple[Path, float]]:
        """Our files in `tmp/` and their age in seconds: records in flight, or what a crash left. No others."""
        found: list[tuple[Path, float]] = []
        for item in self.parts.files.scan(self.parts.layout.temporary):
            try:
                state = item.stat(follow_symlinks=False)
            except OSError:
                continue
            if is_temporary(item.name) and stat.S_ISREG(state.st_mode):
                found.append((Path(item.path), time.time() - state.st_mtime))
        return found
