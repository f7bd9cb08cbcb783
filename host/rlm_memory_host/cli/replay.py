"""`rlm-memory replay`: take a recorded session in as if it were told live: evidence, quotes, habits, and the outbox.

Owns: the command. Does not own: which events count (`capture`), what follows from them (`assembly.sessions`). It takes
the state root's lock itself, so no host may run. A replay says things in the user's name, so only a person may ask for
it: not a kernel, not an agent. An event that was taken before is not taken again.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rlm_memory_host import settings
from rlm_memory_host.cli.experiments_desk import only_a_person
from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import LayerUnavailable, NotFound, ToolInput

NO_JSON: Final = "-"


def command(
    recording: Annotated[Path, typer.Argument(help="A file of JSON objects, one event a line.")],
    session: Annotated[str, typer.Option("--session", help="The session's exact id; other sessions' lines are left.")],
    project: Annotated[str | None, typer.Option("--project", help="Its project; left out: project.id.")] = None,
    config: ConfigOption = None,
    state_root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Feed a recorded root session into memory. With honcho.capture its completed exchanges go into the outbox."""
    import asyncio

    only_a_person("replay")
    loaded = settings.load(config, state_root).settings
    named = project or loaded.project.id
    if not named:
        raise ToolInput("--project: the session needs a project; name one, or set project.id")
    for option, name in (("--session", session), ("--project", named)):
        if not name.strip() or not name.isprintable():
            raise ToolInput(f"{option}: a name of printable characters is needed")
    try:
        data = recording.read_bytes()
    except (OSError, ValueError) as error:
        raise NotFound(f"the recording cannot be read ({type(error).__name__})") from error
    # Only a line feed ends a line: what a person said may hold the other separators. What is no UTF-8 makes a line that
    # is no event, and no reason to leave the others.
    lines = [_decoded(line) for line in data.removeprefix(BOM_UTF8).split(b"\n")]
    scope = Scope(named, session, None, "root")
    told = asyncio.run(_replayed(loaded, scope, lines))
    if as_json:
        print(json.dumps(told))
    else:
        print(f"{told['taken']} events taken, {told['left']} lines left; {told['pending']} deliveries wait")
    raise typer.Exit(0)


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return NO_JSON


async def _replayed(loaded: settings.Settings, scope: Scope, lines: list[str]) -> dict[str, Any]:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from rlm_memory_host.assembly.parts import assemble
    from rlm_memory_host.process import claim_state_root, host_lock, place_lock

    root = claim_state_root(loaded.state_root)
    with host_lock(root), place_lock(root), ThreadPoolExecutor(2) as pool:
        parts = await assemble(loaded, None, pool)
        try:
            if parts.text is None:
                raise LayerUnavailable("there is no text memory to replay into (memory.enabled)")
            taken, left = await asyncio.to_thread(parts.text.sessions.replay, scope, lines)
        finally:
            await parts.sending.close(loaded.outbox.drain_seconds)
            if parts.store is not None:
                await asyncio.to_thread(parts.store.close)
        waiting = parts.sending.status() or {}
        return {"taken": taken, "left": left, "pending": waiting.get("pending", 0)}
