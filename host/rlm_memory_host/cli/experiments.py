"""`rlm-memory experiments ls|show|verify|rm|undo|gc|du`: what an operator does with recorded results.

Owns: arguments, what is printed, exit codes (0 fine, 1 findings or not all done, 2 failure or bad use). Does not own:
any rule (`artifacts.operators`, `artifacts.removal`); `export` and `import` are in `experiments_moving`. The store's
locks are those of a host, so every command works beside a running one.

Source: DeepSeek Honcho specification, section 28.5; design page "Exact results", Operators.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlm_memory_host.cli import experiments_moving
from rlm_memory_host.cli.experiments_desk import (
    Desk,
    DryOption,
    IdsArgument,
    ProjectOption,
    only_a_person,
    open_desk,
    plain,
    sized,
    table,
)
from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.contracts.records import SearchHit, SearchRequest
from rlm_memory_host.errors import StoreError, ToolInput

if TYPE_CHECKING:
    from rlm_memory_host.artifacts.operators import Removed, Report, Usage
    from rlm_memory_host.artifacts.project import Project
    from rlm_memory_host.artifacts.removal import Sweep

commands = typer.Typer(no_args_is_help=True, help="Recorded results: look, verify, export, import, remove, bring back.")
commands.command("export")(experiments_moving.export)
commands.command("import")(experiments_moving.import_)

IdArgument = Annotated[str, typer.Argument(help="An id, or 8 or more of its first characters.")]
EverywhereOption = Annotated[bool, typer.Option("--all-projects", help="Every project of the store.")]
SHORT = 16
"""Characters of an id in tables; enough to name it."""
DAY = 86_400


# -- looking -----------------------------------------------------------------------------------------------------------
@commands.command("ls")
def ls(
    query: Annotated[str, typer.Argument(help="Words, an id, a fingerprint or a tag; nothing: the newest.")] = "",
    tag: Annotated[str | None, typer.Option("--tag")] = None,
    source: Annotated[str | None, typer.Option("--source")] = None,
    since: Annotated[str | None, typer.Option("--since", help="ISO date: updated then or later.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Recorded by that session.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000)] = 20,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on after an earlier page.")] = None,
    removed: Annotated[bool, typer.Option("--removed", help="What was removed and can be brought back.")] = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List results of a project: the newest, or those that match; with the total and a cursor where there are more."""
    with open_desk(config, state_root, project, as_json) as desk:
        if removed:
            _ls_removed(desk)
            return
        request = SearchRequest(query, tag=tag, source=source, since=since, session=session, cursor=cursor)
        hits, total, after, warnings = _pages(desk, request, limit)
    rows = table("id", "title", "kind", "shape", "bytes>", "updated", "tags", "here")
    for hit in hits:
        shape = "" if hit.shape is None else "x".join(map(str, hit.shape))
        here = "yes" if hit.local_available else "NO"
        kind = hit.media_type.partition(";")[0]
        texts = (hit.experiment_id[:SHORT], hit.title, kind, shape, sized(hit.bytes), hit.updated_at[:19])
        rows.add_row(*map(plain, texts), plain(", ".join(hit.tags)), here)
    value = {"results": [asdict(hit) for hit in hits], "total": total, "cursor": after, "warnings": warnings}
    more = [plain(warning) for warning in warnings] + ([f"the next page: --cursor {after}"] if after else [])
    desk.say(value, *([rows] if hits else []), f"{len(hits)} of {total} results", *more)


def _pages(desk: Desk, request: SearchRequest, limit: int) -> tuple[list[SearchHit], int, str | None, list[str]]:
    from dataclasses import replace

    page_size = desk.settings.artifacts.max_search_results
    hits: list[SearchHit] = []
    warnings: dict[str, None] = {}
    while True:
        desk.stop.check()
        page = desk.store.search(desk.scope, replace(request, limit=min(page_size, limit - len(hits))))
        hits += page.results
        warnings |= dict.fromkeys(page.warnings)
        request = replace(request, cursor=page.cursor)
        if page.cursor is None or len(hits) >= limit:
            return hits, page.total, page.cursor, list(warnings)


def _ls_removed(desk: Desk) -> None:
    from rlm_memory_host.artifacts.operators import Shelf

    days = desk.settings.artifacts.undo_days
    rows = table("id", "removed", "kept until")
    value: list[dict[str, Any]] = []
    for gone in Shelf(desk.project.parts).removals():
        until = gone.at + days * DAY
        value.append({**_removed(gone), "kept_until": _moment(until)})
        rows.add_row(gone.experiment_id[:SHORT], _moment(gone.at), _moment(until))
    desk.say({"removed": value}, *([rows] if value else []), f"{len(value)} removed results can be brought back")


def _removed(gone: Removed) -> dict[str, Any]:
    return {"experiment_id": gone.experiment_id, "removed_at": _moment(gone.at)}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@commands.command("show")
