"""What every command of `rlm-memory memory` works with: the opened memory, the caller, a person's word.

Owns: the group, the options that commands share, how memories are printed. Does not own: any command, any rule. The
store is safe for several processes, so a command works beside a running host.

Source: design page "Overview", On the command line; "Recall, resident text, guard, audit, health, tools", operator.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from rlm_memory_host import settings
from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.assembly.text import strengths_of
from rlm_memory_host.attach.project import project_of
from rlm_memory_host.cli import consent, outbox
from rlm_memory_host.cli.announcing import Announcing
from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.contracts.memory import Block, Caller, Layer, LayerKind, project_layer
from rlm_memory_host.errors import ToolInput
from rlm_memory_host.recall.giving import Giving
from rlm_memory_host.recall.resident_files import ResidentFiles
from rlm_memory_host.textmemory import bindings
from rlm_memory_host.textmemory.guarding import guard_of
from rlm_memory_host.textmemory.opening import Opened, open_memory
from rlm_memory_host.textmemory.service import Parts, TextMemory

commands = typer.Typer(no_args_is_help=True, help="The text memory: read it, review it, look after its files.")

PROJECT: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")
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

    state_root: Path
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
    desk = context.obj = open_desk(config, state_root, project, preset, owner, as_json)
    context.call_on_close(desk.memory.activity.keep)
    files = ResidentFiles(Giving(desk.memory), desk.opened.store.folder, desk.opened.health.warning)
    before = files.sources()
    context.call_on_close(lambda: None if files.sources() == before else files.look())


def open_desk(
    config: Path | None, state_root: Path | None, project: str | None, preset: str | None, owner: str, as_json: bool
) -> Desk:
    if project and PROJECT.fullmatch(project) is None:
        raise ToolInput("--project: 1 to 200 characters without control characters, as project.id in the settings")
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
    remote = Announcing(loaded.state_root, Redaction(opened.guard, (loaded.state_root, loaded.artifact_root)))
    parts = Parts(
        opened.store,
        guard_of(opened.guard),
        remote=remote if loaded.honcho is not None else None,
        withdraw=lambda memory_id: outbox.take_back(loaded.state_root, {memory_id}),
        strengths=strengths_of(loaded),
        on_fault=opened.health.fault,
        profile=loaded.memory.profile,
    )
    memory = TextMemory(parts)
    return Desk(loaded.state_root, opened, memory, Caller(owner, "user", preset, told, "command-line"), as_json)


def desk_of(context: typer.Context) -> Desk:
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


def line_of(block: Block, layer: Layer) -> str:
    star = "★" if block.pinned else ""
    marks = "" if block.status.value == "active" else f" [{block.status}]"
    return f"{block.id}  [{block.priority}] {star}{block.title} ({layer.kind}, {block.kind}, {block.authority}){marks}"
