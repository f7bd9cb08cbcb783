"""A host with a transport of the test's own, run as `feeding_host.py CONFIG STATE_ROOT`.

Its two more tools stand for a harness that authenticated a root session: one feeds events into the caller's session,
one asks for what would be injected. A scripted model stands for the operator's, where the environment names one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlm_memory_host import settings
from rlm_memory_host.app import Host
from rlm_memory_host.assembly.remote import OutboxMemory
from rlm_memory_host.contracts.judging import ScriptedJudge
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.process import harden
from rlm_memory_host.textmemory.store import MarkdownStore
from rlm_memory_host.tools.tool import Arguments, Call, Tool, ToolResult

SERVED: list[Host] = []


class FeedArguments(Arguments):
    rows: list[dict[str, Any]]


class NoArguments(Arguments):
    pass


def root(call: Call) -> Scope:
    return replace(call.scope, agent_kind="root")


def sessions() -> Any:
    found = SERVED[0].sessions
    assert found is not None
    return found


def feed(arguments: FeedArguments, call: Call) -> ToolResult:
    lines = [json.dumps({"session": call.scope.session_id, **row}) for row in arguments.rows]
    taken, skipped = sessions().replay(root(call), lines)
    return ToolResult({"taken": taken, "skipped": skipped, "counters": sessions().counters()}, "")


def inject(_arguments: NoArguments, call: Call) -> ToolResult:
    resident = sessions().resident(root(call))
    return ToolResult({"text": sessions().inject(root(call)).text, "resident": resident.text}, "")


FED = {"properties": {"taken": {"type": "integer"}, "skipped": {"type": "integer"}, "counters": {"type": "object"}}}
TEXT = {"properties": {"text": {"type": "string"}, "resident": {"type": "string"}}}
TOOLS = [
    Tool("harness_feed", "Feeds events.", FeedArguments, FED, feed),
    Tool("harness_inject", "Gives the injection.", NoArguments, TEXT, inject),
]


def end_here(*_: Any, **__: Any) -> Any:
    """Stands for a kill -9 at this very step."""
    os.kill(os.getpid(), signal.SIGKILL)


if os.environ.get("HARNESS_KILLED") == "before-keeping":
    MarkdownStore.commit = end_here
elif os.environ.get("HARNESS_KILLED") == "before-queueing":
    OutboxMemory.offer = end_here


def main(config: str, state_root: str) -> None:
    """As `rlm-memory host run`, with the transport above."""
    hardened = harden()
    loaded = settings.load(Path(config), Path(state_root))

    async def serve() -> None:
        facts = json.dumps({"facts": [{"text": "The buoy is painted orange.", "kind": "fact"}]})
        model = ScriptedJudge([facts]) if "HARNESS_MODEL" in os.environ else None
        host = Host(loaded.settings, hardened=hardened, more_tools=TOOLS, model=model)
        SERVED.append(host)
        await host.run(lambda: print(f"listening (pid {os.getpid()})", flush=True))

    asyncio.run(serve())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
