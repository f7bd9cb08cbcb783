"""`rlm-memory fake-honcho`: the fake memory service on a port of the loopback, for trying things without a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def command(
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 takes a free one.")] = 8000,
    workspace: Annotated[list[str] | None, typer.Option("--workspace", help="Exists from the start.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="A key that is let in; none given: everybody.")] = None,
    search_delay: Annotated[float, typer.Option("--search-delay", min=0, help="Seconds until search sees a text.")] = 0,
    plan: Annotated[Path | None, typer.Option("--plan", help="A JSON list of faults; see docs/fake-honcho.md.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the faults that strike by chance.")] = 0,
) -> None:
    """Serve a fake Honcho on 127.0.0.1 until Ctrl-C. Everything is in memory; nothing is persisted."""
    import asyncio
    import socket

    from rlm_memory_host.honcho.fake import FakeHoncho, Fault, Plan
    from rlm_memory_host.honcho.fake.server import HOST, address, build

    try:
        faults = Fault.all_from_json(json.loads(plan.read_bytes()) if plan is not None else [])
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise typer.BadParameter(f"--plan: {error}") from error
    fake = FakeHoncho(
        api_keys=key, workspaces=workspace or (), search_delay=search_delay, plan=Plan(*faults, seed=seed)
    )
    server = build(fake, port)

    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise typer.BadParameter(f"--port: {port} cannot be listened on ({error.strerror})") from None

    async def serve() -> None:
        serving = asyncio.ensure_future(server.serve([listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            print(f"fake honcho: {address(server)}", flush=True)
        await serving

    asyncio.run(serve())
