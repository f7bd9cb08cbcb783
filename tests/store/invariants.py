"""The store's invariants, stated once (design page "Quality", Faults): run after every injected fault.

1 an acknowledged record resolves to the same bytes; 2 nothing half-written is served, and what is listed is whole;
3 a changed byte is never served; 6 no project sees another's; 9 the next start is clean and says what it found.
`check_order` holds the durable order of writes over what a recording layer saw.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.artifacts.operators.shelf import removed_of
from rlm_memory_host.contracts.records import Bounds
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import Integrity
from rlm_memory_host.storage.faults import Operation
from rlm_memory_host.storage.paths import card_of, is_temporary
from store_harness import World, list_all


def check_store(
    world: World,
    acknowledged: Mapping[str, bytes],
    attempted: Mapping[str, bytes] | None = None,
    *,
    damaged: frozenset[str] = frozenset(),
) -> None:
    """Open the store anew and hold it to the invariants.

    `acknowledged` maps experiment ids to their bytes, `attempted` those whose record did not return: they may be
    there, whole, or not. `damaged` are ids whose object the test broke.
    """
    scope = world.scope()
    with ArtifactStore(world.root, Bounds()) as store:
        _check_files(world)
        for experiment, data in acknowledged.items():
            if experiment not in damaged:
                resolved = store.resolve(scope, experiment)
                assert resolved.path.read_bytes() == data, "an acknowledged record came back changed"
        known = {**acknowledged, **(attempted or {})}
        for hit in list_all(store, scope):
            assert hit.experiment_id in known, "something was listed that nobody recorded"
            if hit.experiment_id in damaged:
                _check_refused(store, scope, hit.experiment_id)
            else:
                assert store.resolve(scope, hit.experiment_id).path.read_bytes() == known[hit.experiment_id]
        assert not store.diagnostics(scope), "a crash left a card that cannot be read"


def _check_refused(store: ArtifactStore, scope: Scope, experiment: str) -> None:
    try:
        store.resolve(scope, experiment)
    except Integrity:
        return
    raise AssertionError("a changed byte was served")


def _check_files(world: World) -> None:
    """Every file is one of ours, whole where it has a final name, and readable by its owner alone."""
    layout = world.layout
    for path in world.root.rglob("*"):
        mode = path.lstat().st_mode
        assert not mode & 0o077, f"others may look at {path.relative_to(world.root)}"
        if stat.S_ISDIR(mode):
            continue
        parent = path.parent
        if parent == layout.temporary:
            assert is_temporary(path.name), "a temp file that start-up does not recognise"
        elif parent.parent == layout.objects:
            _check_object(path)
        elif parent == layout.cards:
            assert card_of(path.name) or path.name.endswith(".ext.json") or removed_of(path.name)
        else:
            assert path in (layout.lock, layout.journal)


def _check_object(path: Path) -> None:
    from rlm_memory_host.contracts import ids

    assert ids.artifact_id(hashlib.sha256(path.read_bytes()).digest()) == path.name, "an object is half-written"
    assert path.lstat().st_mode & 0o777 == 0o400, "an object can be written"


def check_order(world: World, changes: Sequence[Operation]) -> None:
    """Write, flush, rename, flush the folder; the object's name before the card's; all names before the answer."""
    layout = world.layout
    dirty: set[str] = set()
    unflushed: dict[str, str] = {}
    for change in changes:
        if change.name in ("create", "write", "copy", "clone", "mode") and change.target != str(layout.lock):
            dirty.add(change.target)
        elif change.name == "fsync":
            dirty.discard(change.target)
        elif change.name == "mkdir":
            unflushed[change.target] = str(Path(change.target).parent)
        elif change.name == "fsync_folder":
            unflushed = {name: folder for name, folder in unflushed.items() if folder != change.target}
        elif change.name == "rename":
            assert change.source not in dirty, f"renamed before it was flushed: {Path(change.target).name}"
            if Path(change.target).parent == layout.cards:
                loose = [name for name in unflushed if Path(name).is_relative_to(layout.objects)]
                loose = [name for name in loose if Path(name).exists()]
                assert not loose, "a card was published before its object's name was durable"
            unflushed[change.target] = str(Path(change.target).parent)
    final = [name for name in unflushed if Path(name).is_file()]
    assert not final, f"acknowledged before the folder was flushed: {[Path(name).name for name in final]}"


def check_flushed(changes: Sequence[Operation], *, but: Sequence[Path] = ()) -> None:
    """Whatever was written and named is on the disk when the operation answers, and what moves as a whole before that.

    `but` are files, or folders of files, that may be lost: locks, the journal, temporary files.
    """
    dirty: set[str] = set()
    names: dict[str, str] = {}
    for change in changes:
        if change.name in ("create", "mkdir", "rename"):
            if change.name == "rename":
                below = [name for name in {*dirty, *names} if Path(name).is_relative_to(change.source)]
                loose = [name for name in below if name != change.source or name in dirty]
                assert not loose, f"moved before it was flushed: {sorted(Path(name).name for name in loose)}"
                names.pop(change.source, None)
            names[change.target] = str(Path(change.target).parent)
        if change.name in ("create", "write", "copy", "clone", "mode"):
            dirty.add(change.target)
        elif change.name == "fsync":
            dirty.discard(change.target)
        elif change.name == "fsync_folder":
            names = {name: folder for name, folder in names.items() if folder != change.target}
        elif change.name == "unlink":
            dirty.discard(change.target)
            names.pop(change.target, None)
    lost = [name for name in {*dirty, *names} if not any(Path(name).is_relative_to(path) for path in but)]
    assert not lost, f"answered before the disk had it: {sorted(Path(name).name for name in lost)}"
