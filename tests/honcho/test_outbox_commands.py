"""`rlm-memory outbox` and `rlm-memory fake-honcho`, as an operator types them."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from rlm_memory_host.cli import main
from rlm_memory_host.contracts.delivery import DeliveryRequest
from rlm_memory_host.delivery.outbox import Outbox
from rlm_memory_host.egress import Egress
from rlm_memory_host.errors import CredentialError, SettingsError
from rlm_memory_host.honcho.fake import Fault
from rlm_memory_host.settings import load
from world import MESSAGES, World, exchange, keep, simulate

PRIVATE = "the-private-words"


@pytest.fixture
def deliveries(tmp_path: Path) -> tuple[Path, DeliveryRequest, DeliveryRequest]:
    """A state root with a dead letter, a pending delivery and a file in quarantine."""
    root = tmp_path / "state"
    root.mkdir(mode=0o700)
    dead, waiting = exchange("a", 1, PRIVATE, "x"), exchange("b", 2, PRIVATE, "y")

    async def fill() -> None:
        async with World(root) as world:
            world.fake.plan.add(Fault(route=MESSAGES, status=422, body={"detail": PRIVATE}))
            world.outbox.admit(dead)
            world.start()
            await world.until_empty()
        (root / "outbox/pending" / f"{'0' * 64}.json").write_bytes(b"{")
        async with World(root) as world:
            world.outbox.admit(waiting)

    simulate(fill)
    return root, dead, waiting


def _run(root: Path, *arguments: str) -> int:
    return main(["outbox", *arguments, "--state-root", str(root)])


def test_a_listing_shows_places_and_codes_and_no_content(
    deliveries: tuple[Path, DeliveryRequest, DeliveryRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1: there is something to look at."""
    root, dead, waiting = deliveries
    assert _run(root, "ls") == 1
    text = capsys.readouterr().out
    assert "1 pending, 1 dead-letter, 1 quarantine" in text
    assert "REMOTE_REJECTED" in text
    assert PRIVATE not in text
    assert _run(root, "ls", "--json") == 1
    listed = {item["name"]: item["place"] for item in json.loads(capsys.readouterr().out)}
    assert listed == {
        waiting.delivery_id: "pending",
        dead.delivery_id: "dead-letter",
        f"{'0' * 64}.json": "quarantine",
    }


