"""Configuration: `rlm-memory.toml`, found, checked and merged, before anything is opened.

Owns: which file counts, every key with its range and default, which keys a project's own file may set, and whether the
roots are safe. Does not own: making the folders (`process`), credentials (`honcho.credentials`).

Trust: a file named by `--config` or `RLM_MEMORY_CONFIG`, or found in the user's config folder, is the operator's. A
file found in a project folder can be written by whatever works there (a kernel, a cloned repository), so it may set
`PROJECT_KEYS` only and is refused when it sets more. Unknown keys are refused everywhere.

Source: DeepSeek Honcho specification, sections 16, 28.5 and 32; design page "Overview", Names.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from rlm_memory import wire

from rlm_memory_host.contracts.egress import HonchoSettings, OutboxSettings
from rlm_memory_host.contracts.harness import HarnessSettings
from rlm_memory_host.contracts.memory_settings import MemorySettings
from rlm_memory_host.errors import SettingsError

FILE_NAME: Final = "rlm-memory.toml"
CONFIG_VARIABLE: Final = "RLM_MEMORY_CONFIG"
MAX_FILE_BYTES: Final = 256 << 10
PROJECT_KEYS: Final = frozenset({"display.project_name"})
"""All that a file in a project folder may set: things that are shown, nothing that is obeyed."""

Variable = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^=\x00]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ProjectSettings(_Section):
    """Which project every kernel of this host belongs to; unset: told from the kernel's folder."""

    id: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None


class ArtifactSettings(_Section):
    """The artifact store. The defaults of the bounds are section 28.5's and are the most that a bound may be.

    `allow_larger` is the operator's explicit word that `max_artifact_bytes`, `max_project_bytes` and `max_cards` may
    go above them, up to 1 TiB, 100 TiB and 1,000,000. `undo_days`: how long a removed result can be brought back.
    """

    enabled: bool = True
    root: Annotated[Path, Field(strict=False)] | None = None
    integrity: Literal["cached", "always"] = "cached"
    allow_larger: bool = False
    max_artifact_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 1 << 30
    max_project_bytes: Annotated[int, Field(ge=1, le=100 << 40)] = 20 << 30
    max_cards: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    max_title_chars: Annotated[int, Field(ge=1, le=200)] = 200
    max_summary_chars: Annotated[int, Field(ge=1, le=2000)] = 2000
    max_tags: Annotated[int, Field(ge=1, le=20)] = 20
    max_tag_chars: Annotated[int, Field(ge=1, le=80)] = 80
    max_columns: Annotated[int, Field(ge=1, le=256)] = 256
    max_column_chars: Annotated[int, Field(ge=1, le=128)] = 128
    max_search_results: Annotated[int, Field(ge=1, le=20)] = 20
    undo_days: Annotated[int, Field(ge=0, le=3650)] = 30

    @model_validator(mode="after")
    def _only_downward(self) -> ArtifactSettings:
        if self.allow_larger:
            return self
        for name, most in (("max_artifact_bytes", 1 << 30), ("max_project_bytes", 20 << 30), ("max_cards", 10_000)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} is above {most:,}; set artifacts.allow_larger = true if that is meant")
        return self


class ToolSettings(_Section):
    """Which tools a caller sees; a tool set to false is not listed and answers UNKNOWN_TOOL."""

    memory_search: bool = True
    memory_recall: bool = True
    memory_record: bool = True
    memory_correct: bool = True
    memory_read: bool = True
    memory_forget: bool = True
    memory_artifact_record: bool = True
    memory_artifact_resolve: bool = True
    memory_status: bool = True
    memory_propose: bool = True
    memory_list: bool = True
    memory_remember: bool = True
    memory_expand: bool = True
    memory_consolidate: bool = True
    memory_feedback: bool = True
    memory_habits: bool = True


class GuardSettings(_Section):
    """The guard before every sink. `extra_deny_patterns` are regular expressions of what is refused too."""

    extra_deny_patterns: list[Annotated[str, Field(min_length=1, max_length=1000)]] = []


class HostSettings(_Section):
    """The process itself; times in seconds, `idle_exit_minutes` in minutes."""

    shutdown_seconds: Annotated[float, Field(ge=0.1, le=120, strict=False)] = 8.0
    tool_timeout_seconds: Annotated[float, Field(ge=0.1, le=86_400, strict=False)] = 600.0
    idle_exit_minutes: Annotated[float, Field(gt=0, le=10_080, strict=False)] = 30.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class KernelSettings(_Section):
    """What a kernel of the kernelspec `rlm-memory` gets from its start; names are environment variables.

    `cleaned` passes everything but the variables in `credentials` and those that hold the same value; `allowlist`
    passes a short list of harmless ones and those in `allow`.
    """

    environment: Literal["cleaned", "allowlist"] = "cleaned"
    allow: list[Variable] = []
    credentials: list[Variable] = ["HONCHO_API_KEY"]
    sandbox: Literal["none", "bubblewrap"] = "none"


