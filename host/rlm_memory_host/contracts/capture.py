"""What a session tells the host: its events, and what others may ask of the captured part.

Owns: the event's shape and the port through which verified quotes, habits and extraction reach the user's own words.
Does not own: which events count (`capture.eligibility`), keeping them (`capture.sessions`).

Source: DeepSeek Honcho specification, section 11; design page "The memory model", Quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

EventKind = Literal["session", "user", "assistant", "tool", "system", "reasoning", "compaction", "turn_end", "epoch"]
"""`session` is the header; `epoch` a compact, clear or rewrite, after which recalled items may be shown again."""


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """One committed event of a session. `seq` grows within the session; `ts` is ISO 8601 in UTC.

    `agent` stands in the header only. `source` says who put a message there ("user", "plugin:<name>", …); anything but
    "user" was injected. `final` is False for chunks and partial streams. `reason` is a turn's end ("completed",
    "error", "aborted", …). Half a surrogate pair, which no file keeps, becomes U+FFFD: a harness that cuts a text in
    the middle of a sign loses that sign and not the exchange.
    """

    session: str
    seq: int
    kind: EventKind
    text: str = ""
    ts: str = ""
    turn: int = 0
    source: str = "user"
    agent: Literal["root", "child"] | None = None
    final: bool = True
    reason: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "ts", "source", "reason"):
            value: str = getattr(self, name)
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                object.__setattr__(self, name, whole)


@dataclass(frozen=True, slots=True)
class Message:
    """One captured message of a root session: the user's own, or the assistant's final text."""

    session: str
    seq: int
    role: Literal["user", "assistant"]
    text: str
    ts: str
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """One completed turn: the user's messages and the assistant's final texts, in order."""

    session: str
    turn: int
    messages: tuple[Message, ...]


class Captured(Protocol):
    """The captured part of sessions, as services read it. Implementations: `Capture`, `NothingCaptured`."""

    def latest_user_message(self, session: str) -> Message | None:
        """The user's newest message in a root session, also while its turn runs; None where nothing was captured."""
        ...

    def recent(self, session: str, turns: int) -> tuple[Message, ...]:
        """The messages of the last `turns` turns, oldest first, the running one included."""
        ...

    def epoch(self, session: str) -> int:
        """How often the session's context was compacted, cleared or rewritten."""
        ...


class NothingCaptured:
    """No session is captured: no quote verifies, every epoch is the first."""

    def latest_user_message(self, session: str) -> Message | None:
        """None."""
        del session
        return None

    def recent(self, session: str, turns: int) -> tuple[Message, ...]:
        """Nothing."""
        del session, turns
        return ()

    def epoch(self, session: str) -> int:
        """0."""
        del session
        return 0
