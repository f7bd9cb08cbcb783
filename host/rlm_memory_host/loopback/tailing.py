"""The harness's logs, read with the scopes that its bridge gets: one session is one project's in both.

Owns: from settings to what follows the logs. Does not own: reading (`dsh.tail`), scopes (`callers`), capture.

Source: design page "DeepSeek Harness and MCP", Ways in (Log tailer).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor

from rlm_memory_host.dsh.cursors import Cursors
from rlm_memory_host.dsh.feeding import Reconciled, caught_up
from rlm_memory_host.dsh.following import Following
from rlm_memory_host.dsh.gathering import Turn
from rlm_memory_host.dsh.header import Header
from rlm_memory_host.dsh.tail import Tail, home_of
from rlm_memory_host.loopback.callers import Callers
from rlm_memory_host.settings import Settings


def following_of(
    settings: Settings,
    sessions: Reconciled | None,
    callers: Callers,
    pool: Executor,
    once: Callable[[], None] | None = None,
) -> Following:
    """What reads the logs as the settings say; without a text memory there is nothing to capture into."""

    def captured(header: Header, turn: Turn) -> bool:
        return sessions is not None and caught_up(sessions, callers.scope(header), turn.events)

    def made() -> Tail:
        home = None if sessions is None else home_of(settings.dsh.home, os.environ.get("DSH_HOME", "").strip())
        return Tail(home, Cursors(settings.state_root), captured, settings.dsh.folders)

    is_on = settings.dsh.tail and sessions is not None
    return Following(made, pool, seconds=settings.dsh.tail_seconds if is_on else None, once=once)
