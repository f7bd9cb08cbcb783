"""Asking a remote memory beside the local channels, and what of its answer may join.

Owns: the thread, the deadline, the filter. Does not own: delivery, HTTP (behind `contracts.remote`).

The remote is asked before the local channels run and waited for at most until its deadline; an answer that comes later
is dropped. What was forgotten, hidden or superseded here, and other projects' texts, never join.

Source: design page "Recall", Recall; design page "The memory model", Lifecycle and gates (Forget).
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from rlm_memory_host.contracts.memory import Block, Caller, Status
from rlm_memory_host.contracts.remote import RemoteAnswer, RemoteHit, RemoteMemory
from rlm_memory_host.recall import fusion
from rlm_memory_host.recall.items import Found
from rlm_memory_host.textmemory.sentences import fold
from rlm_memory_host.textmemory.tombstones import is_forgotten_text, is_tombstone

MAX_QUERY: Final = 2_000
"""Characters of a query that leave this machine."""


def ask(
    remote: RemoteMemory | None, caller: Caller, query: str, limit: int, seconds: float
) -> Callable[[], RemoteAnswer]:
    """Start asking; the function given back waits for the rest of the deadline."""
    project = caller.project
    if remote is None or not project:
        return RemoteAnswer
    answers: queue.SimpleQueue[RemoteAnswer] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(remote.recall(query[:MAX_QUERY], project=project, limit=limit, deadline_seconds=seconds))
        except Exception:
            answers.put(RemoteAnswer(problem="remote-failed"))

    threading.Thread(target=run, name="remote-recall", daemon=True).start()

    def wait() -> RemoteAnswer:
        try:
            return answers.get(timeout=seconds)
        except queue.Empty:
            return RemoteAnswer(problem="remote-timeout")

    return wait


def merged(
    caller: Caller,
    blocks: Sequence[Block],
    hits: Sequence[RemoteHit],
    local: Sequence[Found],
    rejected: Counter[str],
) -> list[Found]:
    """Remote texts of this project that are not here already and were not forgotten here; others are counted."""
    by_id = {block.id: block for block in blocks}
    said = {fold(item.text) for item in local}
    scores = fusion.scaled({hit.id: hit.score for hit in hits})
    found: list[Found] = []
    for hit in hits:
        origin = by_id.get(hit.memory_id)
        gone = origin is not None and (is_tombstone(origin) or origin.status is Status.SUPERSEDED)
        if hit.project != caller.project:
            rejected["foreign-project"] += 1
        elif gone or is_forgotten_text(hit.text, blocks):
            rejected["suppressed-by-user"] += 1
        elif fold(hit.text) not in said and (origin is None or origin.status is not Status.ACTIVE):
            found.append(
                Found(
                    hit.id,
                    "remote",
                    "",
                    hit.text,
                    "project",
                    date=hit.ts,
                    score=fusion.WEIGHTS["remote"] * scores[hit.id],
                    matched=("remote",),
                    labels=("from the remote memory",),
                    sources=(hit.session,) if hit.session else (),
                )
            )
    return found
