"""The tree of commands.

Owns: which commands there are, and that each one's module is loaded when it is called (or when all are listed): a
command that asks the host for its status does not pay for the text memory. Does not own: any command.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from rlm_memory_host.contracts.version import version

PACKAGE: Final = "rlm_memory_host.cli"
Register = Callable[[typer.Typer, str], None]
"""Puts one command, with what its module defines, into an application."""


def _group(module: str) -> Register:
    def register(app: typer.Typer, name: str) -> None:
        app.add_typer(importlib.import_module(f"{PACKAGE}.{module}").commands, name=name)

    return register


def _command(module: str, attribute: str = "command", settings: str = "") -> Register:
    def register(app: typer.Typer, name: str) -> None:
        found = importlib.import_module(module)
        options: dict[str, Any] = {"context_settings": dict(getattr(found, settings))} if settings else {}
        app.command(name, **options)(getattr(found, attribute))

    return register


_COMMANDS: Final[Mapping[str, Register]] = {
    "host": _group("host"),
    "config": _group("config"),
    "kernel": _group("kernel"),
    "lab": _command(f"{PACKAGE}.jupyter", "lab", "PASSED_ON"),
    "run": _command(f"{PACKAGE}.jupyter", "run"),
    "attach": _command(f"{PACKAGE}.jupyter", "attach"),
    "doctor": _command(f"{PACKAGE}.doctor"),
    "experiments": _group("experiments"),
    "memory": _group("memory"),
    "audit": _group("audit"),
    "outbox": _group("outbox"),
    "dsh": _group("dsh"),
    "mcp": _command(f"{PACKAGE}.mcp", "mcp"),
    "skill": _command(f"{PACKAGE}.skill", "skill"),
    "fake-honcho": _command(f"{PACKAGE}.fake_honcho"),
    "replay": _command(f"{PACKAGE}.replay"),
    "evaluate": _command(f"{PACKAGE}.evaluate"),
    "demo": _command("rlm_memory_host.demo"),
}


class Commands(TyperGroup):
    """The commands by name, each built when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the table; without the demo where the distribution has none."""
        del ctx
        return [name for name in _COMMANDS if name != "demo" or importlib.util.find_spec("rlm_memory_host.demo")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None for none."""
        return _built(cmd_name) if cmd_name in self.list_commands(ctx) else None

    @property
    def commands(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All of them, built: for whoever walks the tree."""
        return {name: _built(name) for name in self.list_commands(None)}

    @commands.setter
    def commands(self, given: object) -> None:
        """The base class sets what was registered: nothing, since the table above counts."""


@cache
def _built(name: str) -> Any:
    app = _empty()
    app.callback()(_nothing)
    _COMMANDS[name](app, name)
    group: Any = typer.main.get_command(app)
    return group.commands[name]


def _empty(**options: Any) -> typer.Typer:
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, **options)


def _nothing() -> None:
    pass


def application() -> Any:
    """All commands there are, as one callable."""
    app = _empty(help=__help__, cls=Commands)
    app.callback()(_root)
    return typer.main.get_command(app)


__help__ = "Memory for notebook and RLM sessions: exact results, found again and verified."


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlm-memory {version()}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
