"""`rlm-memory kernel install|remove`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlm_memory_host.attach import kernelspec
from rlm_memory_host.errors import SettingsError

commands = typer.Typer(no_args_is_help=True, help="The kernelspec for Jupyter: a kernel with its host beside it.")

UserOption = Annotated[bool, typer.Option("--user", help="In your own Jupyter folder (the default).")]
SysPrefixOption = Annotated[bool, typer.Option("--sys-prefix", help="In this Python environment.")]
PrefixOption = Annotated[Path | None, typer.Option("--prefix", help="Below that folder's share/jupyter/kernels.")]


@commands.command("install")
def install(user: UserOption = False, sys_prefix: SysPrefixOption = False, prefix: PrefixOption = None) -> None:
    """Write the kernelspec for this Python. The environment of the Jupyter server must have rlm-memory-host too."""
    place = _place(user, sys_prefix, prefix)
    kernelspec.install(place)
    print(f"installed {kernelspec.NAME} in {place}")


@commands.command("remove")
def remove(user: UserOption = False, sys_prefix: SysPrefixOption = False, prefix: PrefixOption = None) -> None:
    """Remove the kernelspec; none there is fine."""
    place = _place(user, sys_prefix, prefix)
    print(f"removed {place}" if kernelspec.remove(place) else f"there is none in {place}")


def _place(user: bool, sys_prefix: bool, prefix: Path | None) -> Path:
    if user + sys_prefix + (prefix is not None) > 1:
        raise SettingsError("name one of --user, --sys-prefix and --prefix")
    return kernelspec.folder(prefix, user=not sys_prefix)
