"""A host with tools that take their time, run as `slow_host.py host run --config FILE --state-root FOLDER`."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

from rlm_memory_host import settings
from rlm_memory_host.app import Host
from rlm_memory_host.process import harden
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult

COUNT = 0
LOCK = threading.Lock()


class SleepArguments(Arguments):
    seconds: float
    obedient: bool = True
    mark: str = ""


class NoArguments(Arguments):
    pass


def sleep(arguments: SleepArguments, call: Call) -> ToolResult:
    """Wait, marking start and end with files; an obedient one looks at the stop flag."""
    global COUNT
    with LOCK:
        COUNT += 1
    if arguments.mark:
        Path(arguments.mark).touch()
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end and not (arguments.obedient and call.cancelled()):
        time.sleep(0.01)
    if arguments.mark and call.cancelled():
        Path(f"{arguments.mark}.cancelled").touch()
    return ToolResult({"count": COUNT}, "slept")


def broken(arguments: NoArguments, call: Call) -> ToolResult:
    raise RuntimeError("planted-content-of-a-caller")


def unruly(arguments: NoArguments, call: Call) -> ToolResult:
    return ToolResult({"path": "/etc/passwd"}, "")


def large(arguments: NoArguments, call: Call) -> ToolResult:
    return ToolResult({"text": "x" * (2 << 20)}, "")


COUNTED = {"properties": {"count": {"type": "integer"}}, "required": ["count"]}
TEXT = {"properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    Tool("slow_sleep", "Sleeps.", SleepArguments, COUNTED, sleep),
    Tool("slow_broken", "Fails.", NoArguments, COUNTED, broken),
    Tool("slow_unruly", "Breaks its schema.", NoArguments, COUNTED, unruly),
    Tool("slow_large", "Says too much.", NoArguments, TEXT, large),
]


def main(config: str, state_root: str) -> None:
    """As `rlm-memory host run`, with the tools above."""
    hardened = harden()
    loaded = settings.load(Path(config), Path(state_root))

    async def serve() -> None:
        host = Host(loaded.settings, hardened=hardened, more_tools=TOOLS)
        await host.run(lambda: print(f"listening (pid {os.getpid()})", flush=True))

    asyncio.run(serve())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[4], sys.argv[6])
