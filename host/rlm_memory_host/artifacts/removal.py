"""Removing results, bringing them back, and sweeping what nobody can want any more. For operators only.

Owns: the order of writes below. Does not own: who may call it (`cli.experiments`; no tool leads here, section 28.5),
the names of removed cards (`operators.shelf`).

Order of writes of a removal, under the project's commit lock:

1. card renamed to `….card.removed`, in the same folder: the commit point      removed; its sidecar still in place
2. sidecar renamed to `….note.removed`                                          removed
3. `cards/` flushed [lock released]                                             removed, also after a power cut

Bringing back takes the sidecar first and the card last, so a crash leaves it removed or whole. The object is not
touched by either. Neither writes a new file, so both work on a full disk.

Sweeping (`sweep`) unlinks, in this order: removed cards past their time, `cards/` flushed, then objects that no card
and no removed card names and that are a day old, then temp files and sidecars without a card, a day old. What a crash
leaves at any point is what the next sweep finds again. What was planned outside the lock is looked at again under it,
so that a record that commits meanwhile keeps its bytes. Where one card cannot be read at all, no object goes.

An error undoes its own removal before the lock is released. Source: DeepSeek Honcho specification, section 28.5; design
pages "Overview" (decisions) and "Exact results", Operators.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rlm_memory.wire import ARTIFACT_MISSING, CARD_QUOTA_EXCEEDED

from rlm_memory_host.artifacts.commit import Parts, count_object_bytes
from rlm_memory_host.artifacts.operators.shelf import Named, Removed, Role, Shelf
from rlm_memory_host.artifacts.project import GRACE_SECONDS, Project
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import MAX_CARD_BYTES, ExperimentCardV1, parse_card
from rlm_memory_host.errors import Integrity, NotFound, Quota, StoreError, Unwritable, VersionConflict
from rlm_memory_host.storage.cardjournal import Signature
from rlm_memory_host.storage.cards import not_found, read_card_file
from rlm_memory_host.storage.files import writing
from rlm_memory_host.storage.objects import Check

BATCH: Final = 256
"""Files unlinked under one hold of the lock; records wait that long at most."""


# -- removing and bringing back --------------------------------------------------------------------------------------
def remove(parts: Parts, experiment: str, *, now: float | None = None) -> Removed:
    """Take a result out of search and resolve; `bring_back` undoes it. `now` is in seconds since 1970.

    Works on a card that is damaged, too. Raises NotFound, Unwritable, LockTimeout; nothing has changed then.
    """
    layout = parts.layout
    if not _exists(parts, layout.card(experiment)):
        raise not_found()
    gone = Removed(experiment, ids.new_ulid(int((time.time() if now is None else now) * 1_000)))
    with parts.lock.held(), _undoing() as undo:
        if not _exists(parts, layout.card(experiment)):
            raise not_found()
        before = _signature(parts)
        with writing():
            _move(parts, layout.card(experiment), gone.path(layout, "card"), undo)
            if _exists(parts, layout.sidecar(experiment)):
                _move(parts, layout.sidecar(experiment), gone.path(layout, "note"), undo)
            parts.files.fsync_folder(layout.cards)
        undo.clear()
        parts.catalogue.note_change("removed", experiment, before, _counted(parts, commits=1))
    return gone


def bring_back(parts: Parts, experiment: str) -> Removed:
    """Undo the newest removal of an experiment.

    Raises NotFound where nothing of it is left, VersionConflict where it was recorded again meanwhile, Integrity where
    its bytes are gone or its card is damaged, Quota, Unwritable, LockTimeout; nothing has changed then.
    """
    layout = parts.layout
    if not _exists(parts, layout.cards):
        raise _nothing_left()
    with parts.lock.held(), _undoing() as undo:
        gone = _returnable(parts, Shelf(parts), experiment)
        note, before = gone.path(layout, "note"), _signature(parts)
        with writing():
            if _exists(parts, note) and not _exists(parts, layout.sidecar(experiment)):
                _move(parts, note, layout.sidecar(experiment), undo)
            _move(parts, gone.path(layout, "card"), layout.card(experiment), undo)
            parts.files.fsync_folder(layout.cards)
        undo.clear()
        after = _counted(parts, commits=1)
        file = read_card_file(parts.files, layout, parts.project_id, experiment)
        parts.catalogue.note_commit(before, after, file)
    return gone


def check_removable(parts: Parts, experiment: str) -> None:
    """Raises what `remove` would, without removing anything; not what the disk says to it."""
    if not _exists(parts, parts.layout.card(experiment)):
        raise not_found()


def check_returnable(parts: Parts, experiment: str) -> None:
    """As `check_removable`, for `bring_back`."""
    _returnable(parts, Shelf(parts), experiment)


def _returnable(parts: Parts, shelf: Shelf, experiment: str) -> Removed:
    removals = shelf.removals(experiment)
    if not removals:
        raise _nothing_left()
    if experiment in shelf.cards:
        raise VersionConflict("it was recorded again since it was removed; the new record stays")
    _check_whole(parts, _read_removed(parts, removals[0]))
    if len(shelf.cards) >= parts.bounds.cards:
        raise Quota(f"the project has as many cards as it may have ({parts.bounds.cards:,})", CARD_QUOTA_EXCEEDED)
    return removals[0]


def _nothing_left() -> NotFound:
    return NotFound("nothing to bring back: it was not removed in this project, or its time is over")


def _read_removed(parts: Parts, gone: Removed) -> ExperimentCardV1:
    try:
        return parse_card(parts.files.read_all(gone.path(parts.layout, "card"), MAX_CARD_BYTES))
    except OSError as error:
        raise StoreError(f"the removed card cannot be read now ({type(error).__name__})") from error


def _check_whole(parts: Parts, card: ExperimentCardV1) -> None:
    try:
        size = parts.files.stat(parts.layout.object(card.artifact.artifact_id)).st_size
    except OSError:
        size = -1
    if size != card.artifact.bytes:
        raise Integrity("its bytes are not there any more, so it cannot be brought back", ARTIFACT_MISSING)


@contextlib.contextmanager
def _undoing():
    """Take back, last step first, when the body fails; a dead process takes nothing back."""
    steps: list[Callable[[], None]] = []
    try:
        yield steps
    except Exception:
        for step in reversed(steps):
            with contextlib.suppress(OSError):
                step()
        raise


def _move(parts: Parts, source: Path, target: Path, undo: list[Callable[[], None]]) -> None:
    # First the undo: an error of the rename itself leaves nothing to take back, and taking back fails quietly then.
    undo.append(lambda: parts.files.rename(target, source))
    parts.files.rename(source, target)


def _exists(parts: Parts, path: Path) -> bool:
    try:
        parts.files.stat(path)
    except OSError:
        return False
    return True


def _signature(parts: Parts) -> Signature | None:
    return parts.catalogue.signature(parts.lock.read()[0])


def _counted(parts: Parts, *, commits: int = 0, freed: int = 0) -> Signature | None:
    """Count what changed, for the other hosts; what the folder looks like now. What cannot be written is left out."""
    with contextlib.suppress(Unwritable):
        before, counted = parts.lock.read()
        if counted is not None:
            parts.lock.write(before + commits, counted - freed)
    return _signature(parts)


# -- sweeping --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep would delete, or did. Sizes in bytes."""

    removed: tuple[Removed, ...] = ()
    """Removed cards past their time."""
    objects: tuple[tuple[str, int], ...] = ()
    """Objects that nothing names, by artifact id."""
    leftovers: tuple[tuple[str, int], ...] = ()
    """Temp files and sidecars without a card, by name."""
    kept: str = ""
    """Why no object goes although some look free; empty when nothing stands in the way."""

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(size for _, size in (*self.objects, *self.leftovers))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.removed or self.objects or self.leftovers)


