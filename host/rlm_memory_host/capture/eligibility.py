"""Which events are captured: a pure function with a named reason for each that is not.

Owns: the rules of section 11.1 and the recognition of the host's own injected text. Does not own: keeping, redaction.

Left out: system and developer prompts, injected context (prior recall among it), tool arguments and results, chunks and
partial streams, hidden reasoning, compaction summaries, child sessions, and turns that end in error or abort.

Source: DeepSeek Honcho specification, section 11.1.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from rlm_memory_host.contracts.capture import SessionEvent

ENVELOPE_NAMES: Final = ("MEMORY_DATA", "RECALLED_MEMORY", "Honcho memory", "persistent-memory")
"""What the host's own injections are enclosed in, in all its profiles."""
MAX_MESSAGE: Final = 64_000
"""Characters of one message; a longer one is skipped and counted, never captured in part."""
COMPLETED: Final = frozenset({"completed", "complete", "success", "stop", "end_turn", "done", "ok"})

_INJECTED: Final = re.compile(
    r"<(?P<tag>MEMORY_DATA|persistent-memory)\b.*?(?:</(?P=tag)>|\Z)"
    r"|\[(?P<name>RECALLED_MEMORY|Honcho memory)\b.*?(?:\[/(?P=name)\]|\Z)",
    re.DOTALL,
)

Reason = Literal[
    "", "child-session", "no-header", "injected", "not-committed", "not-text", "not-a-message", "empty", "oversized"
]


def refusal(event: SessionEvent, agent: Literal["root", "child"] | None) -> Reason:
    """Why a message is not captured; "" when it is. `agent` is what the session's header said."""
    if event.kind not in ("user", "assistant"):
        return "not-a-message"
    if agent is None:
        return "no-header"
    if agent == "child":
        return "child-session"
    if event.source.startswith("plugin") or (event.kind == "user" and event.source != "user"):
        return "injected"
    if not event.final:
        return "not-committed"
    if len(event.text) > MAX_MESSAGE:
        return "oversized"
    return "" if without_injected(event.text).strip() else "empty"


def is_completed(reason: str) -> bool:
    """Whether a turn ended well; an unknown reason counts as not."""
    return reason in COMPLETED


def without_injected(text: str) -> str:
    """A text without what the host itself had injected into it."""
    return _INJECTED.sub("", text)
