"""Asking the memory service from a tool's thread: the question runs in the host's loop, the thread waits its deadline.

Owns: that hand-over and what a failure is called. Does not own: any question (`remote`, `cards`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Final, TypeVar

from rlm_memory_host.errors import RemoteError
from rlm_memory_host.logs import LOGGER, where

FAILED: Final = "remote-failed"
TIMEOUT: Final = "remote-timeout"
CIRCUIT_OPEN: Final = "remote-circuit-open"
STOPPED: Final = "remote-stopped"

T = TypeVar("T")


def asked(loop: asyncio.AbstractEventLoop, question: Coroutine[Any, Any, T], seconds: float) -> tuple[T | None, str]:
    """(the answer, ""), or (None, why there is none). Waits at most `seconds`; never raises for want of a network."""
    try:
        future = asyncio.run_coroutine_threadsafe(question, loop)
    except RuntimeError:
        # The loop is closed: the host is ending.
        question.close()
        return None, STOPPED
    try:
        return future.result(seconds), ""
    except FutureTimeout:
        future.cancel()
        return None, TIMEOUT
    except RemoteError as error:
        return None, error.code
    except Exception as error:
        # Whatever an answer was that nobody thought of: what is here is found without it.
        LOGGER.warning("remote_question_failed %s", where(error))
        return None, FAILED


def outcome_of(problem: str, found: int) -> str:
    """What a question came to, as metrics call it."""
    if not problem:
        return "hit" if found else "miss"
    return "timeout" if problem == TIMEOUT else "error"
