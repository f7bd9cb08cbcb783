"""`rlm-memory replay`: a recorded session comes in once, whatever how often it is asked for, and only by a person."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rlm_memory_host.honcho.fake import FakeHoncho, serving
from rlm_memory_host.process import host_lock

INSIDE = ("RLM_SESSION_DIR", "RLM_SESSION_ID", "DSH_SESSION_ID", "JPY_PARENT_PID", "JPY_SESSION_NAME")
SETTINGS = """
[project]
id = "trial-7"
[honcho]
url = "{url}"
workspace = "space"
user_peer = "alex"
assistant_peer = "assistant"
capture = true
"""


def replay(root: Path, config: Path, recording: Path, **more: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if name not in INSIDE}
    command = [sys.executable, "-m", "rlm_memory_host", "replay", str(recording), "--session", "old-session", "--json"]
    places = ["--config", str(config), "--state-root", str(root)]
    return subprocess.run([*command, *places], capture_output=True, text=True, check=False, env={**outside, **more})


def test_a_recorded_session_arrives_once(tmp_path: Path) -> None:
    """Its completed exchange is at the service; a second replay takes nothing; a host or a kernel stands in its way."""
    rows = [
        {"type": "session", "agent": "root"},
        {"type": "user/message", "turn": 1, "content": "Where is the tide table?"},
        {"type": "assistant/message", "turn": 1, "content": "In the log book."},
        {"type": "turn/end", "turn": 1, "reason": "completed"},
    ]
    recording = tmp_path / "recorded.jsonl"
    told = [json.dumps({"session": "old-session", "seq": number, **row}) for number, row in enumerate(rows)]
    recording.write_text("\n".join([*told, json.dumps({"session": "other", "seq": 9, "type": "session"}), "no JSON"]))
    root, config = tmp_path / "state", tmp_path / "host.toml"
    with serving(FakeHoncho(workspaces=["space"])) as served:
        config.write_text(SETTINGS.format(url=served.url))
        config.chmod(0o600)
        done = replay(root, config, recording)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["taken"] == 4
        assert [row["content"] for row in served.fake.rows()] == ["Where is the tide table?", "In the log book."]
        assert replay(root, config, recording).returncode == 0
        assert len(served.fake.rows()) == 2
        with host_lock(root):
            refused = replay(root, config, recording)
        assert refused.returncode == 2
        assert "already runs" in refused.stderr
        refused = replay(root, config, recording, RLM_SESSION_DIR=str(tmp_path))
        assert refused.returncode == 2
        assert len(served.fake.rows()) == 2
