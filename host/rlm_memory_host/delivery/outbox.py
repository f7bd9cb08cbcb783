"""The outbox: one document per delivery, durable before anything is sent. Implements the port `Admission`.

Owns: `<state root>/outbox/` with `pending/`, `dead-letter/` and `quarantine/`, the worker's lock, and in memory what
waits (`lanes`). Does not own: sending, and when (`worker`); what a document looks like (`contracts.delivery`).

Order of writes. Every document: temp file in its own folder, fsync, rename, fsync of the folder; the rename is the
commit point. A delivery is in exactly one folder at any time.

- admit: publish in `pending/`. Killed before the rename: a temp file, which the next start quarantines, and the caller
  got no answer. Killed after it: the delivery counts.
- send: the document says `ambiguous` before the call is made. Killed anywhere up to the acknowledgement: the next start
  lets it settle, looks the rows up and sends what is missing.
- acknowledge: unlink. Not flushed: a document that comes back after a power cut is looked up before it is sent.
- dead letter: the failure is published in the pending document, then it is renamed to `dead-letter/`, then both folders
  are flushed. Killed between: it is pending still and is refused once more.
- quarantine: the reason is published first, then the file is renamed as it is. Its bytes are never changed.

Documents hold conversation text: folders are 0700, files 0600, and texts pass the redactor before the first write.
Thread-safe.

Source: DeepSeek Honcho specification, sections 12, 17.2; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from rlm_memory_host.contracts.delivery import (
    DeliveryDocument,
    DeliveryRequest,
    Glance,
    Redactor,
    build_request,
    glance,
    iso,
    seconds,
)
from rlm_memory_host.contracts.delivery_ports import Admitted, Outcome, Place, Watcher
from rlm_memory_host.delivery.folders import OutboxFolders, file_name
from rlm_memory_host.delivery.lanes import Lanes, Waiting
from rlm_memory_host.errors import Disposed, FormatVersion, Integrity
from rlm_memory_host.process import AlreadyRunning, FileLock
from rlm_memory_host.storage.files import FileLayer

LOCK: Final = "worker.lock"
EMPTY: Final = "EMPTY_AFTER_REDACTION"

_LANE_LOCKS: Final = 64
_ONE_MICROSECOND: Final = 1e-6
_NOT_REDACTED: Final = frozenset(
    {
        "source",
        "delivery_id",
        "dsh_session_id",
        "project_id",
        "role",
        "captured_at",
        "dsh_agent_kind",
        "plugin_version",
        "owner_peer_id",
        "experiment_id",
        "artifact_id",
        "query_fingerprint",
        "projection_revision",
    }
)
"""Metadata of our own making: a redactor that took a digest for a key would cut off the look-up."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What a start found. Names are those of files, without content."""

    pending: int
    dead_letter: int
    quarantined: tuple[tuple[str, str], ...]
    """(name, reason) of what was moved aside now."""
    unreadable: tuple[tuple[str, str], ...]
    """(name, reason) of what the system does not let us read; left where it is."""


