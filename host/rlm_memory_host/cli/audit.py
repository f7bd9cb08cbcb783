"""`rlm-memory audit verify`: check the chain of what happened to the text memory.

Source: design page "Overview", On the command line; "Recall, resident text, guard, audit, health, tools", operator.
"""

from __future__ import annotations

from dataclasses import asdict

import typer

from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.cli.memory_desk import OwnerOption, open_desk

commands = typer.Typer(no_args_is_help=True, help="The audit log of the text memory.")


@commands.command("verify")
def verify(
    config: ConfigOption = None,
    state_root: RootOption = None,
    owner: OwnerOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Check the whole audit chain; exit 1 with the sequence number of every break."""
    desk = open_desk(config, state_root, "-", None, owner, as_json)
    found = desk.opened.store.journal.verify_audit()
    lines = [f"record {item.seq}: {item.code}" for item in found.breaks]
    lines.append(f"{found.records} records, {len(found.breaks)} breaks")
    desk.say({"records": found.records, "breaks": [asdict(item) for item in found.breaks]}, *lines)
    raise typer.Exit(1 if found.breaks else 0)


@commands.callback()
def audit_group() -> None:
    """Keep `verify` a sub-command while it is the only one."""
