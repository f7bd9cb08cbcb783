"""The catalogue of a project: which cards there are, and the index that finds them.

Owns: the view in memory of `cards/`, kept true to the folder whoever writes to it. Does not own: the files' format
(`cards`), ranking (`ranking`), the commit (`artifacts.store`). Everything here is derived: it is built from the cards
at the first use of a project, and again after any restart.

Every call asks one `stat` of the folder and reads 24 bytes of the lock's file. Only when either tells of a change is
the folder scanned, and then only new and changed cards are read. A scan made in the tick of the clock in which the
folder last changed may have missed something and is made again. Our own commits are noted without a scan. A card that
someone puts there by hand in the very tick of one of our commits is found with the next change of the folder;
`resolve` always looks at the disk.

Cards that are malformed, of a future version or of another project are skipped, each with a diagnostic for operators.

Thread-safe: one lock, held for work in memory and for scans. Source: DeepSeek Honcho specification, sections 27.3,
30.1, 33; design page "Exact results", Search.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rlm_memory.wire import INVALID_SCOPE

from rlm_memory_host.contracts.records import Diagnostic, ExperimentCardV1
from rlm_memory_host.errors import NotFound, StoreError
from rlm_memory_host.storage.cards import CardIdentity, card_identity, read_card_file
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.locks import CommitLock
from rlm_memory_host.storage.objects import file_clock_ns
from rlm_memory_host.storage.paths import ProjectLayout, card_of
from rlm_memory_host.storage.ranking import Document, Index, Match, Query
from rlm_memory_host.storage.tokens import document_terms, normalise

WEIGHTS: Final = {"title": 3.0, "tags": 3.0, "source": 1.5, "summary": 1.0, "columns": 1.0, "shape": 0.5}
"""How much a term counts, by the field it stands in."""
_FUTURE_NS: Final = 10_000_000_000
"""A folder stamped further ahead than this has a wrong clock; waiting for it to pass would scan on every call."""

Signature = tuple[int, int, int, int]
"""Inode, mtime and ctime (nanoseconds) of the folder, commits so far."""


@dataclass(frozen=True, slots=True)
class _Entry:
    identity: CardIdentity
    artifact: str
    size: int
    state: str


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and `Z`, as cards carry it: sorts by time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def card_texts(card: ExperimentCardV1) -> dict[str, str]:
    """What of a card is searched as text, by field. Names with underscores are there whole and in pieces."""
    shape = "" if card.shape is None else f"{'x'.join(map(str, card.shape))} {' '.join(map(str, card.shape))}"
    return {
        "title": card.title,
        "tags": _with_pieces(" ".join(card.tags or ())),
        "source": _with_pieces(card.source),
        "summary": card.summary,
        "columns": _with_pieces(" ".join(card.columns or ())),
        "shape": shape,
    }


def facets(card: ExperimentCardV1) -> Iterator[str]:
    """The exact values that a card is found or filtered by."""
    yield f"experiment_id:{card.experiment_id}"
    yield f"artifact_id:{card.artifact.artifact_id}"
    yield f"query_fingerprint:{card.query_fingerprint}"
    yield f"source_version:{card.source_version}"
    yield f"source:{normalise(card.source)}"
    yield f"session:{card.origin_session_id}"
    for tag in card.tags or ():
        yield f"tag:{normalise(tag)}"


class Catalogue:
    """The cards of one project."""

    def __init__(self, files: FileLayer, layout: ProjectLayout, project_id: str, lock: CommitLock) -> None:
        self._files = files
        self._layout = layout
        self._project_id = project_id
        self._commits = lock
        self._lock = threading.RLock()
        self._index = Index()
        self._entries: dict[str, _Entry] = {}
        self._skipped: dict[str, tuple[CardIdentity | None, Diagnostic]] = {}
        self._holders: dict[str, int] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._bytes = 0
        self._signature: Signature | None = None
        self._settled = False

    # -- keeping true to the folder ----------------------------------------------------------------------------------

    def signature(self, commits: int) -> Signature | None:
        """What the folder looks like now; None when there is none."""
        try:
            state = self._files.stat(self._layout.cards)
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_ctime_ns, commits

    def refresh(self) -> None:
        """See what others did. Cheap when nothing changed."""
        with self._lock:
            now = self.signature(self._commits.book()[0])
            if now == self._signature and (self._settled or now is None):
                return
            started = file_clock_ns()
            self._scan()
            self._signature = now
            self._settled = now is None or not now[1] - _FUTURE_NS < started <= now[1]

    def note_commit(
        self, before: Signature | None, after: Signature | None, card: ExperimentCardV1, state: os.stat_result
    ) -> None:
        """Take in a card that was just committed under the lock; the signatures are of just before and after."""
        with self._lock:
            self._put(card, card_identity(state))
            self.note_sidecar(before, after)

    def note_sidecar(self, before: Signature | None, after: Signature | None) -> None:
        """Take in that the folder changed by a sidecar, or by what is known already."""
        with self._lock:
            if self._signature == before:
                self._signature = after

    def count_files(self, before: Signature | None) -> int:
        """Cards in the folder, those that cannot be read included; from memory when nothing changed."""
        with self._lock:
            if self._signature == before and self._settled:
                return len(self._entries) + len(self._skipped)
        return sum(card_of(entry.name) is not None for entry in self._files.scan(self._layout.cards))

    def _scan(self) -> None:
        seen: set[str] = set()
        changed: list[tuple[ExperimentCardV1, CardIdentity]] = []
        for item in self._files.scan(self._layout.cards):
            experiment = card_of(item.name)
            if experiment is None:
                continue
            seen.add(experiment)
            found = self._read_changed(experiment, item)
            if found is not None:
                changed.append(found)
        for experiment in [known for known in self._entries if known not in seen]:
            self._drop(experiment)
        self._skipped = {name: value for name, value in self._skipped.items() if name in seen}
        changed.sort(key=lambda found: _updated(found[0]))
        for card, identity in changed:
            self._put(card, identity)

    def _read_changed(self, experiment: str, item: os.DirEntry[str]) -> tuple[ExperimentCardV1, CardIdentity] | None:
        try:
            state = item.stat(follow_symlinks=False)
        except OSError:
            return None
        identity = card_identity(state)
        known = self._entries.get(experiment)
        if known is not None and known.identity == identity:
            return None
        skipped = self._skipped.get(experiment)
        if skipped is not None and skipped[0] == identity:
            return None
        try:
            if not stat.S_ISREG(state.st_mode):
                raise StoreError("it is no regular file", "UNSAFE_FILESYSTEM_ENTRY")
            return read_card_file(self._files, self._layout, self._project_id, experiment)
        except NotFound:
            diagnostic = Diagnostic(item.name, INVALID_SCOPE, "it belongs to another project")
        except StoreError as error:
            diagnostic = Diagnostic(item.name, error.code, str(error))
        self._drop(experiment)
        self._skipped[experiment] = (identity, diagnostic)
        return None

    def _put(self, card: ExperimentCardV1, identity: CardIdentity) -> None:
        experiment = card.experiment_id
        self._forget(experiment)
        self._skipped.pop(experiment, None)
        artifact = card.artifact
        self._entries[experiment] = _Entry(identity, artifact.artifact_id, artifact.bytes, card.index.state)
        holders = self._holders.get(artifact.artifact_id, 0)
        self._holders[artifact.artifact_id] = holders + 1
        if not holders:
            self._bytes += artifact.bytes
            self._by_size.setdefault(artifact.bytes, {})[artifact.artifact_id] = None
        texts = card_texts(card)
        fields = ((WEIGHTS[name], document_terms(text)) for name, text in texts.items() if text)
        self._index.add(Document(experiment, _updated(card)), facets(card), fields)

    def _drop(self, experiment: str) -> None:
        if experiment in self._entries:
            self._forget(experiment)
            self._index.remove(experiment)

    def _forget(self, experiment: str) -> None:
        entry = self._entries.pop(experiment, None)
        if entry is None:
            return
        self._holders[entry.artifact] -= 1
        if not self._holders[entry.artifact]:
            del self._holders[entry.artifact]
            self._bytes -= entry.size
            self._by_size[entry.size].pop(entry.artifact, None)

    # -- questions ---------------------------------------------------------------------------------------------------

    def search(self, query: Query, limit: int, offset: int, horizon: int | None) -> tuple[list[Match], int]:
        """Matches from `offset` on, and how many there are in all; see `ranking.Index.search`."""
        with self._lock:
            return self._index.search(query, limit, offset, horizon)

    def horizon(self) -> tuple[int, int]:
        """What a cursor needs to see the same collection again."""
        with self._lock:
            return self._index.horizon

    def has_horizon(self, epoch: int, horizon: int) -> bool:
        """Whether it can."""
        with self._lock:
            return self._index.has_horizon(epoch, horizon)

    def has_artifact(self, artifact: str) -> bool:
        """Whether a card names these bytes."""
        with self._lock:
            return artifact in self._holders

    def artifacts_of_size(self, size: int, limit: int) -> list[str]:
        """Artifact ids with that many bytes, the newest `limit` of them."""
        with self._lock:
            return list(self._by_size.get(size, ()))[-limit:]

    @property
    def object_bytes(self) -> int:
        """Bytes of all artifacts that a card names, each once."""
        with self._lock:
            return self._bytes

    def counts(self) -> dict[str, int]:
        """Cards, artifacts and skipped files, and cards by index state: numbers only."""
        with self._lock:
            states: dict[str, int] = dict.fromkeys(("pending", "queued", "indexed", "failed", "disabled"), 0)
            for entry in self._entries.values():
                states[entry.state] += 1
            counts = {"cards": len(self._entries), "artifacts": len(self._holders), "skipped": len(self._skipped)}
            return counts | states

    def diagnostics(self) -> list[Diagnostic]:
        """Cards that were skipped and why, for operators."""
        with self._lock:
            return [diagnostic for _, diagnostic in self._skipped.values()]


def _updated(card: ExperimentCardV1) -> str:
    return utc_text(datetime.fromisoformat(card.updated_at))


def _with_pieces(text: str) -> str:
    return f"{text} {text.replace('_', ' ')}" if "_" in text else text
