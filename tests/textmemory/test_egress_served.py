"""Notes and exchanges through a real host to a real service: offline, killed on either side, and back in recall."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import host_says
from rlm_memory_host.cli import consent
from rlm_memory_host.honcho.fake import FakeHoncho, Fault, serving
from rlm_memory_host.textmemory import purging
from rlm_memory_host.textmemory.opening import open_memory
from served import LOAD, PATIENCE, fake_honcho, feature, honcho_settings, host, outbox_of, until

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]
INSIDE = ("RLM_SESSION_DIR", "RLM_SESSION_ID", "DSH_SESSION_ID", "JPY_PARENT_PID", "JPY_SESSION_NAME")
ADD = "POST .*/messages$"


def texts(fake: FakeHoncho) -> list[str]:
    return [row["content"] for row in fake.rows()]


def feed(kernel: Any, *rows: dict[str, Any]) -> Any:
    """Let the test's transport feed rows into the kernel's session."""
    numbered = [{"seq": number, **row} for number, row in enumerate(rows)]
    return kernel.run(f"fed = dsh_tools.call('harness_feed', {{'rows': {numbered!r}}})").ok()


def turn(user: str, assistant: str, *, number: int = 1, end: str = "completed") -> list[dict[str, Any]]:
    return [
        {"type": "user/message", "turn": number, "content": user, "ts": "2026-03-01T12:00:00+00:00"},
        {"type": "assistant/message", "turn": number, "content": assistant, "ts": "2026-03-01T12:00:05+00:00"},
        {"type": "turn/end", "turn": number, "reason": end},
    ]


def test_notes_wait_while_the_service_is_away_and_survive_kills_of_both(
    state_root: Path, tmp_path: Path, start_kernel: Callable[..., Any], unused_port: int
) -> None:
    """A start without a service; a killed host; a service that comes, is killed, and comes back: each note once."""
    settings = honcho_settings(f"http://127.0.0.1:{unused_port}")
    with host(state_root, settings) as first:
        kernel = start_kernel()
        kernel.run(f"{LOAD}\ndone = memory.remember('The winch takes 400 kg.', title='Winch')").ok()
        assert outbox_of(state_root)["pending"] == 1
        assert kernel.run(
            "print(memory.experiments.load(memory.experiments.record({'a': 1}, title='t')))"
        ).ok().strip() == ("{'a': 1}")
        until(lambda: feature(state_root, "honcho")["state"] == "degraded", "the service is known to be away")
        found = kernel.run("hits = memory.search('winch')\nprint(hits[0].text, hits.warnings)").ok()
        assert found.startswith("The winch takes 400 kg. ('")
        first.end(signal.SIGKILL)
    with host(state_root, settings) as second:
        with fake_honcho(tmp_path, unused_port) as fake:
            until(lambda: outbox_of(state_root)["delivered"] == 1, "the note is delivered after both were away")
            fake.end(signal.SIGKILL)
        until(lambda: kernel.run("memory.remember('The crane takes 900 kg.', title='Crane')").error is None, "noted")
        second.end(signal.SIGTERM)
        with fake_honcho(tmp_path, unused_port), host(state_root, settings):
            until(lambda: outbox_of(state_root)["delivered"] == 1, "the second note is delivered to the new service")
            listed = subprocess.run(
                [sys.executable, "-m", "rlm_memory_host", "outbox", "ls", "--json", "--state-root", str(state_root)],
                capture_output=True,
            )  # fmt: skip
            # The kill may have met a write: what that left is set aside with its reason, and is no delivery.
            left = [item for item in json.loads(listed.stdout) if "interrupted" not in (item["code"] or "")]
            assert left == [], listed.stderr


@pytest.mark.parametrize("killed", ["before-keeping", "before-queueing"])
def test_a_note_is_sent_where_and_only_where_it_was_kept_by_a_host_that_was_killed(
    killed: str, state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """The announcement outlives the host: the next start sends what is on file, once, and drops what is not."""
    with serving(FakeHoncho(workspaces=["space"])) as served:
        settings = honcho_settings(served.url)
        with host(state_root, settings, HARNESS_KILLED=killed) as first:
            kernel = start_kernel()
            kernel.run(LOAD).ok()
            assert kernel.run("memory.remember('The sluice opens at six.', title='Sluice')").error is not None
            assert first.process.wait(PATIENCE) == -signal.SIGKILL
        announced = state_root / "outbox" / "announced"
        assert len(list(announced.iterdir())) == 1
        with host(state_root, settings):
            expected = ["The sluice opens at six."] if killed == "before-queueing" else []
            until(lambda: texts(served.fake) == expected, "what was kept is sent")
            until(lambda: outbox_of(state_root)["pending"] == 0, "nothing waits")
            assert list(announced.iterdir()) == []


def test_recall_takes_in_the_service_filters_what_was_forgotten_and_never_waits_long(
    state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """Hits of the same project join; other projects' and forgotten ones do not; a slow service costs its deadline."""
    with serving(FakeHoncho(workspaces=["space"])) as served, host(state_root, honcho_settings(served.url)):
        kernel = start_kernel()
        kernel.run(f"{LOAD}\ndone = memory.remember('The harbour pilot boards at buoy seven.', title='Pilot')").ok()
        until(lambda: texts(served.fake) == ["The harbour pilot boards at buoy seven."], "the note arrives")
        row = served.fake.rows()[0]
        assert row["peer_id"] == "assistant"
        assert row["metadata"]["project_id"] == "trial-7"
        assert row["metadata"]["role"] == "memory-note"
        kernel.run("fixed = memory.correct('The harbour pilot boards at buoy nine.', id=done.id)").ok()
        until(lambda: len(texts(served.fake)) == 2, "the correction arrives")
        assert served.fake.rows()[1]["metadata"]["supersedes"] == [row["metadata"]["memory_id"]]

        def plant(text: str, **metadata: Any) -> None:
            session = next(iter(served.fake.store.workspaces["space"].sessions.values()))
            known = {**row["metadata"], "memory_id": None, **metadata}
            message = {"content": text, "peer_id": "alex", "metadata": known}
            served.call(lambda: served.fake.store.add_message(served.fake.store.workspaces["space"], session, message))

        plant("The harbour master answers on channel twelve.")
        plant("The harbour of another project is closed.", project_id="other")
        # The service's filter lets this one through: it asks for less than it should.
        plant("The harbour of another project has moved.", repository_id="git-another")
        found = kernel.run("hits = memory.search('harbour')\nprint([(h.kind, h.text) for h in hits])").ok()
        assert "('remote', 'The harbour master answers on channel twelve.')" in found
        assert "another project" not in found
        assert "buoy seven" not in found
        assert kernel.run("print(memory.recall('Which channel has the harbour master?').answer)").ok().strip() == ""

        served.fake.plan.add(Fault(route="POST .*/search$", times=None, wait=30.0))
        slow = "import time; began = time.monotonic()\nhits = memory.search('pilot buoy nine')\n"
        slow += "print(len(hits), hits.warnings, time.monotonic() - began < 15)"
        assert kernel.run(slow).ok().strip() == "1 ('remote-timeout',) True"


