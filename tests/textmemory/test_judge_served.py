"""The judge model of the settings, through a real host: asked, held to its bounds, and the rules where it fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import host_says
from model_server import ModelServer
from rlm_memory_host import settings
from rlm_memory_host.app import Host
from rlm_memory_host.assembly.judging import judge_of
from rlm_memory_host.cli import main
from rlm_memory_host.errors import CredentialError, SettingsError
from rlm_memory_host.settings import Settings
from served import LOAD, feature, host, until

pytestmark = pytest.mark.fronts

KEY = "not-a-secret-" + "q7" * 12


def table(url: str, more: str = "") -> str:
    """Settings with a judge at `url`."""
    return f"""
[project]
id = "trial-7"
[memory.judge]
url = "{url}"
model = "tiny"
key = "env:TRIAL_JUDGE_KEY"
pause_seconds = 0
{more}
"""


def ruling(relation: str, target: str | None) -> str:
    return json.dumps({"relation": relation, "target": target, "confidence": 0.95})


@pytest.mark.kernel
@pytest.mark.fronts
def test_a_model_of_the_settings_answers_for_relations_and_the_rules_where_it_fails(
    state_root: Path, start_kernel: Callable[..., Any], server: ModelServer
) -> None:
    """What the rules call a conflict is two memories; then it fails, and the status says so; then it is well again.

    Its key goes to it alone: not into a log, an answer or a file. A sensitive text goes nowhere.
    """
    with host(state_root, table(server.url), TRIAL_JUDGE_KEY=KEY) as running:
        kernel = start_kernel()
        kernel.run(f"{LOAD}\nfirst = memory.remember('The winch takes 400 kg.', title='Winch')").ok()
        assert server.asked == []
        assert feature(state_root, "judge")["state"] == "on"
        server.answer = ruling("NEW", None)
        said = "second = memory.remember('The winch takes 500 kg.', title='Winch')\nprint(second.relation)"
        assert kernel.run(said).ok().strip() == "NEW"
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert server.asked[0]["new"]["text"] == "The winch takes 500 kg."
        server.answer = "I would say that these are two."
        third = "third = memory.remember('The winch takes 600 kg.', title='Winch')\nprint(third.relation)"
        assert kernel.run(third).ok().strip() == "CONFLICT"
        found = feature(state_root, "judge")
        assert (found["state"], found["code"]) == ("degraded", "judge-answer")
        assert "rules" in found["hint"]
        status = json.loads(kernel.run("import json\nprint(json.dumps(dsh_tools.call('memory_status', {})))").ok())
        assert status["features"]["judge"]["code"] == "judge-answer"
        assert status["memory"]["judge"] == {"enabled": True, "fallback": "judge-answer"}
        server.answer = ruling("NEW", None)
        kernel.run("memory.remember('The winch takes 700 kg.', title='Winch')").ok()
        assert feature(state_root, "judge")["state"] == "on"
        asked = len(server.asked)
        kernel.run("memory.remember('The winch was bought after the diagnosis of diabetes.', title='Winch')").ok()
        assert all("diabetes" not in json.dumps(question) for question in server.asked[asked:])
        told = host_says(state_root, {"type": "status"})
    assert KEY not in json.dumps(told)
    assert KEY not in running.output.read_text()
    held = b"".join(path.read_bytes() for path in state_root.rglob("*") if path.is_file())
    assert KEY.encode() not in held


@pytest.mark.kernel
@pytest.mark.fronts
@pytest.mark.parametrize("extract", [False, True])
def test_a_model_of_the_settings_is_asked_about_habits_and_extracts_only_where_they_say_so(
    state_root: Path, start_kernel: Callable[..., Any], server: ModelServer, extract: bool
) -> None:
    """Three corrections in eleven captured turns: one question about the habit; one about the turns if that is on."""
    server.answer = json.dumps({"habit": False, "same_as": None})
    more = f"extract = {str(extract).lower()}"
    with host(state_root, table(server.url, more), TRIAL_JUDGE_KEY=KEY):
        kernel = start_kernel()
        kernel.run(LOAD).ok()
        rows: list[dict[str, Any]] = [{"type": "session", "agent": "root"}]
        for turn in range(1, 12):
            text = "From now on always use tabs." if turn <= 3 else f"What is {turn} plus one?"
            rows += [
                {"type": "user/message", "turn": turn, "content": text},
                {"type": "assistant/message", "turn": turn, "content": "Good."},
                {"type": "turn/end", "turn": turn, "reason": "completed"},
            ]
        numbered = [{"seq": number, **row} for number, row in enumerate(rows)]
        fed = kernel.run(f"print(dsh_tools.call('harness_feed', {{'rows': {numbered!r}}}))").ok()
        assert f"'taken': {len(rows)}" in fed
        until(lambda: len(server.asked) == 1 + extract, "the model is asked")
    kinds = [frozenset(question) for question in server.asked]
    assert set(kinds) == {frozenset({"corrections", "known"})} | ({frozenset({"messages"})} if extract else set())
    assert len(kinds) == 1 + extract


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("https://models.example.org/v1/chat/completions", True),
        ("http://127.0.0.1:9/v1", True),
        ("http://[::1]:9/v1", True),
        ("http://localhost:9/v1", True),
        ("http://models.example.org/v1", False),
        ("http://127.0.0.1.example.org/v1", False),
        ("http://127.0.0.1@example.org/v1", False),
        ("http://localhost.example.org/v1", False),
        ("ftp://127.0.0.1/v1", False),
        ("https://user" + ":pass" + "@example.org/v1", False),
        ("http://2130706433.example/v1", False),
    ],
)
def test_notes_go_in_clear_to_this_machine_only(tmp_path: Path, url: str, is_fine: bool) -> None:
    """https, or http to the loopback; the message names the key and repeats no address."""
    config = tmp_path / "rlm-memory.toml"
    config.write_text(table(url))
    config.chmod(0o600)
    if is_fine:
        found = settings.load(config, tmp_path / "state").settings
        assert found.memory.judge is not None
        assert "TRIAL_JUDGE_KEY" in found.kernel.credentials
        return
    with pytest.raises(SettingsError, match=r"memory\.judge") as refused:
        settings.load(config, tmp_path / "state")
    assert "example" not in str(refused.value)


def test_a_project_file_names_no_model(tmp_path: Path) -> None:
    """A repository cannot send notes anywhere."""
    (tmp_path / "rlm-memory.toml").write_text(table("https://models.example.org/v1"))
    with pytest.raises(SettingsError, match="project file"):
        settings.load(cwd=tmp_path, environ={}, user_folder=tmp_path / "none")


def test_a_key_that_is_not_there_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the setting's name; without a key, and with text memory off, nothing is looked for."""
    monkeypatch.delenv("TRIAL_JUDGE_KEY", raising=False)
    judge = {"url": "https://models.example.org/v1", "model": "tiny", "key": "env:TRIAL_JUDGE_KEY"}
    with pytest.raises(CredentialError, match=r"memory\.judge\.key"):
        judge_of(Settings.model_validate({"memory": {"judge": judge}}))
    assert judge_of(Settings.model_validate({"memory": {"enabled": False, "judge": judge}})) is None
    assert judge_of(Settings.model_validate({"memory": {"judge": judge | {"key": None}}})) is not None
    assert judge_of(Settings()) is None


async def test_a_host_whose_judge_has_no_key_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the memory service: what is configured wrongly is told at the start."""
    monkeypatch.delenv("TRIAL_JUDGE_KEY", raising=False)
    config = tmp_path / "host.toml"
    config.write_text(table("http://127.0.0.1:9/v1"))
    config.chmod(0o600)
    with pytest.raises(CredentialError):
        await Host(settings.load(config, tmp_path / "state").settings).run()


def test_the_settings_show_the_keys_place_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`config show`."""
    monkeypatch.setenv("TRIAL_JUDGE_KEY", KEY)
    config = tmp_path / "rlm-memory.toml"
    config.write_text(table("http://127.0.0.1:9/v1"))
    config.chmod(0o600)
    assert main(["config", "show", "--config", str(config), "--state-root", str(tmp_path / "state"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["settings"]["memory"]["judge"]
    assert (shown["key"], shown["extract"], shown["seconds"]) == ("env:TRIAL_JUDGE_KEY", False, 10.0)
    assert KEY not in json.dumps(shown)
