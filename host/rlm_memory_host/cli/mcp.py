"""`rlm-memory mcp`: the tools for agent hosts that speak the Model Context Protocol.

Owns: the command's options. Does not own: the server (`mcp`), which is loaded only when one is to run.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlm_memory_host import settings
from rlm_memory_host.cli.host import ConfigOption, RootOption
from rlm_memory_host.errors import SettingsError
from rlm_memory_host.mcp import printing


def mcp(
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: Annotated[
        Path | None, typer.Option("--project", help="The project's folder; else the one the command starts in.")
    ] = None,
    http: Annotated[
        int | None, typer.Option("--http", min=0, max=65_535, help="Serve on this loopback port instead; 0: any.")
    ] = None,
    print_config: Annotated[
        printing.Client | None,
        typer.Option("--print-config", help="Show what an agent host needs to start this, and end."),
    ] = None,
) -> None:
    """Serve the memory tools of one project to an agent host, over standard input and output."""
    folder = _folder(project)
    if print_config is not None:
        command = _command(config, state_root, folder if project is not None else None)
        print(printing.printed(print_config, command))
        print(f"({printing.told(print_config, command)})", file=sys.stderr)
        return
    if importlib.util.find_spec("mcp") is None:
        raise SettingsError('the package mcp is not installed here; pip install "rlm-memory-host[mcp]"')
    root = settings.load(config, state_root).settings.state_root
    asyncio.run(_serve(root, config, folder, http))


async def _serve(root: Path, config: Path | None, folder: Path, http: int | None) -> None:
    from rlm_memory_host.attach.guest import open_guest
    from rlm_memory_host.mcp import serving

    environ = dict(os.environ)
    if config is not None:
        environ[settings.CONFIG_VARIABLE] = str(config.absolute())

    guest = open_guest(root, folder, "mcp", eager=False, environ=environ)
    if http is None:
        await serving.over_stdio(guest)
        return
    token, kept = serving.token_of(root)
    where = f"the token is in {kept}" if kept is not None else f"the token is the one in {serving.TOKEN_VARIABLE}"

    def started(url: str) -> None:
        print(f"{url} (every request needs 'Authorization: Bearer <token>'; {where})", flush=True)

    await serving.over_http(guest, http, token, started)


def _folder(project: Path | None) -> Path:
    folder = (project or Path.cwd()).absolute()
    if not folder.is_dir():
        raise SettingsError(f"--project: {folder} is not a folder")
    return folder


def _command(config: Path | None, state_root: Path | None, folder: Path | None) -> list[str]:
    beside = Path(sys.executable).with_name("rlm-memory")
    program = str(beside) if os.access(beside, os.X_OK) else shutil.which("rlm-memory")
    command = [program, "mcp"] if program else [sys.executable, "-m", "rlm_memory_host", "mcp"]
    for option, path in (("--config", config), ("--state-root", state_root), ("--project", folder)):
        if path is not None:
            command += [option, str(path.absolute())]
    return command
