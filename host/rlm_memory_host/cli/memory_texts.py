"""`rlm-memory memory ls|show|search|history|add|edit|forget|hide|restore|pin`: read memories and change them.

Source: design page "Overview", On the command line; "Recall, resident text, guard, audit, health, tools", operator.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

import typer

from rlm_memory_host.cli import reveal
from rlm_memory_host.cli.memory_desk import (
    Desk,
    IdArgument,
    LayerOption,
    PrintOption,
    TokenOption,
    commands,
    desk_of,
    line_of,
    plain,
)
from rlm_memory_host.cli.reveal import ShowOption
from rlm_memory_host.contracts.memory import (
    AuditNote,
    Authority,
    Block,
    BlockWrite,
    Consent,
    Kind,
    Layer,
    Sensitivity,
)
from rlm_memory_host.errors import ToolInput
from rlm_memory_host.guard import Sink
from rlm_memory_host.recall.service import Query, Recall
from rlm_memory_host.textmemory import forgetting, review
from rlm_memory_host.textmemory.notes import Note
from rlm_memory_host.textmemory.validity import stamp


@commands.command("ls")
def ls(
    context: typer.Context,
    layer: LayerOption = None,
    everything: Annotated[bool, typer.Option("--all")] = False,
    show_sensitive: ShowOption = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """List memories; with --all also those that are not current."""
    desk = desk_of(context)
    view = reveal.agreed(desk, "memory ls", show_sensitive, token, print_token)
    items = desk.memory.blocks(desk.caller, layer) if everything else desk.memory.current(desk.caller, layer)
    found = [(view.block(item.block), item.layer) for item in items]
    reveal.note(desk, view, "", [block for block, _ in found])
    value = [view.value(block, layer=where.name) for block, where in found]
    desk.say(value, *([line_of(block, where) for block, where in found] or ["no memories"]))


@commands.command("show")
def show(
    context: typer.Context,
    memory_id: IdArgument,
    show_sensitive: ShowOption = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Show one memory in full."""
    desk = desk_of(context)
    view = reveal.agreed(desk, f"memory show {memory_id}", show_sensitive, token, print_token)
    item = desk.memory.find(desk.caller, memory_id)
    block = view.block(item.block)
    reveal.note(desk, view, item.layer.name, [block])
    evidence = ["", "Evidence:", block.evidence] if block.evidence else []
    head = f"topic {block.topic}, version {block.version}, updated {block.updated_at or '-'}"
    file = item.file if block is item.block else reveal.HIDDEN
    value = view.value(block, layer=item.layer.name, file=file, line=item.line)
    desk.say(value, line_of(block, item.layer), head, "", block.body, *evidence)


@commands.command("search")
def search(context: typer.Context, query: str, limit: Annotated[int, typer.Option(min=1, max=50)] = 10) -> None:
    """Search memories."""
    desk = desk_of(context)
    page = Recall(desk.memory).search(desk.caller, Query(query, limit=limit, remote=False))
    results = [plain(asdict(item)) for item in page.items]
    lines = [f"{item.id}  {item.title}: {item.text[:100]}" for item in page.items] or ["nothing found"]
    lines += [f"left out: {reason} ({count})" for reason, count in sorted(page.rejected.items())]
    desk.say({"total": page.total, "results": results, "rejected": page.rejected}, *lines)


