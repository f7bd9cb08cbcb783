"""A blocking wait that a user's interrupt ends at once, wherever it runs.

In a plain cell Python's own SIGINT handler raises KeyboardInterrupt inside the wait. In a cell that awaits, ipykernel
puts a handler there that only queues the cancellation on the event loop, which a blocking call keeps from running.
Within `prompt()` such a handler still runs, and then the wait ends with CancelledError; KeyboardInterrupt would stop
the kernel's event loop when it leaves a task.

Source: design page "Kernel <-> host", Kernel side (synchronous is the default, in a coroutine too).
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def prompt() -> Generator[None]:
    """Make SIGINT end the enclosed wait, in the main thread under a running event loop; elsewhere nothing to do."""
    if threading.current_thread() is not threading.main_thread() or not _loop_runs():
        yield
        return
    previous = signal.getsignal(signal.SIGINT)
    if not callable(previous) or previous is signal.default_int_handler:
        yield
        return

    def end_wait(number: int, frame: FrameType | None) -> None:
        previous(number, frame)
        raise asyncio.CancelledError("interrupted")

    signal.signal(signal.SIGINT, end_wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
