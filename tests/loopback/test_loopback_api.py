"""The loopback API of a real host: who may ask, what a session sees, what is kept of what it is told."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hosts import host_says
from loopback_client import PATIENCE, Client, header, turn, user
from rlm_memory_host.bearer import kept_token, token_path
from rlm_memory_host.contracts.codes import CODES
from rlm_memory_host.loopback.api import BODY_SECONDS
from rlm_memory_host.loopback.document import made

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]


def test_nothing_is_answered_without_the_token(serve: Callable[..., Client]) -> None:
    """No header, another token, two tokens, another scheme: refused before anything else is looked at."""
    client = serve()
    for given in ("", "Bearer x", f"Bearer {client.token}x", f"Basic {client.token}", client.token):
        answer = client.send("GET", "/v1/status", headers={"Authorization": given})
        assert (answer.status, "DENIED" in answer.body) == (401, True)
        assert client.token not in str(answer)
    assert client.send("GET", "/v1/status").status == 200


def test_the_token_and_the_address_are_for_their_user_alone(serve: Callable[..., Client]) -> None:
    """Both files are 0600 in a 0700 folder."""
    run = serve().root / "run"
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert {stat.S_IMODE((run / name).stat().st_mode) for name in ("loopback.token", "loopback.json")} == {0o600}


def test_a_web_page_cannot_ask(serve: Callable[..., Client]) -> None:
    """A page of another origin, or one whose name was pointed at the loopback, is refused even with the token."""
    client = serve()
    for name, value in (
        ("Origin", "https://example.org"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1:1"),
        ("Host", "example.org"),
        ("Host", "example.org:80"),
        ("Host", "127.0.0.1.example.org"),
    ):
        answer = client.send("GET", "/v1/status", headers={name: value})
        assert (answer.status, answer.code) == (CODES["DENIED"].http, "DENIED"), value


def test_it_listens_on_the_loopback_alone(serve: Callable[..., Client]) -> None:
    """The port is not to be had on another address of the machine."""
    client = serve()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", client.port), timeout=2):
        pass


def test_the_document_describes_every_route(serve: Callable[..., Client]) -> None:
    """Each path of the document answers, with the method that it names; any other is refused with a code."""
    client = serve()
    told = client.send("GET", "/openapi.json").body
    assert told == made(told["info"]["version"])
    for path, methods in told["paths"].items():
        for method in methods:
            assert client.send(method.upper(), path, b"{}").body != {}
            assert client.send(method.upper(), path, b"{}").status != 404
    assert client.send("GET", "/v1/other").code == "UNSUPPORTED_REQUEST"
    assert client.send("GET", "/v1/recall").code == "UNSUPPORTED_REQUEST"


def test_a_result_is_recorded_and_found_again_by_another_session(serve: Callable[..., Client], tmp_path: Path) -> None:
    """The list names the session's own folder; what is written there is recorded, and found in the same project."""
    client, here = serve(), header("one", tmp_path / "work")
    listed = client.post("/v1/tools/list", header=here).body
    assert {"memory_search", "memory_artifact_record"} <= {tool["name"] for tool in listed["tools"]}
    about = {"title": "Counts by cohort", "summary": "one column", "source": "lab", "source_version": "1"}
    wanted = {"source_path": "a.csv", "query_fingerprint": "0" * 64, **about}
    refused = client.call(here, "memory_artifact_record", **wanted)
    assert listed["exports"] in refused["content"][-1]["text"]
    file = Path(listed["exports"]) / "a.csv"
    file.write_bytes(b"a\n1\n")
    recorded = client.call(here, "memory_artifact_record", **{**wanted, "source_path": str(file)})
    assert recorded["isError"] is False, recorded
    other = header("two", tmp_path / "work")
    found = client.call(other, "memory_search", query="cohort")["value"]["results"]
    assert [item["experiment_id"] for item in found] == [recorded["value"]["experiment_id"]]


def test_two_projects_never_see_each_other(serve: Callable[..., Client], tmp_path: Path) -> None:
    """Sixteen sessions of two projects write and search at once; each finds what its own project wrote."""
    client = serve()

    def session(number: int) -> list[str]:
        side = "left" if number % 2 else "right"
        here = header(f"s{number}", tmp_path / side)
        text = f"The {side} reactor number {number} runs at night."
        assert client.call(here, "memory_record", note=text, kind="decision")["isError"] is False
        found = client.call(here, "memory_search", query="reactor runs at night", limit=50)
        return [f"{side}:{item}" for item in (found["content"][0]["text"],)]

    for side in ("left", "right"):
        (tmp_path / side).mkdir()
    with ThreadPoolExecutor(8) as pool:
        for told in pool.map(session, range(16)):
            side, _, text = told[0].partition(":")
            assert f"The {side} reactor" in text
            assert f"The {'right' if side == 'left' else 'left'} reactor" not in text


