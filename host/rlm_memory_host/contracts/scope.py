"""Who calls: derived by the transport that authenticated the caller, never from a payload.

Source: DeepSeek Honcho specification, sections 10, 26.4, 28.1; design page "Kernel <-> host", Host side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Scope:
    """The authority of one call.

    `session_dir` is the caller's own session folder (absolute); its `exports/` is the only place that a record may
    read from. None where the transport gives the caller no folder: then nothing can be recorded.
    """

    project_id: str
    session_id: str
    session_dir: Path | None
    agent_kind: Literal["root", "child", "none"] = "none"
    call_id: str | None = None
    owner: str = "local"
    root_agent_id: str | None = None
    preset: str | None = None
    project_told: Literal["", "configured", "linked", "git", "path"] = ""
    """How the project was told: `configured`, `linked`, `git`, `path`; "" where the transport does not say."""

    @property
    def exports(self) -> Path | None:
        """The folder that records read from, or None."""
        return None if self.session_dir is None else self.session_dir / "exports"
