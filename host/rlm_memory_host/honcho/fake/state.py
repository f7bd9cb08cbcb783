"""What the fake server holds, in memory: workspaces, peers, sessions, messages, conclusions.

Owns: the rows and the service's rules about them: ids, limits, replaced metadata, duplicates that stay, search that
sees a message late. Does not own: HTTP (`app`), filters (`filters`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

MAX_CONTENT: Final = 25_000
MAX_BATCH: Final = 100
MAX_PAGE: Final = 100
MAX_METADATA_KEYS: Final = 100
MAX_METADATA_DEPTH: Final = 5
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,512}")
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


@dataclass(slots=True)
class Row:
    """A workspace, peer, session, message or conclusion: its columns as the service answers them."""

    columns: dict[str, Any]
    order: int
    visible_at: float = 0.0
    """From when on search sees it."""

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]


@dataclass(slots=True)
class Session:
    """A session with its members and messages."""

    row: Row
    peers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    messages: list[Row] = field(default_factory=list[Row])


@dataclass(slots=True)
class Workspace:
    """A workspace with everything in it."""

    row: Row
    peers: dict[str, Row] = field(default_factory=dict[str, Row])
    cards: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    conclusions: dict[str, Row] = field(default_factory=dict[str, Row])

    def messages(self) -> Iterable[Row]:
        """All messages, in the order of their arrival."""
        rows = [message for session in self.sessions.values() for message in session.messages]
        return sorted(rows, key=lambda row: row.order)


class Store:
    """All workspaces. `now` gives seconds since 1970; messages are searchable `search_delay` seconds after arrival."""

    def __init__(self, now: Callable[[], float], search_delay: float) -> None:
        self.workspaces: dict[str, Workspace] = {}
        self.now = now
        self.search_delay = search_delay
        self.ignores_filters = False
        """Whether searches give rows that their filters rule out, as a faulty release might."""
        self._order = 0

    def new_id(self) -> str:
        """A random id of 21 characters, the form of the service's own."""
        return "".join(secrets.choice(_ALPHABET) for _ in range(21))

    def stamp(self) -> str:
        """Now, ISO 8601 in UTC."""
        return datetime.fromtimestamp(self.now(), UTC).isoformat().replace("+00:00", "Z")

    def row(self, columns: dict[str, Any]) -> Row:
        """A new row."""
        self._order += 1
        return Row(columns, self._order, self.now() + self.search_delay)

    def workspace(self, name: str) -> Workspace:
        """Get or create."""
        if name not in self.workspaces:
            columns: dict[str, Any] = {
                "id": name,
                "uid": self.new_id(),
                "metadata": {},
                "configuration": {},
                "created_at": self.stamp(),
            }
            self.workspaces[name] = Workspace(self.row(columns))
        return self.workspaces[name]

    def peer(self, space: Workspace, name: str) -> Row:
        """Get or create."""
        if name not in space.peers:
            space.peers[name] = self.row(
                {
                    "id": name,
                    "uid": self.new_id(),
                    "workspace_id": space.row["id"],
                    "created_at": self.stamp(),
                    "metadata": {},
                    "configuration": {},
                }
            )
        return space.peers[name]

    def session(self, space: Workspace, name: str) -> Session:
        """Get or create."""
        if name not in space.sessions:
            space.sessions[name] = Session(
                self.row(
                    {
                        "id": name,
                        "uid": self.new_id(),
                        "is_active": True,
                        "workspace_id": space.row["id"],
                        "metadata": {},
                        "configuration": {},
                        "created_at": self.stamp(),
                    }
                )
            )
        return space.sessions[name]

    def join(self, space: Workspace, session: Session, peers: Mapping[str, dict[str, Any] | None]) -> None:
        """Add members; what they are configured with replaces what they had."""
        for name, configuration in peers.items():
            self.peer(space, name)
            session.peers[name] = {k: v for k, v in (configuration or {}).items() if v is not None}

    def add_message(self, space: Workspace, session: Session, message: dict[str, Any]) -> Row:
        """One more row, whatever is there already: there is no idempotency."""
        self.peer(space, message["peer_id"])
        session.peers.setdefault(message["peer_id"], {})
        row = self.row(
            {
                "id": self.new_id(),
                "content": message["content"],
                "peer_id": message["peer_id"],
                "session_id": session.row["id"],
                "metadata": message.get("metadata") or {},
                "created_at": message.get("created_at") or self.stamp(),
                "workspace_id": space.row["id"],
                "token_count": max(1, len(message["content"]) // 4),
            }
        )
        session.messages.append(row)
        return row


def replace(row: Row, body: dict[str, Any]) -> None:
    """Metadata and configuration that are given replace what was there as a whole."""
    for name in ("metadata", "configuration"):
        if body.get(name) is not None:
            row.columns[name] = body[name]


def words(text: str) -> set[str]:
    """The words of a text, for the fake's idea of meaning."""
    return set(re.findall(r"\w+", text.lower()))


def ranked(rows: Iterable[Row], query: str, now: float, limit: int) -> list[Row]:
    """The rows that share words with the query and are searchable by now, best first."""
    wanted = words(query)
    scored = [(len(wanted & words(str(row["content"]))), row) for row in rows if row.visible_at <= now]
    best = sorted((item for item in scored if item[0]), key=lambda item: (-item[0], -item[1].order))
    return [row for _, row in best[:limit]]
