"""The topic files of one layer as they were when last looked at, with what hand edits did to them.

Owns: reading and caching a layer's files, which blocks are served and under which authority, what is quarantined, which
file a topic's next block goes to. Does not own: writing (`textmemory.store`), the manifest. Not thread-safe: the store
holds its own lock around it.

A file whose hash the manifest does not know was edited by hand: blocks that the digests do not know get the authority
`unreviewed` (or `operator` where the operator's configuration trusts edits), pass the guard, and a drop in the number
of blocks makes the file suspect.

Source: design page "The memory model", Storage, Hand edits.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from rlm_memory_host.contracts.memory import (
    FLAG_INSTRUCTION_LIKE,
    MAX_BLOCKS_PER_FILE,
    MAX_TOPICS,
    Authority,
    Block,
    Layer,
    Located,
    Problem,
)
from rlm_memory_host.errors import LimitExceeded
from rlm_memory_host.storage import names, topics
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.manifest import FileState, Manifest
from rlm_memory_host.storage.topics import TopicFile
from rlm_memory_host.textmemory import digests

Judge = Callable[[Block], str]
"""The guard on load: "" to serve, `instruction_like` to serve flagged, else the code to quarantine under."""
Identity = tuple[int, int, int, int]
EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()
MANY: Final = 32
"""Files from which on a folder is not listed again at every look."""
PAUSE: Final = 25.0
"""Times as long as it took for which a listing of many files counts: an edit by hand shows that much later."""


@dataclass(slots=True)
class Held:
    """One file: what it was on disk, its content, and what a hand edit changed."""

    identity: Identity
    sha256: str
    file: TopicFile
    edited: bool = False
    unreviewed: frozenset[str] = frozenset()
    suspect: bool = False
    served: dict[str, Block] | None = None
    withheld: tuple[tuple[int, str], ...] = field(default=())


class TopicSet:
    """A layer's files. `look` reads what changed on disk; everything else answers from memory."""

    def __init__(self, files: FileLayer, layer: Layer, owner_folder: Path, judge: Judge, *, trusts_edits: bool) -> None:
        self.layer = layer
        self.held: dict[str, Held] = {}
        self.lost: dict[str, FileState] = {}
        """Files that the manifest knows with blocks in them and the disk does not."""
        self.unreadable: tuple[Problem, ...] = ()
        self.changes = 0
        self._files = files
        self._owner_folder = owner_folder
        self._judge = judge
        self._trusts_edits = trusts_edits
        self._merged: tuple[Block, ...] | None = None
        self._where: dict[str, str] = {}
        self._is_where_known = False
        self._compared: Manifest | None = None
        self._differs = False
        self._duplicates: list[Problem] = []
        self._revision: str | None = None
        self._listed: tuple[tuple[str, str, int], ...] | None = None
        self._topics: dict[str, list[tuple[int, str]]] | None = None
        self._stems: dict[str, str] = {}
        self._folder_state: tuple[int, int] = (0, 0)
        self._listed_until = 0.0

    # -- looking -------------------------------------------------------------------------------------------------------
    def look(self, folder: Path, manifest: Callable[[], Manifest], *, is_exact: bool = False) -> bool:
        """Read what changed since the last look; whether a file differs from what the manifest knows.

        `manifest` is called after the files were read, so that a writer's new file never looks like a hand edit for
        having been faster than its manifest's reader. Of many files that were all listed just now only what another
        process or a rename changed is seen, unless `is_exact`.
        """
        state = self._state_of(folder)
        if not is_exact and state == self._folder_state and time.monotonic() < self._listed_until:
            known = manifest()
            if known is self._compared:
                return self._differs
        began = time.monotonic()
        found, problems = self._scan(folder)
        took = time.monotonic() - began
        is_long = len(found) > MANY and not problems
        self._folder_state, self._listed_until = state, (began + PAUSE * took if is_long else 0.0)
        changed: dict[str, tuple[Identity, bytes]] = {}
        for name, identity in found.items():
            held = self.held.get(name)
            if held is None or held.identity != identity:
                try:
                    changed[name] = identity, self._files.read_all(folder / name, topics.MAX_FILE_BYTES)
                except OSError:
                    problems.append(Problem(self.layer.name, name, 1, "UNREADABLE"))
        gone = self.held.keys() - found.keys()
        known = manifest()
        if changed or gone or problems != list(self.unreadable):
            self._forget_derived()
        for name in gone:
            del self.held[name]
            self._topics = None
        for name, (identity, raw) in changed.items():
            if len(raw) > topics.MAX_FILE_BYTES:
                problems.append(Problem(self.layer.name, name, 1, "FILE_TOO_LARGE"))
                self.held.pop(name, None)
                self._topics = None
                continue
            self.held[name] = self._hold(name, identity, raw)
        if changed:
            self._put_in_order()
        self.unreadable = tuple(problems)
        if self._compared is known and not changed and not gone:
            return self._differs
        self._differs = self._compare(known)
        self._compared = known
        return self._differs

    def is_as_held(self, folder: Path, name: str) -> bool:
        """Whether a file on disk is the one that was read (or there is none, where there was none)."""
        held = self.held.get(name)
        try:
            state = self._files.stat(folder / name)
        except FileNotFoundError:
            return held is None
        return held is not None and held.identity == (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)

    def _state_of(self, folder: Path) -> tuple[int, int]:
        try:
            state = self._files.stat(folder)
        except OSError:
            return 0, 0
        return state.st_ino, state.st_mtime_ns

    def _scan(self, folder: Path) -> tuple[dict[str, Identity], list[Problem]]:
        found: dict[str, Identity] = {}
        problems: list[Problem] = []
        for entry in self._files.scan(folder):
            if names.split_name(entry.name) is None:
                continue
            if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
                problems.append(Problem(self.layer.name, entry.name, 1, "NOT_A_REGULAR_FILE"))
                continue
            state = entry.stat(follow_symlinks=False)
            found[entry.name] = state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
        return found, problems

    def _put_in_order(self) -> None:
        """Files in the order of their topics' names and parts, so that every process serves in one order."""
        ordered = sorted(self.held, key=lambda name: names.split_name(name) or (name, 0))
        self.held = {name: self.held[name] for name in ordered}
        self._topics = None

    def _hold(self, name: str, identity: Identity, raw: bytes) -> Held:
        sha256 = hashlib.sha256(raw).hexdigest()
        old = self.held.get(name)
        if old is not None and old.sha256 == sha256:
            old.identity = identity
            return old
        stem = names.split_name(name) or (name, 1)
        return Held(identity, sha256, TopicFile(raw, self.layer.kind, stem[0]))

    def _compare(self, manifest: Manifest) -> bool:
        """Mark hand edits against the manifest; whether there is one that it does not know yet."""
        differs = False
        pending = {f"{made.layer}/{made.path}": made.before for made in manifest.pending.files}
        prefix = self.layer.name + "/"
        for name, held in self.held.items():
            state = manifest.files.get(prefix + name)
            accepted = state is not None and held.sha256 in (state.sha256, pending.get(prefix + name))
            if accepted == held.edited:
                self._mark(name, held, None if accepted else state, is_edited=not accepted)
            if not accepted:
                differs = differs or state is None or state.edited != held.sha256
        self.lost = {}
        for key, state in manifest.files.items():
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and "/" not in name and name not in self.held and state.blocks:
                if key in pending and not pending[key]:
                    continue
                self.lost[name] = state
                differs = differs or state.edited != EMPTY_HASH
        return differs

    def _mark(self, name: str, held: Held, state: FileState | None, *, is_edited: bool) -> None:
        held.edited, held.suspect, held.unreviewed, held.served = is_edited, False, frozenset(), None
        self._forget_derived()
        if not is_edited:
            return
        now = digests.of(held.file)
        before = state and digests.read(self._files, self._owner_folder, f"{self.layer.name}/{name}", state.sha256)
        held.unreviewed = frozenset(key for key, digest in now.items() if not before or before.get(key) != digest)
        held.suspect = state is not None and len(now) < state.blocks

    # -- what is served ------------------------------------------------------------------------------------------------
    def blocks(self) -> tuple[Block, ...]:
        """All served blocks in file order; of two with one id the first."""
        if self._merged is None:
            self._merge()
        return self._merged or ()

    def files(self) -> tuple[tuple[str, str, int], ...]:
        """(name, SHA-256, blocks) of each file, as `blocks` has them; () where one id is in two files."""
        self.blocks()
        if self._listed is None:
            listed = ((name, held.sha256, len(self._served(held))) for name, held in self.held.items())
            self._listed = () if self._duplicates else tuple(listed)
        return self._listed

    def count(self) -> int:
        """How many blocks are served."""
        return len(self._where) if self._is_where_known else len(self.blocks())

    def get(self, memory_id: str) -> Located | None:
        """One served block."""
        name = self.file_of(memory_id)
        if name is None:
            return None
        held = self.held[name]
        return Located(self.layer, self._served(held)[memory_id], name, held.file.line(memory_id))

    def revision(self) -> str:
        """Names the state of all files."""
        if self._revision is None:
            text = "\n".join(f"{name} {held.sha256}" for name, held in self.held.items())
            self._revision = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return self._revision

    def problems(self) -> tuple[Problem, ...]:
        """What is not served, and what is suspect."""
        self.blocks()
        found = [*self.unreadable, *self._duplicates]
        for name, held in self.held.items():
            self._served(held)
            found += [Problem(self.layer.name, name, place.line, place.code) for place in held.file.bad]
            found += [Problem(self.layer.name, name, line, code) for line, code in held.withheld]
            if held.suspect:
                found.append(Problem(self.layer.name, name, 1, "SUSPECT_TRUNCATION"))
        found += [Problem(self.layer.name, name, 0, "FILE_MISSING") for name in self.lost]
        return tuple(found)

    def _merge(self) -> None:
        served = [self._served(held) for held in self.held.values()]
        if not self._is_where_known:
            self._where = {}
            self._duplicates = []
            for name, blocks in zip(self.held, served, strict=True):
                for memory_id in blocks:
                    if self._where.setdefault(memory_id, name) != name:
                        line = self.held[name].file.line(memory_id)
                        self._duplicates.append(Problem(self.layer.name, name, line, "DUPLICATE_ID"))
            self._is_where_known = True
        if not self._duplicates:
            self._merged = tuple(chain.from_iterable(blocks.values() for blocks in served))
            return
        merged = {memory_id: block for blocks in reversed(served) for memory_id, block in blocks.items()}
        self._merged = tuple(merged[memory_id] for memory_id in self._where)

    def _served(self, held: Held) -> dict[str, Block]:
        if held.served is None:
            if not held.edited:
                held.served = {block.id: block for block in held.file.blocks}
                return held.served
            served: dict[str, Block] = {}
            withheld: list[tuple[int, str]] = []
            for block in held.file.blocks:
                shown = self._reviewed(block) if block.id in held.unreviewed else block
                if isinstance(shown, str):
                    withheld.append((held.file.line(block.id), shown))
                else:
                    served[block.id] = shown
            held.served, held.withheld = served, tuple(withheld)
        return held.served

    def _reviewed(self, block: Block) -> Block | str:
        """A hand-edited block as it is served, or the code under which it is not."""
        verdict = self._judge(block)
        if verdict and verdict != FLAG_INSTRUCTION_LIKE:
            return verdict
        authority = Authority.OPERATOR if self._trusts_edits else Authority.UNREVIEWED
        flags = block.flags
        if verdict and verdict not in flags:
            flags = (*flags, verdict)
        return replace(block, authority=authority, flags=flags)

    def _forget_derived(self) -> None:
        self._merged = None
        self._is_where_known = False
        self._revision = None
        self._listed = None
        self.changes += 1

    # -- edits ---------------------------------------------------------------------------------------------------------
    def file_of(self, memory_id: str) -> str | None:
        """The file that serves a block. Until all are parsed, only files that hold the id's bytes are."""
        if self._is_where_known:
            return self._where.get(memory_id)
        needle = memory_id.encode("utf-8", "surrogatepass")
        for name, held in self.held.items():
            if needle in held.file.data and memory_id in self._served(held):
                return name
        return None

    def settled(self, name: str) -> TopicFile:
        """The file's content with hand-edited blocks marked as what they are served as: what a rewrite starts from."""
        held = self.held[name]
        file = held.file
        for memory_id, block in self._served(held).items():
            if memory_id in held.unreviewed and block != file.get(memory_id):
                file = file.replaced(block)
        return file

    def accepted(self, name: str) -> TopicFile:
        """The file's content with every unreviewed block that passes the guard as the operator's word."""
        held = self.held[name]
        file = held.file
        for memory_id, block in self._served(held).items():
            if memory_id in held.unreviewed or block.authority is Authority.UNREVIEWED:
                file = file.replaced(replace(block, authority=Authority.OPERATOR))
        return file

    def follow(self, folder: Path, before: Manifest, after: Manifest) -> None:
        """After a commit of this store whose files were `put`: nothing else differs between the two manifests."""
        if self._compared is before:
            self._compared = after
            self._folder_state = self._state_of(folder)

    def put(self, name: str, file: TopicFile, sha256: str, identity: Identity) -> None:
        """Take over what was just written, without reading it again."""
        was_known = self._is_where_known and not self._duplicates
        before = self._served(self.held[name]) if name in self.held else {}
        is_new = name not in self.held
        self.held[name] = Held(identity, sha256, file)
        if is_new:
            self._put_in_order()
        self.lost.pop(name, None)
        self._forget_derived()
        now = self._served(self.held[name])
        if was_known and all(self._where.get(memory_id, name) == name for memory_id in now):
            for memory_id in before.keys() - now.keys():
                del self._where[memory_id]
            self._where.update(dict.fromkeys(now, name))
            self._is_where_known = True

    def place_for(self, topic: str, drafts: dict[str, TopicFile]) -> tuple[str, TopicFile]:
        """The file that a new block of `topic` goes to, with its content so far (drafts first).

        Raises LimitExceeded (TOO_MANY_TOPICS).
        """
        key = names.topic_key(topic)
        topics_of, taken = self._places()
        parts = list(topics_of.get(key, ()))
        for name, file in drafts.items():
            stem, part = names.split_name(name) or (name, 1)
            taken = {**taken, stem: names.topic_key(file.topic)}
            if taken[stem] == key and (part, name) not in parts:
                parts.append((part, name))
        if parts:
            part, name = max(parts)
            file = drafts[name] if name in drafts else self.settled(name)
            if len(file.spans) < MAX_BLOCKS_PER_FILE:
                return name, file
            stem = (names.split_name(name) or (name, 1))[0]
            return names.part_name(stem, part + 1), topics.new_file(file.topic, self.layer.kind)
        if len(set(taken.values())) >= MAX_TOPICS:
            message = f"the layer has {MAX_TOPICS} topics, its limit; use one of them, or purge one"
            raise LimitExceeded(message, "TOO_MANY_TOPICS")
        plain, marked = names.file_stems(topic)
        stem = plain if plain and plain not in taken else marked
        return names.part_name(stem, 1), topics.new_file(topic, self.layer.kind)

    def _places(self) -> tuple[dict[str, list[tuple[int, str]]], dict[str, str]]:
        """(the parts and files of each topic, the topic of each stem), by the topics' keys."""
        if self._topics is None:
            self._topics, self._stems = {}, {}
            for name, held in self.held.items():
                stem, part = names.split_name(name) or (name, 1)
                key = self._stems[stem] = names.topic_key(held.file.topic)
                self._topics.setdefault(key, []).append((part, name))
        return self._topics, self._stems
