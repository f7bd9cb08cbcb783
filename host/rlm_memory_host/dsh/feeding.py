"""From a session's records to capture: live, as a bridge tells them, or whole turns of its log.

Owns: announcing a session as a root's or a child's before its words. Does not own: reading records (`events`), turns
of a log (`gathering`), what may be captured (`capture`).

Source: design page "DeepSeek Harness and MCP", Rules for capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from rlm_memory_host.contracts.capture import SessionEvent
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.dsh.events import Reader


class Feed(Protocol):
    """Where events go: `assembly.sessions.Sessions`."""

    def feed(self, scope: Scope, event: SessionEvent) -> None:
        """Take one event. Raises HostError."""
        ...


class Reconciled(Feed, Protocol):
    """Where turns of a log go, which somebody may have told before: `assembly.sessions.Sessions`."""

    def reconcile(self, scope: Scope, turn: Sequence[SessionEvent]) -> bool:
        """Take what of a whole turn is not kept yet; whether anything was new. Raises HostError."""
        ...


def taken_in(sessions: Feed, scope: Scope, is_known: bool, records: Iterable[object]) -> int:
    """Feed a session's records; how many events they gave. What may not be captured is counted by `capture`.

    `is_known`: whether it is known of the session that it is a root's or a child's; else nobody announces it, and its
    words are left out.
    """
    reader, count = Reader(scope.session_id), 0
    _announce(sessions, scope, is_known)
    for record in records:
        for event in reader.read(record):
            sessions.feed(scope, event)
            count += 1
    return count


def caught_up(sessions: Reconciled, scope: Scope, turn: Sequence[SessionEvent]) -> bool:
    """Take a whole turn of a root's log; whether anything of it was new. Raises HostError."""
    _announce(sessions, scope, is_known=True)
    return sessions.reconcile(scope, turn)


def _announce(sessions: Feed, scope: Scope, is_known: bool) -> None:
    if is_known and scope.agent_kind != "none":
        sessions.feed(scope, SessionEvent(scope.session_id, 0, "session", agent=scope.agent_kind))
