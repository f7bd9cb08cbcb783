"""The commit of a record: the short part under the project's lock that makes bytes and card visible, or undoes itself.

Owns: steps 2 to 6 of the order of writes that `artifacts.project` states, the quotas, merging a card with the one that
is there. Does not own: streaming and hashing, which happen before without any lock.

An error undoes what this commit did before the lock is released: a new card is removed again, a changed one put back,
a new object removed, the count of bytes lowered. An object that replaced a damaged one stays.

Source: DeepSeek Honcho specification, sections 27.2, 28.3, 28.5, 29.1.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import cast

from rlm_memory.wire import CARD_QUOTA_EXCEEDED, VALIDATION, codec_name

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import (
    DEFAULT_MEDIA_TYPE,
    MAX_CARD_BYTES,
    ArtifactRefV1,
    Bounds,
    ExperimentCardV1,
    IndexStateName,
    IndexStateV1,
    RecordRequest,
)
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import Integrity, NotFound, Quota, StoreError
from rlm_memory_host.storage.cardjournal import Signature
from rlm_memory_host.storage.cards import (
    CardFile,
    CardReader,
    card_identity,
    publish,
    read_card,
    read_sidecar,
    write_temporary,
)
from rlm_memory_host.storage.catalogue import Catalogue
from rlm_memory_host.storage.files import FileLayer, writing
from rlm_memory_host.storage.index_cards import utc_text
from rlm_memory_host.storage.locks import CommitLock
from rlm_memory_host.storage.objects import UNREADABLE, Staged, Stager, Verdict, Verifier, discard, identity_of
from rlm_memory_host.storage.paths import ProjectLayout


@dataclass(frozen=True, slots=True)
class Parts:
    """What a project is made of."""

    files: FileLayer
    layout: ProjectLayout
    project_id: str
    bounds: Bounds
    lock: CommitLock
    catalogue: Catalogue
    cards: CardReader
    stager: Stager
    verifier: Verifier


@dataclass(frozen=True, slots=True)
class Outcome:
    """A committed card, and what became of the bytes."""

    card: ExperimentCardV1
    deduplicated: bool
    repaired: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """Who records, when, and whether the card is meant for remote indexing.

    `card` is one that was made elsewhere and comes here with its bytes (an import): it is kept as it is, and the card
    that is here already, if any, is not changed by it.
    """

    scope: Scope
    now: Callable[[], datetime]
    index_state: IndexStateName
    card: ExperimentCardV1 | None = None


def commit(
    parts: Parts,
    origin: Origin,
    request: RecordRequest,
    bytes_of: tuple[str, int],
    staged: Staged | None,
    found: Verdict,
) -> Outcome | None:
    """Make a record visible.

    `bytes_of` is (SHA-256, size); `staged` holds the bytes where they were copied; `found` is what verifying the
    stored object said just before, outside the lock. Returns None when the object is another one by now, or gone while
    nothing is staged: verify, or stage, and try again. Raises Quota, Unwritable, LockTimeout, FormatVersion.
    """
    with parts.lock.held():
        work = _Commit(parts, origin, request, bytes_of[0], bytes_of[1])
        try:
            outcome = work.run(staged, found)
        except Exception:
            work.undo()
            raise
    if staged is not None and outcome is not None:
        if outcome.deduplicated:
            discard(parts.files, staged.path)
        else:
            parts.verifier.remember(work.path, staged.sha256)
    return outcome


class _Commit:
    def __init__(self, parts: Parts, origin: Origin, request: RecordRequest, sha256: str, size: int) -> None:
        self._parts = parts
        self._files = parts.files
        self._origin = origin
        self._request = request
        self._sha256 = sha256
        self._size = size
        self._artifact = ids.artifact_id(sha256)
        self.path = parts.layout.object(self._artifact)
        self._experiment = ids.experiment_id(
            project_id=parts.project_id,
            artifact=self._artifact,
            query_fingerprint=request.query_fingerprint,
            source_version=request.source_version,
        )
        self._undo: list[Callable[[], object]] = []

    def undo(self) -> None:
        """Take back, last step first, what can be taken back."""
        for step in reversed(self._undo):
            with contextlib.suppress(OSError, StoreError):
                step()

    def run(self, staged: Staged | None, found: Verdict) -> Outcome | None:
        parts = self._parts
        commits, counted = parts.lock.read()
        before = parts.catalogue.signature(commits)
        state = self._state(self.path)
        is_same = state is None or found.identity in (identity_of(state), UNREADABLE)
        present = state is not None and is_same and found.sound
        if not is_same or (not present and staged is None):
            return None
        existing = self._existing()
        card = self._card(existing)
        if existing is None:
            self._check_cards(before)
        elif present and card == existing:
            return Outcome(existing, True, False)
        used = self._used(counted, before)
        flushes: list[Future[None]] = []
        with writing():
            if present or staged is None:
                parts.lock.write(commits + 1, used)
            else:
                self._count(commits, used, new=state is None)
                flushes = self._publish(staged, new=state is None)
            data = card.to_json()
            self._write_card(data, flushes, new=existing is None)
        after = parts.catalogue.signature(commits + 1)
        identity = card_identity(self._files.stat(parts.layout.card(self._experiment)))
        parts.catalogue.note_commit(before, after, CardFile(card, identity, hashlib.sha256(data).digest()))
        return Outcome(card, present, state is not None and not present)

    # -- bytes -------------------------------------------------------------------------------------------------------

    def _used(self, counted: int | None, before: Signature | None) -> int:
        """What is counted, or what cards name where that is more: another tool's objects are counted by nobody. A
        catalogue that does not know yet what other hosts removed says nothing: its sum would undo their clean-up.
        """
        known = count_object_bytes(self._files, self._parts.layout) if counted is None else counted
        return max(known, self._parts.catalogue.bytes_at(before))

    def _count(self, commits: int, used: int, *, new: bool) -> None:
        """Count the bytes before they are published; check a count that reaches the bound against the disk."""
        bound = self._parts.bounds.project_bytes
        if new and used + self._size > bound:
            used = count_object_bytes(self._files, self._parts.layout)
            refuse_bytes(used, self._size, bound)
        self._parts.lock.write(commits + 1, used + (self._size if new else 0))
        self._undo.append(lambda: self._parts.lock.write(commits + 1, used))

    def _publish(self, staged: Staged, *, new: bool) -> list[Future[None]]:
        """Give the object its name; the flushes of the folders run on while the card is written."""
        folder = self.path.parent
        made = self._files.make_folder(folder)
        if new:
            self._undo.append(lambda: self._files.unlink(self.path))
        self._files.rename(staged.path, self.path)
        flushes = [self._parts.stager.flush_folder(folder)]
        if made:
            flushes.append(self._parts.stager.flush_folder(folder.parent))
        return flushes

    # -- card --------------------------------------------------------------------------------------------------------

    def _existing(self) -> ExperimentCardV1 | None:
        """The card that is there. A damaged one is replaced; one of a future version is not touched."""
        try:
            return read_card(self._files, self._parts.layout, self._parts.project_id, self._experiment)
        except (NotFound, Integrity):
            return None

    def _check_cards(self, before: Signature | None) -> None:
        bound = self._parts.bounds.cards
        if self._parts.catalogue.count_files(before) >= bound:
            raise Quota(
                f"the project has as many cards as it may have ({bound:,}); remove results or ask an operator to raise "
                "the bound",
                CARD_QUOTA_EXCEEDED,
            )

    def _write_card(self, data: bytes, flushes: list[Future[None]], *, new: bool) -> None:
        layout = self._parts.layout
        temporary = layout.new_temporary("card")
        target = layout.card(self._experiment)
        try:
            write_temporary(self._files, temporary, data)
        finally:
            failures = [failure for flush in flushes if (failure := flush.exception()) is not None]
        if failures:
            discard(self._files, temporary)
            raise failures[0]
        if new:
            self._undo.append(lambda: self._files.unlink(target))
        else:
            before = self._files.read_all(target, MAX_CARD_BYTES)
            self._undo.append(lambda: self._put_back(target, before))
        publish(self._files, temporary, target)
        self._files.fsync_folder(layout.cards)

    def _put_back(self, target: Path, data: bytes) -> None:
        if self._files.read_all(target, MAX_CARD_BYTES) != data:
            temporary = self._parts.layout.new_temporary("card")
            write_temporary(self._files, temporary, data)
            publish(self._files, temporary, target)

    def _card(self, existing: ExperimentCardV1 | None) -> ExperimentCardV1:
        if self._origin.card is not None:
            return existing or self._origin.card
        return self._new_card() if existing is None else self._updated_card(existing)

    def _new_card(self) -> ExperimentCardV1:
        request, scope = self._request, self._origin.scope
        now = utc_text(self._origin.now())
        artifact = ArtifactRefV1(
            artifact_id=self._artifact,
            sha256=self._sha256,
            bytes=self._size,
            media_type=request.media_type or DEFAULT_MEDIA_TYPE,
            created_at=now,
        )
        return ExperimentCardV1(
            experiment_id=self._experiment,
            artifact=artifact,
            title=request.title,
            summary=request.summary,
            query_fingerprint=request.query_fingerprint,
            source=request.source,
            source_version=request.source_version,
            shape=request.shape,
            columns=request.columns,
            tags=request.tags or None,
            project_id=self._parts.project_id,
            origin_session_id=scope.session_id,
            origin_agent_kind=scope.agent_kind,
            root_agent_id=scope.root_agent_id,
            tool_call_id=scope.call_id,
            plugin_version=_version(),
            created_at=now,
            updated_at=now,
            index=IndexStateV1(state=self._origin.index_state),
        )

    def _updated_card(self, existing: ExperimentCardV1) -> ExperimentCardV1:
        """Only what describes may change; what a caller leaves out stays. No change leaves the card as it is."""
        request = self._request
        self._check_kind(existing)
        described = {
            "title": request.title,
            "summary": self._kept_summary(existing),
            "tags": existing.tags if request.tags is None else request.tags or None,
            "shape": existing.shape if request.shape is None else request.shape,
            "columns": existing.columns if request.columns is None else request.columns,
        }
        is_sent = self._origin.index_state == "pending"
        if all(getattr(existing, name) == value for name, value in described.items()):
            # Recorded anew since cards are sent: this one is now, too.
            was_off = existing.index.state == "disabled" and existing.index.last_error_code is None
            return (
                existing.model_copy(update={"index": IndexStateV1(state="pending")})
                if is_sent and was_off
                else existing
            )
        index = existing.index
        if is_sent:
            revision = index.projection_revision
            index = IndexStateV1(
                state="pending", projection_revision=revision + 1 if isinstance(revision, int) else revision
            )
        return existing.model_copy(update={**described, "index": index, "updated_at": utc_text(self._origin.now())})

    def _kept_summary(self, existing: ExperimentCardV1) -> str:
        """A summary that the kernel makes from the schema, which the sidecar tells, replaces none that was written."""
        asked = self._request.summary
        if asked == existing.summary:
            return asked
        lineage: object = (read_sidecar(self._files, self._parts.layout, self._experiment) or {}).get("lineage")
        made = cast("dict[str, object]", lineage).get("made_summary") if isinstance(lineage, dict) else None
        return existing.summary if asked == made else asked

    def _check_kind(self, existing: ExperimentCardV1) -> None:
        """The identity holds no type, so the same bytes must not become another kind of thing under it."""
        kept, asked = existing.artifact.media_type, self._request.media_type
        if asked is not None and codec_name(kept) != codec_name(asked):
            raise StoreError(
                "the same bytes are already recorded under this fingerprint and source version as another kind of "
                f"result ({kept or 'no media type'}, not {asked}); nothing was changed. Give a query_fingerprint "
                "(query=, params= or fingerprint=) or a source_version that tells the two apart",
                VALIDATION,
            )

    def _state(self, path: Path) -> os.stat_result | None:
        try:
            return self._files.stat(path)
        except FileNotFoundError:
            return None


@functools.cache
def _version() -> str:
    try:
        return importlib.metadata.version("rlm-memory-host")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def refuse_bytes(used: int, size: int, bound: int) -> None:
    """Raises Quota when `size` more bytes go over the project's bound."""
    if used + size > bound:
        raise Quota(
            f"the project holds {used:,} bytes and may hold {bound:,}; {size:,} more do not fit. "
            "Remove results or ask an operator to raise the bound"
        )


def count_object_bytes(files: FileLayer, layout: ProjectLayout) -> int:
    """Bytes of the project's objects on the disk: a walk, for when nobody counted yet or a bound seems reached."""
    total = 0
    for folder in files.scan(layout.objects):
        if not folder.is_dir(follow_symlinks=False):
            continue
        for item in files.scan(Path(folder.path)):
            with contextlib.suppress(OSError):
                total += item.stat(follow_symlinks=False).st_size
    return total
