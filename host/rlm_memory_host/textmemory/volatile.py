"""A text store in memory: the shipped fake of `TextStore`, for tests and for a caller that wants nothing on disk.

Owns: the contract without files: versions, compare-and-swap, history, logs whose last row of an id counts. Does not
own: durability, limits of files, hand edits. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from rlm_memory_host.contracts.memory import (
    AuditNote,
    Block,
    Evidence,
    HistoryEntry,
    Layer,
    Located,
    Log,
    Problem,
    Snapshot,
    Transaction,
)
from rlm_memory_host.errors import LayerUnavailable, VersionConflict


class VolatileStore:
    """One owner's text memory in this process. `unavailable` layers refuse; `audit` holds the notes in order."""

    def __init__(self) -> None:
        self.unavailable: set[Layer] = set()
        self.audit: list[AuditNote] = []
        self._blocks: dict[Layer, dict[str, Block]] = {}
        self._derived: dict[str, bytes] = {}
        self._revisions: dict[Layer, int] = {}
        self._history: dict[str, list[HistoryEntry]] = {}
        self._rows: dict[Log, dict[str, Mapping[str, Any]]] = {log: {} for log in Log}
        self._evidence: dict[str, list[Evidence]] = {}
        self._lock = threading.RLock()

    def is_available(self, layer: Layer) -> bool:
        """Whether nobody put it into `unavailable`."""
        return layer not in self.unavailable

    def snapshot(self, layer: Layer) -> Snapshot:
        """As the port says."""
        with self._lock:
            self._check(layer)
            blocks = tuple(self._blocks.get(layer, {}).values())
            return Snapshot(layer, blocks, str(self._revisions.get(layer, 0)))

    def remembered(self, layer: Layer) -> tuple[Block, ...]:
        """As the port says."""
        with self._lock:
            return tuple(self._blocks.get(layer, {}).values())

    def get(self, layer: Layer, memory_id: str) -> Located | None:
        """As the port says."""
        block = self._blocks.get(layer, {}).get(memory_id)
        return Located(layer, block, "") if block is not None else None

    def find(self, layers: Sequence[Layer], memory_id: str) -> Located | None:
        """As the port says."""
        found = (self.get(layer, memory_id) for layer in layers)
        return next((item for item in found if item is not None), None)

    def commit(self, transaction: Transaction) -> tuple[Block, ...]:
        """As the port says: all or nothing."""
        with self._lock:
            for layer, revision in transaction.revisions.items():
                if str(self._revisions.get(layer, 0)) != revision:
                    raise VersionConflict("the layer changed since it was read")
            for write in transaction.writes:
                self._check(write.layer)
                held = self._blocks.get(write.layer, {}).get(write.block.id)
                current = held.version if held is not None else None
                if current != write.expected_version:
                    raise VersionConflict("the memory changed since it was read", current=current)
            for write in transaction.writes:
                blocks = self._blocks.setdefault(write.layer, {})
                if (before := blocks.get(write.block.id)) is not None:
                    entries = self._history.setdefault(before.id, [])
                    entries.append(HistoryEntry(len(entries) + 1, write.change, before))
                blocks[write.block.id] = write.block
                self._revisions[write.layer] = self._revisions.get(write.layer, 0) + 1
            for row in transaction.rows:
                self._rows[row.log][str(row.row["id"])] = dict(row.row)
            self.audit.extend(transaction.notes)
            return tuple(write.block for write in transaction.writes)

    def history(self, layer: Layer, memory_id: str) -> tuple[HistoryEntry, ...]:
        """As the port says."""
        del layer
        return tuple(self._history.get(memory_id, ()))

    def rows(self, log: Log) -> tuple[Mapping[str, Any], ...]:
        """As the port says."""
        with self._lock:
            return tuple(self._rows[log].values())

    def add_evidence(self, evidence: Evidence) -> None:
        """As the port says."""
        with self._lock:
            self._evidence.setdefault(evidence.session, []).append(evidence)

    def evidence(self, session: str, after: int = 0) -> Iterator[Evidence]:
        """As the port says."""
        return iter([item for item in self._evidence.get(session, ()) if item.seq > after])

    def problems(self) -> tuple[Problem, ...]:
        """Nothing here can be malformed."""
        return ()

    def changes(self) -> int:
        """As the port says."""
        return sum(self._revisions.values())

    def derived(self, name: str) -> bytes | None:
        """As the port says."""
        return self._derived.get(name)

    def keep_derived(self, name: str, data: bytes) -> None:
        """As the port says."""
        self._derived[name] = data

    def lock(self) -> AbstractContextManager[None]:
        """As the port says."""
        return _Held(self._lock)

    def _check(self, layer: Layer) -> None:
        if layer in self.unavailable:
            raise LayerUnavailable(f"the {layer.kind.value} layer cannot be opened now")


class _Held(AbstractContextManager[None]):
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
