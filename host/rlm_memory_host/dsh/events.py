"""Committed events of a DeepSeek Harness session, as the events that capture understands.

Owns: which record of the two header versions is a person's message, the assistant's answer, a turn's end, an epoch.
Does not own: whether a captured message may be kept (`capture.eligibility`), the session's scope.

A person's message: `user/message` with source kind `user`, appended to the surface. The answer of a turn: its last
`assistant/message` that was not interrupted and holds no tool call; it is known when the turn ends, so a turn's answer
is told together with its end. Everything else gives nothing: tool calls and results, chunks, reasoning, injected
context, system text.

Source: design page "DeepSeek Harness and MCP", Rules for capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, cast

from rlm_memory_host.contracts.capture import SessionEvent

EPOCH: Final = "compaction/summary"
"""After this record the model no longer sees what it was shown before."""
USED: Final = frozenset({"user/message", "assistant/message", "turn/start", "turn/end", EPOCH})

Row = Mapping[str, object]


@dataclass(slots=True)
class Reader:
    """The records of one session in order, read into events. A turn that began before is unknown until it ends."""

    session: str
    turn: int = 0
    answer: SessionEvent | None = field(default=None)

    def read(self, value: object) -> Iterator[SessionEvent]:
        """The events that a record gives: none, one, or a turn's answer and its end."""
        row = _row(value)
        kind, seq = row.get("type"), row.get("seq")
        if type(seq) is not int or seq < 0 or kind not in USED:
            return
        data, ts = _row(row.get("data")), _time(row.get("time"))
        if kind == EPOCH:
            yield SessionEvent(self.session, seq, "epoch", ts=ts)
        elif kind == "turn/start":
            self.turn, self.answer = _turn(data), None
        elif kind == "user/message":
            yield self._user(seq, ts, row, data)
        elif kind == "assistant/message":
            self._assistant(seq, ts, row, data)
        else:
            if self.answer is not None and self.answer.turn == _turn(data):
                yield self.answer
            self.answer = None
            reason = _row(data.get("reason")).get("kind")
            yield SessionEvent(
                self.session, seq, "turn_end", ts=ts, turn=_turn(data), reason=reason if isinstance(reason, str) else ""
            )

    def _user(self, seq: int, ts: str, row: Row, data: Row) -> SessionEvent:
        source = _row(data.get("source")).get("kind")
        is_human = source == "user" and row.get("surfaceOp") == "append" and data.get("role", "user") == "user"
        return SessionEvent(
            self.session,
            seq,
            "user",
            text=_text(data.get("content")) if is_human else "",
            ts=ts,
            turn=self.turn,
            source="user" if is_human else f"plugin:{source if isinstance(source, str) else 'unknown'}",
        )

    def _assistant(self, seq: int, ts: str, row: Row, data: Row) -> None:
        content = _row(data.get("message")).get("content")
        is_answer = data.get("interrupted") is not True and row.get("surfaceOp") == "append" and not _calls(content)
        if is_answer:
            self.answer = SessionEvent(
                self.session, seq, "assistant", text=_text(content), ts=ts, turn=_turn(data), source="model"
            )
        else:
            self.answer = None


def text_length(value: object) -> int:
    """Characters of the messages in a record that capture may read: a person's and the assistant's."""
    row = _row(value)
    data = _row(row.get("data"))
    if row.get("type") == "assistant/message":
        return len(_text(_row(data.get("message")).get("content")))
    is_human = row.get("type") == "user/message" and _row(data.get("source")).get("kind") == "user"
    return len(_text(data.get("content"))) if is_human else 0


def _row(value: object) -> Row:
    return cast("Row", value) if isinstance(value, Mapping) else {}


def _turn(data: Row) -> int:
    turn = data.get("turn")
    return turn if type(turn) is int else 0


def _time(value: object) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC; "" for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""


def _blocks(content: object) -> Iterator[Row]:
    if isinstance(content, list):
        yield from (_row(block) for block in cast("list[object]", content))


def _text(content: object) -> str:
    parts = [block.get("text") for block in _blocks(content) if block.get("type") == "text"]
    return "\n".join(part for part in parts if isinstance(part, str))


def _calls(content: object) -> bool:
    return any(block.get("type") == "tool-call" for block in _blocks(content))