def test_a_session_id_belongs_to_the_project_that_had_it_first(
    serve: Callable[..., Client], state_root: Path, tmp_path: Path
) -> None:
    """The same id in another folder is refused, also by the host that comes after."""
    client = serve()
    assert client.post("/v1/tools/list", header=header("same", tmp_path / "a")).status == 200
    refused = client.post("/v1/tools/list", header=header("same", tmp_path / "b"))
    assert (refused.status, refused.code) == (403, "DENIED")
    host_says(state_root, {"type": "stop"})
    until = time.monotonic() + PATIENCE
    while host_says(state_root, {"type": "status"}) is not None:
        assert time.monotonic() < until
        time.sleep(0.05)
    again = serve()
    assert again.post("/v1/tools/list", header=header("same", tmp_path / "b")).code == "DENIED"


def test_completed_exchanges_are_captured_and_recalled(serve: Callable[..., Client], tmp_path: Path) -> None:
    """A root's completed turn can be found by its session; an aborted one, an injected text and a child's cannot."""
    client, here = serve(), header("root", tmp_path / "work")

    def searched(words: str) -> str:
        return client.call(here, "memory_search", query=words, kind=None)["content"][0]["text"]

    told = [
        *turn(1, 0, "The centrifuge is called Bertha.", "Noted: the centrifuge."),
        *turn(2, 4, "The freezer is called Olaf.", "Noted.", reason="aborted"),
        {"type": "turn/start", "seq": 8, "time": 1, "data": {"turn": 3}},
        user(9, "The scale is called Emil.", kind="some-plugin"),
        *turn(3, 9, "And the pump?", "It has no name.")[1:],
    ]
    assert client.post("/v1/events", header=here, events=told).status == 200
    child = header("child", tmp_path / "work", origin="subagent", delegationDepth=1)
    client.post("/v1/events", header=child, events=turn(1, 0, "The oven is called Rosa.", "Noted."))
    unknown = {**header("future", tmp_path / "work"), "version": 9}
    client.post("/v1/events", header=unknown, events=turn(1, 0, "The lamp is called Ida.", "Noted."))
    assert "Bertha" in searched("centrifuge called")
    for name, words in (("Olaf", "freezer called"), ("Emil", "scale called"), ("Rosa", "oven"), ("Ida", "lamp")):
        assert name not in searched(words)
    counted = captured(client.root)
    assert counted["captured"] >= 4
    assert counted["child-session"] == 2
    assert counted["no-header"] == 2
    assert counted["injected"] == 1
    assert counted["turn-not-completed"] >= 1
    assert client.post("/v1/events", header=here, events=[], ended=True).body == {"events": 0}


def test_what_was_told_before_is_told_again_without_effect(serve: Callable[..., Client], tmp_path: Path) -> None:
    """A bridge repeats a turn from its start: nothing is captured twice."""
    client, here = serve(), header("root", tmp_path / "work")
    records = turn(1, 0, "The centrifuge is called Bertha.", "Noted.")
    for part in (records[:2], records, records):
        client.post("/v1/events", header=here, events=part)
    counted = captured(client.root)
    assert (counted["captured"], counted["repeated"]) == (2, 4)


def test_a_turn_that_never_ended_is_in_no_exchange(serve: Callable[..., Client], tmp_path: Path) -> None:
    """Its harness was killed: the words of that turn are not kept with the next one's."""
    client, here = serve(), header("root", tmp_path / "work")
    client.post("/v1/events", header=here, events=turn(1, 0, "The freezer is called Olaf.", "Noted.")[:2])
    client.post("/v1/events", header=here, events=turn(2, 10, "The centrifuge is called Bertha.", "Noted."))
    text = client.call(here, "memory_search", query="freezer centrifuge called")["content"][0]["text"]
    assert "Bertha" in text
    assert "Olaf" not in text


def test_only_a_root_gets_something_injected(serve: Callable[..., Client], tmp_path: Path) -> None:
    """The question need not be committed yet; a child and a session that nobody can place get nothing."""
    client, work = serve(), tmp_path / "work"
    text = "The lab uses blue tape for cohort seven."
    client.call(header("one", work), "memory_record", note=text, kind="decision")
    ask = {"turn": 1, "text": "Which tape does cohort seven use?"}
    told = client.post("/v1/recall", header=header("two", work), **ask).body["text"]
    assert text in told
    assert told.startswith("<MEMORY_DATA>")
    child = header("three", work, origin="subagent", delegationDepth=1)
    unknown = {**header("four", work), "version": 9}
    for other in (child, unknown, header("five", tmp_path / "elsewhere")):
        assert text not in client.post("/v1/recall", header=other, **ask).body["text"]


