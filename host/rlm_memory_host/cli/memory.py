"""`rlm-memory memory …`: what an operator reads and does with the text memory, and `rlm-memory audit verify`.

Owns: arguments, what is printed, exit codes (0 fine, 1 findings or degraded, 2 failure or bad use). Does not own: any
rule. The store is safe for several processes, so a command works beside a running host.

Source: design page "Overview", On the command line; "Recall, resident text, guard, audit, health, tools", operator.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from rlm_memory_host import settings
from rlm_memory_host.attach.project import project_of
from rlm_memory_host.cli import consent
from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.contracts.memory import (
    AuditNote,
    Authority,
    Block,
    BlockWrite,
    Caller,
    Consent,
    Kind,
    Layer,
    LayerKind,
    Sensitivity,
    Transaction,
    project_layer,
    visible_layers,
)
from rlm_memory_host.errors import NotFound, ToolInput
from rlm_memory_host.guard import Sink
from rlm_memory_host.recall.service import Query, Recall
from rlm_memory_host.textmemory import bindings, forgetting, importing, purging, review, upkeep
from rlm_memory_host.textmemory.guarding import guard_of
from rlm_memory_host.textmemory.notes import Note
from rlm_memory_host.textmemory.opening import Opened, open_memory
from rlm_memory_host.textmemory.service import Parts, TextMemory
from rlm_memory_host.textmemory.validity import stamp

commands = typer.Typer(no_args_is_help=True, help="The text memory: read it, review it, look after its files.")
audit_commands = typer.Typer(no_args_is_help=True, help="The audit log of the text memory.")

ProjectOption = Annotated[str | None, typer.Option("--project", help="Project id; unset: told from the folder.")]
PresetOption = Annotated[str | None, typer.Option("--preset", help="Preset whose layer to see too.")]
OwnerOption = Annotated[str, typer.Option("--owner", help="Whose memory.")]
LayerOption = Annotated[LayerKind | None, typer.Option("--layer", help="Only this layer.")]
TokenOption = Annotated[str | None, typer.Option("--token", help="A token that --print-token gave at a terminal.")]
PrintOption = Annotated[bool, typer.Option("--print-token", help="Print a token for exactly this and do nothing.")]
IdArgument = Annotated[str, typer.Argument(help="Id.")]


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with."""

    opened: Opened
    memory: TextMemory
    caller: Caller
    as_json: bool

    def say(self, value: Any, *lines: str) -> None:
        """Print for programs or for people."""
        print(json.dumps(value, sort_keys=True, ensure_ascii=False) if self.as_json else "\n".join(lines))

    def agree(self, action: str, token: str | None, print_token: bool) -> None:
        """A person's word for `action`; with `print_token` a token instead, and the command ends."""
        if print_token:
            print(consent.issue(self.opened.store, action))
            raise typer.Exit
        consent.require(self.opened.store, action, token)


@commands.callback()
def common(
    context: typer.Context,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    preset: PresetOption = None,
    owner: OwnerOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Open the memory of one owner."""
    context.obj = _desk(config, state_root, project, preset, owner, as_json)


def _desk(
    config: Path | None, state_root: Path | None, project: str | None, preset: str | None, owner: str, as_json: bool
) -> Desk:
    loaded = settings.load(config, state_root).settings
    opened = open_memory(
        loaded.state_root,
        owner,
        extra_deny_patterns=loaded.guard.extra_deny_patterns,
        hand_edits=loaded.memory.hand_edits,
        repositories={project_layer(name): folder for name, folder in loaded.memory.repositories.items()},
    )

    def claimed(root: Path, own_id: str) -> str:
        return bindings.project_for(opened.store, root, own_id)

    told = project or project_of(Path.cwd(), loaded.project.id, claimed).id
    memory = TextMemory(Parts(opened.store, guard_of(opened.guard)))
    return Desk(opened, memory, Caller(owner, "user", preset, told, "command-line"), as_json)


def _of(context: typer.Context) -> Desk:
    return cast("Desk", context.obj)


def plain(value: Any) -> Any:
    """JSON types of a dataclass."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[Any]", value)]
    return value


def _line(block: Block, layer: Layer) -> str:
    star = "★" if block.pinned else ""
    marks = "" if block.status.value == "active" else f" [{block.status}]"
    return f"{block.id}  [{block.priority}] {star}{block.title} ({layer.kind}, {block.kind}, {block.authority}){marks}"


# -- reading -----------------------------------------------------------------------------------------------------------
@commands.command("ls")
def ls(
    context: typer.Context, layer: LayerOption = None, everything: Annotated[bool, typer.Option("--all")] = False
) -> None:
    """List memories; with --all also those that are not current."""
    desk = _of(context)
    items = desk.memory.blocks(desk.caller, layer) if everything else desk.memory.current(desk.caller, layer)
    value = [{"layer": item.layer.name, **upkeep.plain(item.block)} for item in items]
    desk.say(value, *([_line(item.block, item.layer) for item in items] or ["no memories"]))


