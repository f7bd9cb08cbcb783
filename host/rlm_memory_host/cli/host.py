"""`rlm-memory host run|status|stop`."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rlm_memory_host import settings
from rlm_memory_host.attach import dial
from rlm_memory_host.process import host_lock

commands = typer.Typer(no_args_is_help=True, help="The process that holds the store and serves kernels.")

ConfigOption = Annotated[Path | None, typer.Option("--config", help="Settings file; stands alone.")]
RootOption = Annotated[Path | None, typer.Option("--state-root", help="State root; wins over the settings.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object for programs.")]

STOP_MARGIN_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.05


@commands.command("run")
def run_host(
    context: typer.Context,
    config: ConfigOption = None,
    state_root: RootOption = None,
    from_kernel: Annotated[
        bool,
        typer.Option("--from-kernel", help="A kernel starts it: end after host.idle_exit_minutes without kernels."),
    ] = False,
) -> None:
    """Serve kernels until stopped (SIGTERM, Ctrl-C, `host stop`)."""
    import asyncio

    from rlm_memory_host.app import Host

    loaded = settings.load(config, state_root)
    idle = loaded.settings.host.idle_exit_minutes * 60 if from_kernel else None

    async def serve() -> str:
        host = Host(loaded.settings, idle_exit_seconds=idle, hardened=bool(context.obj))
        ended = await host.run(_listens)
        return ended.reason

    reason = asyncio.run(serve())
    print(f"rlm-memory host: ended ({reason})", flush=True)
    # A tool's thread that looks at no flag must not hold the process; the log and the store are closed by now.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _listens() -> None:
    # What is loaded by now stays: looking through it again for garbage would hold up a call in ten thousand for tens
    # of milliseconds.
    gc.freeze()
    print(f"rlm-memory host: listening (pid {os.getpid()})", flush=True)


@commands.command("status")
def status(config: ConfigOption = None, state_root: RootOption = None, as_json: JsonOption = False) -> None:
    """Show whether a host runs and how it is: exit 0 active, 1 degraded or none runs, 2 unavailable."""
    root = settings.load(config, state_root).settings.state_root
    told = dial.ask(root, {"type": "status"})
    answer: dict[str, Any] = told or {"status": "none", "health": "none", "kernels": []}
    answer["state_root"] = str(root)
    if as_json:
        print(json.dumps(answer, sort_keys=True))
    else:
        print("\n".join(_lines(answer)))
    raise typer.Exit({"active": 0, "degraded": 1, "none": 1}.get(str(answer.get("health")), 2))


def _lines(answer: dict[str, Any]) -> list[str]:
    if answer["status"] == "none":
        return [f"no host runs for {answer['state_root']}; start one with `rlm-memory host run`"]
    lines = [
        f"host {answer['version']}, pid {answer['pid']}, {answer['health']}, up {answer['uptime_seconds']} s, "
        f"{len(answer['kernels'])} kernels",
        f"state root {answer['state_root']}",
    ]
    if not answer["hardened"]:
        lines.append("warning: other processes of this user can read the host's memory on this system")
    for name, feature in answer["features"].items():
        detail = f" {feature['code']}: {feature.get('hint', '')}" if "code" in feature else ""
        lines.append(f"  {name}: {feature['state']}{detail}")
    lines += [
        f"  kernel pid {item['pid']}: session {item['session']}, generation {item['generation']}"
        for item in answer["kernels"]
    ]
    return lines


@commands.command("stop")
def stop(config: ConfigOption = None, state_root: RootOption = None, as_json: JsonOption = False) -> None:
    """Stop the host and wait until it is gone; none running is fine."""
    loaded = settings.load(config, state_root).settings
    answer = dial.ask(loaded.state_root, {"type": "stop"})
    stopped = answer is not None and _is_released(loaded.state_root, loaded.host.shutdown_seconds + STOP_MARGIN_SECONDS)
    if as_json:
        print(json.dumps({"was_running": answer is not None, "stopped": answer is None or stopped}))
    elif answer is None:
        print("no host runs")
    else:
        print("stopped" if stopped else "the host was asked to stop and still runs")
    raise typer.Exit(0 if answer is None or stopped else 2)


def _is_released(state_root: Path, seconds: float) -> bool:
    """Wait until nobody holds the state root's lock."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        lock = host_lock(state_root)
        if not state_root.is_dir():
            return True
        if lock.acquire():
            lock.release()
            return True
        time.sleep(LOOK_SECONDS)
    return False