def test_content_is_shown_only_where_it_is_asked_for(
    deliveries: tuple[Path, DeliveryRequest, DeliveryRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the first characters of an id."""
    root, dead, _ = deliveries
    assert _run(root, "show", dead.delivery_id[:12]) == 0
    assert PRIVATE not in capsys.readouterr().out
    assert _run(root, "show", dead.delivery_id[:12], "--content") == 0
    assert PRIVATE in capsys.readouterr().out
    assert _run(root, "show", "no-such-id") == 2


def test_a_dead_letter_is_retried_and_a_delivery_dropped(
    deliveries: tuple[Path, DeliveryRequest, DeliveryRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the outbox's lock when no host runs."""
    root, dead, waiting = deliveries
    assert _run(root, "retry", "--all") == 0
    assert (root / "outbox/pending" / f"{dead.delivery_id}.json").exists()
    assert _run(root, "drop", waiting.delivery_id, "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"done": [waiting.delivery_id], "not_done": []}
    assert not (root / "outbox/pending" / f"{waiting.delivery_id}.json").exists()


def test_an_export_is_private_and_complete(
    deliveries: tuple[Path, DeliveryRequest, DeliveryRequest], tmp_path: Path
) -> None:
    """It holds the texts, so it is made for its owner alone and overwrites nothing."""
    root, dead, waiting = deliveries
    target = tmp_path / "export.jsonl"
    assert _run(root, "export", str(target)) == 0
    assert target.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [line["document"]["request"]["deliveryId"] for line in lines] == [waiting.delivery_id, dead.delivery_id]
    assert _run(root, "export", str(target)) == 2


@pytest.mark.parametrize("target", ["absent/export.jsonl", "file/export.jsonl"])
def test_an_export_that_cannot_be_written_says_so_in_one_line(
    deliveries: tuple[Path, DeliveryRequest, DeliveryRequest],
    target: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No traceback, no half of a file."""
    (tmp_path / "file").touch()
    assert _run(deliveries[0], "export", str(tmp_path / target)) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_export_holds_everything_or_is_none(
    deliveries: tuple[Path, DeliveryRequest, DeliveryRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes a part of each write gets the rest; one that is full in the middle keeps no half of a file."""
    written = 0
    real = os.write

    def small(descriptor: int, data: bytes | memoryview) -> int:
        nonlocal written
        if written > room:
            raise OSError(errno.ENOSPC, "full")
        written += real(descriptor, data[:100])
        return min(100, len(data))

    room = 1 << 20
    folder = tmp_path / "exports"
    folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", small)
        assert _run(deliveries[0], "export", str(folder / "all")) == 0
        assert len((folder / "all").read_text().splitlines()) == 2
        written, room = 0, 500
        assert _run(deliveries[0], "export", str(folder / "half")) == 2
    assert [path.name for path in folder.iterdir()] == ["all"]


def test_a_listing_sends_no_control_signs_to_the_terminal(
    deliveries: tuple[Path, DeliveryRequest, DeliveryRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and reasons in quarantine may be anybody's."""
    quarantine = deliveries[0] / "outbox/quarantine"
    (quarantine / "a\n\x1b[2Jb.reason.json").write_text('{"at": [1], "reason": "\\u001b[31mred"}')
    (quarantine / "deep.reason.json").write_text("[" * 4_000)
    (quarantine / "long.reason.json").write_bytes(b" " * 100_000)
    (quarantine / "folder.reason.json").mkdir()
    assert _run(deliveries[0], "ls") == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert all(place in line for line in shown.splitlines()[-6:-1] for place in ["quarantine"])


def test_while_a_host_works_on_the_outbox_a_command_does_not(
    deliveries: tuple[Path, DeliveryRequest, DeliveryRequest],
) -> None:
    """Two writers never work on one outbox: without an answer of the holder nothing is done."""
    root, dead, _ = deliveries
    with Outbox(root, redact=keep):
        assert _run(root, "retry", dead.delivery_id) == 2
    assert (root / "outbox/dead-letter" / f"{dead.delivery_id}.json").exists()


def test_the_fake_service_is_served_from_the_command_line(tmp_path: Path) -> None:
    """With a workspace, a key and a plan."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"route": "queue", "status": 503}]))
    command = [sys.executable, "-m", "rlm_memory_host", "fake-honcho", "--port", "0", "--workspace", "space"]
    process = subprocess.Popen([*command, "--key", "k", "--plan", str(plan)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with httpx.Client(trust_env=False, base_url=url) as http:
            assert http.get("/v3/workspaces/space/queue/status").status_code == 503
            assert http.get("/v3/workspaces/space/queue/status").status_code == 401
            allowed = http.get("/v3/workspaces/space/queue/status", headers={"authorization": "Bearer k"})
            assert allowed.status_code == 200
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.mark.parametrize(
    "plan",
    [
        *("{", "{}", "null", "[1]", "[" * 100_000, '[{"route": "("}]', '[{"route": 5}]', '[{"times": "x"}]'),
        *('[{"status": "abc"}]', '[{"status": 99}]', '[{"headers": [1]}]', '[{"headers": {"a": "\\n"}}]'),
        *('[{"wait": -1}]', '[{"wait": NaN}]', '[{"drip": true}]', '[{"probability": 2}]', '[{"zzz": 1}]'),
    ],
)
def test_a_plan_with_a_fault_that_is_none_is_refused(tmp_path: Path, plan: str) -> None:
    """It would otherwise strike as an error of the fake's own, or never."""
    path = tmp_path / "plan.json"
    path.write_text(plan)
    assert main(["fake-honcho", "--port", "0", "--plan", str(path)]) == 2


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["fake-honcho", "--port", str(taken.getsockname()[1])]) == 2
    assert "--port" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--out", "FILE/x"], ["--out", "FILE"], ["--url", "rubbish", "--workspace", "space"]),
        *(["--url", "http://127.0.0.1:9"], ["--url", "http://127.0.0.1:9", "--workspace", "a b"], ["--key", "env:K"]),
        ["--url", "http://127.0.0.1:9", "--workspace", "space", "--key", "env:RLM_MEMORY_NO_SUCH_KEY"],
        ["--url", "http://127.0.0.1:9", "--workspace", "space", "--key", "sk-live-0123456789"],
    ],
)
def test_an_evaluation_says_what_is_wrong_before_its_first_case(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after minutes, not as twenty-eight failed cases, and without the key."""
    (tmp_path / "file").touch()
    given = [item.replace("FILE", str(tmp_path / "file")) for item in arguments]
    assert main(["evaluate", "--quick", *given]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert "sk-live" not in told.err


# -- settings --------------------------------------------------------------------------------------------------------
def _settings(tmp_path: Path, honcho: str, more: str = "") -> Path:
    path = tmp_path / "rlm-memory.toml"
    path.write_text(f"{more}\n[honcho]\n{honcho}\n")
    path.chmod(0o600)
    return path


GOOD = 'url = "http://127.0.0.1:9"\nworkspace = "space"\nuser_peer = "person"\nproject = "project"\n'


@pytest.mark.parametrize(
    "table",
    [
        GOOD.replace('workspace = "space"\n', ""),
        GOOD.replace('user_peer = "person"\n', ""),
        GOOD.replace('url = "http://127.0.0.1:9"\n', ""),
        GOOD.replace('"person"', '"me@example.org"'),
        GOOD.replace("http:", "ftp:"),
        GOOD + 'key = "sk-live-0123456789"',
        GOOD + "retries = 3",
    ],
)
def test_a_wrong_table_fails_the_start_and_repeats_no_value(tmp_path: Path, table: str) -> None:
    """Closed for configuration: unknown keys, missing identity, a key instead of a reference."""
    with pytest.raises(SettingsError) as caught:
        load(_settings(tmp_path, table))
    assert "sk-live" not in str(caught.value)
    assert "example" not in str(caught.value)


def test_what_is_sent_needs_a_project_that_the_service_takes(tmp_path: Path) -> None:
    """A free project name is fine locally and refused for egress, by name."""
    loaded = load(_settings(tmp_path, GOOD.replace('project = "project"\n', ""), '[project]\nid = "My project"'))
    with pytest.raises(SettingsError, match=r"honcho\.project"):
        Egress(loaded.settings, keep)
    with pytest.raises(SettingsError, match="honcho"):
        Egress(loaded.settings.model_copy(update={"honcho": None}), keep)


async def test_a_missing_key_fails_the_start_and_a_missing_service_does_not(tmp_path: Path) -> None:
    """Closed for mistakes here, open for failures there; nothing is left running either way."""
    root = tmp_path / "state"
    loaded = load(_settings(tmp_path, GOOD + 'key = "env:NO_SUCH_VARIABLE_HERE"'), root)
    root.mkdir(mode=0o700)
    with pytest.raises(CredentialError):
        async with Egress(loaded.settings, keep):
            pass
    async with Egress(load(_settings(tmp_path, GOOD), root).settings, keep) as egress:
        egress.admission.admit(exchange("s", 1))
        assert egress.status()["pending"] == 1


def test_the_settings_that_are_shown_hold_the_reference_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`config show` prints where the key is."""
    monkeypatch.setenv("THE_KEY", "fake-key-0123456789")
    path = _settings(tmp_path, GOOD + 'key = "env:THE_KEY"')
    assert main(["config", "show", "--json", "--config", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "env:THE_KEY" in shown
    assert "fake-key" not in shown