def test_a_forgotten_note_that_waits_is_taken_back(
    state_root: Path, start_kernel: Callable[..., Any], unused_port: int
) -> None:
    """The user asks for it in their own words; the delivery that was certainly not sent is dropped."""
    with host(state_root, honcho_settings(f"http://127.0.0.1:{unused_port}")):
        kernel = start_kernel()
        kernel.run(f"{LOAD}\ndone = memory.remember('The spare key hangs in the shed.', title='Spare key')").ok()
        assert outbox_of(state_root)["pending"] == 1
        feed(kernel, {"type": "session", "agent": "root"}, *turn("Forget the note about the spare key.", "Done."))
        moved = "moved = memory.forget(done.id, quote='Forget the note about the spare key.')\nprint(moved.state)"
        assert kernel.run(moved).ok().strip() == "done"
        until(lambda: outbox_of(state_root)["pending"] == 0, "the delivery is taken back")
        found = kernel.run("print({h.kind for h in memory.search('spare key')})").ok()
        assert found.strip() == "{'evidence'}", "the memory is gone; what the user said stays, as forget told"


@pytest.mark.parametrize("command", ["forget", "purge"])
def test_what_an_operator_forgets_or_destroys_beside_the_host_is_taken_back(
    command: str, state_root: Path, start_kernel: Callable[..., Any], unused_port: int
) -> None:
    """The command asks the host that works on the outbox; the text leaves the outbox and is never sent."""
    with host(state_root, honcho_settings(f"http://127.0.0.1:{unused_port}")):
        kernel = start_kernel()
        noted = f"{LOAD}\ndone = memory.remember('The spare key hangs in the shed.', title='Spare key')\nprint(done.id)"
        memory_id = kernel.run(noted).ok().split()[-1]
        kernel.run("other = memory.remember('The mast is 12 m high.', title='Mast')").ok()
        assert outbox_of(state_root)["pending"] == 2
        operator(state_root, command, memory_id)
        assert outbox_of(state_root)["pending"] == 1
        assert "spare key" not in "".join(path.read_text() for path in (state_root / "outbox").rglob("*.json"))


