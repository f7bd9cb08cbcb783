"""`rlm-memory dsh tail`, and the part of `dsh status` that tells of the harness's logs.

Owns: asking the host that runs, or being one for as long as a pass takes. Does not own: reading logs (`dsh.tail`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rlm_memory_host import settings
from rlm_memory_host.attach import dial
from rlm_memory_host.cli.experiments_desk import only_a_person
from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.errors import HostError

LOOK_SECONDS: Final = 0.1
TELL_SECONDS: Final = 5.0
ROUNDS: Final = 2
"""The pass that may be under way when we ask began before, so the one after it counts."""

OnceOption = Annotated[bool, typer.Option("--once", help="One pass, now; without it only how things are is shown.")]


def tail(
    once: OnceOption = False, config: ConfigOption = None, state_root: RootOption = None, as_json: JsonOption = False
) -> None:
    """Capture what the harness's logs hold and no bridge told, or show how that stands; exit 1 with bytes behind."""
    loaded = settings.load(config, state_root).settings
    if once:
        only_a_person("dsh tail")
        told = _asked(loaded.state_root) or _read_here(loaded)
    else:
        told = asked_status(loaded.state_root)
    print(json.dumps(told, sort_keys=True) if as_json else "\n".join(lines(told)))
    sys.stdout.flush()
    sys.stderr.flush()
    # A host of our own may leave a tool's thread behind; everything that it held is closed by now.
    os._exit(0 if told is not None and not told.get("behind_files") else 1)


def asked_status(root: Path) -> dict[str, Any] | None:
    """What the running host tells of the logs; None where none runs."""
    answer = dial.ask(root, {"type": "status"})
    return answer.get("dsh_log") if answer is not None else None


def lines(told: dict[str, Any] | None) -> list[str]:
    """The same for people."""
    if told is None:
        return ["logs: no host runs"]
    if told["state"] == "off" and not told["passes"]:
        return ["logs: not read (dsh.tail is false)"]
    turns, skipped = told.get("turns", {}), told.get("skipped", {})
    text = [
        f"logs: {told['state']}, {told.get('files', 0)} followed, {told.get('behind_bytes', 0):,} bytes behind in "
        f"{told.get('behind_files', 0)}, {told['passes']} passes"
    ]
    text += [f"  turns {name}: {count}" for name, count in sorted(turns.items())]
    return text + [f"  left alone, {name}: {count}" for name, count in sorted(skipped.items())]


def _asked(root: Path) -> dict[str, Any] | None:
    """Have the running host make a pass, and wait for its end; None where no host runs."""
    answer = dial.ask(root, {"type": "tail"})
    if answer is None:
        return None
    begun: dict[str, Any] = answer.get("dsh_log") or {}
    wanted = int(begun.get("passes", 0)) + (ROUNDS if begun.get("state") == "reading" else 1)
    said = time.monotonic()
    while True:
        told = asked_status(root)
        if told is None:
            raise HostError("the host ended while it read the logs; it reads on from there when it runs again")
        if int(told["passes"]) >= wanted and told["state"] != "reading":
            return told
        if time.monotonic() - said > TELL_SECONDS:
            said = time.monotonic()
            print(lines(told)[0], file=sys.stderr, flush=True)
        time.sleep(LOOK_SECONDS)


def _read_here(loaded: settings.Settings) -> dict[str, Any] | None:
    """Be the host for one pass."""
    import asyncio

    from rlm_memory_host.app import Host

    async def serve() -> dict[str, Any] | None:
        host = Host(loaded, tail_once=True)
        await host.run()
        return host.tail.status() if host.tail is not None else None

    return asyncio.run(serve())