def show(
    experiment: IdArgument,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one result: its card, its sidecar (lineage, preview, environment) and where its bytes lie."""
    from rlm_memory_host.artifacts.operators import find_experiment
    from rlm_memory_host.storage.cards import read_card, read_sidecar

    with open_desk(config, state_root, project, as_json) as desk:
        parts = desk.project.parts
        name = find_experiment(parts, experiment)
        card = read_card(parts.files, parts.layout, parts.project_id, name)
        note = read_sidecar(parts.files, parts.layout, name) or {}
        path = parts.layout.object(card.artifact.artifact_id)
        held = path.stat().st_size if path.is_file() else None
    document = json.loads(card.to_json())
    lines = [f"{key}: {_shown(value)}" for key, value in document.items() if key not in ("schemaVersion", "artifact")]
    lines[1:1] = [f"artifact.{key}: {_shown(value)}" for key, value in document["artifact"].items()]
    state = (
        "missing" if held is None else "there" if held == card.artifact.bytes else f"of the wrong size ({held:,} bytes)"
    )
    lines.append(f"object: {state}, {path}; `rlm-memory experiments verify {name}` checks its bytes")
    for key, value in note.items():
        label = "preview (unverified)" if key == "preview" else key
        lines += [f"{label}:", _shown(json.dumps(value, ensure_ascii=False, indent=2), 8_000)]
    value = {"card": document, "sidecar": note or None, "object": {"path": str(path), "bytes": held, "state": state}}
    desk.say(value, *map(plain, lines))


def _shown(value: Any, limit: int = 2_000) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text):,} characters)"


@commands.command("du")
def du(
    all_projects: EverywhereOption = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a project takes on disk, by kind, shared bytes once, and what is left of its bounds."""
    from rlm_memory_host.artifacts.operators import measure, projects

    with open_desk(config, state_root, project, as_json) as desk:
        parts = desk.project.parts
        wanted = projects(parts.files, desk.settings.artifact_root) if all_projects else [("", parts.project_id)]
        found: list[Usage] = []
        nameless: list[str] = []
        for key, name in wanted:
            desk.stop.check()
            if name is None:
                nameless.append(key)
            else:
                found.append(measure(desk.of(name).parts, parts.bounds, name))
    rows = table("project", "kind", "cards>", "objects>", "bytes>")
    for usage in found:
        for kind in usage.kinds:
            name = plain(usage.project_id or usage.project_key)
            rows.add_row(name, plain(kind.kind), str(kind.cards), str(kind.objects), sized(kind.bytes))
    value = {"projects": [asdict(usage) for usage in found], "unnamed": nameless}
    lines = [
        f"{plain(usage.project_id or '')}: {usage.cards} cards, {usage.objects} objects, {sized(usage.object_bytes)} "
        f"(cards {sized(usage.card_bytes)}, temporary {sized(usage.temporary_bytes)}); left: "
        f"{sized(usage.bytes_left)}, {usage.cards_left} cards"
        for usage in found
    ]
    lines += [f"{key}: no card tells which project this is" for key in nameless]
    desk.say(value, rows, *lines)


@commands.command("verify")
def verify(
    experiments: IdsArgument = None,
    all_projects: EverywhereOption = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hash objects again and hold cards to them (all, or those named): exit 1 where anything is wrong."""
    from rlm_memory_host.artifacts.operators import find_experiment, projects

    if experiments and all_projects:
        raise ToolInput("name experiments, or say --all-projects, not both")
    with open_desk(config, state_root, project, as_json) as desk:
        parts = desk.project.parts
        names = None if not experiments else [find_experiment(parts, text) for text in experiments]
        chosen = [parts.project_id]
        if all_projects:
            chosen = [name for _, name in projects(parts.files, desk.settings.artifact_root) if name is not None]
        reports = [(name, _verify(desk, desk.of(name), names)) for name in chosen]
    faults = [{"project": name, **asdict(finding)} for name, report in reports for finding in report.findings]
    strays = [stray for _, report in reports for stray in report.strays]
    cards, objects = sum(report.cards for _, report in reports), sum(report.objects for _, report in reports)
    hashed = sum(report.bytes for _, report in reports)
    value = {"cards": cards, "objects": objects, "bytes": hashed, "findings": faults, "strays": strays}
    lines = [
        f"{item['experiment_id']}  {item['kind']} {item['code']}: {item['reason']}"
        f"{' (removed; cannot be brought back whole)' if item['removed'] else ''}"
        for item in faults
    ]
    lines += [f"not ours, left alone: {stray}" for stray in strays]
    summary = f"{cards} cards, {objects} objects, {sized(hashed)} hashed, {len(faults)} faults"
    desk.say(value, *map(plain, lines), summary)
    raise typer.Exit(1 if faults else 0)


def _verify(desk: Desk, project: Project, names: list[str] | None) -> Report:
    from rlm_memory_host.artifacts.operators import verify as held_to

    done: dict[str, int] = {}
    with desk.progress("verifying") as bar:
        total = project.parts.lock.book()[1] or 0

        def advance(artifact: str, count: int, _size: int) -> None:
            done[artifact] = count
            hashed = sum(done.values())
            bar(hashed, max(hashed, total))

        return held_to(project.parts, names, check=desk.stop.check, advance=advance)


# -- removing ----------------------------------------------------------------------------------------------------------
@commands.command("rm")
def rm(
    experiments: IdsArgument = None,
    dry_run: DryOption = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove results: nothing finds them any more. `undo` brings them back for `artifacts.undo_days` days."""
    _each("rm", experiments, dry_run, config, state_root, project, as_json)


@commands.command("undo")
def undo(
    experiments: IdsArgument = None,
    dry_run: DryOption = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring removed results back; `ls --removed` lists them."""
    _each("undo", experiments, dry_run, config, state_root, project, as_json)


def _each(
    action: str,
    experiments: list[str] | None,
    dry_run: bool,
    config: Path | None,
    state_root: Path | None,
    project: str | None,
    as_json: bool,
) -> None:
    from rlm_memory_host.artifacts import removal
    from rlm_memory_host.artifacts.operators import find_experiment

    only_a_person(f"experiments {action}")
    if not experiments:
        raise ToolInput("which experiments? `rlm-memory experiments ls` lists their ids")
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    with open_desk(config, state_root, project, as_json) as desk:
        parts = desk.project.parts
        names = [find_experiment(parts, text, removed=action == "undo") for text in experiments]
        for name in dict.fromkeys(names):
            if desk.stop.is_wanted:
                failed.append({"experiment_id": name, "code": "CANCELLED", "reason": "stopped before it"})
                continue
            try:
                if not dry_run:
                    gone = removal.remove(parts, name) if action == "rm" else removal.bring_back(parts, name)
                    done.append(_removed(gone))
                else:
                    (removal.check_removable if action == "rm" else removal.check_returnable)(parts, name)
                    done.append({"experiment_id": name})
            except StoreError as error:
                failed.append({"experiment_id": name, "code": error.code, "reason": str(error)})
        if done and action == "rm" and not dry_run and (desk.settings.state_root / "outbox").is_dir():
            from rlm_memory_host.cli.outbox import take_back

            # A card that still waits is not sent any more.
            take_back(desk.settings.state_root, {item["experiment_id"] for item in done})
    word = {"rm": "removed", "undo": "brought back"}[action]
    lines = [f"{'would be ' if dry_run else ''}{word}: {item['experiment_id']}" for item in done]
    lines += [f"not {word}: {item['experiment_id']}: {item['reason']}" for item in failed]
    if done and action == "rm" and not dry_run:
        days = desk.settings.artifacts.undo_days
        lines.append(
            f"`rlm-memory experiments undo ID` brings them back for {days} days; then `experiments gc` deletes"
        )
    desk.say({"done": done, "not_done": failed, "dry_run": dry_run}, *lines)
    raise typer.Exit(0 if not failed else 1 if done else 2)


@commands.command("gc")
def gc(
    dry_run: DryOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    undo_days: Annotated[
        int | None, typer.Option("--undo-days", min=0, help="Instead of artifacts.undo_days; 0: all removed ones.")
    ] = None,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete for good: removed results past their time, objects that no card names, left-over temp files."""
    from rlm_memory_host.artifacts import removal

    only_a_person("experiments gc")
    with open_desk(config, state_root, project, as_json) as desk:
        days = desk.settings.artifacts.undo_days if undo_days is None else undo_days
        found = removal.plan(desk.project, undo_seconds=days * DAY)
        if not (dry_run or yes or found.is_empty):
            _ask(desk, found)
        if not (dry_run or found.is_empty):
            found = removal.sweep(desk.project, undo_seconds=days * DAY, check=desk.stop.check)
        if not dry_run:
            removal.recount(desk.project.parts)
    lines = [f"removed card  {gone.experiment_id} of {_moment(gone.at)}" for gone in found.removed]
    lines += [f"object        {name}  {sized(size)}" for name, size in found.objects]
    lines += [f"left over     {name}  {sized(size)}" for name, size in found.leftovers]
    lines += [f"kept: {found.kept}"] if found.kept else []
    verb = "would go" if dry_run else "deleted"
    desk.say({**_swept(found), "dry_run": dry_run}, *lines, f"{verb}: {_counted(found)}")
    raise typer.Exit(1 if found.kept else 0)


def _ask(desk: Desk, found: Sweep) -> None:
    import sys

    if desk.as_json or not sys.stdin.isatty():
        raise ToolInput("nothing is deleted without --yes; --dry-run says what would go")
    if not typer.confirm(f"Delete {_counted(found)} for good?"):
        raise typer.Exit(2)


def _counted(found: Sweep) -> str:
    return (
        f"{len(found.removed)} removed cards, {len(found.objects)} objects, {len(found.leftovers)} left-over files, "
        f"{sized(found.bytes)}"
    )


def _swept(found: Sweep) -> dict[str, Any]:
    return {
        "removed": [_removed(gone) for gone in found.removed],
        "objects": [{"artifact_id": name, "bytes": size} for name, size in found.objects],
        "leftovers": [{"name": name, "bytes": size} for name, size in found.leftovers],
        "bytes": found.bytes,
        "kept": found.kept,
    }
