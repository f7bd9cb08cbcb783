"""Waiting for a kernel's process to end. One wait, one owner: the attachment's own task.

Linux: a pid descriptor, so the end is seen at once. Elsewhere: a look every second.
"""

from __future__ import annotations

import asyncio
import os

from rlm_memory_host.process import ProcessId

POLL_SECONDS = 1.0


async def wait_exit(process: ProcessId) -> None:
    """Return when that very process has ended; a pid that was given to another one counts as ended."""
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        while process.is_alive():
            await asyncio.sleep(POLL_SECONDS)
        return
    try:
        fd: int = opener(process.pid)
    except ProcessLookupError:
        return
    try:
        # The descriptor may be of a later process with the same number: looked at only now that it is held.
        if not process.is_alive():
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(fd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(fd)
    finally:
        os.close(fd)
