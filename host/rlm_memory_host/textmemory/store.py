"""The text memory of one owner in Markdown files: the `TextStore` that a host uses.

Owns: layers as sets of topic files, compare-and-swap commits, history, logs, evidence. Does not own: gates, judge and
quotes (pure modules beside this one), the order of writes and recovery (`storage.journal`), the format
(`storage.topics`).

Thread-safe: one thread lock for what is cached here, the journal's lock for writes. Readers take no file lock; a reader
that finds a file which the manifest does not know takes it once, so that a write in progress is never mistaken for a
hand edit.

Source: design page "The memory model", Storage; "Quality", Faults.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.memory import (
    LAYER_CAPACITY,
    LOCK_SECONDS,
    AuditNote,
    Block,
    BlockWrite,
    Evidence,
    HistoryEntry,
    Layer,
    Located,
    Log,
    Problem,
    Sensitivity,
    Snapshot,
    Transaction,
)
from rlm_memory_host.errors import (
    HostError,
    LayerUnavailable,
    LimitExceeded,
    SuspectTruncation,
    VersionConflict,
)
from rlm_memory_host.storage import names, ndjson, topics
from rlm_memory_host.storage.auditlog import OnFault, make_durable
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.journal import Journal, NewFile, utc_now
from rlm_memory_host.storage.manifest import FileState, Manifest
from rlm_memory_host.storage.topics import TopicFile
from rlm_memory_host.textmemory import digests
from rlm_memory_host.textmemory.layers import Roots
from rlm_memory_host.textmemory.topicset import EMPTY_HASH, Identity, Judge, TopicSet

_HISTORY = ".history"
_DERIVED_BYTES = 1 << 30


def _no_fault(_feature: str, _code: str) -> None:
    pass


class MarkdownStore:
    """One owner's memory. `judge` is the guard on load; `repositories` are layers kept in a repository.

    `hand_edits` "trust" makes what a person wrote into a file the operator's word (never in a repository).
    """

    def __init__(
        self,
        state_root: Path,
        owner: str = "local",
        *,
        judge: Judge = lambda _block: "",
        files: FileLayer | None = None,
        repositories: Mapping[Layer, Path] | None = None,
        hand_edits: Literal["review", "trust"] = "review",
        clock: Callable[[], datetime] = utc_now,
        lock_seconds: float = LOCK_SECONDS,
        on_fault: OnFault = _no_fault,
    ) -> None:
        self.files = files or FileLayer()
        self.roots = Roots(self.files, state_root, owner, repositories)
        self.folder = self.roots.folder
        self.journal = Journal(
            self.files, self.folder, self.roots.locate, clock=clock, lock_seconds=lock_seconds, on_fault=on_fault
        )
        self._judge = judge
        self._trusts_edits = hand_edits == "trust"
        self._on_fault = on_fault
        self._sets: dict[Layer, TopicSet] = {}
        self._logs: dict[Log, tuple[tuple[int, int, int], dict[str, Mapping[str, Any]]]] = {}
        self._lock = threading.RLock()
        self._dropped_changes = 0

    # -- reading -------------------------------------------------------------------------------------------------------
    def is_available(self, layer: Layer) -> bool:
        """Whether the layer can be opened."""
        try:
            self.roots.open(layer)
        except LayerUnavailable:
            return False
        return True

    def snapshot(self, layer: Layer) -> Snapshot:
        """All served blocks of a layer and the revision for a compare-and-swap."""
        with self._reading(layer) as held:
            return Snapshot(layer, held.blocks(), held.revision(), held.files())

    def remembered(self, layer: Layer) -> tuple[Block, ...]:
        """The blocks of a layer as they were last read or written here; () where none were."""
        with self._lock:
            held = self._sets.get(layer)
            return held.blocks() if held is not None else ()

    def get(self, layer: Layer, memory_id: str) -> Located | None:
        """One served block."""
        with self._reading(layer) as held:
            return held.get(memory_id)

    def find(self, layers: Sequence[Layer], memory_id: str) -> Located | None:
        """One block in the first of the layers that has it; layers that are unavailable have nothing."""
        for layer in layers:
            try:
                if found := self.get(layer, memory_id):
                    return found
            except LayerUnavailable:
                continue
        return None

    def history(self, layer: Layer, memory_id: str) -> tuple[HistoryEntry, ...]:
        """Earlier states, oldest first. What a crash left of a change that did not happen is not among them."""
        found = self.get(layer, memory_id)
        folder = self.roots.open(layer) / _HISTORY / _safe_id(memory_id)
        entries: list[HistoryEntry] = []
        for entry in sorted(self.files.scan(folder), key=lambda entry: entry.name):
            number, _, change = entry.name.removesuffix(".md").partition("-")
            if not (entry.name.endswith(".md") and number.isdigit() and entry.is_file(follow_symlinks=False)):
                continue
            if found and int(number) >= found.block.version:
                continue
            file = TopicFile(self.files.read_all(Path(entry.path), topics.MAX_FILE_BYTES), layer.kind)
            entries.extend(HistoryEntry(int(number), change, block) for block in file.blocks[:1])
        return tuple(entries)

    def problems(self) -> tuple[Problem, ...]:
        """What is quarantined, suspect or refused, in all layers that exist."""
        found: list[Problem] = [Problem(bad.layer.name, "", 0, bad.code) for bad in self.roots.refused.values()]
        for layer in self.roots.existing():
            try:
                with self._reading(layer) as held:
                    found.extend(held.problems())
            except LayerUnavailable as error:
                if layer not in self.roots.refused:
                    found.append(Problem(layer.name, "", 0, error.code))
        return tuple(found)

    def changes(self) -> int:
        """Grows whenever a layer opened so far changed, here or elsewhere."""
        with self._lock:
            opened = list(self._sets)
        for layer in opened:
            try:
                with self._reading(layer):
                    pass
            except LayerUnavailable:
                continue
        with self._lock:
            return self._dropped_changes + sum(held.changes for held in self._sets.values())

    # -- logs and evidence ---------------------------------------------------------------------------------------------
    def rows(self, log: Log) -> tuple[Mapping[str, Any], ...]:
        """The last row of each id, in the order in which the ids first came."""
        path = self.journal.log_path(log)
        with self._lock:
            try:
                state = self.files.stat(path)
                identity = (state.st_ino, state.st_size, state.st_mtime_ns)
            except FileNotFoundError:
                identity = (0, 0, 0)
            cached = self._logs.get(log)
            if cached is None or cached[0] != identity:
                found = ndjson.read(self.files, path)
                if found.bad:
                    self._on_fault("storage", "LOG_DAMAGED")
                cached = identity, {str(row.get("id", "")): row for row in found.rows}
                self._logs[log] = cached
            current = dict(cached[1])
        for name, line in self.journal.manifest().pending.rows:
            row = ndjson.decode(line.encode()) if name == log.value else None
            if row is not None:
                current[str(row.get("id", ""))] = row
        return tuple(current.values())

    def add_evidence(self, evidence: Evidence) -> None:
        """Append one captured turn, durably."""
        with self.journal.lock():
            folder = make_durable(self.files, self.folder / "evidence")
            ndjson.append(self.files, folder / evidence_name(evidence.session), [ndjson.encode(asdict(evidence))])

    def evidence(self, session: str, after: int = 0) -> Iterator[Evidence]:
        """The captured turns of a session with seq greater than `after`, in order."""
        rows = ndjson.read(self.files, self.folder / "evidence" / evidence_name(session)).rows
        for row in sorted(rows, key=lambda row: int(row.get("seq", 0))):
            if int(row.get("seq", 0)) > after:
                yield _evidence(row)

    def derived(self, name: str) -> bytes | None:
        """A file of `derived/`."""
        try:
            return self.files.read_all(self.folder / "derived" / name, _DERIVED_BYTES)
        except OSError:
            return None

    def keep_derived(self, name: str, data: bytes) -> None:
        """Keep a file of `derived/`: it can be deleted at any time."""
        try:
            ndjson.replace(self.files, make_durable(self.files, self.folder / "derived") / name, data, durable=False)
        except (HostError, OSError):
            return

    # -- writing -------------------------------------------------------------------------------------------------------
    @contextmanager
    def lock(self) -> Generator[None]:
        """The owner's write lock, re-entrant in a thread."""
        with self.journal.lock():
            yield

    def commit(self, transaction: Transaction) -> tuple[Block, ...]:
        """Store a transaction; durable when it returns."""
        with self.journal.lock(), self._lock:
            named = (*transaction.revisions, *(write.layer for write in transaction.writes))
            looked = {layer: self._looked(layer) for layer in dict.fromkeys(named)}
            self._check_revisions(transaction, looked)
            stored, drafts, history = self._draft(transaction.writes, looked)
            if not all(looked[layer].is_as_held(self.roots.folder_of(layer), name) for layer, name in drafts):
                looked = {layer: self._looked(layer, is_exact=True) for layer in looked}
                self._check_revisions(transaction, looked)
                stored, drafts, history = self._draft(transaction.writes, looked)
            new = [*history, *(_new_file(layer, name, file) for (layer, name), file in drafts.items())]
            rows = [(row.log, row.row) for row in transaction.rows]
            if new or rows or transaction.notes:
                before = self.journal.manifest()
                after = self.journal.commit(new, rows, transaction.notes)
                self._take_over(drafts)
                self._follow(before, after)
            return tuple(stored)

    def _check_revisions(self, transaction: Transaction, looked: Mapping[Layer, TopicSet]) -> None:
        for layer, revision in transaction.revisions.items():
            if looked[layer].revision() != revision:
                raise VersionConflict("the layer has changed since it was read; read it again")

    def _follow(self, before: Manifest, after: Manifest) -> None:
        """Spare the next look what this store has just done itself."""
        if self.journal.manifest() is after:
            for layer, held in self._sets.items():
                held.follow(self.roots.folder_of(layer), before, after)

    def accept_edits(self, note: AuditNote, names_of: Sequence[tuple[Layer, str]] | None = None) -> tuple[str, ...]:
        """Take hand edits (all, or those of the given files) as the operator's word; returns the files' names."""
        with self.journal.lock(), self._lock:
            drafts: dict[tuple[Layer, str], TopicFile] = {}
            states: dict[str, FileState | None] = {}
            for layer in self.roots.existing():
                if not self.is_available(layer):
                    continue
                held = self._looked(layer)
                for name, kept in held.held.items():
                    wanted = names_of is None or (layer, name) in names_of
                    if wanted and (kept.edited or _unreviewed(kept.file)):
                        drafts[layer, name] = held.accepted(name)
                states.update({f"{layer.name}/{name}": None for name in held.lost if names_of is None})
            new = [_new_file(layer, name, file) for (layer, name), file in drafts.items()]
            done = (*(file.layer + "/" + file.path for file in new), *states)
            if done:
                notes = [replace(note, scope=file.layer, code="ACCEPTED") for file in new] or [note]
                self.journal.commit(new, (), notes, states=states)
                self._take_over(drafts)
                self._sets.clear()
            return done

    def rewrite(self, drafts: Mapping[tuple[Layer, str], TopicFile], note: AuditNote) -> None:
        """Put whole files in place (a purge); the caller holds the lock."""
        with self._lock:
            self.journal.commit([_new_file(layer, name, file) for (layer, name), file in drafts.items()], (), [note])
            self._take_over(drafts)

    def file(self, layer: Layer, name: str) -> TopicFile:
        """One file's content as a rewrite starts from it. Raises KeyError."""
        with self.journal.lock(), self._lock:
            return self._looked(layer).settled(name)

    def drop_empty(self, drafts: Mapping[tuple[Layer, str], TopicFile]) -> None:
        """Remove the files among `drafts` that hold no block any more; the caller holds the lock."""
        empty = [(layer, name) for (layer, name), file in drafts.items() if not file.spans]
        if not empty:
            return
        states: dict[str, FileState | None] = {f"{layer.name}/{name}": None for layer, name in empty}
        self.journal.commit((), (), (), states=states)
        for layer, name in empty:
            path = self.roots.locate(layer.name, name)
            self.files.unlink(path)
            self.files.fsync_folder(path.parent)
        self.forget_cache()

    def forget_cache(self) -> None:
        """Read everything again at the next look."""
        with self._lock:
            self._dropped_changes += 1 + sum(held.changes for held in self._sets.values())
            self._sets.clear()
            self._logs.clear()

    def drafts_without(self, layer: Layer, memory_ids: frozenset[str]) -> dict[tuple[Layer, str], TopicFile]:
        """The files of a layer that hold one of the memories, without them (a purge); nothing is written."""
        with self.journal.lock(), self._lock:
            drafts: dict[tuple[Layer, str], TopicFile] = {}
            for name, held in self._looked(layer).held.items():
                file = held.file
                for memory_id in memory_ids & file.places().keys():
                    file = file.removed(memory_id)
                if file is not held.file:
                    drafts[layer, name] = file
            return drafts

    # -- inside --------------------------------------------------------------------------------------------------------
    @contextmanager
    def _reading(self, layer: Layer) -> Generator[TopicSet]:
        """The layer as it is now, for reading. A hand edit is recorded first, without holding up other readers."""
        with self._lock:
            held, folder = self._opened(layer)
            differs = held.look(folder, self.journal.manifest)
            if not differs:
                yield held
                return
        try:
            with self.journal.lock(), self._lock:
                self._looked(layer)
        except (HostError, OSError) as error:
            self._on_fault("storage", getattr(error, "code", "STORE_UNAVAILABLE"))
        with self._lock:
            yield held

    def _looked(self, layer: Layer, *, is_exact: bool = False) -> TopicSet:
        """The layer as it is now; the journal's lock is held."""
        held, folder = self._opened(layer)
        if held.look(folder, self.journal.manifest, is_exact=is_exact):
            self._record_edits(held)
        return held

    def _opened(self, layer: Layer) -> tuple[TopicSet, Path]:
        folder = self.roots.open(layer)
        held = self._sets.get(layer)
        if held is None:
            trusts = self._trusts_edits and not self.roots.is_in_repository(layer)
            held = self._sets[layer] = TopicSet(self.files, layer, self.folder, self._judge, trusts_edits=trusts)
        return held, folder

    def _record_edits(self, held: TopicSet) -> None:
        """Put hand edits that nobody noticed yet into the audit log, once each."""
        known = self.journal.manifest().files
        states: dict[str, FileState | None] = {}
        for name, kept in held.held.items():
            key = f"{held.layer.name}/{name}"
            state = known.get(key, FileState("", 0))
            if kept.edited and state.edited != kept.sha256:
                states[key] = replace(state, edited=kept.sha256)
        for name, state in held.lost.items():
            if state.edited != EMPTY_HASH:
                states[f"{held.layer.name}/{name}"] = replace(state, edited=EMPTY_HASH)
        if states:
            note = AuditNote("external-edit", "unknown", held.layer.name, code=f"FILES_{len(states)}")
            self.journal.commit((), (), [note], states=states)

    def _draft(
        self, writes: Sequence[BlockWrite], looked: Mapping[Layer, TopicSet]
    ) -> tuple[list[Block], dict[tuple[Layer, str], TopicFile], list[NewFile]]:
        stored: list[Block] = []
        history: list[NewFile] = []
        by_layer: dict[Layer, dict[str, TopicFile]] = {}
        for write in writes:
            drafts = by_layer.setdefault(write.layer, {})
            block, before = self._put(write, looked[write.layer], drafts)
            stored.append(block)
            if before is not None:
                history.append(_history_file(write.layer, before, write.change))
        drafts = {(layer, name): file for layer, made in by_layer.items() for name, file in made.items()}
        return stored, drafts, history

    def _put(self, write: BlockWrite, held: TopicSet, drafts: dict[str, TopicFile]) -> tuple[Block, Block | None]:
        block = self._cleaned(write)
        name = next((name for name, file in drafts.items() if file.get(block.id)), held.file_of(block.id))
        before = None
        if name is not None:
            file = drafts[name] if name in drafts else held.settled(name)
            before = file.get(block.id)
        if (before.version if before else None) != write.expected_version:
            current = before.version if before else None
            shown = f"it has version {current}" if current else "it is not there"
            raise VersionConflict(f"the memory has changed: {shown} now; read it again", current=current)
        if name is not None and before is not None:
            file = drafts[name] if name in drafts else held.settled(name)
            if names.topic_key(file.topic) == names.topic_key(block.topic):
                self._check_suspect(held, name)
                drafts[name] = file.replaced(block)
                return replace(block, topic=file.topic), before
            self._check_suspect(held, name)
            drafts[name] = file.removed(block.id)
        elif held.count() >= LAYER_CAPACITY:
            raise LimitExceeded(f"the layer holds {LAYER_CAPACITY:,} memories, its limit", "LAYER_FULL")
        name, file = held.place_for(block.topic, drafts)
        self._check_suspect(held, name)
        drafts[name] = file.appended(block)
        return replace(block, topic=file.topic), before

    def _cleaned(self, write: BlockWrite) -> Block:
        """The block as it can be stored. Raises LimitExceeded, ToolInput."""
        block = write.block
        evidence = names.check_body(block.evidence, "evidence")
        if self.roots.is_in_repository(write.layer):
            if block.sensitivity is not Sensitivity.NORMAL:
                raise LimitExceeded("a repository's memory takes normal sensitivity only", "SENSITIVITY_IN_REPOSITORY")
            evidence = ""
        _safe_id(block.id)
        cleaned = replace(
            block,
            topic=names.check_topic(block.topic),
            title=names.check_title(block.title),
            body=names.check_body(block.body),
            evidence=evidence,
            tags=names.check_tags(block.tags),
            scope=write.layer.kind,
        )
        _check_readable(cleaned)
        return cleaned

    def _check_suspect(self, held: TopicSet, name: str) -> None:
        kept = held.held.get(name)
        if (kept is not None and kept.suspect) or name in held.lost:
            raise SuspectTruncation(
                "the topic's file lost memories outside this host and is not rewritten before an operator has looked: "
                "`rlm-memory memory validate`, then `rlm-memory memory review --accept-edits`"
            )

    def _take_over(self, drafts: Mapping[tuple[Layer, str], TopicFile]) -> None:
        for (layer, name), file in drafts.items():
            held = self._sets.get(layer)
            sha256 = hashlib.sha256(file.data).hexdigest()
            digests.write(self.files, self.folder, f"{layer.name}/{name}", sha256, file)
            if held is None:
                continue
            held.put(name, file, sha256, self._identity(layer, name))

    def _identity(self, layer: Layer, name: str) -> Identity:
        """Of a file that was just written; where nobody can look at it now it is read again later."""
        try:
            state = self.files.stat(self.roots.folder_of(layer) / name)
        except OSError:
            return 0, 0, 0, 0
        return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def evidence_name(session: str) -> str:
    """The file of a session's evidence; no text of a caller is part of a path."""
    return ids.project_key(session) + ".ndjson"