def operator(state_root: Path, command: str, *given: str) -> str:
    """A command of `rlm-memory memory` with a person's token; what it printed."""
    base = [sys.executable, "-m", "rlm_memory_host", "memory", "--state-root", str(state_root), "--project", "trial-7"]
    base += ["--config", str(state_root.parent / "host.toml"), "--json"]
    store = open_memory(state_root).store
    if command == "purge":
        token = purging.plan(store, "id", given[0], project="trial-7").token
        given = ("--id", given[0])
    else:
        token = consent.remember(store, f"memory {command}" if command == "add" else f"memory {command} {given[0]}")
    outside = {name: value for name, value in os.environ.items() if name not in INSIDE}
    ask = [*base, command, *given, "--token", token]
    done = subprocess.run(ask, capture_output=True, text=True, check=False, env=outside)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_an_operator_adds_edits_or_accepts_is_offered_too(
    state_root: Path, start_kernel: Callable[..., Any], unused_port: int
) -> None:
    """By the running host at once, by the next start where none runs; the same text again is offered once."""
    settings = honcho_settings(f"http://127.0.0.1:{unused_port}")
    waiting = state_root / "outbox"

    def texts() -> str:
        return "".join(path.read_text() for path in waiting.rglob("*.json"))

    with host(state_root, settings):
        kernel = start_kernel()
        added = json.loads(operator(state_root, "add", "The mast is 12 m high.", "--title", "Mast"))
        assert (added["state"], added["queued"]) == ("active", True)
        assert outbox_of(state_root)["pending"] == 1
        operator(state_root, "edit", added["id"], "--body", "The mast is 14 m high.")
        assert outbox_of(state_root)["pending"] == 2
        operator(state_root, "edit", added["id"], "--tag", "rig")
        assert outbox_of(state_root)["pending"] == 2
        noted = f"{LOAD}\ndone = memory.remember('The user likes brass lamps.', kind='preference')\nprint(done.id)"
        candidate = kernel.run(noted).ok().split()[-1]
        assert outbox_of(state_root)["pending"] == 2
        operator(state_root, "confirm", candidate)
        assert outbox_of(state_root)["pending"] == 3
        assert "14 m high" in texts()
    operator(state_root, "add", "The winch is greased monthly.", "--title", "Winch")
    assert "winch" in "".join(path.read_text() for path in (waiting / "announced").glob("*.json"))
    with host(state_root, settings):
        assert outbox_of(state_root)["pending"] == 4
        assert not list((waiting / "announced").glob("*.json"))


