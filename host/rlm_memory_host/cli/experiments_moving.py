"""`rlm-memory experiments export|import`: results out of a store and into one. See `experiments` for the rest."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import (
    Disposed,
    LockTimeout,
    StoreError,
    ToolCancelled,
    ToolInput,
    Unwritable,
)

if TYPE_CHECKING:
    from rlm_memory_host.artifacts.importers import Found, Item, Taken
    from rlm_memory_host.assembly.guarded import CardGuard


class Form(StrEnum):
    """How an export is kept."""

    FOLDER = "folder"
    ZIP = "zip"


class Origin(StrEnum):
    """Whose results an import reads."""

    EXPORT = "export"
    JOBLIB = "joblib"
    PINS = "pins"
    MLFLOW = "mlflow"


def export(
    experiments: IdsArgument = None,
    to: Annotated[Path | None, typer.Option("--to", help="A new folder, or a new file ending in .zip.")] = None,
    form: Annotated[Form | None, typer.Option("--as", help="Instead of telling it from the name.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every result of the project.")] = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy results with their cards, digests and a script that checks them to a new folder or zip file."""
    from rlm_memory_host.artifacts.export import export as written
    from rlm_memory_host.artifacts.operators import Shelf, find_experiment

    only_a_person("experiments export")
    if to is None:
        raise ToolInput("where to? --to names a new folder, or a new file ending in .zip")
    if bool(experiments) == everything:
        raise ToolInput("name experiments, or say --all")
    chosen = form or (Form.ZIP if to.suffix.lower() == ".zip" else Form.FOLDER)
    with open_desk(config, state_root, project, as_json) as desk:
        parts = desk.project.parts
        names = (
            sorted(Shelf(parts).cards) if everything else [find_experiment(parts, text) for text in experiments or ()]
        )
        with desk.progress("exporting") as bar:
            done = written(
                parts,
                names,
                to.absolute(),
                chosen.value,
                check=desk.stop.check,
                progress=bar,
                forbidden=(desk.settings.state_root, desk.settings.artifact_root),
            )
    words = f"{done.experiments} experiments, {done.objects} objects, {sized(done.bytes)}"
    desk.say(
        {**asdict(done), "target": str(to), "form": chosen.value}, f"exported to {to}: {words}", _checking(to, chosen)
    )


def _checking(to: Path, form: Form) -> str:
    if form is Form.ZIP:
        return f"to check it anywhere, with Python alone, take verify.py out of it: python verify.py {_typed(to)}"
    return f"to check it anywhere, with Python alone: python {_typed(to / 'verify.py')}"


def _typed(path: Path) -> str:
    """A path as one types it into a shell."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def import_(
    path: Annotated[Path, typer.Argument(help="An export (folder or zip), or what --from names.")],
    origin: Annotated[Origin, typer.Option("--from", help="Whose results these are.")] = Origin.EXPORT,
    dry_run: DryOption = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring results in: an export, a joblib cache, a pins board, an MLflow file store. The source is only read."""
    from rlm_memory_host.assembly.guarded import CardGuard
    from rlm_memory_host.guard import Guard
    from rlm_memory_host.process import private_folder

    only_a_person("experiments import")
    taken: list[Taken] = []
    redacted: list[tuple[str, str]] = []
    with open_desk(config, state_root, project, as_json) as desk:
        if not dry_run:
            private_folder(desk.settings.artifact_root)
        with _found(desk, path, origin) as found, desk.progress("importing") as bar:
            total = sum(item.size for item in found.items)
            guard = CardGuard(Guard(desk.settings.guard.extra_deny_patterns))
            before = 0
            stopped = ""
            for item in found.items:
                shift = before

                def advance(done: int, _size: int, shift: int = shift) -> None:
                    bar(min(shift + done, total), total)

                try:
                    clean, places = _guarded(guard, item)
                    taken.append(_one(desk, clean, dry_run, advance))
                    redacted += [(item.name, place) for place in places]
                except (Unwritable, LockTimeout, Disposed, ToolCancelled) as error:
                    stopped = str(error)
                    found.skip(item.name, error.code, str(error))
                    break
                except StoreError as error:
                    found.skip(item.name, error.code, str(error))
                before += item.size
    _report(desk, taken, found, redacted, dry_run=dry_run, stopped=stopped)


@contextmanager
def _found(desk: Desk, path: Path, origin: Origin) -> Generator[Found]:
    from rlm_memory_host.artifacts import importers

    if origin is Origin.EXPORT:
        with importers.open_export(path, desk.scope.project_id, desk.project.parts.bounds, "disabled") as found:
            yield found
        return
    readers = {
        Origin.JOBLIB: importers.find_joblib,
        Origin.PINS: importers.find_pins,
        Origin.MLFLOW: importers.find_mlflow,
    }
    with importers.Tree(path) as tree:
        yield readers[origin](tree)


def _guarded(guard: CardGuard, item: Item) -> tuple[Item, list[str]]:
    """The item with no secret in its card and sidecar, and where one was. Raises GuardRejected.

    What is taken in passes the guard as what a kernel records does: another tool's parameters are nobody's word.
    """
    request, places = guard.card(item.request)
    card, note = item.card, None if item.note is None else dict(guard.note(item.note))
    if places and card is not None:
        texts = {name: getattr(request, name) or None for name in ("tags", "columns")}
        card = card.model_copy(update={"title": request.title, "summary": request.summary, **texts})
    if note != item.note:
        places = [*places, "sidecar"]
    return replace(item, request=request, card=card, note=note), places


def _one(desk: Desk, item: Item, dry_run: bool, advance: Any) -> Taken:
    from rlm_memory_host.artifacts import importers

    desk.stop.check()
    if dry_run:
        return importers.look(desk.project, item, check=desk.stop.check, progress=advance)
    scope = Scope(desk.scope.project_id, "import", None)
    return importers.take(
        desk.project,
        scope,
        item,
        now=lambda: datetime.now(UTC),
        index_state="disabled",
        check=desk.stop.check,
        progress=advance,
    )


def _report(
    desk: Desk, taken: list[Taken], found: Found, redacted: list[tuple[str, str]], *, dry_run: bool, stopped: str
) -> None:
    rows = table("", "id", "bytes>", "title", "from")
    for item in taken:
        rows.add_row(item.state, item.experiment_id[:16], sized(item.bytes), plain(item.title), plain(item.name))
    lines = [plain(f"not taken: {item.name}: {item.code}: {item.reason}") for item in found.skipped]
    lines += [plain(f"what looks like a secret was left out of the card: {name}: {place}") for name, place in redacted]
    counts = {state: sum(item.state == state for item in taken) for state in ("new", "present", "mended")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    summary = f"{'would take: ' if dry_run else ''}{told}, {len(found.skipped)} not taken"
    value = {
        "taken": [asdict(item) for item in taken],
        "not_taken": [asdict(item) for item in found.skipped],
        "redacted": [{"name": name, "place": place} for name, place in redacted],
        "dry_run": dry_run,
        "stopped": stopped,
    }
    desk.say(value, *([rows] if taken else []), *lines, summary)
    raise typer.Exit(2 if stopped else 1 if found.skipped else 0)
