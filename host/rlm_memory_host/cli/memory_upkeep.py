"""`rlm-memory memory purge|validate|rebuild-index|scan-duplicates|consolidate|import|export`: look after the files.

Source: design page "Overview", On the command line; "Recall, resident text, guard, audit, health, tools", operator.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from rlm_memory_host.cli import consent, outbox
from rlm_memory_host.cli.memory_desk import LayerOption, PrintOption, TokenOption, commands, desk_of, plain
from rlm_memory_host.contracts.memory import AuditNote, LayerKind, Transaction, visible_layers
from rlm_memory_host.delivery.destroyed import Destroyed
from rlm_memory_host.errors import NotFound, ToolInput
from rlm_memory_host.textmemory import importing, purging, review, taking, upkeep
from rlm_memory_host.textmemory.validity import stamp


@commands.command("purge")
def purge(
    context: typer.Context,
    memory_id: Annotated[str | None, typer.Option("--id")] = None,
    session: Annotated[str | None, typer.Option("--session")] = None,
    topic: Annotated[str | None, typer.Option("--topic")] = None,
    layer: LayerOption = None,
    token: TokenOption = None,
) -> None:
    """Destroy a memory, a session or a topic. Without --token: show the plan and, at a terminal, its token."""
    desk = desk_of(context)
    given = [(what, target) for what, target in (("id", memory_id), ("session", session), ("topic", topic)) if target]
    if len(given) != 1:
        raise ToolInput("give exactly one of --id, --session and --topic")
    what, target = given[0]
    where = next((each for each in visible_layers(desk.caller) if each.kind is layer), None)

    def make() -> purging.PurgePlan:
        store = desk.opened.store
        return purging.plan(store, cast("Any", what), target, project=desk.caller.project or "", layer=where)

    made = make()
    if token is None:
        value = {key: plain(item) for key, item in asdict(made).items() if key != "token"}
        lines = [f"would destroy {len(made.memories)} memories, {made.rows} rows, {made.evidence} turns"]
        lines += [
            f"{made.references} other memories lose a reference",
            *(f"not reached: {each}" for each in purging.REMAINS),
        ]
        if consent.is_person_here():
            lines.append(f"to do it: the same command with --token {made.token}")
        desk.say(value, *lines)
        return
    if consent.is_inside_kernel():
        consent.require(desk.opened.store, "memory purge", None)
    gone = {memory for _, memory in made.memories}
    with Destroyed(desk.state_root).noting(gone, made.session):
        done = purging.apply(desk.opened.store, made, token, make)
    outbox.take_back(desk.state_root, gone, made.session)
    desk.say(plain(asdict(done)), f"destroyed {done.memories} memories; {len(done.remaining)} places left over")
    raise typer.Exit(1 if done.remaining else 0)


@commands.command("validate")
def validate(context: typer.Context) -> None:
    """Check every file and the audit chain; exit 1 with file, line and code of what is wrong."""
    desk = desk_of(context)
    report = upkeep.validate(desk.opened.store)
    lines = [f"{item.layer}/{item.file}:{item.line}: {item.code}" for item in report.problems]
    lines += [f"audit record {item.seq}: {item.code}" for item in report.breaks]
    lines.append(f"{report.memories} memories in {report.layers} layers, {len(lines)} findings")
    desk.say(plain(asdict(report)), *lines)
    raise typer.Exit(0 if report.is_clean else 1)


@commands.command("rebuild-index")
def rebuild_index(context: typer.Context) -> None:
    """Write each layer's MEMORY.md again and drop what is derived."""
    desk = desk_of(context)
    count = upkeep.rebuild_index(desk.opened.store)
    desk.say({"layers": count}, f"rebuilt {count} layers")


