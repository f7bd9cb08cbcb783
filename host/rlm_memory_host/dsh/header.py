"""A session's header as DeepSeek Harness writes it: whose session it is, and whether it is a root's.

Owns: the two header versions that are known, root and child. Does not own: trust: whoever has the bridge's token says
what a header holds. Nothing is guessed: an unknown version or origin is neither root nor child.

Source: design page "DeepSeek Harness and MCP", Rules for capture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard, cast

VERSIONS: Final = (0, 4)
"""Header versions whose sessions are understood: that of the 0.1 line and that of the 0.2 line."""


@dataclass(frozen=True, slots=True)
class Header:
    """What counts of a header. `inherited` is how many records a fork took over from its parent, None for unknown."""

    session: str
    version: int
    cwd: str | None = None
    origin: str | None = None
    depth: int = 0
    preset: str | None = None
    inherited: int | None = 0

    @property
    def agent(self) -> Literal["root", "child"] | None:
        """Root or child; None where that cannot be told."""
        if self.version not in VERSIONS or self.depth < 0:
            return None
        if self.origin == "subagent" or (self.origin is None and self.depth > 0):
            return "child"
        return "root" if self.origin is None else None


def parse_header(value: object) -> Header | None:
    """The header of a decoded object; None when it is none."""
    if not isinstance(value, Mapping):
        return None
    row = cast("Mapping[str, object]", value)
    session, version = row.get("id"), row.get("version")
    if not _is_text(session) or not session or type(version) is not int:
        return None
    depth, cwd, origin, preset = (row.get(name) for name in ("delegationDepth", "cwd", "origin", "agentPreset"))
    return Header(
        session=session,
        version=version,
        cwd=cwd if _is_text(cwd) else None,
        origin=origin if isinstance(origin, str) else None if origin is None else "unknown",
        depth=depth if type(depth) is int else 0 if depth is None else -1,
        preset=preset if isinstance(preset, str) and preset else None,
        inherited=_inherited(row),
    )


def _is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text that a file can keep: half a surrogate pair names no session and no folder."""
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode("utf-8") == value


def _inherited(row: Mapping[str, object]) -> int | None:
    length = row.get("seedLength")
    if type(length) is int:
        return length
    return None if row.get("isSeeded") is True else 0
