"""`rlm-memory memory aliases`: other names of memories: list them, give one, take one back.

Source: design page "Recall, resident text, guard, audit, health, tools", Recall (exact channel), operator only.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rlm_memory_host.cli import reveal
from rlm_memory_host.cli.memory_desk import Desk, PrintOption, TokenOption, commands, desk_of
from rlm_memory_host.errors import ToolInput
from rlm_memory_host.textmemory import aliases
from rlm_memory_host.textmemory.aliases import Alias


@commands.command("aliases")
def list_aliases(
    context: typer.Context,
    add: Annotated[str | None, typer.Option("--add", help="Give this name to the memory ID.")] = None,
    remove: Annotated[str | None, typer.Option("--remove", help="Take this name back.")] = None,
    memory_id: Annotated[str, typer.Argument(help="Id, with --add.")] = "",
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """List the other names of memories, give one to a memory, or take one back."""
    desk = desk_of(context)
    if add is not None and remove is not None:
        raise ToolInput("give one of --add and --remove")
    if add is None and remove is None:
        layers = {layer.name for layer in desk.memory.layers(desk.caller)}
        found = [_value(desk, alias) for alias in aliases.kept(desk.memory.store) if alias.key[0] in layers]
        lines = [f"{row['alias']}  {row['id']} ({row['layer']}){_end(row)}" for row in found]
        desk.say(found, *lines or ["no aliases"])
        return
    if add is not None:
        if not memory_id:
            raise ToolInput("--add: name the memory by its id")
        desk.agree(f"memory aliases --add {add} {memory_id}", token, print_token)
        made = aliases.give(desk.memory, desk.caller, add, memory_id)
        desk.say(_value(desk, made), f"{made.name} is {made.key[1]} from now on")
        return
    desk.agree(f"memory aliases --remove {remove}", token, print_token)
    ended = aliases.take_back(desk.memory, desk.caller, remove or "")
    desk.say([_value(desk, alias) for alias in ended], *(f"{alias.name} is no name any more" for alias in ended))


def _value(desk: Desk, alias: Alias) -> dict[str, object]:
    """An alias for programs. The name of a memory that became sensitive is hidden, for good: it names nothing else."""
    layer, memory_id = alias.key
    view = desk.memory.shelves.view(desk.memory.layers(desk.caller))
    block = view.block(layer, memory_id) if view.has(layer) else None
    is_hidden = block is not None and reveal.HIDING.block(block) is not block
    name = "[sensitive: hidden]" if is_hidden else alias.name
    return {"alias": name, "id": memory_id, "layer": layer, "is_there": block is not None, "hidden": is_hidden}


def _end(row: dict[str, object]) -> str:
    return "" if row["is_there"] else " [its memory is gone]"