class LoopbackSettings(_Section):
    """The tool API on 127.0.0.1 for bridges. `enabled` unset: served where `rlm-memory dsh install` made its token.

    `port` 0 is any free one. `rlm_root`: an RLM provider's folder; records read from `sessions/<id>/exports` below it.
    """

    enabled: bool | None = None
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    rlm_root: Annotated[Path, Field(strict=False)] | None = None
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 1_200
    burst: Annotated[int, Field(ge=1, le=100_000)] = 200

    @model_validator(mode="after")
    def _absolute(self) -> LoopbackSettings:
        if self.rlm_root is not None and not self.rlm_root.is_absolute():
            raise ValueError("rlm_root: it must be an absolute path")
        return self


class DisplaySettings(_Section):
    """What people are shown and nothing obeys."""

    project_name: Annotated[str, Field(max_length=80, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""


class Settings(_Section):
    """All of it. `state_root` and `artifacts.root` are canonical absolute paths once loaded."""

    state_root: Annotated[Path, Field(strict=False)] = Path()
    project: ProjectSettings = ProjectSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    tools: ToolSettings = ToolSettings()
    host: HostSettings = HostSettings()
    kernel: KernelSettings = KernelSettings()
    loopback: LoopbackSettings = LoopbackSettings()
    dsh: HarnessSettings = HarnessSettings()
    display: DisplaySettings = DisplaySettings()
    memory: MemorySettings = MemorySettings()
    guard: GuardSettings = GuardSettings()
    honcho: HonchoSettings | None = None
    outbox: OutboxSettings = OutboxSettings()

    @model_validator(mode="after")
    def _drains_in_time(self) -> Settings:
        if self.honcho is not None and self.outbox.drain_seconds >= self.host.shutdown_seconds:
            raise ValueError(
                "outbox.drain_seconds must be less than host.shutdown_seconds, all the time that a shutdown has"
            )
        return self

    @property
    def artifact_root(self) -> Path:
        """The store's folder: `artifacts.root`, else `artifacts` in the state root."""
        return self.artifacts.root or self.state_root / "artifacts"

    @property
    def sessions_root(self) -> Path:
        """The folder of the session folders."""
        return self.state_root / "sessions"


@dataclass(frozen=True, slots=True)
class Source:
    """One file that took part: its path and its role in messages."""

    path: Path
    role: Literal["--config", "RLM_MEMORY_CONFIG", "project file", "user config file"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The merged settings and the files they came from."""

    settings: Settings
    sources: tuple[Source, ...]


def load(
    config: Path | None = None,
    state_root: Path | None = None,
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    user_folder: Path | None = None,
) -> Loaded:
    """Find, check and merge the configuration.

    `config` is `--config`, `state_root` is `--state-root`; it wins over `RLM_MEMORY_STATE_ROOT`, which wins over
    the file. Raises SettingsError with the key's name; values are not repeated.
    """
    sources = find(config, cwd=cwd or Path.cwd(), environ=environ, user_folder=user_folder or _user_folder())
    merged: dict[str, Any] = {}
    for source in sources:
        table = _read(source)
        if source.role == "project file":
            _only_harmless(table)
        _validated(table, source.role)
        merged = _merge(merged, table)
    if state_root is not None:
        merged["state_root"] = str(state_root.absolute())
    elif named := environ.get("RLM_MEMORY_STATE_ROOT"):
        # Before the file, as in the kernel's own look-up: both sides must meet at one socket.
        merged["state_root"] = str(Path(named).expanduser().absolute())
    merged.setdefault("state_root", str(wire.default_state_root()))
    return Loaded(_with_key_kept_back(_with_safe_roots(_validated(merged, "the merged settings"), environ)), sources)


def find(config: Path | None, *, cwd: Path, environ: Mapping[str, str], user_folder: Path) -> tuple[Source, ...]:
    """The files that count, in the order in which they are merged. No file at all is fine.

    A file that was named must exist. Named files stand alone; else the user's file is the base, and the nearest
    project file above `cwd` adds its harmless keys.
    """
    if config is not None:
        return (Source(config.absolute(), "--config"),)
    if named := environ.get(CONFIG_VARIABLE):
        return (Source(Path(named).absolute(), "RLM_MEMORY_CONFIG"),)
    found: list[Source] = []
    user_file = user_folder / FILE_NAME
    if user_file.exists():
        found.append(Source(user_file, "user config file"))
    for folder in (cwd, *cwd.parents):
        candidate = folder / FILE_NAME
        if candidate.is_file():
            if not (user_file.exists() and candidate.samefile(user_file)):
                found.append(Source(candidate, "project file"))
            break
    return tuple(found)


def _user_folder() -> Path:
    from platformdirs import user_config_path

    return user_config_path("rlm-memory", appauthor=False)


def _read(source: Source) -> dict[str, Any]:
    try:
        with source.path.open("rb") as file:
            found = os.fstat(file.fileno())
            if source.role != "project file" and found.st_uid not in {os.geteuid(), 0}:
                raise SettingsError(f"{source.role}: the file belongs to another user")
            if source.role != "project file" and stat.S_IMODE(found.st_mode) & 0o022:
                raise SettingsError(f"{source.role}: other users can write the file; run chmod go-w on it")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{source.role}: the file cannot be read ({error.strerror})") from error
    if len(data) > MAX_FILE_BYTES:
        raise SettingsError(f"{source.role}: the file has over {MAX_FILE_BYTES:,} bytes")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        place = re.search(r"\(at line \d+, column \d+\)", str(error))
        raise SettingsError(f"{source.role}: not valid TOML{f' {place[0]}' if place else ''}") from error


def _only_harmless(table: Mapping[str, Any]) -> None:
    for name in _keys(table):
        if name not in PROJECT_KEYS:
            raise SettingsError(
                f"project file: {_shown(name)} may not be set by a file in a project folder, which kernels and "
                f"repositories can write; put it in the user config file or name the file with --config "
                f"(allowed here: {', '.join(sorted(PROJECT_KEYS))})"
            )


def _keys(table: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key, value in table.items():
        if isinstance(value, dict) and value:
            names.extend(_keys(cast("dict[str, Any]", value), f"{prefix}{key}."))
        else:
            names.append(prefix + key)
    return names


def _shown(name: str) -> str:
    return name[:80].encode("ascii", "backslashreplace").decode()


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], cast("dict[str, Any]", value))
        else:
            merged[key] = value
    return merged


def _validated(table: Mapping[str, Any], role: str) -> Settings:
    try:
        return Settings.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = _shown(".".join(str(part) for part in first["loc"])) or "settings"
        problem = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{role}: {name}: {problem}") from None


def _with_key_kept_back(settings: Settings) -> Settings:
    """The settings with the variables that hold a key of the host's among the credentials no kernel gets."""
    places = [part.key for part in (settings.honcho, settings.memory.judge) if part is not None and part.key]
    held = [place.removeprefix("env:") for place in places if place.startswith("env:")]
    names = list(dict.fromkeys((*settings.kernel.credentials, *held)))
    return settings.model_copy(update={"kernel": settings.kernel.model_copy(update={"credentials": names})})


# -- roots -----------------------------------------------------------------------------------------------------------
def _with_safe_roots(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The settings with canonical roots. Raises SettingsError naming the key of an unsafe one (section 32)."""
    state_root = _safe_root(settings.state_root, "state_root", environ)
    update: dict[str, Any] = {"state_root": state_root}
    root = settings.artifacts.root
    if root is not None:
        root = _safe_root(root, "artifacts.root", environ)
        inside = root.is_relative_to(state_root) and root != state_root / "artifacts"
        if inside or state_root.is_relative_to(root):
            raise SettingsError(
                "artifacts.root: it overlaps state_root (session folders and the outbox lie there); "
                "name a folder outside it, or leave it unset for the state root's own artifacts folder"
            )
        update["artifacts"] = settings.artifacts.model_copy(update={"root": root})
    return settings.model_copy(update=update)


def _safe_root(given: Path, key: str, environ: Mapping[str, str]) -> Path:
    if not given.is_absolute():
        raise SettingsError(f"{key}: the path must be absolute")
    if "\x00" in str(given):
        raise SettingsError(f"{key}: the path holds a NUL character")
    try:
        root = given.resolve(strict=False)
    except (OSError, RuntimeError) as error:
        raise SettingsError(f"{key}: the path cannot be resolved") from error
    if root == Path(root.anchor):
        raise SettingsError(f"{key}: a file system root is not a place for a store")
    if root == Path.home().resolve() or Path.home().resolve().is_relative_to(root):
        raise SettingsError(f"{key}: your home folder, or one above it, is not a place for a store")
    if (root / ".git").exists():
        raise SettingsError(f"{key}: the folder is the root of a repository; results would end up in commits")
    for variable, what in (("DSH_HOME", "the DSH profile folder"), ("RLM_SESSION_DIR", "an RLM session folder")):
        if named := environ.get(variable):
            other = Path(named).expanduser().resolve(strict=False)
            if root.is_relative_to(other) or other.is_relative_to(root):
                raise SettingsError(f"{key}: it overlaps {what} ({variable})")
    return root