@dataclass(slots=True)
class _Ledger:
    removed: list[Removed] = field(default_factory=list[Removed])
    objects: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    leftovers: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    kept: str = ""

    def sweep(self) -> Sweep:
        return Sweep(tuple(self.removed), tuple(self.objects), tuple(self.leftovers), self.kept)


def plan(project: Project, *, undo_seconds: float, now: float | None = None) -> Sweep:
    """What `sweep` would delete: removed cards past `undo_seconds`, and what is a day old and named by nothing."""
    return _planned(project, undo_seconds, time.time() if now is None else now)[0]


def _planned(project: Project, undo_seconds: float, now: float) -> tuple[Sweep, dict[str, Named]]:
    parts = project.parts
    shelf = Shelf(parts)
    named = shelf.named()
    over = {name: gone for name, gone in shelf.removed.items() if now - gone.at >= undo_seconds}
    used, unknown = _used(named, set(over))
    free = [
        (artifact, state.st_size)
        for artifact, state in shelf.objects()
        if artifact not in used and now - state.st_ctime >= GRACE_SECONDS
    ]
    kept = ""
    if unknown and free:
        kept = _kept_for(unknown)
        free = []
    found = sorted(over.values(), key=lambda gone: gone.mark)
    return Sweep(tuple(found), tuple(sorted(free)), tuple(_leftovers(project, shelf, now)), kept), named


