"""Remote experiment cards: what of a card may leave, and the two ports to whoever takes it and finds it again.

Owns: the shapes and the shipped provider in memory. Does not own: what is left out of a card (`artifacts.indexing`),
outbox and HTTP (`delivery`, `honcho`), how remote cards join a search (`tools.hybrid`).

Source: DeepSeek Honcho specification, sections 27.4, 29, 30.1; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from rlm_memory_host.contracts.delivery_ports import Outcome, Place, Watcher
from rlm_memory_host.contracts.ids import canonical_json
from rlm_memory_host.contracts.remote import Queued

CARD_CLASSIFICATION: Final = "experiment-card"
"""`content_classification` of a card's message: what keeps it apart from anything that a person said."""
REMOTE_CARD_VERSION: Final = 1
NAMESPACE: Final = "rlm-memory"
"""The provider's namespace in the identity of a card's delivery (section 29.2)."""
DROPPED: Final = "DROPPED_BY_OPERATOR"


@dataclass(frozen=True, slots=True)
class Projection:
    """What leaves of one card, made from an allowlist and redacted. `fields` goes along as metadata.

    `project_id` is the local project's; `revision` stands for everything that leaves.
    """

    project_id: str
    experiment_id: str
    artifact_id: str
    session_id: str
    agent_kind: Literal["root", "child"]
    updated_at: str
    text: str
    fields: Mapping[str, Any]

    @property
    def revision(self) -> str:
        """SHA-256, hexadecimal, of what leaves: the same words, the same revision."""
        told = {"fields": dict(self.fields), "schema": REMOTE_CARD_VERSION, "text": self.text}
        return hashlib.sha256(canonical_json(told)).hexdigest()


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nothing of the card leaves, and why."""

    code: str


class CardOutbox(Protocol):
    """Where projections are handed in: durable at return, never waiting for a network. Thread-safe."""

    def delivery_id(self, projection: Projection) -> str:
        """The stable id of a projection's delivery: the same revision is the same delivery."""
        ...

    def queue(self, projection: Projection) -> Queued:
        """Take a projection in; durable where it says `queued`."""
        ...

    def place(self, delivery_id: str) -> Place:
        """Where a delivery is now."""
        ...

    def revive(self, delivery_id: str) -> bool:
        """Give a dead letter another chance; False where there is none."""
        ...

    def withdraw(self, delivery_id: str) -> bool:
        """Take back what was certainly not sent."""
        ...

    def is_open(self) -> bool:
        """Whether the service is to be left alone now: its circuit is open."""
        ...

    def listen(self, listener: Watcher | None) -> None:
        """Tell a listener of every outcome from now on."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """A card as the remote memory gave it back, checked against the caller's scope. Untrusted text, bounded."""

    experiment_id: str
    artifact_id: str
    title: str
    summary: str
    source: str
    source_version: str
    query_fingerprint: str
    shape: tuple[int, ...] | None
    columns: tuple[str, ...] | None
    tags: tuple[str, ...]
    session_id: str
    created_at: str
    score: float


@dataclass(frozen=True, slots=True)
class CardAnswer:
    """What a remote search gave within its deadline. `discarded` counts what it gave and was not allowed to."""

    cards: tuple[RemoteCard, ...] = ()
    problem: str = ""
    discarded: Mapping[str, int] = field(default_factory=dict[str, int])


class CardSearch(Protocol):
    """Finds remote cards by meaning. Thread-safe; raises nothing for want of a network."""

    def search(self, query: str, *, project: str, limit: int, deadline_seconds: float) -> CardAnswer:
        """Cards of this project, best first."""
        ...


@dataclass(slots=True)
class MemoryCards:
    """Both ports in memory. `deliver` lets everything pending arrive; `refuse` ends it as dead letters."""

    pending: dict[str, Projection] = field(default_factory=dict[str, Projection])
    dead: dict[str, Projection] = field(default_factory=dict[str, Projection])
    arrived: dict[str, Projection] = field(default_factory=dict[str, Projection])
    problem: str = ""
    is_away: bool = False
    admitted: Counter[str] = field(default_factory=Counter[str])
    _listener: Watcher | None = None

    def delivery_id(self, projection: Projection) -> str:
        """As the port says."""
        return hashlib.sha256(f"{projection.experiment_id}\n{projection.revision}".encode()).hexdigest()

    def queue(self, projection: Projection) -> Queued:
        """As the port says."""
        delivery = self.delivery_id(projection)
        if self.problem:
            return Queued(False, "", self.problem)
        self.admitted[delivery] += 1
        if delivery not in self.dead:
            self.pending[delivery] = projection
        return Queued(True, delivery)

    def place(self, delivery_id: str) -> Place:
        """As the port says."""
        return "pending" if delivery_id in self.pending else "dead" if delivery_id in self.dead else "absent"

    def revive(self, delivery_id: str) -> bool:
        """As the port says."""
        if delivery_id not in self.dead:
            return False
        self.pending[delivery_id] = self.dead.pop(delivery_id)
        return True

    def withdraw(self, delivery_id: str) -> bool:
        """As the port says."""
        return self.pending.pop(delivery_id, None) is not None

    def is_open(self) -> bool:
        """As the port says."""
        return self.is_away

    def listen(self, listener: Watcher | None) -> None:
        """As the port says."""
        self._listener = listener

    def deliver(self) -> None:
        """Everything pending arrives, once each."""
        for delivery in list(self.pending):
            self.arrived[delivery] = self.pending.pop(delivery)
            self._told(delivery, "delivered", "")

    def refuse(self, code: str) -> None:
        """Everything pending is refused for good."""
        for delivery in list(self.pending):
            self.dead[delivery] = self.pending.pop(delivery)
            self._told(delivery, "dead", code)

    def search(self, query: str, *, project: str, limit: int, deadline_seconds: float) -> CardAnswer:
        """As the port says: by shared words."""
        del deadline_seconds
        wanted = set(query.casefold().split())
        found = [
            (len(wanted & set(item.text.casefold().split())), item)
            for item in self.arrived.values()
            if item.project_id == project
        ]
        best: Sequence[tuple[int, Projection]] = sorted(
            (pair for pair in found if pair[0]), key=lambda pair: (-pair[0], pair[1].experiment_id)
        )
        return CardAnswer(tuple(card_of(item, float(score)) for score, item in best[:limit]), self.problem)

    def _told(self, delivery: str, outcome: Outcome, code: str) -> None:
        if self._listener is not None:
            self._listener(delivery, outcome, code)


def card_of(projection: Projection, score: float) -> RemoteCard:
    """A projection as it comes back."""
    told = projection.fields
    shape, columns = told.get("shape"), told.get("columns")
    return RemoteCard(
        projection.experiment_id,
        projection.artifact_id,
        str(told.get("card_title", "")),
        str(told.get("card_summary", "")),
        str(told.get("card_source", "")),
        str(told.get("source_version", "")),
        str(told.get("query_fingerprint", "")),
        None if shape is None else tuple(shape),
        None if columns is None else tuple(columns),
        tuple(told.get("tags") or ()),
        projection.session_id,
        projection.updated_at,
        score,
    )
