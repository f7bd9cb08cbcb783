"""Texts for agents: when to use which memory, and an example that connects a harness to Honcho's own MCP server.

Owns: the texts and their names. They are data of this package; nothing here runs.

Source: DeepSeek Honcho specification, section 8; design page "DeepSeek Harness and MCP".
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

NAMES: Final = ("rlm-memory.md", "honcho-mcp.md", "honcho-mcp.yml")


def text(name: str) -> str:
    """One of `NAMES`. Raises KeyError for any other."""
    if name not in NAMES:
        raise KeyError(name)
    return files("rlm_memory_host.skills").joinpath(name).read_text("utf-8")
