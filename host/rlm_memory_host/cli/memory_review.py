"""`rlm-memory memory review|confirm|reject|promote|conflicts|habits|link`: what waits for a person.

Source: design page "Overview", On the command line; "Recall, resident text, guard, audit, health, tools", operator.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rlm_memory_host.cli import reveal
from rlm_memory_host.cli.memory_desk import IdArgument, PrintOption, TokenOption, commands, desk_of, plain
from rlm_memory_host.cli.reveal import ShowOption
from rlm_memory_host.contracts.memory import AuditNote, Authority
from rlm_memory_host.errors import ToolInput
from rlm_memory_host.textmemory import bindings, review


@commands.command("review")
def list_review(
    context: typer.Context,
    accept_edits: Annotated[bool, typer.Option("--accept-edits", help="Take hand edits as your word.")] = False,
    show_sensitive: ShowOption = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """List what waits for a person (exit 1 when something does), or accept hand edits."""
    desk = desk_of(context)
    if accept_edits:
        desk.agree("memory review --accept-edits", token, print_token)
        done = desk.opened.store.accept_edits(AuditNote("accept-edits", "operator", tool="cli"))
        desk.say(list(done), *([f"accepted {name}" for name in done] or ["no hand edits"]))
        return
    view = reveal.agreed(desk, "memory review", show_sensitive, token, print_token)
    waiting = [view.candidate(item) for item in (*review.pending(desk.memory), *review.seen_again(desk.memory))]
    found = [item.block for item in desk.memory.blocks(desk.caller) if item.block.authority is Authority.UNREVIEWED]
    unreviewed = [view.block(block) for block in found]
    reveal.note(desk, view, "", [*waiting, *unreviewed])
    value = {
        "candidates": [view.candidate_value(item) for item in waiting],
        "unreviewed": [view.value(block) for block in unreviewed],
    }
    lines = [
        f"{item.id}  {item.action} {item.title}: {item.body[:100]} ({item.state}, {item.reason})" for item in waiting
    ]
    lines += [f"{block.id}  edited by hand: {block.title}" for block in unreviewed]
    desk.say(value, *lines or ["nothing waits"])
    raise typer.Exit(1 if waiting or unreviewed else 0)


@commands.command("confirm")
def confirm(
    context: typer.Context, item_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Accept a candidate, or stand behind a memory that a model wrote."""
    desk = desk_of(context)
    desk.agree(f"memory confirm {item_id}", token, print_token)
    if item_id.startswith("cand_"):
        done = review.accept(desk.memory, desk.caller, item_id)
        desk.say(plain(asdict(done)), f"accepted {done.id}")
        return
    stored = review.confirm(desk.memory, desk.caller, item_id)
    desk.say(reveal.HIDING.value(reveal.HIDING.block(stored)), f"confirmed {stored.id}")


@commands.command("reject")
def reject(
    context: typer.Context, item_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Reject a candidate."""
    desk = desk_of(context)
    desk.agree(f"memory reject {item_id}", token, print_token)
    review.reject(desk.memory, item_id)
    desk.say({"id": item_id, "state": "rejected"}, f"rejected {item_id}")


@commands.command("promote")
def promote(
    context: typer.Context, memory_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Make a memory global."""
    desk = desk_of(context)
    desk.agree(f"memory promote {memory_id}", token, print_token)
    stored = review.promote(desk.memory, desk.caller, memory_id)
    desk.say(reveal.HIDING.value(reveal.HIDING.block(stored)), f"global now: {stored.id}")


@commands.command("conflicts")
def conflicts(
    context: typer.Context,
    resolve: Annotated[str | None, typer.Option("--resolve", help="Id of the conflict to settle.")] = None,
    keep: Annotated[str, typer.Option("--as", help="keep, correction, temporal_transition or both.")] = "keep",
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """List open conflicts (exit 1 when there are any), or settle one."""
    desk = desk_of(context)
    if resolve is None:
        found = review.open_conflicts(desk.memory)
        lines = [f"{item.id}  {item.target} against {item.candidate}: {item.reason}" for item in found]
        desk.say([plain(asdict(item)) for item in found], *lines or ["no open conflicts"])
        raise typer.Exit(1 if found else 0)
    if keep not in ("keep", "correction", "temporal_transition", "both"):
        raise ToolInput("--as: must be one of keep, correction, temporal_transition, both")
    desk.agree(f"memory conflicts --resolve {resolve} --as {keep}", token, print_token)
    review.resolve(desk.memory, desk.caller, resolve, keep)
    desk.say({"id": resolve, "resolution": keep}, f"settled {resolve}: {keep}")


@commands.command("habits")
def list_habits(
    context: typer.Context,
    gate: Annotated[str | None, typer.Option("--gate", help="confirm, promote, disable or delete.")] = None,
    habit_id: Annotated[str, typer.Argument(help="Id, with --gate.")] = "",
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """List habits, or pass one through a gate."""
    desk = desk_of(context)
    if gate is None:
        found = desk.memory.habits()
        lines = [f"{item.id}  {item.state}: {item.pattern}" for item in found]
        desk.say([plain(asdict(item)) for item in found], *lines or ["no habits"])
        return
    if gate not in ("confirm", "promote", "disable", "delete"):
        raise ToolInput("--gate: must be one of confirm, promote, disable, delete")
    desk.agree(f"memory habits --gate {gate} {habit_id}", token, print_token)
    changed = review.gate_habit(desk.memory, habit_id, gate)
    desk.say(plain(asdict(changed)), f"{changed.id} is {changed.state}")


@commands.command("link")
def link(
    context: typer.Context,
    root: Annotated[Path, typer.Argument(help="Folder of a project.")],
    project_id: Annotated[str, typer.Argument(help="Project to open from it.")],
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Let a folder that claims a project open it."""

    desk = desk_of(context)
    desk.agree(f"memory link {root} {project_id}", token, print_token)
    bindings.bind(desk.opened.store, root, project_id)
    desk.say({"project": project_id}, f"{root} opens project {project_id} from now on")
