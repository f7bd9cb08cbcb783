"""Purge: the only way in which text leaves the disk. An operator's work, in steps that survive a crash.

Owns: the plan of a session, an id or a topic, its token, the journal row, applying, verifying, recovering. Does not
own: asking the operator (`cli.memory`). Only what is named goes: blocks with their history, rows, salts, evidence, and
the references to them; every other block keeps its bytes. What cannot be reached is said: messages at a remote memory,
exports, backups, a repository's own history.

Order: plan -> token -> [the owner's lock] the same plan again, or the token is refused -> row `started` -> files,
history, evidence, logs, salts, derived files -> verify -> row `done`. Each step may be repeated, so that a purge that
was cut off is finished by `recover` from its row.

Source: design page "The memory model", Purge; the memory runtime's and Riko's own purges decide what goes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.memory import (
    AuditNote,
    Block,
    Layer,
    Log,
    LogRow,
    Transaction,
    session_layer,
)
from rlm_memory_host.errors import NotFound, ToolInput
from rlm_memory_host.storage import names, ndjson
from rlm_memory_host.storage.auditlog import salt_name
from rlm_memory_host.storage.topics import TopicFile
from rlm_memory_host.textmemory import activity
from rlm_memory_host.textmemory.store import MarkdownStore, evidence_name

What = Literal["session", "id", "topic"]
REMAINS: Final = (
    "messages that were already delivered to a remote memory",
    "exports and backups",
    "the history of a repository that keeps its own .memory folder",
    "ids in the audit log, whose content hashes mean nothing without their salts",
)


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What would go. `token` names exactly this plan on exactly these files."""

    what: What
    session: str
    project: str
    memories: tuple[tuple[str, str], ...]
    """(layer name, id) of the blocks that go whole."""
    references: int
    """Blocks elsewhere that lose a reference and nothing else."""
    rows: int
    evidence: int
    token: str


@dataclass(frozen=True, slots=True)
class Purged:
    """What went, and what no purge reaches."""

    id: str
    memories: int
    references: int
    rows: int
    remaining: tuple[str, ...]
    """Places (file names only) where something that should be gone still is; empty when verified."""
    outside: tuple[str, ...] = REMAINS


def plan(store: MarkdownStore, what: What, target: str, *, project: str = "", layer: Layer | None = None) -> PurgePlan:
    """What a purge would take: a session (of a project), a memory's id, or a topic of a layer. Raises NotFound."""
    with store.lock():
        if what == "session":
            chosen = _of_session(store, target, project)
        elif what == "id":
            chosen = _of_id(store, target)
        else:
            chosen = _of_topic(store, target, layer)
        session = target if what == "session" else ""
        if not chosen and not session:
            raise NotFound("there is no such memory or topic")
        gone = frozenset(memory_id for _, memory_id in chosen)
        references = sum(1 for _ in _referring(store, gone, session))
        rows = sum(_count_rows(store, log, gone, session) for log in Log if log is not Log.PURGES)
        evidence = sum(1 for _ in store.evidence(session)) if session else 0
        if what == "session" and not (chosen or references or rows or evidence):
            raise NotFound("nothing of such a session is kept")
        state = [what, session, project, chosen, references, rows, evidence, store.journal.manifest().serial]
        token = hashlib.sha256(ids.canonical_json(state)).hexdigest()[:16]
        return PurgePlan(what, session, project, tuple(chosen), references, rows, evidence, token)


def apply(store: MarkdownStore, wanted: PurgePlan, token: str, replan: Callable[[], PurgePlan]) -> Purged:
    """Do it. `replan` makes the plan again under the lock; a token of another plan is refused (PURGE_TOKEN)."""
    with store.lock():
        if token != wanted.token or replan().token != token:
            raise ToolInput("the token is not of this plan, or something changed since; plan again", "PURGE_TOKEN")
        purge_id = "purge_" + ids.new_ulid().lower()
        row = {
            "id": purge_id,
            "state": "started",
            "session": wanted.session,
            "project": wanted.project,
            "memories": [list(each) for each in wanted.memories],
        }
        note = AuditNote("purge", "operator", target=purge_id, code=f"{wanted.what.upper()}_{len(wanted.memories)}")
        store.commit(Transaction(rows=(LogRow(Log.PURGES, row),), notes=(note,)))
        return _finish(store, row, wanted.references, wanted.rows)


