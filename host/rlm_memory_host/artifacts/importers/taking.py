"""Putting one found result into the store: bytes, card and sidecar, or none of them.

Owns: the order of writes below and what counts as there already. Does not own: the commit itself (`artifacts.commit`,
with its quotas and its undo), reading a source (the readers beside this).

1. the source is read once and hashed: what it would be called, and whether it is here
2. sidecar written, where there is one and none is here                             a sidecar without card, swept
3. where the bytes are not here: read again into `tmp/`, hashed on the way, flushed as above, and a temp file, swept
4. commit: object renamed, card renamed (the commit point), folders flushed         the result

What follows a step is what a crash after it leaves. An error takes back the sidecar; the commit takes back the rest. A
card that is here already is not changed by an import; a damaged or missing object under it is mended.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from rlm_memory.wire import FILE_MUTATED

from rlm_memory_host.artifacts.commit import Origin, Parts, commit
from rlm_memory_host.artifacts.importers.found import Item
from rlm_memory_host.artifacts.importers.tree import shown
from rlm_memory_host.artifacts.project import Project
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import ExperimentCardV1, IndexStateName
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import Integrity, NotFound, TooLarge, UnsafeSource, Unwritable
from rlm_memory_host.storage.cards import encode_sidecar, publish, read_card, write_temporary
from rlm_memory_host.storage.files import OBJECT_MODE, writing
from rlm_memory_host.storage.objects import Check, Progress, Staged, discard

_ATTEMPTS: Final = 10
State = Literal["new", "present", "mended"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became (or would become) of an item."""

    name: str
    experiment_id: str
    artifact_id: str
    bytes: int
    title: str
    state: State


@dataclass(frozen=True, slots=True)
class _Looked:
    sha256: str
    size: int
    experiment_id: str
    existing: ExperimentCardV1 | None
    is_sound: bool


def look(project: Project, item: Item, *, check: Check, progress: Progress | None = None) -> Taken:
    """What taking the item would do. Writes nothing.

    Raises Integrity where the bytes are not those that the source promises, TooLarge, UnsafeSource.
    """
    return _told(item, _look(project.parts, item, check, progress))


def take(
    project: Project,
    scope: Scope,
    item: Item,
    *,
    now: Callable[[], datetime],
    index_state: IndexStateName,
    check: Check,
    progress: Progress | None = None,
) -> Taken:
    """Put the item into the store; durable when it returns.

    Raises Integrity, TooLarge, UnsafeSource, Quota, Unwritable, LockTimeout, and what `check` raises; the store is as
    it was then.
    """
    project.prepare()
    parts = project.parts
    looked = _look(parts, item, check, progress)
    wrote = _write_note(parts, looked.experiment_id, item)
    try:
        if looked.existing is None or not looked.is_sound:
            origin = Origin(scope, now, index_state, item.card or looked.existing)
            _commit(parts, origin, item, looked, check)
    except Exception:
        if wrote is not None and not parts.layout.card(looked.experiment_id).exists():
            discard(parts.files, wrote)
        raise
    return _told(item, looked)


def _told(item: Item, looked: _Looked) -> Taken:
    state: State = "new" if looked.existing is None else "present" if looked.is_sound else "mended"
    artifact = ids.artifact_id(looked.sha256)
    return Taken(item.name, looked.experiment_id, artifact, looked.size, item.request.title, state)


def _look(parts: Parts, item: Item, check: Check, progress: Progress | None) -> _Looked:
    _refuse_large(parts, item.name, item.size)
    digest, size = hashlib.sha256(), 0
    for data in item.read(check):
        digest.update(data)
        size += len(data)
        _refuse_large(parts, item.name, size)
        if progress is not None:
            progress(size, max(size, item.size))
    sha256 = digest.hexdigest()
    if item.sha256 is not None and (sha256, size) != (item.sha256, item.size):
        raise Integrity(f"{shown(item.name)}: its bytes are not those that its card names")
    artifact = ids.artifact_id(sha256)
    experiment = ids.experiment_id(
        project_id=parts.project_id,
        artifact=artifact,
        query_fingerprint=item.request.query_fingerprint,
        source_version=item.request.source_version,
    )
    try:
        existing = read_card(parts.files, parts.layout, parts.project_id, experiment)
    except (NotFound, Integrity):
        existing = None
    found = parts.verifier.verify(parts.layout.object(artifact), sha256, size, check, for_resolve=False)
    return _Looked(sha256, size, experiment, existing, found.sound)


def _refuse_large(parts: Parts, name: str, size: int) -> None:
    bound = parts.bounds.artifact_bytes
    if size > bound:
        raise TooLarge(f"{shown(name)}: it has {size:,} bytes or more; one artifact may have {bound:,}")


def _write_note(parts: Parts, experiment: str, item: Item) -> Path | None:
    """The sidecar's path where this wrote it; None where there is nothing to write or one is here."""
    if item.note is None:
        return None
    data = encode_sidecar(experiment, item.note)
    target = parts.layout.sidecar(experiment)
    with parts.lock.held():
        if target.exists():
            return None
        commits = parts.lock.read()[0]
        before = parts.catalogue.signature(commits)
        temporary = parts.layout.new_temporary("note")
        with writing():
            write_temporary(parts.files, temporary, data)
            publish(parts.files, temporary, target)
            try:
                parts.files.fsync_folder(parts.layout.cards)
            except Exception:
                discard(parts.files, target)
                raise
        parts.catalogue.note_change("sidecar", experiment, before, parts.catalogue.signature(commits))
    return target


def _commit(parts: Parts, origin: Origin, item: Item, looked: _Looked, check: Check) -> None:
    bytes_of = (looked.sha256, looked.size)
    path = parts.layout.object(ids.artifact_id(looked.sha256))
    staged: Staged | None = None
    try:
        for _ in range(_ATTEMPTS):
            found = parts.verifier.verify(path, looked.sha256, looked.size, check, for_resolve=False)
            if not found.sound and staged is None:
                staged = _stage(parts, item, looked, check)
            if commit(parts, origin, item.request, bytes_of, staged, found) is not None:
                return
        raise Unwritable("the stored bytes keep changing; try again")
    except Exception:
        if staged is not None:
            discard(parts.files, staged.path)
        raise


def _stage(parts: Parts, item: Item, looked: _Looked, check: Check) -> Staged:
    path = parts.layout.new_temporary("object")
    with writing():
        descriptor = parts.files.create(path)
    try:
        try:
            digest, size = hashlib.sha256(), 0
            for data in item.read(check):
                digest.update(data)
                size += len(data)
                if size > looked.size:
                    break
                with writing():
                    parts.files.write(descriptor, data)
            if (digest.hexdigest(), size) != (looked.sha256, looked.size):
                raise UnsafeSource(f"{shown(item.name)}: the file changed while it was read", FILE_MUTATED)
            with writing():
                parts.files.set_mode(descriptor, OBJECT_MODE)
                parts.files.fsync(descriptor)
        finally:
            os.close(descriptor)
    except Exception:
        discard(parts.files, path)
        raise
    return Staged(path, looked.sha256, looked.size)
