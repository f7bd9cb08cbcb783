"""The call log: one JSON line per tool call, without any argument or result.

Owns: what a line holds. Does not own: rotation and modes (`logs`).

Source: DeepSeek Honcho specification, sections 18 and 32: tool calls are logged by bounded, redacted metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.logs import short_hash


class LineSink(Protocol):
    """Where lines go: a rotating file (`logs.JsonLines`), or a list (`ListSink`)."""

    def write(self, entry: dict[str, Any]) -> None:
        """Add one entry."""
        ...


class ListSink(list[dict[str, Any]]):
    """Keeps entries in memory, for tests and for hosts without a log."""

    def write(self, entry: dict[str, Any]) -> None:
        """Add one entry."""
        self.append(entry)


@dataclass(frozen=True, slots=True)
class CallLog:
    """Writes the lines."""

    sink: LineSink

    def write(self, event: str, tool: str, scope: Scope, **numbers: Any) -> None:
        """Add a line. `tool` must be a registered name or a placeholder, never a caller's text."""
        self.sink.write(
            {
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "event": event,
                "tool": tool,
                "call": short_hash(scope.call_id or ""),
                "session": short_hash(scope.session_id),
                "agent": scope.agent_kind,
                **numbers,
            }
        )