def test_a_recorded_result_that_is_spoken_of_is_injected_with_the_notes(
    serve: Callable[..., Client], tmp_path: Path
) -> None:
    """Its title, its id and where it is from; not for another subject, not in another project, not to a child."""
    client, work = serve(), tmp_path / "work"
    first = header("one", work)
    exports = Path(client.post("/v1/tools/list", header=first).body["exports"])
    ids = {}
    for name, title in (("a", "Response rate by cohort"), ("b", "Freezer temperatures of March")):
        (exports / name).write_text(name)
        about = {"title": title, "summary": "as measured", "source": "lab", "source_version": "7", "shape": [3, 2]}
        recorded = client.call(
            first, "memory_artifact_record", source_path=str(exports / name), query_fingerprint="0" * 64, **about
        )
        ids[name] = recorded["value"]["experiment_id"]
    note = "The response of a cohort is counted after six weeks."
    client.call(first, "memory_record", note=note, kind="decision")
    ask = {"turn": 1, "text": "What was the response rate of each cohort?"}
    told = client.post("/v1/recall", header=header("two", work), **ask).body["text"]
    assert note in told
    assert all(part in told for part in (ids["a"], "Response rate by cohort", "3 x 2; from lab 7", "experiment-card"))
    assert ids["b"] not in told
    other = {"turn": 1, "text": "Which of the trains leaves first, and from where?"}
    assert ids["a"] not in client.post("/v1/recall", header=header("three", work), **other).body["text"]
    child = header("four", work, origin="subagent", delegationDepth=1)
    for away in (child, header("five", tmp_path / "elsewhere")):
        assert ids["a"] not in client.post("/v1/recall", header=away, **ask).body["text"]


def test_a_bridge_tells_how_full_its_context_is(serve: Callable[..., Client], tmp_path: Path) -> None:
    """The answer says what was given up, and what nobody may tell is refused."""
    client, work = serve(), tmp_path / "work"
    text = "The lab uses blue tape for cohort seven."
    client.call(header("one", work), "memory_record", note=text, kind="decision")
    ask = {"turn": 1, "text": "Which tape does cohort seven use?"}
    full = client.post("/v1/recall", header=header("full", work), context_used=0.98, **ask).body
    assert full["text"] == ""
    assert full["diagnostics"]["tier"] == "none"
    assert full["diagnostics"]["degradation_reasons"][0] == "resident-compact"
    roomy = client.post("/v1/recall", header=header("roomy", work), context_used=0, **ask).body
    assert text in roomy["text"]
    assert roomy["diagnostics"]["chars"] == len(roomy["text"]) <= 4_000
    for used in (-0.1, 1.1, "0.5", True):
        assert (
            client.post("/v1/recall", header=header("odd", work), context_used=used, **ask).code == "INVALID_ARGUMENT"
        )


def test_the_status_says_how_the_project_was_told_and_names_no_folder(
    serve: Callable[..., Client], tmp_path: Path
) -> None:
    """By the repository or the folder; which layers the session reads, where it writes, whether it is a child."""
    client = serve()
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    for name, told, words in (("repo", "git", "this repository"), ("plain", "path", "this folder")):
        envelope = client.call(header(name, tmp_path / name), "memory_status")
        value = envelope["value"]
        assert value["scope"] == {"project": told, "agent": "root", "preset": False}
        assert value["memory"]["layers"] == {"project": True, "global": True, "session": True, "habit": True}
        assert value["memory"]["writes_to"] == "project"
        assert f"project: {words}" in envelope["content"][0]["text"]
        assert str(tmp_path) not in str(envelope)
        assert name not in json.dumps(value)
    child = header("child", tmp_path / "plain", origin="subagent", delegationDepth=1, agentPreset="coder")
    value = client.call(child, "memory_status")["value"]
    assert value["scope"] == {"project": "path", "agent": "child", "preset": True}
    assert value["memory"]["layers"]["preset"] is True


def captured(root: Path) -> dict[str, int]:
    """What the host counted of what it was told."""
    status = host_says(root, {"type": "status"})
    assert status is not None
    return status["capture"]


