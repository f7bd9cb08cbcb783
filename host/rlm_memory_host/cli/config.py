"""`rlm-memory config show`."""

from __future__ import annotations

import json
from typing import Any

import typer

from rlm_memory_host import settings
from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption

commands = typer.Typer(no_args_is_help=True, help="The settings that count here.")


@commands.callback()
def _group() -> None:
    """Keep `show` a sub-command while it is the only one."""


@commands.command("show")
def show(config: ConfigOption = None, state_root: RootOption = None, as_json: JsonOption = False) -> None:
    """Print the merged settings and the files they came from; there are no secrets in them."""
    loaded = settings.load(config, state_root)
    merged: dict[str, Any] = loaded.settings.model_dump(mode="json")
    merged["artifacts"]["root"] = str(loaded.settings.artifact_root)
    sources = [{"role": source.role, "path": str(source.path)} for source in loaded.sources]
    if as_json:
        print(json.dumps({"settings": merged, "sources": sources}, sort_keys=True))
        return
    for source in sources:
        print(f"# {source['role']}: {source['path']}")
    if not sources:
        print("# no settings file; these are the defaults")
    print("\n".join(_toml(merged)))


def _toml(table: dict[str, Any], prefix: str = "") -> list[str]:
    lines: list[str] = []
    # A key that stood after a table would be that table's.
    for name, value in sorted(table.items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(value, dict):
            lines += ["", f"[{prefix}{name}]", *_toml(value, f"{prefix}{name}.")]  # pyright: ignore[reportUnknownArgumentType]
        elif value is None:
            lines.append(f"# {name} is not set")
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    return lines
