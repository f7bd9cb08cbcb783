"""The tree of commands."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated, Any

import typer

from rlm_memory_host.cli import config, doctor, experiments, fake_honcho, host, jupyter, kernel, memory, outbox
from rlm_memory_host.contracts.version import version


def application() -> Any:
    """All commands there are, as one callable."""
    app = typer.Typer(
        add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, help=__help__
    )
    app.callback()(_root)
    app.add_typer(host.commands, name="host")
    app.add_typer(config.commands, name="config")
    app.add_typer(kernel.commands, name="kernel")
    app.command("lab", context_settings=dict(jupyter.PASSED_ON))(jupyter.lab)
    app.command("run")(jupyter.run)
    app.command("attach")(jupyter.attach)
    app.command("doctor")(doctor.command)
    app.add_typer(experiments.commands, name="experiments")
    app.add_typer(memory.commands, name="memory")
    app.add_typer(memory.audit_commands, name="audit")
    app.add_typer(outbox.commands, name="outbox")
    app.command("fake-honcho")(fake_honcho.command)
    if importlib.util.find_spec("rlm_memory_host.demo") is not None:
        app.command("demo")(importlib.import_module("rlm_memory_host.demo").command)
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