def _safe_id(memory_id: str) -> str:
    if not topics.is_memory_id(memory_id):
        raise LimitExceeded("a memory's id has letters, digits, '_' and '-' only", "INVALID_ID")
    return memory_id


def _check_readable(block: Block) -> None:
    """What would not be read back as it is is never written: it would be acknowledged and then quarantined."""
    try:
        data = topics.encode_block(block)
        read = topics.decode_block(data, block.topic, block.scope)
    except (topics.BadBlock, UnicodeEncodeError) as error:
        why = getattr(error, "code", "INVALID_UTF8")
        raise LimitExceeded(f"a key of the memory holds what no topic file keeps ({why})", "INVALID_TEXT") from None
    if read != block or b"\r" in data:
        raise LimitExceeded("a key of the memory holds what a topic file does not give back", "INVALID_TEXT")


def _new_file(layer: Layer, name: str, file: TopicFile) -> NewFile:
    return NewFile(layer.name, name, file.data, len(file.places()))


def _history_file(layer: Layer, before: Block, change: str) -> NewFile:
    word = "".join(letter for letter in change if letter.isalnum() or letter == "_")[:40] or "update"
    file = topics.new_file(before.topic, layer.kind).appended(before)
    return NewFile(layer.name, f"{_HISTORY}/{before.id}/{before.version:06d}-{word}.md", file.data)


def _unreviewed(file: TopicFile) -> bool:
    return b"\nauthority: unreviewed\n" in file.data


def _evidence(row: Mapping[str, Any]) -> Evidence:
    known = {key: row[key] for key in Evidence.__slots__ if key in row}
    known["redacted"] = tuple(known.get("redacted", ()))
    known["sensitivity"] = Sensitivity(known.get("sensitivity", "normal"))
    return Evidence(**cast("Any", known))
