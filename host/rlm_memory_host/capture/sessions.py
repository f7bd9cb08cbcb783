"""Captured sessions: events in, completed exchanges and the latest user message out.

Owns: correlation of messages with their turn's end, order by sequence number, what is still in memory of a session.
Does not own: which events count (`eligibility`), the evidence file (`TextStore.add_evidence`), redaction (given).

A message is readable as the latest one as soon as it is committed; it becomes evidence when its turn ended well. Events
are taken once: a sequence number that was seen is ignored, so a replay after a restart repeats nothing;
only headers are always read. A whole turn of a log (`reconcile`) may be older than what was seen: it is taken where
nothing of it is kept, told by sequence number, or by speaker and time. Memory held is bounded: the last `KEPT_TURNS`
turns of the last `KEPT_SESSIONS` sessions, and for those that a log was read of, which messages are kept.

Thread-safe. Source: DeepSeek Honcho specification, sections 11 and 12; design page "The memory model", Quotes.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    kept: set[int | tuple[str, str]] | None = None
    """What is evidence already, by sequence number and by (speaker, time); None until a log of it was read."""


class Capture:
    """The captured part of sessions. `on_evidence` stores one message; `on_exchange` hears of every completed turn."""

    def __init__(
        self,
        *,
        redact: Redact | None = None,
        on_evidence: Callable[[Evidence], None] | None = None,
        on_exchange: Callable[[Exchange], None] | None = None,
        kept: Callable[[str], Iterable[Evidence]] | None = None,
    ) -> None:
        self._redact: Redact = redact or _as_it_is
        self._on_evidence = on_evidence
        self._on_exchange = on_exchange
        self._kept = kept
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

    def reconcile(self, turn: Sequence[SessionEvent]) -> bool:
        """Take a whole turn of a session's log: its messages in order, then its end. Raises what `on_evidence` does.

        True where anything of it was new. A turn that is told live at the same time is taken once, whoever is first.
        """
        end = turn[-1]
        with self._lock:
            session = self._session(end.session)
            is_newest = end.seq > session.seq
            open_ = {message.seq for message in session.open}
            messages = [message for event in turn[:-1] if (message := self._late(session, event)) is not None]
            if is_newest:
                session.open = [message for message in session.open if message.turn != end.turn]
                session.seq = end.seq
            if not is_completed(end.reason):
                if is_newest:
                    self._counts["turn-not-completed"] += 1
                return False
            kept = self._known(session, end.session)
            new = [one for one in messages if not {one.seq, (one.role, one.ts)} & kept]
            if not new:
                self._counts["repeated"] += max(1, len(messages))
                return False
            self._counts["captured"] += sum(message.seq not in open_ for message in new)
            if is_newest:
                session.latest = next((one for one in reversed(messages) if one.role == "user"), session.latest)
            self._keep(session, Exchange(end.session, end.turn, tuple(messages)), new, is_newest)
            return True

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
            if self._kept is not None:
                found.seq = max((item.seq for item in self._kept(name)), default=-1)
            while len(self._sessions) > KEPT_SESSIONS:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(name)
        return found

    def _message(self, session: _Session, event: SessionEvent) -> None:
        why = refusal(event, session.agent)
        self._counts[why or "captured"] += 1
        if why:
            return
        message = _message_of(event)
        if session.open and session.open[-1].turn != message.turn:
            # That turn never ended (its harness was killed): its words belong to no completed exchange.
            session.open.clear()
            self._counts["turn-not-completed"] += 1
        session.open.append(message)
        if message.role == "user":
            session.latest = message

    def _end(self, session: _Session, event: SessionEvent) -> None:
        messages, session.open = tuple(session.open), []
        if not is_completed(event.reason):
            self._counts["turn-not-completed"] += 1
            return
        if not messages:
            return
        exchange = Exchange(event.session, event.turn or messages[0].turn, messages)
        self._keep(session, exchange, messages)

    def _late(self, session: _Session, event: SessionEvent) -> Message | None:
        """The message of an event out of a log; one that is left out is counted where nobody told of it before."""
        why = refusal(event, session.agent)
        if why:
            if event.seq > session.seq:
                self._counts[why] += 1
            return None
        return _message_of(event)

    def _known(self, session: _Session, name: str) -> set[int | tuple[str, str]]:
        if session.kept is None:
            session.kept = set()
            for item in self._kept(name) if self._kept is not None else ():
                _add(session.kept, item.seq, item.speaker, item.ts)
            for exchange in session.done:
                for message in exchange.messages:
                    _add(session.kept, message.seq, message.role, message.ts)
        return session.kept

    def _keep(self, session: _Session, exchange: Exchange, new: Sequence[Message], is_newest: bool = True) -> None:
        if is_newest:
            session.done.append(exchange)
        session.turns += 1
        for message in new:
            self._store(message)
            if session.kept is not None:
                _add(session.kept, message.seq, message.role, message.ts)
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


def _message_of(event: SessionEvent) -> Message:
    role: Literal["user", "assistant"] = "user" if event.kind == "user" else "assistant"
    text = without_injected(event.text).replace("\r\n", "\n").replace("\r", "\n")
    return Message(event.session, event.seq, role, text, event.ts, event.turn)


def _add(kept: set[int | tuple[str, str]], seq: int, speaker: str, ts: str) -> None:
    kept.add(seq)
    if ts:
        kept.add((speaker, ts))


def _as_it_is(text: str) -> tuple[str, tuple[str, ...]]:
    return text, ()
