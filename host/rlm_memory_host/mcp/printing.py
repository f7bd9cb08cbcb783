"""What a user pastes into an agent host's settings so that it starts `rlm-memory mcp`.

Owns: the shape that each agent host reads. Does not own: writing into anybody's files.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, Final, Literal

Client = Literal["claude-code", "cursor", "vscode", "dsh"]
PLACES: Final[dict[Client, str]] = {
    "claude-code": ".mcp.json in the project's folder",
    "cursor": ".cursor/mcp.json in the project's folder",
    "vscode": ".vscode/mcp.json in the project's folder",
    "dsh": "$DSH_HOME/cordis.patch.yml",
}
SERVER: Final = "rlm-memory"


def printed(client: Client, command: Sequence[str]) -> str:
    """The settings of one client, as the text of the file that `PLACES` names. `command` starts the server."""
    program, *arguments = command
    if client == "dsh":
        return _dsh(program, arguments)
    entry: dict[str, Any] = {"command": program, "args": arguments}
    if client == "vscode":
        return json.dumps({"servers": {SERVER: {"type": "stdio", **entry}}}, indent=2)
    return json.dumps({"mcpServers": {SERVER: entry}}, indent=2)


def _dsh(program: str, arguments: Sequence[str]) -> str:
    """A row for DSH's own MCP client. Its tools are then named `mcp__rlm-memory__<tool>`."""
    return "\n".join(
        [
            "- id: mcp-rlm-memory",
            "  name: '@deepseek-ai/dsh-mcp-client'",
            "  config:",
            f"    serverName: {SERVER}",
            "    transport: stdio",
            f"    command: {json.dumps(program)}",
            f"    args: {json.dumps(list(arguments))}",
            "    failOnStartupError: false",
            "    toolCallTimeoutMs: 60000",
        ]
    )


def told(client: Client, command: Sequence[str]) -> str:
    """One line that says where the printed text belongs."""
    if client == "claude-code":
        return f"for {PLACES[client]}, or run: claude mcp add {SERVER} -- {shlex.join(command)}"
    return f"for {PLACES[client]}"
