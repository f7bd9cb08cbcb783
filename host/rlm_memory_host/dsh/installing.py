"""Putting the bridge module into a DeepSeek Harness home, and taking it out again.

Owns: `memory/bridge.mjs` below the home, our block in one file of rows, and the record of which files hold one. Does
not own: the block's place in a text (`patchfile`), a row that lost its marks (`unmarked`), the module (`bridge.mjs`),
the token (`bearer`).

Order of an install: module, token, record, block: a row never names a module that is not there. Order of a removal:
block, module, token, record. A crash in between leaves what a second run of either completes.

Source: design page "DeepSeek Harness and MCP", Ways in, Secrets and places.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory_host.bearer import kept_token, token_path
from rlm_memory_host.dsh import patchfile, unmarked
from rlm_memory_host.errors import SettingsError
from rlm_memory_host.process import claim_state_root, identify, private_folder, write_private

ROW_ID: Final = "rlm-memory"
PATCH_NAME: Final = "cordis.patch.yml"
MODULE: Final = Path("memory") / "bridge.mjs"
TOKEN_NAME: Final = "loopback"
MAX_FILE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A home of the harness, and the file of rows in it that gets ours.

    `is_composition`: the file is a whole composition (the 0.1 line knows no patches) rather than a list of patches.
    """

    home: Path
    rows: Path
    is_composition: bool = False

    @property
    def module(self) -> Path:
        """Where the bridge module lies."""
        return self.home / MODULE


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal took away."""

    block: bool
    module: bool
    token: bool


def home_of(named: Path | None, environ: Mapping[str, str]) -> Path:
    """The harness's home: the named one, that of `DSH_HOME`, or `~/.dsh`. Raises SettingsError where there is none."""
    variable = environ.get("DSH_HOME", "").strip()
    home = named or (Path(variable) if variable else Path.home() / ".dsh")
    if not home.is_dir():
        raise SettingsError(f"--home: {home} is not a folder; name the folder that DSH_HOME names")
    return home.absolute()


def place_of(home: Path, profile: str | None, composition: Path | None) -> Place:
    """Where the row goes. Raises SettingsError for a profile or a composition that is not there."""
    if composition is not None:
        if not composition.is_file():
            raise SettingsError(f"--composition: {composition} is not a file")
        return Place(home, composition.absolute(), is_composition=True)
    if profile is None:
        return Place(home, home / PATCH_NAME)
    if not profile or profile in (".", "..") or "/" in profile or "\0" in profile:
        raise SettingsError("--profile: not the name of a profile")
    folder = home / "profiles" / profile
    if not folder.is_dir():
        raise SettingsError(f"--profile: there is no profile {profile!r} in {home}; run dsh with it once")
    return Place(home, folder / PATCH_NAME)


def row_of(place: Place, config: Mapping[str, Any]) -> dict[str, Any]:
    """The row that loads the module, in the form that the file asks for."""
    row = {"id": ROW_ID, "name": place.module.as_uri(), "config": dict(config)}
    return row if place.is_composition else {"insert": [row]}


def module_text() -> bytes:
    """The bridge module of this release."""
    return (files("rlm_memory_host.dsh") / "bridge.mjs").read_bytes()


def install(place: Place, state_root: Path, config: Mapping[str, Any]) -> None:
    """Put the module and the row in; a second time renews both. Raises SettingsError, and OSError of the home."""
    text = _read(place.rows)
    changed = patchfile.with_block(None if text is None else _without_unmarked(text), row_of(place, config))
    private_folder(claim_state_root(state_root) / "run")
    place.module.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(place.module, module_text())
    kept_token(state_root, TOKEN_NAME)
    _record(state_root, recorded(state_root) | {place.rows})
    _replace(place.rows, changed)


def remove(place: Place, state_root: Path) -> Removed:
    """Take the row out, the module where no other file names it, and the token where nothing is installed any more."""
    text = _read(place.rows)
    has_block = text is not None and _holds(text)
    if text is not None and has_block:
        if patchfile.is_created(text):
            place.rows.unlink()
        else:
            _replace(place.rows, patchfile.without_block(_without_unmarked(text)))
    left = {path for path in recorded(state_root) if path != place.rows and is_installed(path)}
    is_named = any(is_installed(path) for path in (*_patches(place.home), *left) if path != place.rows)
    module = not is_named and place.module.exists()
    if module:
        place.module.unlink()
        with contextlib.suppress(OSError):
            place.module.parent.rmdir()
    token = not left and token_path(state_root, TOKEN_NAME).exists()
    if token:
        token_path(state_root, TOKEN_NAME).unlink()
    if state_root.is_dir() and _record_path(state_root).exists():
        _record(state_root, left)
    return Removed(has_block, module, token)


def is_installed(rows: Path) -> bool:
    """Whether a file of rows holds our block."""
    try:
        text = _read(rows)
    except (OSError, SettingsError):
        return False
    return text is not None and _holds(text)


def is_serving(state_root: Path) -> bool:
    """Whether a host that still runs told where it serves the API."""
    try:
        told = json.loads((state_root / "run" / "loopback.json").read_text("utf-8"))
        return identify(int(told["pid"])) is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def recorded(state_root: Path) -> set[Path]:
    """The files of rows that an install of this state root wrote to."""
    try:
        value = json.loads(_record_path(state_root).read_text("utf-8"))
    except (OSError, ValueError):
        return set()
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return {Path(row) for row in rows if isinstance(row, str)}


def _holds(text: bytes) -> bool:
    return patchfile.holds_block(text) or unmarked.holds_row(text)


def _without_unmarked(text: bytes) -> bytes:
    """The text without rows of ours that lost their marks, and then without a marked one too. Raises SettingsError."""
    bare = patchfile.without_block(text)
    return unmarked.without_row(bare) if unmarked.holds_row(bare) else text


def _record_path(state_root: Path) -> Path:
    return state_root / "run" / "dsh.json"


def _record(state_root: Path, rows: set[Path]) -> None:
    if rows:
        write_private(_record_path(state_root), json.dumps(sorted(str(path) for path in rows)).encode() + b"\n")
    else:
        _record_path(state_root).unlink(missing_ok=True)


def _patches(home: Path) -> list[Path]:
    return [home / PATCH_NAME, *sorted(home.glob(f"profiles/*/{PATCH_NAME}"))]


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_FILE_BYTES:
        raise SettingsError(f"{path.name}: the file has over {MAX_FILE_BYTES:,} bytes")
    return data


def _replace(path: Path, data: bytes) -> None:
    """Replace the user's file as a whole, with the mode that it had; a link stays one."""
    real = path.resolve()
    mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o600
    temp = real.with_name(f".{real.name}.{os.getpid()}.tmp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        temp.replace(real)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
