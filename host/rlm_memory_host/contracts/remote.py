"""The port of a remote memory: what is offered to it, and what comes back when it is asked.

Owns: the shapes and the shipped provider in memory. Does not own: outbox, HTTP, workspace and peers (`delivery`,
`honcho`); who may be asked about (`recall`). Nothing here raises for want of a network: a provider answers empty and
says so in `problem`.

Source: design page "Overview", Layers; design page "Recall", Recall; DeepSeek Honcho specification, sections 9, 12, 14.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Offered:
    """One accepted note or correction. `delivery_id` is stable: offering the same again is one delivery.

    `speaker` is who said it: only a user's own words ever leave under the human peer. `layer` and `version` name the
    memory's state that it tells, "" and 0 where nothing is kept here.
    """

    delivery_id: str
    memory_id: str
    kind: Literal["note", "correction"]
    text: str
    speaker: Literal["user", "operator", "model", "child"]
    session: str
    project: str
    ts: str
    supersedes: tuple[str, ...] = ()
    layer: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Queued:
    """Whether the delivery is in the outbox now; `delivery_id` names it."""

    queued: bool
    delivery_id: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RemoteHit:
    """One recalled text. `memory_id` names the local memory it came from, where the metadata says so."""

    id: str
    text: str
    score: float
    ts: str = ""
    session: str = ""
    project: str = ""
    memory_id: str = ""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What a remote gave within its deadline; `problem` is a code when it gave nothing for a reason."""

    hits: tuple[RemoteHit, ...] = ()
    text: str = ""
    problem: str = ""


class RemoteMemory(Protocol):
    """A remote memory. Thread-safe. Deadlines are seconds and the provider's to keep; callers keep their own too."""

    def announce(self, note: Offered) -> None:
        """A note is about to be kept here and offered: a host that is killed in between offers it at its next start."""
        ...

    def retract(self, note: Offered) -> None:
        """What was announced was not kept after all."""
        ...

    def offer(self, note: Offered) -> Queued:
        """Take a note into the outbox; durable when it returns `queued`."""
        ...

    def withdraw(self, memory_id: str) -> int:
        """Drop pending deliveries of a memory; how many were dropped. What was delivered stays there."""
        ...

    def recall(self, query: str, *, project: str, limit: int, deadline_seconds: float) -> RemoteAnswer:
        """Texts that fit a query, of this owner and project only."""
        ...

    def answer(self, question: str, *, project: str, deadline_seconds: float) -> RemoteAnswer:
        """The remote's own dialectic, where it has one."""
        ...


def delivery_id(memory_id: str, version: int, kind: str) -> str:
    """The stable id of one version's delivery: `dlv_` and 32 hexadecimal digits."""
    return "dlv_" + hashlib.sha256(f"{kind}\n{memory_id}\n{version}".encode()).hexdigest()[:32]


@dataclass(slots=True)
class MemoryRemote:
    """The shipped provider in memory: keeps what it is offered and finds it by shared words. Not for production.

    `delivered` moves what is pending out of reach of `withdraw`. `problem` makes every recall answer with that code.
    """

    pending: dict[str, Offered] = field(default_factory=dict[str, Offered])
    delivered: dict[str, Offered] = field(default_factory=dict[str, Offered])
    extra: Sequence[RemoteHit] = ()
    problem: str = ""
    spoken: Mapping[str, str] = field(default_factory=dict[str, str])

    def announce(self, note: Offered) -> None:
        """Nothing: this provider ends with its process."""

    def retract(self, note: Offered) -> None:
        """Nothing: this provider ends with its process."""

    def offer(self, note: Offered) -> Queued:
        """As the port says."""
        if note.delivery_id not in self.delivered:
            self.pending[note.delivery_id] = note
        return Queued(True, note.delivery_id)

    def withdraw(self, memory_id: str) -> int:
        """As the port says."""
        gone = [key for key, note in self.pending.items() if note.memory_id == memory_id]
        for key in gone:
            del self.pending[key]
        return len(gone)

    def deliver(self) -> None:
        """Everything pending is at the remote now."""
        self.delivered.update(self.pending)
        self.pending.clear()

    def recall(self, query: str, *, project: str, limit: int, deadline_seconds: float) -> RemoteAnswer:
        """As the port says."""
        del deadline_seconds
        if self.problem:
            return RemoteAnswer(problem=self.problem)
        wanted = set(query.casefold().split())
        found = [
            RemoteHit(note.delivery_id, note.text, float(shared), note.ts, note.session, note.project, note.memory_id)
            for note in self.delivered.values()
            if note.project == project and (shared := len(wanted & set(note.text.casefold().split())))
        ]
        return RemoteAnswer(tuple(sorted([*found, *self.extra], key=lambda hit: (-hit.score, hit.id))[:limit]))

    def answer(self, question: str, *, project: str, deadline_seconds: float) -> RemoteAnswer:
        """A scripted sentence, where there is one."""
        del project, deadline_seconds
        return RemoteAnswer(text=self.spoken.get(question, ""), problem=self.problem)
