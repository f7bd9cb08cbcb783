"""The catalogue of a project: which cards there are, and the index that finds them.

Owns: the view of `cards/`, kept true to the folder whoever writes to it. Does not own: the files' format (`cards`), one
look at the folder (`cardfolder`), the index (`index`), how it is kept between starts (`index_saved`), what a card's
terms are (`index_cards`), the commit (`artifacts.commit`). All of it is derived from the cards.

Every call asks one `stat` of the folder and reads 24 bytes of the lock's file. When either tells of a change, the
journal beside the cards (`cardjournal`) is followed: if hosts alone changed the folder since, only the cards they name
are read. Else the folder is scanned, and only new and changed cards are read. A scan made in the tick of the clock in
which the folder last changed may have missed something and is made again (`_doubt` is that tick). Our own commits are
noted without a scan. Another host's commit that is counted but does not show yet is waited for, `COMING_SECONDS` at
most. A card that someone puts there in the very tick of a host's commit is found with the next change of the folder.

A card that is the very file that a host wrote, with other bytes, counts as edited. That changes nothing of the folder:
`look_again` finds it, and so does resolving it. A card replaced by another file is what every tool does to change one.
Cards that are malformed, of a future version or of another project are skipped, each with a diagnostic for operators.

Thread-safe: one lock, held for work in memory and for scans. Packing and saving the index happen outside of it, in the
thread of `IndexHome`. Source: DeepSeek Honcho specification, sections 27.3, 30.1, 33; design page "Exact results".
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rlm_memory.wire import INVALID_SCOPE

from rlm_memory_host.contracts.records import Diagnostic
from rlm_memory_host.errors import NotFound, StoreError
from rlm_memory_host.storage import index_saved
from rlm_memory_host.storage.cardfolder import compare, count_cards, is_edited, signature_of, written_in
from rlm_memory_host.storage.cardjournal import CardIdentity, CardJournal, Entry, Kind, Position, Signature, follow
from rlm_memory_host.storage.cards import CardFile, card_identity, read_card_file
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.index import Index
from rlm_memory_host.storage.index_build import Builder, build, without_collector
from rlm_memory_host.storage.index_cards import (
    artifact_facet,
    card_weights,
    document_of,
    facets,
    size_facet,
    weighted_texts,
)
from rlm_memory_host.storage.index_packed import PackedPart, numpy
from rlm_memory_host.storage.index_saved import IndexHome, Saved, Skipped
from rlm_memory_host.storage.index_tally import Tally
from rlm_memory_host.storage.locks import CommitLock
from rlm_memory_host.storage.objects import file_clock_ns
from rlm_memory_host.storage.paths import ProjectLayout
from rlm_memory_host.storage.ranking import Found, Query

PACK_FROM: Final = 1_000
"""Cards from which on an index is packed and saved; fewer are read anew in a moment."""
NEWEST: Final = 512
"""Cards over a packed index before it is packed again, or a 64th of it: few to search, many for what packing costs."""
COMING_SECONDS: Final = 1.0
"""How long a counted commit that shows nothing yet is waited for before the folder is scanned."""
_FUTURE_NS: Final = 10_000_000_000
"""A folder stamped further ahead than this has a wrong clock; waiting for it to pass would scan on every call."""
_LOOKED_AT: Final = 256
"""Cards of one size that are looked at for different artifacts."""


@dataclass(frozen=True, slots=True)
class View:
    """What a search found, and the collection that it saw. `is_same` is False where that is not the one asked for."""

    found: Found
    epoch: int
    horizon: int
    is_same: bool


class Catalogue:
    """The cards of one project."""

    def __init__(
        self,
        files: FileLayer,
        layout: ProjectLayout,
        project_id: str,
        lock: CommitLock,
        home: IndexHome | None = None,
    ) -> None:
        self._files = files
        self._layout = layout
        self._project_id = project_id
        self._commits = lock
        self._home = home
        self._journal = CardJournal(files, layout.journal)
        self._lock = threading.RLock()
        self._index = Index()
        self._tally = Tally()
        self._skipped: dict[str, Skipped] = {}
        self._signature: Signature | None = None
        self._doubt = 0
        self._position = Position()
        self._coming: tuple[Signature, float] | None = None
        self._is_opened = False
        self._is_packing = False
        self._is_saved = True

    # -- keeping true to the folder ----------------------------------------------------------------------------------

    def signature(self, commits: int) -> Signature | None:
        """What the folder looks like now; None when there is none."""
        return signature_of(self._files, self._layout, commits)

    def refresh(self) -> None:
        """See what others did. Cheap when nothing changed."""
        with self._lock:
            if not self._is_opened:
                self._is_opened = True
                self._take_up()
            now = self.signature(self._commits.book()[0])
            if now == self._signature and (not self._doubt or now is None):
                return
            is_led = self._follow(now)
            if not is_led and self._is_coming(now):
                return
            if not is_led or self._doubt:
                self._look(now, is_led=is_led)
            self._pack_if_worth()

    def look_again(self) -> None:
        """Scan the folder whatever it looks like: finds cards that were edited in place."""
        with self._lock:
            self.refresh()
            self._look(self.signature(self._commits.book()[0]), is_led=False)

    def note_commit(self, before: Signature | None, after: Signature | None, file: CardFile) -> None:
        """Take in a card that was just committed under the lock; the signatures are of just before and after."""
        with self._lock:
            self._put(file, file.digest)
            self._note("card", before, after, file)
            self._pack_if_worth()

    def note_restated(self, before: Signature | None, after: Signature | None, file: CardFile) -> None:
        """As `note_commit`, for a card of which only the state of remote indexing changed."""
        with self._lock:
            document = document_of(file.card, file.identity, file.digest)
            old = self._index.restate(document)
            if old is None:
                self._put(file, file.digest)
            else:
                self._tally.recount(old, document)
            self._note("card", before, after, file)

    def in_states(self, states: frozenset[str]) -> list[str]:
        """The experiments whose card is in one of the states of remote indexing."""
        with self._lock:
            return list(self._index.in_states(states))

    def note_change(self, kind: Kind, experiment: str, before: Signature | None, after: Signature | None) -> None:
        """Take in, under the commit lock, that a sidecar was written or a card removed."""
        with self._lock:
            if kind == "removed":
                self._drop(experiment)
            self._note(kind, before, after, experiment)

    def count_files(self, before: Signature | None) -> int:
        """Cards in the folder, those that cannot be read included; from memory when nothing changed."""
        with self._lock:
            if self._signature == before and not self._doubt:
                return len(self._index) + len(self._skipped)
        return count_cards(self._files, self._layout)

    def _note(self, kind: Kind, before: Signature | None, after: Signature | None, of: CardFile | str) -> None:
        if self._signature == before:
            self._signature = after
        if before is None or after is None:
            return
        if isinstance(of, str):
            entry = Entry(kind, of, before, after)
        else:
            entry = Entry(kind, of.card.experiment_id, before, after, of.digest, of.identity)
        self._journal.append(entry, len(self._index))

    def _follow(self, now: Signature | None) -> bool:
        """Let the journal lead to what the folder looks like; False when it does not."""
        if self._signature is None or now is None:
            return False
        entries, position = self._journal.read(self._position)
        led = follow(entries, self._signature, now)
        if led is None:
            return False
        for entry in {entry.experiment: entry for entry in led if entry.kind != "sidecar"}.values():
            self._read_again(entry)
        self._signature, self._position, self._coming = now, position, None
        return True

    def _is_coming(self, now: Signature | None) -> bool:
        """Whether a commit is counted and the folder looks as it did: its card, if any, is not acknowledged yet."""
        mine = self._signature
        if now is None or mine is None or now[:3] != mine[:3] or self._doubt:
            return False
        if self._coming is None or self._coming[0] != now:
            self._coming = (now, time.monotonic() + COMING_SECONDS)
        return time.monotonic() < self._coming[1]

    def _look(self, now: Signature | None, *, is_led: bool) -> None:
        """Scan the folder. `is_led`: the journal had led here already, and the scan has only an older doubt to end."""
        started = file_clock_ns()
        position = self._journal.end()
        self._scan()
        self._signature, self._position, self._coming = now, position, None
        if now is None or (is_led and started > self._doubt) or not now[1] - _FUTURE_NS < started <= now[1]:
            self._doubt = 0
        else:
            self._doubt = now[1]

    def _scan(self) -> None:
        known: dict[str, CardIdentity | None] = dict(self._index.identities())
        skipped = {name: item.identity for name, item in self._skipped.items()}
        gone, changed = compare(self._files, self._layout, known | skipped)
        for experiment in gone:
            self._drop(experiment)
            self._skipped.pop(experiment, None)
        written = self._journal.written(changed.keys()) if changed else {}
        if len(changed) >= PACK_FROM and numpy():
            with without_collector():
                self._take_many(changed, written)
            return
        files = [file for name, state in changed.items() if (file := self._read(name, state)) is not None]
        files.sort(key=lambda file: file.card.updated_at)
        for file in files:
            self._put(file, written_in(file, written))

    def _take_many(self, changed: dict[str, os.stat_result], written: dict[str, Entry]) -> None:
        """Read many cards straight into a packed index, one after the other: their texts are never all in memory."""
        builder = Builder()
        self._is_saved = False
        # In the order of the inodes, which is about that of the disk: other orders cost a cold disk a seek for each.
        for experiment, state in sorted(changed.items(), key=lambda item: item[1].st_ino):
            file = self._read(experiment, state)
            if file is None:
                continue
            self._drop(experiment)
            self._skipped.pop(experiment, None)
            document = document_of(file.card, file.identity, written_in(file, written))
            self._tally.count_in(self._index, document, edited=is_edited(file, document.digest))
            self._tally.fresh.add(document.artifact)
            builder.add_texts(document, facets(file.card), weighted_texts(file.card))
        self._index.pour_into(builder)
        self._index.replace(PackedPart(builder.arrays()))
        self._tally.fresh.clear()

    def _read_again(self, entry: Entry) -> None:
        experiment = entry.experiment
        try:
            state = self._files.stat(self._layout.card(experiment))
        except OSError:
            self._drop(experiment)
            self._skipped.pop(experiment, None)
            return
        known = self._index.get(experiment)
        if known is None or known.identity != card_identity(state):
            file = self._read(experiment, state)
            if file is not None:
                self._put(file, written_in(file, {experiment: entry}))

    def _read(self, experiment: str, state: os.stat_result) -> CardFile | None:
        """The card, or None: then it is gone or skipped."""
        try:
            if not stat.S_ISREG(state.st_mode):
                raise StoreError("it is no regular file", "UNSAFE_FILESYSTEM_ENTRY")
            return read_card_file(self._files, self._layout, self._project_id, experiment)
        except NotFound:
            reason = INVALID_SCOPE, "it belongs to another project"
        except StoreError as error:
            reason = error.code, str(error)
        diagnostic = Diagnostic(self._layout.card(experiment).name, *reason)
        self._drop(experiment)
        self._skipped[experiment] = Skipped(card_identity(state), diagnostic)
        return None

    def _put(self, file: CardFile, written: bytes) -> None:
        experiment = file.card.experiment_id
        self._drop(experiment)
        self._skipped.pop(experiment, None)
        document = document_of(file.card, file.identity, written)
        self._tally.count_in(self._index, document, edited=is_edited(file, written))
        self._index.add(document, facets(file.card), card_weights(file.card))

    def _drop(self, experiment: str) -> None:
        document = self._index.remove(experiment)
        if document is not None:
            self._tally.count_out(self._index, document)

    # -- the saved index ---------------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Begin with the saved index, if there is one that can be trusted; the folder decides what became of it."""
        found = None if self._home is None else index_saved.load(self._files, self._home, self._layout)
        if found is None:
            return
        packed, saved = found
        self._index, self._tally, self._skipped = Index(packed), Tally(saved.tally), dict(saved.skipped)
        self._signature, self._doubt, self._position = saved.signature, saved.doubt, saved.position

    def _pack_if_worth(self) -> None:
        if self._home is None or self._is_packing or len(self._index) < PACK_FROM or numpy() is None:
            return
        if self._is_saved and self._index.newest < max(NEWEST, self._index.packed >> 6):
            return
        self._is_packing = True
        self._home.submit(self._pack)

    def _pack(self) -> None:
        """Pack what there is, save it, and go on with it. Runs in the thread of the home, without the lock."""
        try:
            with self._lock:
                saved = self._saved()
                pending = self._index.begin_packing()
            packed = pending.packed
            if packed is None or pending.memory or len(packed) < packed.size:
                packed = build(*pending.parts)
            if self._home is not None and saved is not None:
                index_saved.save(self._files, self._home, self._layout, packed, saved)
            with self._lock:
                self._index.end_packing(pending, packed)
                self._is_saved = True
        finally:
            self._is_packing = False

    def _saved(self) -> Saved | None:
        if self._signature is None:
            return None
        return Saved(self._signature, self._doubt, self._position, self._tally.facts(), dict(self._skipped))

    # -- questions ---------------------------------------------------------------------------------------------------

    def search(self, query: Query, limit: int, offset: int = 0, of: tuple[int, int] | None = None) -> View:
        """Matches from `offset` on; `of` is (epoch, horizon) of the collection of an earlier page."""
        with self._lock:
            epoch, horizon = self._index.horizon
            is_same = of is None or self._index.has_horizon(*of)
            if of is not None and is_same:
                epoch, horizon = of
            return View(self._index.search(query, limit, offset, horizon), epoch, horizon, is_same)

    def written(self, file: CardFile) -> bytes:
        """SHA-256 of the card's very file as a host wrote it; empty where none did, as far as is known."""
        with self._lock:
            document = self._index.get(file.card.experiment_id) if self._is_opened else None
        if document is not None and document.identity[0] == file.identity[0]:
            return document.digest
        return self.written_now(file)

    def written_now(self, file: CardFile) -> bytes:
        """As `written`, from the journal itself."""
        return written_in(file, self._journal.written([file.card.experiment_id]))

    def has_artifact(self, artifact: str) -> bool:
        """Whether a card names these bytes."""
        with self._lock:
            return next(iter(self._index.with_facet(artifact_facet(artifact))), None) is not None

    def artifacts_of_size(self, size: int, limit: int) -> list[str]:
        """Artifact ids with that many bytes, the newest `limit` of them."""
        found: dict[str, None] = {}
        with self._lock:
            for document, _ in zip(self._index.with_facet(size_facet(size)), range(_LOOKED_AT), strict=False):
                found[document.artifact] = None
                if len(found) == limit:
                    break
        return list(found)

    @property
    def object_bytes(self) -> int:
        """Bytes of all artifacts that a card names, each once."""
        with self._lock:
            return self._tally.bytes

    def bytes_at(self, look: Signature | None) -> int:
        """As `object_bytes`, of the cards as the folder looks; 0 where only a scan would tell."""
        with self._lock:
            is_known = self._signature == look or self._follow(look)
            return self._tally.bytes if is_known else 0

    def counts(self) -> dict[str, int]:
        """Cards, artifacts, skipped and edited files, and cards by index state: numbers only."""
        with self._lock:
            states = dict.fromkeys(("pending", "queued", "indexed", "failed", "disabled"), 0) | self._tally.states
            return {
                "cards": len(self._index),
                "artifacts": self._tally.artifacts,
                "skipped": len(self._skipped),
                "edited": len(self._tally.edited),
                **states,
            }

    def edited(self) -> Iterable[str]:
        """The experiments whose card's file has other bytes than a host wrote into it."""
        with self._lock:
            return sorted(self._tally.edited)

    def diagnostics(self) -> list[Diagnostic]:
        """Cards that were skipped and why, for operators."""
        with self._lock:
            return [skipped.diagnostic for skipped in self._skipped.values()]