def test_what_nobody_waited_for_does_not_count_as_given(serve: Callable[..., Client], tmp_path: Path) -> None:
    """A recall that its bridge gave up at once leaves the memory to the next one."""
    client, work = serve(), tmp_path / "work"
    note = "The lab uses blue tape for cohort seven."
    client.call(header("one", work), "memory_record", note=note, kind="decision")
    body = json.dumps({"header": header("two", work), "turn": 1, "text": "Which tape does cohort seven use?"}).encode()
    lines = [
        "POST /v1/recall HTTP/1.1",
        f"Host: 127.0.0.1:{client.port}",
        f"Authorization: Bearer {client.token}",
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as peer:
        peer.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    answer = client.post("/v1/recall", header=header("two", work), turn=1, text="Which tape does cohort seven use?")
    assert note in answer.body["text"]


WRONG: list[tuple[bytes, str]] = [
    (b"", "INVALID_REQUEST"),
    (b"[]", "INVALID_REQUEST"),
    (b"\xff", "INVALID_REQUEST"),
    (b"[" * 100_000, "INVALID_REQUEST"),
    (b"{}", "INVALID_ARGUMENT"),
    (b'{"header": {"id": "x", "version": 4}, "turn": 1, "text": "a"}', "INVALID_ARGS"),
    (b'{"header": {"id": "x", "version": 4, "cwd": "work"}, "turn": 1, "text": "a"}', "INVALID_ARGS"),
    (b'{"header": {"id": "x", "version": "4", "cwd": "/tmp"}, "turn": 1, "text": "a"}', "INVALID_ARGUMENT"),
    (
        b'{"header": {"id": "x", "version": 4, "cwd": "/tmp", "secret-x": 1}, "turn": 1, "text": ""}',
        "INVALID_ARGUMENT",
    ),
    (b'{"text": "' + b"a" * (1 << 20) + b'"}', "PAYLOAD_TOO_LARGE"),
]


def test_a_wrong_body_is_refused_with_its_code_in_the_text(serve: Callable[..., Client]) -> None:
    """What is wrong is named; what was sent is not repeated."""
    client = serve()
    for body, code in WRONG:
        answer = client.send("POST", "/v1/recall", body)
        assert (answer.status, answer.code) == (CODES[code].http, code), body[:80]
        assert answer.body["error"]["message"].startswith(f"{code}: ")
        assert "secret-x" not in str(answer.body)


def test_a_refusal_of_a_tool_is_an_answer_with_its_code(serve: Callable[..., Client], tmp_path: Path) -> None:
    """As on the bridge to kernels: 200, `isError`, and the code in the text for a model."""
    envelope = serve().call(header("one", tmp_path / "work"), "memory_artifact_resolve", experiment_id="exp_none")
    assert envelope["isError"] is True
    assert envelope["error"]["info"]["code"] in envelope["content"][0]["text"]


def test_a_session_that_asks_too_often_is_told_when_to_come_back(serve: Callable[..., Client], tmp_path: Path) -> None:
    """Others are served meanwhile."""
    client = serve("requests_per_minute = 1", "burst = 3")
    here, other = header("one", tmp_path / "work"), header("two", tmp_path / "work")
    answers = [client.post("/v1/tools/list", header=here) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].code == "RATE_LIMITED"
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60
    assert client.post("/v1/tools/list", header=other).status == 200


def test_a_running_host_serves_from_an_install_until_its_removal(
    state_root: Path, start_host: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The token is the switch: no restart is needed, and without it nothing listens."""
    start_host()
    assert not (state_root / "run" / "loopback.json").exists()
    kept_token(state_root, "loopback")
    client = Client(state_root)
    assert client.send("GET", "/v1/status").status == 200
    token_path(state_root, "loopback").unlink()
    until = time.monotonic() + PATIENCE
    while (state_root / "run" / "loopback.json").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    with pytest.raises(ConnectionError):
        client.send("GET", "/v1/status")


def test_a_stopped_host_leaves_no_address_and_a_killed_ones_is_cleared(
    serve: Callable[..., Client], state_root: Path, start_host: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The port of a dead host may be somebody else's: its address does not stay in the file."""
    client = serve()
    address = state_root / "run" / "loopback.json"
    os.kill(json.loads(address.read_text())["pid"], signal.SIGKILL)
    before = address.read_text()
    until = time.monotonic() + PATIENCE
    while host_says(state_root, {"type": "status"}) is not None:
        assert time.monotonic() < until
        time.sleep(0.05)
    token_path(state_root, "loopback").unlink()
    host = start_host()
    assert not address.exists(), before
    kept_token(state_root, "loopback")
    assert Client(state_root).port != 0
    assert client.root == state_root
    host.terminate()
    host.wait(PATIENCE)
    assert not address.exists()


def test_a_body_that_does_not_come_ends(serve: Callable[..., Client]) -> None:
    """A connection that promises a body and sends none is answered, and does not keep others waiting."""
    client = serve()
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as peer:
        lines = [
            "POST /v1/recall HTTP/1.1",
            f"Host: 127.0.0.1:{client.port}",
            f"Authorization: Bearer {client.token}",
            "Content-Length: 10",
        ]
        peer.sendall("\r\n".join([*lines, "", ""]).encode())
        assert client.send("GET", "/v1/status").status == 200
        peer.settimeout(BODY_SECONDS + PATIENCE)
        assert b" 400 " in peer.recv(4096)
