"""Where events come from: parsed objects of a harness, and a recorded session as JSON lines.

Owns: reading the canonical event shapes. Does not own: which events count. An object that is not one of the shapes
gives no event; it is never turned into text for want of something better (section 11.1).

Shapes: {"type": "session", "session", "seq", "agent": "root"|"child"}; {"type": "user/message" | "assistant/message",
"session", "seq", "turn", "content": text or [{"type": "text", "text"}, …], "source": {"kind": "user"} or {"kind":
"plugin", "plugin"}, "final"?}; {"type": "turn/end", "session", "seq", "turn", "reason"}; {"type": "session/compact"}.

Source: DeepSeek Honcho specification, section 11.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

from rlm_memory_host.capture.sessions import Capture
from rlm_memory_host.contracts.capture import EventKind, SessionEvent

_KINDS: Final[Mapping[str, EventKind]] = {
    "session": "session",
    "session/start": "session",
    "user/message": "user",
    "assistant/message": "assistant",
    "assistant/chunk": "assistant",
    "assistant/reasoning": "reasoning",
    "tool/call": "tool",
    "tool/result": "tool",
    "system/message": "system",
    "developer/message": "system",
    "compaction/summary": "compaction",
    "turn/end": "turn_end",
    "session/compact": "epoch",
    "session/clear": "epoch",
    "session/rewrite": "epoch",
}


def parse_event(value: object) -> SessionEvent | None:
    """The event of one decoded object; None when it has none of the shapes."""
    if not isinstance(value, Mapping):
        return None
    row = cast("Mapping[str, object]", value)
    kind = _KINDS.get(str(row.get("type", "")))
    session, seq = row.get("session"), row.get("seq")
    if kind is None or not isinstance(session, str) or not session or not isinstance(seq, int) or isinstance(seq, bool):
        return None
    turn = row.get("turn")
    agent = row.get("agent")
    return SessionEvent(
        session=session,
        seq=seq,
        kind=kind,
        text=_text(row.get("content")),
        ts=str(row.get("ts", "")) if isinstance(row.get("ts"), str) else "",
        turn=turn if isinstance(turn, int) and not isinstance(turn, bool) else 0,
        source=_source(row.get("source"), kind),
        agent="root" if agent == "root" else "child" if agent == "child" else None,
        final=row.get("final", True) is True and row.get("type") != "assistant/chunk",
        reason=str(row.get("reason", "")) if isinstance(row.get("reason"), str) else "",
    )


def replay(capture: Capture, lines: Iterable[str]) -> tuple[int, int]:
    """Feed a recorded session, one JSON object a line. Gives (events taken, lines that are none)."""
    taken = skipped = 0
    for value in objects(lines):
        event = parse_event(value)
        if event is None:
            skipped += 1
            continue
        capture.feed(event)
        taken += 1
    return taken, skipped


def objects(lines: Iterable[str]) -> Iterator[object]:
    """The JSON value of every line that is not blank; None for a line that is no JSON."""
    for line in lines:
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield None


def _text(content: object) -> str:
    """Text parts only; images, attachments, tool blocks and unknown parts are left out."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts: list[str] = []
    for part in cast("list[object]", content):
        if isinstance(part, Mapping):
            block = cast("Mapping[str, object]", part)
            text = block.get("text")
            if block.get("type") == "text" and isinstance(text, str):
                parts.append(text)
    return "\n".join(parts)


def _source(source: object, kind: EventKind) -> str:
    """ "user" only where the event says so, or says nothing for a message of the user's."""
    if source is None:
        return "user" if kind == "user" else "model"
    if isinstance(source, Mapping):
        row = cast("Mapping[str, object]", source)
        name = str(row.get("kind", ""))
        return f"plugin:{row.get('plugin', '')}" if name == "plugin" else name or "unknown"
    return source if isinstance(source, str) and source else "unknown"