@commands.command("history")
def history(
    context: typer.Context,
    memory_id: IdArgument,
    show_sensitive: ShowOption = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Show the earlier states of a memory."""
    desk = desk_of(context)
    view = reveal.agreed(desk, f"memory history {memory_id}", show_sensitive, token, print_token)
    item = desk.memory.find(desk.caller, memory_id)
    entries = desk.opened.store.history(item.layer, memory_id)
    states = [(each, view.block(each.block, beside=item.block.sensitivity)) for each in entries]
    sensitive = [
        block for block in (item.block, *(block for _, block in states)) if block.sensitivity is not Sensitivity.NORMAL
    ]
    reveal.note(desk, view, item.layer.name, sensitive[:1])
    value = [view.value(block, number=each.number, change=each.change) for each, block in states]
    desk.say(
        value, *([f"{each.number} before {each.change}: {block.body}" for each, block in states] or ["no changes"])
    )


@commands.command("add")
def add(
    context: typer.Context,
    note: str,
    title: str = "",
    topic: str = "",
    kind: Kind = Kind.FACT,
    tag: Annotated[list[str] | None, typer.Option("--tag")] = None,
    layer: LayerOption = None,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Keep a memory in the operator's name."""
    desk = desk_of(context)
    desk.agree("memory add", token, print_token)
    made = Note(note, title, topic, kind, tuple(tag or ()), layer=layer)
    result = desk.memory.record(desk.caller, made, operator=True, tool="cli")
    desk.say(plain(asdict(result)), f"{result.state} {result.id} ({result.relation})", *result.warnings)


@commands.command("edit")
def edit(
    context: typer.Context,
    memory_id: IdArgument,
    body: str | None = None,
    title: str | None = None,
    topic: str | None = None,
    tag: Annotated[list[str] | None, typer.Option("--tag")] = None,
    sensitivity: Sensitivity | None = None,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Change a memory's text, title, topic, tags or sensitivity; the state before is kept in its history."""
    desk = desk_of(context)
    desk.agree(f"memory edit {memory_id}", token, print_token)
    item = desk.memory.find(desk.caller, memory_id)
    given: dict[str, Any] = {"body": body, "title": title, "topic": topic, "sensitivity": sensitivity}
    changes = {key: value for key, value in given.items() if value is not None}
    if tag is not None:
        changes["tags"] = tuple(tag)
    if not changes:
        raise ToolInput("nothing to change: give --body, --title, --topic, --tag or --sensitivity")
    stored = _change(desk, item.layer, replace(item.block, **changes), "edit")
    value = reveal.HIDING.value(reveal.HIDING.block(stored))
    desk.say(value, f"{stored.id} is at version {stored.version}")


def _change(desk: Desk, layer: Layer, block: Block, change: str) -> Block:
    fields = {"topic": block.topic, "title": block.title, "tags": block.tags, "body": block.body}
    verdict = desk.opened.guard(fields, Authority.OPERATOR, Sink.BLOCK)
    verdict.check()
    written = replace(
        block,
        version=block.version + 1,
        updated_at=stamp(desk.memory.now()),
        authority=Authority.OPERATOR,
        consent=Consent.MANAGED,
        flags=tuple(dict.fromkeys((*block.flags, *verdict.flags))),
    )
    note = AuditNote(change, "operator", layer.name, block.id, tool="cli", contents=(block.body,))
    desk.memory.edited(desk.caller, BlockWrite(layer, written, block.version, change), note)
    return desk.memory.find(desk.caller, block.id).block


def _move(
    context: typer.Context,
    memory_id: str,
    action: Literal["forget", "hide", "restore"],
    token: str | None,
    print_token: bool,
) -> None:
    desk = desk_of(context)
    desk.agree(f"memory {action} {memory_id}", token, print_token)
    done = forgetting.forget(desk.memory, desk.caller, memory_id=memory_id, action=action, operator=True, tool="cli")
    desk.say(plain(asdict(done)), f"{action}: {done.id}")


@commands.command("forget")
def forget(
    context: typer.Context, memory_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Archive a memory; it stays on disk until it is purged."""
    _move(context, memory_id, "forget", token, print_token)


@commands.command("hide")
def hide(
    context: typer.Context, memory_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Keep a memory out of recall and the resident text."""
    _move(context, memory_id, "hide", token, print_token)


@commands.command("restore")
def restore(
    context: typer.Context, memory_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Bring back a hidden or forgotten memory."""
    _move(context, memory_id, "restore", token, print_token)


@commands.command("pin")
def pin(
    context: typer.Context,
    memory_id: IdArgument,
    off: Annotated[bool, typer.Option("--off", help="Unpin.")] = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Pin a memory, or unpin it."""
    desk = desk_of(context)
    desk.agree(f"memory pin {memory_id}", token, print_token)
    stored = review.pin(desk.memory, desk.caller, memory_id, pinned=not off)
    value = reveal.HIDING.value(reveal.HIDING.block(stored))
    desk.say(value, f"{stored.id} is {'pinned' if stored.pinned else 'not pinned'}")
