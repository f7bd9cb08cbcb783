"""Captured sessions: events in, completed exchanges and the latest user message out.

Owns: correlation of messages with their turn's end, order by sequence number, what is still in memory of a session.
Does not own: which events count (`eligibility`), the evidence file (`TextStore.add_evidence`), redaction (given).

A message is readable as the latest one as soon as it is committed; it becomes evidence when its turn ended well. Events
are taken once: a sequence number that was seen is ignored, so a replay after a restart repeats nothing;
only headers are always read. Memory held is
bounded: the last `KEPT_TURNS` turns of the last `KEPT_SESSIONS` sessions.

Thread-safe. Source: DeepSeek Honcho specification, sections 11 and 12; design page "The memory model", Quotes.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from rlm_memory_host.capture.eligibility import is_completed, refusal, without_injected
from rlm_memory_host.contracts.capture import Exchange, Message, SessionEvent
from rlm_memory_host.contracts.memory import Evidence

KEPT_TURNS: Final = 8
KEPT_SESSIONS: Final = 256

Counters = Mapping[str, int]
Redact = Callable[[str], tuple[str, tuple[str, ...]]]
"""A text to (the text without secrets, the names of the patterns that were found)."""


@dataclass(slots=True)
class _Session:
    agent: Literal["root", "child"] | None = None
    seq: int = -1
    epoch: int = 0
    open: list[Message] = field(default_factory=list[Message])
    done: deque[Exchange] = field(default_factory=lambda: deque(maxlen=KEPT_TURNS))
    latest: Message | None = None
    turns: int = 0


class Capture:
    """The captured part of sessions. `on_evidence` stores one message; `on_exchange` hears of every completed turn."""

    def __init__(
        self,
        *,
        redact: Redact | None = None,
        on_evidence: Callable[[Evidence], None] | None = None,
        on_exchange: Callable[[Exchange], None] | None = None,
        last_seq: Callable[[str], int] | None = None,
    ) -> None:
        self._redact: Redact = redact or _as_it_is
        self._on_evidence = on_evidence
        self._on_exchange = on_exchange
        self._last_seq = last_seq
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._lock = threading.RLock()

    def feed(self, event: SessionEvent) -> None:
        """Take one event. An event that does not count raises nothing; what `on_evidence` raises goes on."""
        with self._lock:
            session = self._session(event.session)
            if event.kind == "session":
                session.agent = event.agent if session.agent is None else session.agent
                return
            if event.seq <= session.seq:
                self._counts["repeated"] += 1
                return
            session.seq = event.seq
            if event.kind == "epoch":
                session.epoch += 1
            elif event.kind == "turn_end":
                self._end(session, event)
            else:
                self._message(session, event)

    def asked(self, session: str, text: str, turn: int) -> None:
        """What a root session's user asks now, before its harness committed it: the latest message, no evidence."""
        with self._lock:
            found = self._sessions.get(session)
            event = SessionEvent(session, 0, "user", text=text, turn=turn)
            if found is not None and not refusal(event, found.agent):
                found.latest = Message(session, found.seq + 1, "user", without_injected(text), "", turn)

    def latest_user_message(self, session: str) -> Message | None:
        """As `Captured` says."""
        with self._lock:
            found = self._sessions.get(session)
            return found.latest if found is not None else None

    def recent(self, session: str, turns: int) -> tuple[Message, ...]:
        """As `Captured` says."""
        with self._lock:
            found = self._sessions.get(session)
            if found is None:
                return ()
            done = list(found.done)[-turns:] if turns > 0 else []
            return tuple(message for exchange in done for message in exchange.messages) + tuple(found.open)

    def epoch(self, session: str) -> int:
        """As `Captured` says."""
        with self._lock:
            found = self._sessions.get(session)
            return found.epoch if found is not None else 0

    def completed_turns(self, session: str) -> int:
        """How many turns of a session ended well since it is captured here."""
        with self._lock:
            found = self._sessions.get(session)
            return found.turns if found is not None else 0

    def counters(self) -> Counters:
        """How many events were captured and how many were left out, by reason; no content."""
        with self._lock:
            return dict(self._counts)

    # -- one event ---------------------------------------------------------------------------------------------------
    def _session(self, name: str) -> _Session:
        found = self._sessions.get(name)
        if found is None:
            found = self._sessions[name] = _Session()
            if self._last_seq is not None:
                found.seq = self._last_seq(name)
            while len(self._sessions) > KEPT_SESSIONS:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(name)
        return found

    def _message(self, session: _Session, event: SessionEvent) -> None:
        why = refusal(event, session.agent)
        self._counts[why or "captured"] += 1
        if why:
            return
        role: Literal["user", "assistant"] = "user" if event.kind == "user" else "assistant"
        text = without_injected(event.text).replace("\r\n", "\n").replace("\r", "\n")
        message = Message(event.session, event.seq, role, text, event.ts, event.turn)
        if session.open and session.open[-1].turn != message.turn:
            # That turn never ended (its harness was killed): its words belong to no completed exchange.
            session.open.clear()
            self._counts["turn-not-completed"] += 1
        session.open.append(message)
        if role == "user":
            session.latest = message

    def _end(self, session: _Session, event: SessionEvent) -> None:
        messages, session.open = tuple(session.open), []
        if not is_completed(event.reason):
            self._counts["turn-not-completed"] += 1
            return
        if not messages:
            return
        exchange = Exchange(event.session, event.turn or messages[0].turn, messages)
        session.done.append(exchange)
        session.turns += 1
        for message in messages:
            self._store(message)
        if self._on_exchange is not None:
            self._on_exchange(exchange)

    def _store(self, message: Message) -> None:
        if self._on_evidence is None:
            return
        text, found = self._redact(message.text)
        if not text.strip():
            self._counts["empty-after-redaction"] += 1
            return
        self._on_evidence(
            Evidence(
                id=f"{message.session}:{message.seq}",
                session=message.session,
                seq=message.seq,
                ts=message.ts,
                speaker=message.role,
                text=text,
                origin="user" if message.role == "user" else "model",
                redacted=found,
            )
        )


def _as_it_is(text: str) -> tuple[str, tuple[str, ...]]:
    return text, ()