def recover(store: MarkdownStore) -> tuple[Purged, ...]:
    """Finish the purges that were cut off."""
    with store.lock():
        open_rows = [row for row in store.rows(Log.PURGES) if row.get("state") == "started"]
        return tuple(_finish(store, row, 0, 0) for row in open_rows)


def _finish(store: MarkdownStore, row: Mapping[str, Any], references: int, rows: int) -> Purged:
    session, project = str(row["session"]), str(row["project"])
    chosen = [(str(layer), str(memory_id)) for layer, memory_id in row["memories"]]
    gone = frozenset(memory_id for _, memory_id in chosen)
    purge_id = str(row["id"])
    _rewrite_files(store, chosen, gone, session, purge_id)
    for layer_name, memory_id in chosen:
        _remove_tree(store, store.roots.open(Layer.parse(layer_name)) / ".history" / memory_id)
    if session:
        _remove(store, store.folder / "evidence" / evidence_name(session))
        _remove_tree(store, store.roots.folder_of(session_layer(session, project or None)))
    for log in Log:
        if log is not Log.PURGES:
            _filter(store, store.journal.log_path(log), lambda found: _is_named(found, gone, session))
        _remove(store, store.journal.log_path(log).with_suffix(".ndjson" + ndjson.TORN_SUFFIX))
    for target in {*gone, session} - {""}:
        salts = store.folder / ".state" / "salts" / salt_name(target)
        _filter(store, salts, lambda found, target=target: found.get("target") == target)
    uses = store.derived(activity.FILE)
    _remove_tree(store, store.folder / "derived")
    # The one derived file that nothing makes again: the others' uses stay.
    if uses is not None and (kept := activity.without(uses, gone)) is not None:
        store.keep_derived(activity.FILE, kept)
    _sweep_temporary(store)
    store.forget_cache()
    remaining = tuple(_remaining(store, gone, session))
    done = {**row, "state": "done" if not remaining else "started"}
    store.commit(
        Transaction(rows=(LogRow(Log.PURGES, done),), notes=(AuditNote("purge-done", "host", target=purge_id),))
    )
    return Purged(purge_id, len(chosen), references, rows, remaining)


# -- what is chosen ----------------------------------------------------------------------------------------------------
def _layers(store: MarkdownStore) -> list[Layer]:
    return [layer for layer in store.roots.existing() if store.is_available(layer)]


def _of_session(store: MarkdownStore, session: str, project: str) -> list[tuple[str, str]]:
    layer = session_layer(session, project or None)
    return [(layer.name, block.id) for block in store.snapshot(layer).blocks]


def _of_id(store: MarkdownStore, memory_id: str) -> list[tuple[str, str]]:
    return [(layer.name, memory_id) for layer in _layers(store) if store.get(layer, memory_id)]


def _of_topic(store: MarkdownStore, topic: str, layer: Layer | None) -> list[tuple[str, str]]:
    if layer is None:
        raise ToolInput("layer: a topic is purged in one layer; name it")
    key = names.topic_key(topic)
    return [(layer.name, each.id) for each in store.snapshot(layer).blocks if names.topic_key(each.topic) == key]


def _referring(store: MarkdownStore, gone: frozenset[str], session: str) -> Iterable[tuple[Layer, Block, Block]]:
    """Blocks that stay, as they are and without the references."""
    evidence = frozenset(each.id for each in store.evidence(session)) if session else frozenset[str]()
    for layer in _layers(store):
        for block in store.snapshot(layer).blocks:
            if block.id in gone:
                continue
            without = _without(block, gone, evidence, session)
            if without != block:
                yield layer, block, without


