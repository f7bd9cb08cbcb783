"""Commands around the outbox: a recorded session comes in once; what an operator removes is not sent any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rlm_memory_host.evaluation.results import record
from rlm_memory_host.evaluation.stand import Service, Stand, Wanted
from rlm_memory_host.honcho.fake import FakeHoncho, Fault, serving
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


def test_a_line_that_is_rubbish_costs_no_other_line(tmp_path: Path) -> None:
    """Separators inside a text, halves of a sign, other encodings, nonsense: the exchanges around them arrive."""
    said = "Where\u2028is\x85the\x0ctable"
    exchanges = [
        {"type": "session", "agent": "root"},
        {"type": "user/message", "turn": 1, "content": said},
        {"type": "assistant/message", "turn": 1, "content": "In the log."},
        {"type": "turn/end", "turn": 1, "reason": "completed"},
        {"type": "user/message", "turn": 2, "content": "HALF a sign"},
        {"type": "assistant/message", "turn": 2, "content": "Yes."},
        {"type": "turn/end", "turn": 2, "reason": "completed"},
    ]
    told = [
        json.dumps({"session": "old-session", "seq": number, **row}, ensure_ascii=False).encode()
        for number, row in enumerate(exchanges)
    ]
    told[4] = told[4].replace(b"HALF", b"\\ud83d")
    rubbish = [b"\xff\xfe", b"null", b"[" * 100_000, b"9" * 10_000, b'{"session":"old-session","seq":NaN}', b"\0"]
    recording = tmp_path / "recorded.jsonl"
    recording.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([*told[:3], *rubbish, *told[3:]]) + b"\n")
    root, config = tmp_path / "state", tmp_path / "host.toml"
    with serving(FakeHoncho(workspaces=["space"])) as served:
        config.write_text(SETTINGS.format(url=served.url))
        config.chmod(0o600)
        done = replay(root, config, recording)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"taken": len(told), "left": len(rubbish), "pending": 0}
        rows = [row["content"] for row in served.fake.rows()]
        assert rows == [said, "In the log.", "\ufffd a sign", "Yes."]


def test_a_result_that_an_operator_removes_is_not_sent_after_the_next_start(tmp_path: Path) -> None:
    """The service was away; `experiments rm` takes the waiting card out of the outbox, without any host."""
    with serving(FakeHoncho(workspaces=["evaluation"])) as served:
        served.call(lambda: served.fake.plan.add(Fault(route="POST", times=None, status=503)))
        wanted = Wanted(Service(served.url))
        with Stand(tmp_path, wanted) as stand:
            kept = record(stand, b"kept", query_fingerprint="1" * 64, title="Kept")
            gone = record(stand, b"gone", query_fingerprint="2" * 64, title="Gone")
        outside = {name: value for name, value in os.environ.items() if name not in INSIDE}
        command = [sys.executable, "-m", "rlm_memory_host", "experiments", "rm", gone["experiment_id"]]
        places = ["--project", "trial-a", "--state-root", str(tmp_path / "state")]
        done = subprocess.run([*command, *places], capture_output=True, text=True, check=False, env=outside)
        assert done.returncode == 0, done.stdout + done.stderr
        served.call(served.fake.plan.clear)
        with Stand(tmp_path, wanted) as stand:
            assert stand.until(lambda: served.fake.rows())
            assert stand.settle()
        assert [row["metadata"]["experiment_id"] for row in served.fake.rows()] == [kept["experiment_id"]]
