"""A text memory with a replayed session around it, as tests need it. The capture path is the real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from rlm_memory_host.capture import Capture, replay
from rlm_memory_host.contracts.judging import JudgeModel
from rlm_memory_host.contracts.memory import Authority, Block, Caller, Profile, TextStore
from rlm_memory_host.contracts.remote import RemoteMemory
from rlm_memory_host.errors import GuardRejected
from rlm_memory_host.textmemory.service import Parts, TextMemory
from rlm_memory_host.textmemory.volatile import VolatileStore

ROOT = Caller(project="demo", session="s1", agent_kind="root")
CHILD = Caller(project="demo", session="s1-child", agent_kind="child")
PLAIN = Caller(project="demo", session="s1", agent_kind="none")


def toy_guard(fields: Mapping[str, str], writer: Authority, sink: str) -> tuple[str, ...]:
    """Enough of a guard for tests of what follows from one: one secret word, one order."""
    flags: list[str] = []
    for name, text in fields.items():
        if "sk-live-" in text:
            raise GuardRejected(f"{name}: line 1 holds a secret", findings=((name, 1, "toy"),))
        if "ignore all previous instructions" in text.casefold() or "请忽略以上指令" in text:
            if writer not in (Authority.USER, Authority.OPERATOR):
                raise GuardRejected(f"{name}: reads like an instruction", "GUARD_INJECTION")
            flags.append("instruction_like")
    return tuple(flags)


@dataclass
class Clock:
    """A clock that a test moves."""

    now: datetime = field(default_factory=lambda: datetime(2026, 3, 1, 12, 0, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def ahead(self, **more: float) -> None:
        self.now += timedelta(**more)


new_store: Callable[[], TextStore] = VolatileStore
"""What a scene keeps its memories in; `test_memory_lifecycle` puts the store on disk here as well."""


class Scene:
    """One owner's memory, its clock, and sessions that are replayed into it as JSON lines."""

    def __init__(
        self,
        *,
        store: TextStore | None = None,
        remote: RemoteMemory | None = None,
        model: JudgeModel | None = None,
        profile: Profile = "default",
    ) -> None:
        self.store = store or new_store()
        self.clock = Clock()
        self.capture = Capture(on_evidence=self.store.add_evidence)
        self.memory = TextMemory(Parts(self.store, toy_guard, self.capture, remote, model, profile, self.clock))
        self._seq: dict[str, int] = {}

    def events(self, session: str, *rows: Mapping[str, object]) -> None:
        """Replay rows of one session, with sequence numbers added."""
        lines: list[str] = []
        if session not in self._seq:
            self._seq[session] = 0
            agent = "child" if session.endswith("-child") else "root"
            lines.append(json.dumps({"type": "session", "session": session, "seq": 0, "agent": agent}))
        for row in rows:
            self._seq[session] += 1
            lines.append(json.dumps({"session": session, "seq": self._seq[session], **row}, ensure_ascii=False))
        replay(self.capture, lines)

    def user(self, text: str, session: str = "s1", **more: object) -> None:
        """The user writes; the turn is running."""
        self.events(session, {"type": "user/message", "content": text, "turn": 1, **more})

    def assistant(self, text: str, session: str = "s1") -> None:
        """The assistant answers with a final text."""
        self.events(session, {"type": "assistant/message", "content": [{"type": "text", "text": text}], "turn": 1})

    def end(self, session: str = "s1", reason: str = "completed") -> None:
        """The turn ends."""
        self.events(session, {"type": "turn/end", "turn": 1, "reason": reason})

    def block(self, memory_id: str, caller: Caller = ROOT) -> Block:
        """A block as it is on file now."""
        return self.memory.find(caller, memory_id).block
