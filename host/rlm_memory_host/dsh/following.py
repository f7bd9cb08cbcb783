"""Passes over the harness's logs while a host runs: one at its start, then one in every interval, or when asked.

Owns: when a pass is made, its end with the host. Does not own: a pass (`tail`). A pass runs in the host's pool and
never in its loop; the next one begins after the last has ended, so a long first one is not overtaken.

Source: design page "DeepSeek Harness and MCP", Ways in (Log tailer); "Style", house rule 8.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

from rlm_memory_host.dsh.tail import Tail
from rlm_memory_host.logs import LOGGER, where

SHARE: Final = 50
"""A pass takes at most one part in so many of the time, until the pause reaches its most."""
MOST_SECONDS: Final = 60.0


def pause(seconds: float, took: float) -> float:
    """Seconds until the next pass: those of the settings, or more where a pass over many logs took long."""
    return max(seconds, min(MOST_SECONDS, SHARE * took))


class Following:
    """Belongs to the host's loop. `run` is a task of the host's group; `close` ends it after the turn it is at."""

    def __init__(
        self, make: Callable[[], Tail], pool: Executor, *, seconds: float | None, once: Callable[[], None] | None = None
    ) -> None:
        """`seconds` between two passes; None: only when asked. `once`: called after the first pass, the last one."""
        self._make, self._pool, self._seconds, self._once = make, pool, seconds, once
        self._tail: Tail | None = None
        self._wanted, self._ended = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = self._is_looking = False
        self._took = 0.0

    async def run(self) -> None:
        """Make passes until closed."""
        self._task = asyncio.current_task()
        if self._seconds is not None or self._once is not None:
            self._wanted.set()
        try:
            while not self._is_closed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if self._seconds is None else pause(self._seconds, self._took)):
                        await self._wanted.wait()
                self._wanted.clear()
                if not self._is_closed:
                    await self._pass()
        finally:
            self._ended.set()

    def ask(self) -> dict[str, Any]:
        """Make a pass soon; how things are now."""
        self._wanted.set()
        return self.status()

    def close(self) -> None:
        """No further pass; one that runs ends after the turn it is at."""
        self._is_closed = True
        self._wanted.set()
        if self._tail is not None:
            self._tail.stop()

    async def wait_ended(self, seconds: float) -> None:
        """Until no pass runs, at most so long; then the task ends without it, as a killed host would."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            if self._task is not None:
                self._task.cancel()

    def status(self) -> dict[str, Any]:
        """Whether logs are followed, and how that goes: numbers and names alone."""
        state = "off" if self._seconds is None else "on"
        if self._is_looking:
            state = "reading"
        return {"state": state, "passes": 0, **(self._tail.status() if self._tail is not None else {})}

    async def _pass(self) -> None:
        self._is_looking, began = True, time.monotonic()
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._look)
        except Exception as error:
            LOGGER.error("dsh_tail_failed %s", where(error))
        finally:
            self._is_looking, self._took = False, time.monotonic() - began
        if self._once is not None:
            self._once()

    def _look(self) -> None:
        if self._tail is None:
            self._tail = self._make()
        if not self._is_closed:
            self._tail.look()
