"""The settings of DeepSeek Harness's own files.

Owns: the table `[dsh]` of `rlm-memory.toml`, ranges and defaults. Does not own: reading the file (`settings`).

Source: design page "DeepSeek Harness and MCP", Ways in (Log tailer).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Folder = Annotated[Path, Field(strict=False)]


class HarnessSettings(BaseModel):
    """The harness's session logs. `tail` true reads them for completed exchanges that no bridge told of.

    `home` unset: the folder of `DSH_HOME`, else `~/.dsh`. `folders`: only sessions that were started in one of these or
    below are read; empty: all. `tail_seconds` is the pause between two looks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tail: bool = False
    tail_seconds: Annotated[float, Field(ge=1, le=3600, strict=False)] = 5.0
    home: _Folder | None = None
    folders: list[_Folder] = []

    @model_validator(mode="after")
    def _absolute(self) -> HarnessSettings:
        for name, paths in (("home", [self.home] if self.home is not None else []), ("folders", self.folders)):
            if not all(path.is_absolute() for path in paths):
                raise ValueError(f"{name}: every folder must be an absolute path")
        return self
