"""The two lines of DeepSeek Harness, each in an environment of its own, and a home of one that is installed into.

Owns: making the environments from `requirements-0.1.txt` and `requirements-0.2.txt` where the variable
`RLM_MEMORY_DSH_ENVIRONMENTS` names no folder that has them, a home, running turns. Does not own: the model
(`stub_model`), the host.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent
VARIABLE = "RLM_MEMORY_DSH_ENVIRONMENTS"
LINES = ("0.1", "0.2")
TURN_SECONDS = 90
Line = Literal["0.1", "0.2"]

Event = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """One turn as the harness told it."""

    reason: str | None
    final: str
    events: list[Event]

    def results(self, tool: str) -> list[str]:
        """The text of each result of a tool, from the harness's own log of tool calls."""
        return results(self.events, tool)


def results(events: Sequence[Event], tool: str) -> list[str]:
    """The text of each result of a tool in a session's events."""
    calls = {event["data"]["callId"] for event in events if _is_call(event, tool)}
    found: list[str] = []
    for event in events:
        message: dict[str, Any] = event["data"].get("message", {}) if event["type"] == "tool/result" else {}
        if message.get("source", {}).get("callId") in calls:
            found.append(json.dumps(message["content"], ensure_ascii=False))
    return found


def _is_call(event: Event, tool: str) -> bool:
    return event["type"] == "tool/call" and event["data"]["name"] == tool


def environments(folder: Path) -> Path:
    """A folder with one environment for each line; made where none is named."""
    named = os.environ.get(VARIABLE)
    root = Path(named) if named else folder
    for line in LINES:
        if not (root / line / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(root / line)], check=True)
            pip = [str(root / line / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, "-r", str(HERE / f"requirements-{line}.txt")], check=True)
    return root


@dataclass(frozen=True)
class Harness:
    """A home of one line, with the companion in it."""

    line: Line
    python: Path
    home: Path
    model: str

    @classmethod
    def made(cls, line: Line, root: Path, home: Path, model: str) -> Harness:
        """An empty home; the 0.1 line's composition is its own default with the tools of a child besides."""
        home.mkdir()
        harness = cls(line, root / line / "bin" / "python", home, model)
        companion = {"id": "companion", "name": (HERE / "companion.mjs").as_uri()}
        if line == "0.1":
            find = "import deepseek_harness_runtime as r; print(r.bundled_default_config_path())"
            default = subprocess.run([harness.python, "-c", find], check=True, capture_output=True, text=True)
            rows = [companion, *CHILDREN]
            text = Path(default.stdout.strip()).read_text() + "".join(f"- {json.dumps(row)}\n" for row in rows)
            harness.rows.write_text(text)
        else:
            harness.rows.write_text(f"# The companion of the tests.\n- {json.dumps({'insert': [companion]})}\n")
        return harness

    @property
    def rows(self) -> Path:
        """The file that the bridge's row goes into."""
        return self.home / ("cordis.yml" if self.line == "0.1" else "cordis.patch.yml")

    @property
    def options(self) -> list[str]:
        """What `rlm-memory dsh install` needs to find it."""
        more = ["--composition", str(self.rows)] if self.line == "0.1" else []
        return ["--home", str(self.home), *more]

    def start(self, cwd: Path, *prompts: tuple[str, str]) -> subprocess.Popen[str]:
        """A harness process that runs these (session, text) one after the other in a folder."""
        cwd.mkdir(exist_ok=True)
        options: dict[str, Any] = {"cwd": str(cwd), "base_url": self.model, "api_key": "no-key"}
        if self.line == "0.1":
            options |= {"cordis": str(self.rows), "session_root": str(self.home / "sessions")}
        else:
            options["dsh_home"] = str(self.home)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("DSH_", "DEEPSEEK_"))}
        environ |= {"DSH_PERMISSION_MODE": "danger-full-access", "DSH_TELEMETRY_DISABLED": "1"}
        process = subprocess.Popen(
            [self.python, str(HERE / "drive_dsh.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        assert process.stdin is not None
        json.dump({"options": options, "prompts": prompts}, process.stdin)
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, cwd: Path, *prompts: tuple[str, str]) -> list[Turn]:
        """The turns of these prompts. Raises where the harness fails."""
        return finished(self.start(cwd, *prompts))


def finished(process: subprocess.Popen[str]) -> list[Turn]:
    """The turns of a started harness once it has ended."""
    try:
        told, _ = process.communicate(timeout=TURN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0
    lines = [json.loads(line) for line in told.splitlines()]
    return [Turn(line["reason"], line["final"], line["events"]) for line in lines]


CHILDREN = [
    {"id": "subagent", "name": "@deepseek-ai/dsh-subagent"},
    {"id": "spawn", "name": "@deepseek-ai/dsh-subagent-spawn-in-process", "config": {"providerName": "spawn"}},
    {
        "id": "tool-subagent",
        "name": "@deepseek-ai/dsh-tool-subagent",
        "config": {"provider": "spawn", "toolName": "subagent"},
    },
]
"""What the 0.1 line's default composition lacks for a child session."""