class Outbox:
    """The outbox of a state root. Use it as a context manager, or `open` and `close` it.

    `redact` runs over every text before it is written. `now` gives seconds since 1970, `monotonic` the seconds that
    waiting is measured in.
    """

    def __init__(
        self,
        state_root: Path,
        *,
        redact: Redactor,
        files: FileLayer | None = None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        settle_seconds: float = 20.0,
        longest_wait_seconds: float = 640.0,
    ) -> None:
        self._disk = OutboxFolders(state_root, files or FileLayer(), now)
        self._redact = redact
        self._now = now
        self._monotonic = monotonic
        self._settle = settle_seconds
        self._longest = longest_wait_seconds
        self._lanes = Lanes()
        self._dead_ids: set[str] = set()
        self._quarantined = 0
        self._unreadable: tuple[tuple[str, str], ...] = ()
        self._guard = threading.RLock()
        self._lane_locks = [threading.Lock() for _ in range(_LANE_LOCKS)]
        self._admits = False
        self._listener: Callable[[], None] | None = None
        self._watcher: Watcher | None = None
        self._lock: FileLock | None = None

    # -- life --------------------------------------------------------------------------------------------------------
    def open(self) -> Opened:
        """Take the lock, make the folders, read what waits, move aside what is no delivery.

        Raises AlreadyRunning where another process works on this outbox, StoreError where it cannot be used.
        """
        self._disk.make()
        lock = FileLock(self._disk.root / LOCK)
        if not lock.acquire():
            raise AlreadyRunning(lock.holder())
        self._lock = lock
        try:
            return self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop admission and give the lock back; twice is once. Nothing is written."""
        self.stop_admission()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def stop_admission(self) -> None:
        """From now on `admit` raises Disposed."""
        self._admits = False

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call `listener`, from any thread, whenever something new may be sent."""
        self._listener = listener

    def watch(self, watcher: Watcher | None) -> None:
        """Call `watcher` with (delivery id, what became of it, code), from any thread, when a delivery is done with."""
        self._watcher = watcher

    # -- the port ----------------------------------------------------------------------------------------------------
    def admit(self, request: DeliveryRequest, *, first_time: bool = False) -> Admitted:
        """Take a delivery in; durable at return. See `Admission.admit`.

        Raises Disposed during shutdown, Unwritable where it cannot be made durable, Integrity (code VALIDATION, or
        EMPTY_AFTER_REDACTION) where it is no valid delivery.
        """
        if not self._admits:
            raise Disposed("the outbox takes nothing in now; the delivery was not saved")
        request = self._redacted(request)
        delivery_id, lane = request.delivery_id, request.scope.lane
        with self._lane_locks[hash(lane) % _LANE_LOCKS]:
            with self._guard:
                if delivery_id in self._lanes or delivery_id in self._dead_ids:
                    return Admitted(delivery_id, is_new=False)
                created_at = self._rising(lane)
            document = DeliveryDocument(request=request, created_at=created_at)
            self._disk.publish(self._disk.pending, file_name(delivery_id), document.to_json())
            with self._guard:
                self._lanes.add(Waiting(delivery_id, lane, created_at, look_first=not first_time))
        self._tell()
        return Admitted(delivery_id, is_new=True)

    def withdraw(self, delivery_id: str) -> bool:
        """Take back what was certainly not sent. See `Admission.withdraw`."""
        with self._guard:
            waiting = self._lanes.get(delivery_id)
            if waiting is None or waiting.ambiguous or self._lanes.is_under_way(waiting):
                return False
            self._disk.remove(self._disk.pending / file_name(delivery_id), durably=True)
            self._lanes.remove(waiting)
        self._tell()
        return True

    # -- for the worker ----------------------------------------------------------------------------------------------
    def take(self, now: float, avoid: Collection[str], *, prefer_others: bool) -> Waiting | None:
        """The next due delivery, now under way."""
        with self._guard:
            return self._lanes.take(now, avoid, prefer_others=prefer_others)

    def next_due(self) -> float | None:
        """When the next delivery is due."""
        with self._guard:
            return self._lanes.next_due()

    @property
    def under_way(self) -> int:
        """How many deliveries are under way."""
        return self._lanes.under_way

    def read(self, delivery_id: str) -> DeliveryDocument:
        """The document of a pending delivery. Raises StoreError."""
        return self._disk.document(self._disk.pending, delivery_id)

    def rewrite(self, document: DeliveryDocument) -> None:
        """Replace the document of a pending delivery, durably. Raises Unwritable."""
        self._disk.publish(self._disk.pending, file_name(document.request.delivery_id), document.to_json())

    def put_back(self, waiting: Waiting) -> None:
        """No longer under way; it waits until `waiting.due`."""
        with self._guard:
            self._lanes.put_back(waiting)

    def acknowledge(self, waiting: Waiting) -> None:
        """The service holds all of it. Raises Unwritable where the document cannot be removed."""
        self._disk.remove(self._disk.pending / file_name(waiting.delivery_id))
        with self._guard:
            self._lanes.remove(waiting)
        self._done(waiting.delivery_id, "delivered")

    def bury(self, waiting: Waiting, document: DeliveryDocument) -> None:
        """To dead letter, with its failure in it. Raises Unwritable."""
        self.rewrite(document)
        name = file_name(waiting.delivery_id)
        self._disk.move(self._disk.pending / name, self._disk.dead / name)
        with self._guard:
            self._dead_ids.add(waiting.delivery_id)
            self._lanes.remove(waiting)
        self._done(waiting.delivery_id, "dead", document.failure.code if document.failure is not None else "")

    def set_aside(self, waiting: Waiting, reason: str) -> None:
        """The document of a waiting delivery turned out to be none: quarantine it. Raises Unwritable."""
        self._disk.set_aside(self._disk.pending / file_name(waiting.delivery_id), reason)
        with self._guard:
            self._lanes.remove(waiting)

    def hold(self, lane: str, code: str) -> Waiting | None:
        """Hold a lane's first delivery until `hurry`."""
        with self._guard:
            return self._lanes.hold(lane, code)

    def hurry(self) -> None:
        """Free what is held; everything that need not settle is due now."""
        with self._guard:
            self._lanes.hurry(self._monotonic())
        self._tell()

    def unsent_about(self, memory_id: str) -> list[str]:
        """The deliveries about a memory that were certainly not sent; a file that cannot be read is none of them."""
        names = [waiting.delivery_id for waiting in self.waiting() if not waiting.ambiguous]
        return self._about(memory_id, self._disk.pending, names)

    def dead_about(self, memory_id: str) -> list[str]:
        """The dead letters about a memory: a retry would send them."""
        with self._guard:
            names = sorted(self._dead_ids)
        return self._about(memory_id, self._disk.dead, names)

    def _about(self, memory_id: str, folder: Path, names: Iterable[str]) -> list[str]:
        return self._disk.holding(f'"memory_id":"{memory_id}"'.encode(), folder, names)

    def place(self, delivery_id: str) -> Place:
        """Where a delivery is now."""
        with self._guard:
            return "pending" if delivery_id in self._lanes else "dead" if delivery_id in self._dead_ids else "absent"

    # -- for operators -----------------------------------------------------------------------------------------------
    def waiting(self) -> tuple[Waiting, ...]:
        """What waits, in no order; a snapshot."""
        with self._guard:
            return tuple(self._lanes)

    def counts(self) -> dict[str, Any]:
        """Counts and ages, content-free."""
        with self._guard:
            oldest = min((waiting.created_at for waiting in self._lanes), default=None)
            held = sum(waiting.held is not None for waiting in self._lanes)
            ambiguous = sum(waiting.ambiguous for waiting in self._lanes)
            return {
                "pending": len(self._lanes),
                "ambiguous": ambiguous,
                "held": held,
                "dead_letter": len(self._dead_ids),
                "quarantined": self._quarantined,
                "unreadable": len(self._unreadable),
                "oldest_pending_at": oldest,
            }

    def revive(self, delivery_id: str) -> bool:
        """Give a dead letter another chance; True where there was one. Raises StoreError.

        It keeps its place by time of admission and is looked up before it is sent.
        """
        with self._guard:
            if delivery_id not in self._dead_ids:
                return False
            document = self._disk.document(self._disk.dead, delivery_id)
            fresh = document.model_copy(update={"attempts": 0, "failure": None, "next_attempt_at": None})
            name = file_name(delivery_id)
            self._disk.publish(self._disk.dead, name, fresh.to_json())
            self._disk.move(self._disk.dead / name, self._disk.pending / name)
            self._dead_ids.discard(delivery_id)
            self._lanes.insert(self._to_wait(glance(fresh.to_json(), delivery_id)))
        self._tell()
        return True

    def drop(self, delivery_id: str) -> bool:
        """Forget a delivery for good, an operator's decision: dead, or pending and not under way. Raises Unwritable."""
        with self._guard:
            if delivery_id in self._dead_ids:
                self._disk.remove(self._disk.dead / file_name(delivery_id), durably=True)
                self._dead_ids.discard(delivery_id)
                self._done(delivery_id, "dropped")
                return True
            waiting = self._lanes.get(delivery_id)
            if waiting is None or self._lanes.is_under_way(waiting):
                return False
            self._disk.remove(self._disk.pending / file_name(delivery_id), durably=True)
            self._lanes.remove(waiting)
        self._done(delivery_id, "dropped")
        self._tell()
        return True

    # -- inside ------------------------------------------------------------------------------------------------------
    def _load(self) -> Opened:
        quarantined: list[tuple[str, str]] = []
        unreadable: list[tuple[str, str]] = []
        found = self._glances(self._disk.pending, quarantined, unreadable)
        self._disk.sweep()
        # A file that only has the name of a dead letter would be counted for ever, and keep that delivery from ever
        # being taken in.
        dead = self._glances(self._disk.dead, quarantined, unreadable)
        found.sort(key=lambda glance: (glance.created_at, glance.delivery_id))
        with self._guard:
            for glanced in found:
                self._lanes.add(self._to_wait(glanced))
            self._dead_ids = {glanced.delivery_id for glanced in dead}
            self._quarantined = self._disk.quarantined()
            self._unreadable = tuple(unreadable)
            self._admits = True
        return Opened(len(found), len(self._dead_ids), tuple(quarantined), tuple(unreadable))

    def _glances(
        self, folder: Path, quarantined: list[tuple[str, str]], unreadable: list[tuple[str, str]]
    ) -> list[Glance]:
        """The deliveries of a folder; what is none is moved aside, what cannot be read is left."""
        found: list[Glance] = []
        for entry in self._disk.files.scan(folder):
            try:
                found.append(self._disk.glance(folder, entry.name))
            except (FormatVersion, Integrity) as error:
                reason = str(error)
                self._disk.set_aside(folder / entry.name, reason)
                quarantined.append((entry.name, reason))
            except OSError as error:
                unreadable.append((entry.name, errno.errorcode.get(error.errno or 0, "unknown")))
        return found

    def _to_wait(self, glanced: Glance) -> Waiting:
        """What waits, from its document: a stored time of next attempt counts up to the longest wait there is."""
        wait = 0.0
        if glanced.next_attempt_at is not None:
            wait = glanced.next_attempt_at - self._now()
        elif glanced.ambiguous:
            wait = self._settle
        return Waiting(
            glanced.delivery_id,
            glanced.lane,
            iso(glanced.created_at),
            glanced.attempts,
            glanced.ambiguous,
            due=self._monotonic() + min(max(wait, 0.0), self._longest),
        )

    def _rising(self, lane: str) -> str:
        last = self._lanes.last_created_at(lane)
        moment = self._now()
        if last is not None:
            moment = max(moment, seconds(last) + _ONE_MICROSECOND)
            # A float of this size is exact to a quarter of a microsecond: step until the text rises.
            while iso(moment) <= last:
                moment += _ONE_MICROSECOND
        return iso(moment)

    def _redacted(self, request: DeliveryRequest) -> DeliveryRequest:
        messages: list[dict[str, Any]] = []
        for message in request.messages:
            content = self._redact(message.content)
            if not content.strip():
                raise Integrity("nothing is left of a message after redaction; it is not delivered", EMPTY)
            metadata = {key: self._redacted_value(key, value) for key, value in message.metadata.items()}
            messages.append({**message.model_dump(), "content": content, "metadata": metadata})
        return build_request(request.delivery_id, request.scope, messages)

    def _redacted_value(self, key: str, value: Any) -> Any:
        if key in _NOT_REDACTED:
            return value
        if isinstance(value, list):
            return [self._redact(item) if isinstance(item, str) else item for item in cast("list[Any]", value)]
        return self._redact(value) if isinstance(value, str) else value

    def _done(self, delivery_id: str, outcome: Outcome, code: str = "") -> None:
        if self._watcher is not None:
            self._watcher(delivery_id, outcome, code)

    def _tell(self) -> None:
        if self._listener is not None:
            self._listener()
