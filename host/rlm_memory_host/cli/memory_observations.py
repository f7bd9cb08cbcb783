"""`rlm-memory memory observations`: what was inferred, what it rests on, and a person's word on it.

Source: design page "The memory model", Lifecycle and gates.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rlm_memory_host.cli import reveal
from rlm_memory_host.cli.memory_desk import PrintOption, TokenOption, commands, desk_of, plain
from rlm_memory_host.cli.reveal import ShowOption
from rlm_memory_host.errors import ToolInput
from rlm_memory_host.textmemory import observations
from rlm_memory_host.textmemory.observations import Observation


@commands.command("observations")
def list_observations(
    context: typer.Context,
    gate: Annotated[str | None, typer.Option("--gate", help="activate or invalidate.")] = None,
    add: Annotated[str | None, typer.Option("--add", help="Propose this text.")] = None,
    anchor: Annotated[list[str] | None, typer.Option("--anchor", help="A memory or turn that speaks for it.")] = None,
    against: Annotated[list[str] | None, typer.Option("--against", help="One that speaks against it.")] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="0 to 1, with --add.")] = 0.5,
    observation_id: Annotated[str, typer.Argument(help="Id, with --gate.")] = "",
    show_sensitive: ShowOption = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """List observations, propose one, or say that one counts or does not."""
    desk = desk_of(context)
    if add is not None:
        desk.agree("memory observations --add", token, print_token)
        made = observations.propose(
            desk.memory, desk.caller, add, anchor or [], confidence=confidence, against=against or []
        )
        desk.say(plain(asdict(made)), _line(made))
        return
    if gate is None:
        layers = {layer.name for layer in desk.memory.layers(desk.caller)}
        view = reveal.agreed(desk, "memory observations", show_sensitive, token, print_token)
        kept = [item for item in observations.kept(desk.memory.store) if item.layer in layers]
        found = [view.observation(item) for item in kept]
        reveal.note(desk, view, "", found)
        desk.say([plain(asdict(item)) for item in found], *([_line(item) for item in found] or ["no observations"]))
        return
    if gate not in ("activate", "invalidate"):
        raise ToolInput("--gate: must be activate or invalidate")
    desk.agree(f"memory observations --gate {gate} {observation_id}", token, print_token)
    state = "active" if gate == "activate" else "invalidated"
    changed = observations.set_state(desk.memory, desk.caller, observation_id, state)
    changed = reveal.HIDING.observation(changed)
    desk.say(plain(asdict(changed)), _line(changed))


def _line(item: Observation) -> str:
    for_it, against_it = len(item.anchors), len(item.against)
    return f"{item.id}  {item.state}: {item.text} ({for_it} for, {against_it} against, {item.confidence:.2f})"