@commands.command("show")
def show(context: typer.Context, memory_id: IdArgument) -> None:
    """Show one memory in full."""
    desk = _of(context)
    item = desk.memory.find(desk.caller, memory_id)
    evidence = ["", "Evidence:", item.block.evidence] if item.block.evidence else []
    head = f"topic {item.block.topic}, version {item.block.version}, updated {item.block.updated_at or '-'}"
    value = {"layer": item.layer.name, "file": item.file, "line": item.line, **upkeep.plain(item.block)}
    desk.say(value, _line(item.block, item.layer), head, "", item.block.body, *evidence)


@commands.command("search")
def search(context: typer.Context, query: str, limit: Annotated[int, typer.Option(min=1, max=50)] = 10) -> None:
    """Search memories."""
    desk = _of(context)
    page = Recall(desk.memory).search(desk.caller, Query(query, limit=limit, remote=False))
    value = {"total": page.total, "results": [plain(asdict(item)) for item in page.items]}
    desk.say(value, *([f"{item.id}  {item.title}: {item.text[:100]}" for item in page.items] or ["nothing found"]))


@commands.command("history")
def history(context: typer.Context, memory_id: IdArgument) -> None:
    """Show the earlier states of a memory."""
    desk = _of(context)
    item = desk.memory.find(desk.caller, memory_id)
    entries = desk.opened.store.history(item.layer, memory_id)
    value = [{"number": each.number, "change": each.change, **upkeep.plain(each.block)} for each in entries]
    desk.say(value, *([f"{each.number} before {each.change}: {each.block.body}" for each in entries] or ["no changes"]))


# -- writing -----------------------------------------------------------------------------------------------------------
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
    desk = _of(context)
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
    desk = _of(context)
    desk.agree(f"memory edit {memory_id}", token, print_token)
    item = desk.memory.find(desk.caller, memory_id)
    given: dict[str, Any] = {"body": body, "title": title, "topic": topic, "sensitivity": sensitivity}
    changes = {key: value for key, value in given.items() if value is not None}
    if tag is not None:
        changes["tags"] = tuple(tag)
    if not changes:
        raise ToolInput("nothing to change: give --body, --title, --topic, --tag or --sensitivity")
    stored = _change(desk, item.layer, replace(item.block, **changes), "edit")
    desk.say(upkeep.plain(stored), f"{stored.id} is at version {stored.version}")


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
    return desk.opened.store.commit(Transaction((BlockWrite(layer, written, block.version, change),), (), (note,)))[0]


def _move(
    context: typer.Context,
    memory_id: str,
    action: Literal["forget", "hide", "restore"],
    token: str | None,
    print_token: bool,
) -> None:
    desk = _of(context)
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
    desk = _of(context)
    desk.agree(f"memory pin {memory_id}", token, print_token)
    stored = review.pin(desk.memory, desk.caller, memory_id, pinned=not off)
    desk.say(upkeep.plain(stored), f"{stored.id} is {'pinned' if stored.pinned else 'not pinned'}")


