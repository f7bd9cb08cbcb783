"""A host whose tools leave a line on disk each time they run: `counting_host.py CONFIG STATE_ROOT EFFECTS`.

`count_once` must not run twice for one request, `count_again` may; both append `n` to the file EFFECTS, wait `seconds`,
and answer `n`. The line outlives the host, so a test can tell runs from answers however the host ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from rlm_memory_host import settings
from rlm_memory_host.app import Host
from rlm_memory_host.process import harden
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult


class CountArguments(Arguments):
    n: int
    seconds: float = 0.0


def tools(effects: Path) -> list[Tool]:
    def count(arguments: CountArguments, call: Call) -> ToolResult:
        with effects.open("a") as file:
            file.write(f"{arguments.n}\n")
        end = time.monotonic() + arguments.seconds
        while time.monotonic() < end and not call.cancelled():
            time.sleep(0.01)
        return ToolResult({"n": arguments.n}, "counted")

    output = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return [
        Tool("count_once", "Counts.", CountArguments, output, count),
        Tool("count_again", "Counts.", CountArguments, output, count, repeatable=True),
    ]


def main(config: str, state_root: str, effects: str) -> None:
    """As `rlm-memory host run`, with the tools above."""
    hardened = harden()
    loaded = settings.load(Path(config), Path(state_root))

    async def serve() -> None:
        host = Host(loaded.settings, hardened=hardened, more_tools=tools(Path(effects)))
        await host.run(lambda: print(f"listening (pid {os.getpid()})", flush=True))

    asyncio.run(serve())
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:4])