def _without(block: Block, gone: frozenset[str], evidence: frozenset[str], session: str) -> Block:
    def kept(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(value for value in values if value not in gone and value not in evidence)

    is_from = bool(session) and block.source_session == session
    return replace(
        block,
        supersedes=kept(block.supersedes),
        superseded_by="" if block.superseded_by in gone else block.superseded_by,
        links=kept(block.links),
        sources=tuple(value for value in kept(block.sources) if not session or value != session),
        source_session="" if is_from else block.source_session,
        evidence="" if is_from else block.evidence,
    )


def _is_named(row: Mapping[str, Any], gone: frozenset[str], session: str) -> bool:
    """Whether a row is about what goes: it names one of the memories, or came from that session alone."""
    if gone & {str(row.get(key, "")) for key in ("id", "target", "entity")}:
        return True
    anchors = {*_texts(row.get("anchors")), *_texts(row.get("against"))}
    if gone & anchors or (session and any(name.rpartition(":")[0] == session for name in anchors)):
        # What was inferred from it goes with it.
        return True
    if not session:
        return False
    sessions = row.get("sessions")
    if isinstance(sessions, list) and sessions:
        return all(each == session for each in cast("list[Any]", sessions))
    return row.get("session") == session


def _texts(value: object) -> list[str]:
    return [str(name) for name in cast("list[Any]", value)] if isinstance(value, list) else []


def _count_rows(store: MarkdownStore, log: Log, gone: frozenset[str], session: str) -> int:
    return sum(_is_named(row, gone, session) for row in store.rows(log))


# -- steps -------------------------------------------------------------------------------------------------------------
def _rewrite_files(
    store: MarkdownStore, chosen: list[tuple[str, str]], gone: frozenset[str], session: str, purge_id: str
) -> None:
    drafts: dict[tuple[Layer, str], TopicFile] = {}
    for layer in {Layer.parse(name) for name, _ in chosen}:
        drafts.update(store.drafts_without(layer, gone))
    for layer, block, without in list(_referring(store, gone, session)):
        found = store.get(layer, block.id)
        if found is None:
            continue
        file = drafts.get((layer, found.file)) or store.file(layer, found.file)
        original = file.get(block.id)
        if original is not None:
            drafts[layer, found.file] = file.replaced(replace(without, authority=original.authority))
    if drafts:
        store.rewrite(drafts, AuditNote("purge-files", "host", target=purge_id, code=f"FILES_{len(drafts)}"))
        store.drop_empty(drafts)


def _filter(store: MarkdownStore, path: Path, is_gone: Callable[[Mapping[str, Any]], bool]) -> None:
    """Rewrite a log without some rows; the other lines keep their bytes."""
    try:
        data = store.files.read_all(path, ndjson.MAX_LOG_BYTES)
    except FileNotFoundError:
        return
    kept = [line for line in data.split(b"\n") if line and not ((row := ndjson.decode(line)) and is_gone(row))]
    new = b"\n".join([*kept, b""]) if kept else b""
    if new != data:
        ndjson.replace(store.files, path, new)


def _remove(store: MarkdownStore, path: Path) -> None:
    try:
        store.files.unlink(path)
    except FileNotFoundError:
        return
    store.files.fsync_folder(path.parent)


def _remove_tree(store: MarkdownStore, folder: Path) -> None:
    for entry in store.files.scan(folder):
        if entry.is_dir(follow_symlinks=False):
            _remove_tree(store, Path(entry.path))
        else:
            _remove(store, Path(entry.path))


def _sweep_temporary(store: MarkdownStore) -> None:
    """Remove temporary files: under the lock nobody is writing one."""
    roots = dict.fromkeys((store.folder, *(store.roots.folder_of(layer) for layer in _layers(store))))
    for root in roots:
        for folder, _, files in os.walk(root):
            for name in files:
                if name.startswith(".") and name.endswith(".tmp"):
                    _remove(store, Path(folder) / name)


def _remaining(store: MarkdownStore, gone: frozenset[str], session: str) -> Iterable[str]:
    """Files, other than the audit log and the purge's own row, that still name what went."""
    needles = [each.encode() for each in gone]
    skipped = {store.journal.audit_path, store.journal.log_path(Log.PURGES), store.folder / ".state" / "manifest.json"}
    for folder, _, files in os.walk(store.folder):
        for name in files:
            path = Path(folder) / name
            if path in skipped or path.is_symlink():
                continue
            data = store.files.read_all(path, ndjson.MAX_LOG_BYTES)
            if any(needle in data for needle in needles):
                yield name
    if session and any(store.evidence(session)):
        yield evidence_name(session)