# -- review ------------------------------------------------------------------------------------------------------------
@commands.command("review")
def list_review(
    context: typer.Context,
    accept_edits: Annotated[bool, typer.Option("--accept-edits", help="Take hand edits as your word.")] = False,
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """List what waits for a person (exit 1 when something does), or accept hand edits."""
    desk = _of(context)
    if accept_edits:
        desk.agree("memory review --accept-edits", token, print_token)
        done = desk.opened.store.accept_edits(AuditNote("accept-edits", "operator", tool="cli"))
        desk.say(list(done), *([f"accepted {name}" for name in done] or ["no hand edits"]))
        return
    waiting = [*review.pending(desk.memory), *review.seen_again(desk.memory)]
    unreviewed = [item for item in desk.memory.blocks(desk.caller) if item.block.authority is Authority.UNREVIEWED]
    value = {
        "candidates": [plain(asdict(item)) for item in waiting],
        "unreviewed": [upkeep.plain(item.block) for item in unreviewed],
    }
    lines = [
        f"{item.id}  {item.action} {item.title}: {item.body[:100]} ({item.state}, {item.reason})" for item in waiting
    ]
    lines += [f"{item.block.id}  edited by hand: {item.block.title}" for item in unreviewed]
    desk.say(value, *lines or ["nothing waits"])
    raise typer.Exit(1 if waiting or unreviewed else 0)


@commands.command("confirm")
def confirm(
    context: typer.Context, item_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Accept a candidate, or stand behind a memory that a model wrote."""
    desk = _of(context)
    desk.agree(f"memory confirm {item_id}", token, print_token)
    if item_id.startswith("cand_"):
        done = review.accept(desk.memory, desk.caller, item_id)
        desk.say(plain(asdict(done)), f"accepted {done.id}")
        return
    stored = review.confirm(desk.memory, desk.caller, item_id)
    desk.say(upkeep.plain(stored), f"confirmed {stored.id}")


@commands.command("reject")
def reject(
    context: typer.Context, item_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Reject a candidate."""
    desk = _of(context)
    desk.agree(f"memory reject {item_id}", token, print_token)
    review.reject(desk.memory, item_id)
    desk.say({"id": item_id, "state": "rejected"}, f"rejected {item_id}")


@commands.command("promote")
def promote(
    context: typer.Context, memory_id: IdArgument, token: TokenOption = None, print_token: PrintOption = False
) -> None:
    """Make a memory global."""
    desk = _of(context)
    desk.agree(f"memory promote {memory_id}", token, print_token)
    stored = review.promote(desk.memory, desk.caller, memory_id)
    desk.say(upkeep.plain(stored), f"global now: {stored.id}")


@commands.command("conflicts")
def conflicts(
    context: typer.Context,
    resolve: Annotated[str | None, typer.Option("--resolve", help="Id of the conflict to settle.")] = None,
    keep: Annotated[str, typer.Option("--as", help="keep, correction, temporal_transition or both.")] = "keep",
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """List open conflicts (exit 1 when there are any), or settle one."""
    desk = _of(context)
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
    desk = _of(context)
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
    from rlm_memory_host.textmemory import bindings

    desk = _of(context)
    desk.agree(f"memory link {root} {project_id}", token, print_token)
    bindings.bind(desk.opened.store, root, project_id)
    desk.say({"project": project_id}, f"{root} opens project {project_id} from now on")


# -- upkeep ------------------------------------------------------------------------------------------------------------
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
    desk = _of(context)
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
    done = purging.apply(desk.opened.store, made, token, make)
    desk.say(plain(asdict(done)), f"destroyed {done.memories} memories; {len(done.remaining)} places left over")
    raise typer.Exit(1 if done.remaining else 0)


@commands.command("validate")
def validate(context: typer.Context) -> None:
    """Check every file and the audit chain; exit 1 with file, line and code of what is wrong."""
    desk = _of(context)
    report = upkeep.validate(desk.opened.store)
    lines = [f"{item.layer}/{item.file}:{item.line}: {item.code}" for item in report.problems]
    lines += [f"audit record {item.seq}: {item.code}" for item in report.breaks]
    lines.append(f"{report.memories} memories in {report.layers} layers, {len(lines)} findings")
    desk.say(plain(asdict(report)), *lines)
    raise typer.Exit(0 if report.is_clean else 1)


@commands.command("rebuild-index")
def rebuild_index(context: typer.Context) -> None:
    """Write each layer's MEMORY.md again and drop what is derived."""
    desk = _of(context)
    count = upkeep.rebuild_index(desk.opened.store)
    desk.say({"layers": count}, f"rebuilt {count} layers")


@commands.command("scan-duplicates")
def scan_duplicates(context: typer.Context) -> None:
    """List memories that say the same; exit 1 when there are any."""
    desk = _of(context)
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
    desk = _of(context)
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
    token: TokenOption = None,
    print_token: PrintOption = False,
) -> None:
    """Read another system's memories; each becomes a candidate for review. Exit 1 when some were refused."""
    desk = _of(context)
    if origin not in ("runtime", "plugin", "riko"):
        raise ToolInput("--from: must be one of runtime, plugin, riko")
    desk.agree(f"memory import --from {origin}", token, print_token)
    wanted = layer or LayerKind.PROJECT
    where = next((each for each in visible_layers(desk.caller) if each.kind is wanted), None)
    if where is None:
        raise NotFound("this caller has no such layer")
    done = importing.run(desk.opened.store, desk.opened.guard, origin, path, where, stamp(desk.memory.now()))
    lines = [f"{done.queued} of {done.read} wait for review; {done.known} were known, {done.gone} had ended there"]
    lines += [f"refused {place}: {code}" for place, code in done.refused]
    desk.say(plain(asdict(done)), *lines)
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
    desk = _of(context)
    if sensitive:
        desk.agree("memory export --sensitive", token, print_token)
    layers = [each for each in visible_layers(desk.caller) if layer is None or each.kind is layer]
    rows = list(upkeep.exported(desk.opened.store, layers, with_sensitive=sensitive))
    text = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    if path is None:
        print(text, end="")
        return
    with path.open("x", encoding="utf-8") as file:
        path.chmod(0o600)
        file.write(text)
    desk.say({"memories": len(rows)}, f"wrote {len(rows)} memories")


@audit_commands.command("verify")
def verify(
    config: ConfigOption = None,
    state_root: RootOption = None,
    owner: OwnerOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Check the whole audit chain; exit 1 with the sequence number of every break."""
    desk = _desk(config, state_root, "-", None, owner, as_json)
    found = desk.opened.store.journal.verify_audit()
    lines = [f"record {item.seq}: {item.code}" for item in found.breaks]
    lines.append(f"{found.records} records, {len(found.breaks)} breaks")
    desk.say({"records": found.records, "breaks": [asdict(item) for item in found.breaks]}, *lines)
    raise typer.Exit(1 if found.breaks else 0)


@audit_commands.callback()
def audit_group() -> None:
    """Keep `verify` a sub-command while it is the only one."""
