"""`rlm-memory dsh install|remove|status|row|tail`: the bridge module of DeepSeek Harness, and its logs.

Owns: the commands. Does not own: what is written (`dsh.installing`), the API that the module asks (`loopback`).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rlm_memory_host import settings
from rlm_memory_host.cli import dsh_log
from rlm_memory_host.cli.experiments_desk import only_a_person
from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.dsh import installing
from rlm_memory_host.errors import SettingsError

commands = typer.Typer(no_args_is_help=True, help="Memory in DeepSeek Harness: its bridge module.")
commands.command("tail")(dsh_log.tail)

HomeOption = Annotated[Path | None, typer.Option("--home", help="The harness's home; else DSH_HOME, else ~/.dsh.")]
ProfileOption = Annotated[str | None, typer.Option("--profile", help="This profile alone; left out: every profile.")]
CompositionOption = Annotated[
    Path | None, typer.Option("--composition", help="A whole cordis.yml, for the 0.1 line, which has no profiles.")
]
RecallOption = Annotated[bool, typer.Option(help="Inject recalled memory into the first step of a turn.")]
CaptureOption = Annotated[bool, typer.Option(help="Tell the host completed exchanges of root sessions.")]
StartOption = Annotated[bool, typer.Option(help="Start a host in the background where none runs.")]


@commands.command("install")
def install(
    profile: ProfileOption = None,
    composition: CompositionOption = None,
    home: HomeOption = None,
    recall: RecallOption = True,
    capture: CaptureOption = True,
    start: StartOption = True,
    config: ConfigOption = None,
    state_root: RootOption = None,
) -> None:
    """Write the bridge module and its row; nothing else of the file changes. A second time renews both."""
    only_a_person("dsh install")
    root = settings.load(config, state_root).settings.state_root
    place = installing.place_of(installing.home_of(home, os.environ), profile, composition)
    with _as_settings_errors():
        installing.install(place, root, _row_config(root, config, recall=recall, capture=capture, start=start))
    print(f"wrote {place.module}")
    print(f"wrote a row into {place.rows}; `rlm-memory dsh remove` takes both back")


@commands.command("remove")
def remove(
    profile: ProfileOption = None,
    composition: CompositionOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    state_root: RootOption = None,
) -> None:
    """Take the row and the module back. The file of rows is then what it was; none installed is fine."""
    only_a_person("dsh remove")
    root = settings.load(config, state_root).settings.state_root
    place = installing.place_of(installing.home_of(home, os.environ), profile, composition)
    with _as_settings_errors():
        removed = installing.remove(place, root)
    print(f"took the row out of {place.rows}" if removed.block else f"no row of ours in {place.rows}")
    if removed.module:
        print(f"removed {place.module}")
    if removed.token:
        print("nothing is installed any more: the loopback API ends, its token is gone")


@commands.command("status")
def status(
    profile: ProfileOption = None,
    composition: CompositionOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    state_root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show whether the bridge is installed and a host serves it (exit 0 both, 1 otherwise), and how logs are read."""
    root = settings.load(config, state_root).settings.state_root
    place = installing.place_of(installing.home_of(home, os.environ), profile, composition)
    module = place.module.read_bytes() if place.module.is_file() else b""
    told: dict[str, Any] = {
        "rows": str(place.rows),
        "installed": installing.is_installed(place.rows),
        "module": "absent" if not module else "current" if module == installing.module_text() else "other release",
        "serving": installing.is_serving(root),
        "log": dsh_log.asked_status(root),
    }
    if as_json:
        print(json.dumps(told, sort_keys=True))
    else:
        print(f"row in {told['rows']}: {'yes' if told['installed'] else 'no'}")
        print(f"module: {told['module']}")
        print(f"a host serves the loopback API: {'yes' if told['serving'] else 'no'}")
        print("\n".join(dsh_log.lines(told["log"])))
    raise typer.Exit(0 if told["installed"] and told["module"] == "current" and told["serving"] else 1)


@commands.command("row")
def row(
    composition: CompositionOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    state_root: RootOption = None,
) -> None:
    """Show the row, for a file that `install` does not write to. Nothing is written."""
    root = settings.load(config, state_root).settings.state_root
    place = installing.place_of(installing.home_of(home, os.environ), None, composition)
    config_ = _row_config(root, config, recall=True, capture=True, start=True)
    print(f"- {json.dumps(installing.row_of(place, config_))}")


def _row_config(root: Path, config: Path | None, *, recall: bool, capture: bool, start: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "rlm_memory_host", "host", "run", "--from-kernel", "--state-root", str(root)]
    if config is not None:
        command += ["--config", str(config.absolute())]
    return {"stateRoot": str(root), "recall": recall, "capture": capture, "command": command if start else []}


class _as_settings_errors:
    """What the file system refuses is told as one line."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise SettingsError(f"the harness's home cannot be written ({error.strerror})") from error