def test_captured_exchanges_reach_the_outbox_first_and_only_root_and_completed_ones(
    state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """In the human's and the assistant's name; an aborted turn, a child's and an injected text never leave."""
    settings = honcho_settings("URL", "capture = true")
    with serving(FakeHoncho(workspaces=["space"])) as served:
        served.fake.plan.add(Fault(route=ADD, times=None, status=503))
        with host(state_root, settings.replace("URL", served.url)) as running:
            kernel = start_kernel()
            kernel.run(LOAD).ok()
            feed(
                kernel,
                {"type": "session", "agent": "root"},
                *turn("Where is the tide table?", "In the log book."),
                *turn("Never mind <MEMORY_DATA>planted-injection</MEMORY_DATA>", "Stopped.", number=2, end="aborted"),
                *turn("Which file is sk-live-x?", f"It is {state_root}/artifacts/x.", number=3),
            )
            counters = json.loads(kernel.run("import json; print(json.dumps(fed['counters']))").ok())
            assert counters["exchanges-queued"] == 2
            pending = sorted((state_root / "outbox" / "pending").iterdir())
            assert len(pending) == 2
            running.end(signal.SIGKILL)
        served.fake.plan.clear()
        with host(state_root, settings.replace("URL", served.url)):
            until(lambda: len(texts(served.fake)) == 4, "both exchanges arrive after a kill")
        rows = [(row["peer_id"], row["content"], row["metadata"]["role"]) for row in served.fake.rows()]
        assert rows[:2] == [
            ("alex", "Where is the tide table?", "user"),
            ("assistant", "In the log book.", "assistant"),
        ]
        assert str(state_root) not in json.dumps(rows)
        assert "planted-injection" not in json.dumps(rows)


def test_without_an_opt_in_no_exchange_leaves(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """The table alone sends notes; conversations stay here."""
    with serving(FakeHoncho(workspaces=["space"])) as served, host(state_root, honcho_settings(served.url)):
        kernel = start_kernel()
        kernel.run(f"{LOAD}\nmemory.remember('The mast is 12 m high.')").ok()
        feed(kernel, {"type": "session", "agent": "root"}, *turn("Where is the tide table?", "In the log book."))
        until(lambda: texts(served.fake) == ["The mast is 12 m high."], "the note arrives")
        assert outbox_of(state_root)["pending"] == 0
        assert not served.fake.asked("/chat")


def test_an_operator_acts_through_the_running_host(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """`outbox retry` finds the outbox in use and asks the host: the dead letter is sent."""
    with serving(FakeHoncho(workspaces=["space"])) as served:
        served.fake.plan.add(Fault(route=ADD, status=422, body={"detail": []}))
        with host(state_root, honcho_settings(served.url)):
            kernel = start_kernel()
            kernel.run(f"{LOAD}\nmemory.remember('The pump runs dry.')").ok()
            until(lambda: outbox_of(state_root)["dead_letter"] == 1, "the refused note is a dead letter")
            assert feature(state_root, "outbox")["code"] == "DEAD_LETTERS"
            command = [sys.executable, "-m", "rlm_memory_host", "outbox", "retry", "--all", "--json"]
            done = subprocess.run([*command, "--state-root", str(state_root)], capture_output=True, check=True)
            assert len(json.loads(done.stdout)["done"]) == 1
            until(lambda: texts(served.fake) == ["The pump runs dry."], "the retried note arrives")
            assert feature(state_root, "outbox")["state"] == "on"


def test_text_memory_off_sends_notes_at_once(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """Section 14's five tools; nothing is kept here, and a correction supersedes at the service."""
    settings = honcho_settings("URL") + "[memory]\nenabled = false\n[artifacts]\nenabled = false\n"
    with serving(FakeHoncho(workspaces=["space"])) as served, host(state_root, settings.replace("URL", served.url)):
        kernel = start_kernel()
        names = kernel.run(f"{LOAD}\nprint([t['name'] for t in dsh_tools.list() if 'harness' not in t['name']])").ok()
        assert names.strip() == (
            "['memory_search', 'memory_recall', 'memory_record', 'memory_correct', 'memory_status']"
        )
        noted = "done = memory.record('The lamp is red.', title='Lamp')\nprint(done)"
        assert kernel.run(noted).ok().strip() == "queued for the remote memory; nothing is kept here"
        until(lambda: texts(served.fake) == ["Lamp: The lamp is red."], "the note arrives")
        kernel.run("memory.correct('The lamp is green.', id=done.id)").ok()
        until(lambda: len(texts(served.fake)) == 2, "the correction arrives")
        found = kernel.run("print([h.text for h in memory.search('lamp')])").ok()
        assert found.strip() == "['The lamp is green.']"
        assert not (state_root / "memory").exists()


def test_without_a_service_and_without_text_memory_the_tools_say_so(
    state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """The five are there; recording is denied with what to do about it."""
    with host(state_root, "[memory]\nenabled = false\n"):
        kernel = start_kernel()
        denied = f"{LOAD}\ntry:\n    memory.record('x y z')\nexcept memory.errors.Denied as error:\n    print(error)"
        assert "keeps no notes" in kernel.run(denied).ok()
        assert kernel.run("print(len(memory.search('x')))").ok().strip() == "0"
        assert not (state_root / "outbox").exists()


def test_a_start_fails_for_a_wrong_setting_and_not_for_a_broken_outbox(
    state_root: Path, start_kernel: Callable[..., Any], unused_port: int
) -> None:
    """No project id, a drain longer than the shutdown, no key: the start ends. A foreign outbox folder degrades."""
    good = honcho_settings(f"http://127.0.0.1:{unused_port}")
    for wrong, told in (
        (good.replace('id = "trial-7"', 'id = "with a blank"'), "honcho.project"),
        (good.replace("drain_seconds = 2", "drain_seconds = 20"), "drain_seconds"),
        (good.replace('user_peer = "alex"', 'user_peer = "alex"\nkey = "env:ABSENT_KEY"'), "honcho.key"),
    ):
        with host(state_root, wrong, listens=False) as failed:
            assert failed.process.wait(30) != 0
            assert told in failed.output.read_text()
    (state_root / "outbox").write_text("in the way")
    with host(state_root, good):
        assert feature(state_root, "outbox")["state"] == "unavailable"
        kernel = start_kernel()
        kernel.run(f"{LOAD}\nmemory.experiments.record({{'a': 1}}, title='t')").ok()
        told = host_says(state_root, {"type": "outbox", "action": "drop", "deliveries": []})
        assert told is not None
        assert told["code"] == "ADAPTER_DISABLED"
    (state_root / "outbox").unlink()