@commands.command("scan-duplicates")
def scan_duplicates(context: typer.Context) -> None:
    """List memories that say the same; exit 1 when there are any."""
    desk = desk_of(context)
    pairs = upkeep.duplicates(desk.opened.store)
    lines = [f"{pair.first}  {pair.second}  {pair.alike:.0%} ({pair.layer})" for pair in pairs]
    desk.say([asdict(pair) for pair in pairs], *lines or ["no duplicates"])
    raise typer.Exit(1 if pairs else 0)


@commands.command("consolidate")
def consolidate(
    context: typer.Context,
    apply: Annotated[bool, typer.Option("--apply", help="Move them; without it only show.")] = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Show what age and capacity would move, or move it; nothing is deleted."""
    desk = desk_of(context)
    if apply:
        desk.agree("memory consolidate --apply", token, print_token)
    layers = desk.memory.layers(desk.caller)
    plans = {layer.name: review.consolidate(desk.memory, layer, dry_run=not apply) for layer in layers}
    value = {name: plain(asdict(found)) for name, found in plans.items()}
    desk.say(value, *(f"{name}: {len(found.steps)} to move" for name, found in plans.items()))


@commands.command("import")
def import_from(
    context: typer.Context,
    path: Path,
    origin: Annotated[str, typer.Option("--from", help="runtime, plugin or riko.")],
    layer: LayerOption = None,
    active: Annotated[bool, typer.Option("--active", help="Take what nothing on file speaks about as active.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would become of it.")] = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Read another system's memories; each becomes a candidate for review. Exit 1 when some were refused."""
    desk = desk_of(context)
    if origin not in ("runtime", "plugin", "riko"):
        raise ToolInput("--from: must be one of runtime, plugin, riko")
    if not dry_run:
        desk.agree(f"memory import --from {origin}{' --active' if active else ''}", token, print_token)
    wanted = layer or LayerKind.PROJECT
    where = next((each for each in visible_layers(desk.caller) if each.kind is wanted), None)
    if where is None:
        raise NotFound("this caller has no such layer")
    memory, guard = desk.memory, desk.opened.guard
    if dry_run:
        memory = taking.rehearsal(memory, (where, *visible_layers(desk.caller)))
    if active:
        done = importing.run_active(memory, guard, origin, path, where, desk.caller)
    else:
        done = importing.run(memory.store, guard, origin, path, where, stamp(memory.now()))
    lines = ["nothing was kept; this is what would become of it"] if dry_run else []
    lines += [f"{done.active} of {done.read} are active"] if active else []
    lines.append(f"{done.queued} of {done.read} wait for review; {done.known} were known, {done.gone} had ended there")
    lines += [f"{done.conflicts} of these contradict what is on file"] if done.conflicts else []
    lines += [f"refused {place}: {code}" for place, code in done.refused]
    desk.say({**plain(asdict(done)), "dry_run": dry_run}, *lines)
    raise typer.Exit(1 if done.refused else 0)


@commands.command("export")
def export(
    context: typer.Context,
    path: Annotated[Path | None, typer.Argument(help="File to make; unset: standard output.")] = None,
    layer: LayerOption = None,
    sensitive: Annotated[bool, typer.Option("--sensitive", help="With sensitive memories.")] = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Write memories as JSON lines."""
    desk = desk_of(context)
    if sensitive:
        desk.agree("memory export --sensitive", token, print_token)
    layers = [each for each in visible_layers(desk.caller) if layer is None or each.kind is layer]
    rows = list(upkeep.exported(desk.opened.store, layers, with_sensitive=sensitive))
    if sensitive:
        note = AuditNote("export", "operator", code=f"SENSITIVE_{len(rows)}", tool="cli")
        desk.opened.store.commit(Transaction(notes=(note,)))
    text = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    if path is None:
        print(text, end="")
        return
    _write_private(path, text)
    desk.say({"memories": len(rows)}, f"wrote {len(rows)} memories")


def _write_private(path: Path, text: str) -> None:
    """Make a file that only its owner reads; no half of one stays. Raises ToolInput."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise ToolInput("the file to export to is there already; name a new one") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no usable name"
        raise ToolInput(f"the file to export to cannot be written ({why})") from None