def _kept_for(unknown: int) -> str:
    return f"{unknown} cards cannot be read, so what they name is not known; no object is deleted before that is"


def _used(named: dict[str, Named], over: set[str]) -> tuple[set[str], int]:
    """Artifacts that some card still names once those in `over` are gone, and how many cards say nothing readable."""
    used: set[str] = set()
    unknown = 0
    for name, what in named.items():
        if name in over:
            continue
        if what.artifacts is None:
            unknown += 1
        else:
            used |= what.artifacts
    return used, unknown


def _leftovers(project: Project, shelf: Shelf, now: float) -> list[tuple[str, int]]:
    folder, files = project.parts.layout.folder, project.parts.files
    found: list[tuple[str, int]] = []
    for path in [path for path, _ in project.temporary_files()] + shelf.loose_notes:
        with contextlib.suppress(OSError):
            state = files.stat(path)
            if now - max(state.st_mtime, state.st_ctime) >= GRACE_SECONDS:
                found.append((path.relative_to(folder).as_posix(), state.st_size))
    return sorted(found)


def sweep(project: Project, *, undo_seconds: float, check: Check, now: float | None = None) -> Sweep:
    """Delete for good what `plan` names, looked at again under the lock; returns what went.

    `check` is called between batches and may raise to stop: what is gone by then is whole, the rest stays. Raises
    Unwritable, LockTimeout.
    """
    moment = time.time() if now is None else now
    planned, named = _planned(project, undo_seconds, moment)
    done = _Ledger(kept=planned.kept)
    if not planned.is_empty:
        for start in range(0, len(planned.removed), BATCH):
            check()
            _drop_removed(project.parts, planned.removed[start : start + BATCH], done)
        for start in range(0, len(planned.objects), BATCH):
            check()
            _drop_objects(project.parts, planned.objects[start : start + BATCH], named, moment, done)
        check()
        _drop_leftovers(project, planned.leftovers, moment, done)
    return done.sweep()


def recount(parts: Parts) -> None:
    """Set the count of bytes to what lies there, unless somebody commits meanwhile: frees what crashes counted too
    much, without a walk under the lock. Raises Unwritable, LockTimeout.
    """
    before = parts.lock.book()
    if before[1] is None:
        return
    held = count_object_bytes(parts.files, parts.layout)
    with parts.lock.held():
        if parts.lock.read() == before and before[1] != held:
            parts.lock.write(before[0], held)


def _drop_removed(parts: Parts, batch: tuple[Removed, ...], done: _Ledger) -> None:
    roles: tuple[Role, ...] = ("note", "card")
    with parts.lock.held(), writing():
        before = _signature(parts)
        for gone in batch:
            present = [gone.path(parts.layout, role) for role in roles if _exists(parts, gone.path(parts.layout, role))]
            for path in present:
                parts.files.unlink(path)
            if present:
                done.removed.append(gone)
        # Durable before an object goes: a card that came back after a power cut must find its bytes.
        parts.files.fsync_folder(parts.layout.cards)
        # To a catalogue this is a change of the folder like that of a sidecar: none of the cards.
        parts.catalogue.note_change("sidecar", batch[-1].experiment_id, before, _counted(parts, commits=1))


def _drop_objects(
    parts: Parts, batch: tuple[tuple[str, int], ...], known: dict[str, Named], now: float, done: _Ledger
) -> None:
    with parts.lock.held():
        used, unknown = _used(Shelf(parts).named(known), set())
        if unknown:
            done.kept = _kept_for(unknown)
            return
        freed = 0
        try:
            with writing():
                for artifact, _ in batch:
                    size = _free(parts, artifact, used, now)
                    if size is not None:
                        parts.files.unlink(parts.layout.object(artifact))
                        freed += size
                        done.objects.append((artifact, size))
        finally:
            _counted(parts, freed=freed)


def _free(parts: Parts, artifact: str, used: set[str], now: float) -> int | None:
    """The size of an object that may go; None when it may not or is gone."""
    if artifact in used:
        return None
    try:
        state = parts.files.stat(parts.layout.object(artifact))
    except OSError:
        return None
    return state.st_size if now - state.st_ctime >= GRACE_SECONDS else None


def _drop_leftovers(project: Project, planned: tuple[tuple[str, int], ...], now: float, done: _Ledger) -> None:
    if not planned:
        return
    parts = project.parts
    with parts.lock.held(), writing():
        still = set(_leftovers(project, Shelf(parts), now))
        for name, size in planned:
            if (name, size) in still:
                parts.files.unlink(parts.layout.folder / name)
                done.leftovers.append((name, size))
