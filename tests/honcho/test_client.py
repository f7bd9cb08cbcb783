"""The client on real sockets: bounded, silent about content and keys, and exact about what is known of an outcome."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import socket
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rlm_memory_host.errors import (
    CredentialError,
    RemoteAuth,
    RemoteBusy,
    RemoteError,
    RemoteRejected,
    RemoteUnavailable,
    RemoteUnknownOutcome,
    SettingsError,
)
from rlm_memory_host.honcho.client import HonchoClient, retry_after
from rlm_memory_host.honcho.credentials import KeySource, Secret
from rlm_memory_host.honcho.fake import FakeHoncho, Fault, Served, serving

KEY = "fake-key-0123456789"
PRIVATE = "the-private-words"


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(FakeHoncho(api_keys={KEY}, workspaces=["space"])) as server:
        yield server


def _client(served: Served, **more: object) -> HonchoClient:
    return HonchoClient(served.url, "space", key=KeySource.fixed(KEY), **more)  # type: ignore[arg-type]


MESSAGE = {"content": PRIVATE, "peer_id": "person", "metadata": {"n": 1}}


async def test_messages_are_added_listed_and_searched(served: Served) -> None:
    """The calls that the product makes, against a real socket."""
    async with _client(served) as client:
        await client.create_peer("person")
        assert await client.create_session("first", peers={"person": {"observe_me": True}}) == {}
        assert await client.create_session("first", metadata={"a": 1}) == {"a": 1}
        rows = await client.add_messages("first", [MESSAGE])
        assert rows[0]["content"] == PRIVATE
        items, pages = await client.list_messages("first", {"metadata": {"n": 1}})
        assert ([item["id"] for item in items], pages) == ([rows[0]["id"]], 1)
        assert (await client.search("private", {"peer_id": "person"}, limit=5))[0]["id"] == rows[0]["id"]
        assert PRIVATE in await client.representation("person")
        assert PRIVATE in (await client.ask("person", "private?") or "")
        assert (await client.queue_status())["pending_work_units"] == 0
        assert await client.exists("", "space")
        assert not await client.exists("peers", "nobody")
        with pytest.raises(ValueError, match="every message"):
            await client.list_messages("first", {})


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(status=401), RemoteAuth),
        (Fault(status=403), RemoteAuth),
        (Fault(status=429, headers={"Retry-After": "7"}), RemoteBusy),
        (Fault(status=422, body={"detail": [{"input": PRIVATE}]}), RemoteRejected),
        (Fault(status=400, body={"detail": PRIVATE}), RemoteRejected),
        (Fault(status=404), RemoteUnavailable),
        (Fault(status=302, headers={"Location": "http://127.0.0.1:9/"}), RemoteUnavailable),
        (Fault(status=500, body={"detail": PRIVATE}), RemoteUnknownOutcome),
        (Fault(status=503), RemoteUnknownOutcome),
        (Fault(status=200, body="a login page"), RemoteUnknownOutcome),
        (Fault(drop=True), RemoteUnknownOutcome),
        (Fault(commit=True, drip=0.2), RemoteUnknownOutcome),
        (Fault(wait=5), RemoteUnknownOutcome),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
async def test_every_outcome_has_its_class_and_no_content(
    served: Served, fault: Fault, expected: type[RemoteError], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the message, nor its cause, nor a log line at any level repeats content or key."""
    caplog.set_level(logging.DEBUG)
    served.call(lambda: served.fake.plan.add(fault))
    async with _client(served, call_seconds=0.5) as client:
        with pytest.raises(expected) as caught:
            await client.add_messages("first", [MESSAGE])
    assert type(caught.value) is expected
    told = f"{caught.value!r} {caught.value.__cause__!r} {caplog.text}"
    assert PRIVATE not in told
    assert KEY not in told
    assert "sessions/first" not in told
    assert caught.value.retry_after == (7 if fault.status == 429 else None)


async def test_a_dripping_answer_ends_at_the_deadline(served: Served) -> None:
    """A byte every tenth of a second resets no clock."""
    served.call(lambda: served.fake.plan.add(Fault(drip=0.1)))
    loop = asyncio.get_running_loop()
    async with _client(served, call_seconds=1.0) as client:
        began = loop.time()
        with pytest.raises(RemoteUnknownOutcome):
            await client.queue_status()
        # The answer itself would take over ten seconds.
        assert loop.time() - began < 8


async def test_a_reset_after_an_error_does_not_break_the_next_call(served: Served) -> None:
    """The pooled line is dead; the next call takes another."""
    served.call(lambda: served.fake.plan.add(Fault(status=500, reset_after=True)))
    async with _client(served) as client:
        with pytest.raises(RemoteUnknownOutcome):
            await client.queue_status()
        assert await client.queue_status()


async def test_nobody_listening_means_that_nothing_was_sent() -> None:
    """A refused connection is certain; the outbox need not look for rows."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with HonchoClient(f"http://127.0.0.1:{port}", "space") as client:
            with pytest.raises(RemoteUnavailable):
                await client.queue_status()


async def test_proxies_of_the_environment_are_not_used(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key goes to the configured address and nowhere else."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with _client(served) as client:
        assert await client.queue_status()


async def test_a_filter_with_a_wildcard_proves_nothing(served: Served) -> None:
    """The trap that every caller has to know: `*` matches, `eq` and `$in` do not."""
    async with _client(served) as client:
        await client.add_messages("first", [MESSAGE, {**MESSAGE, "metadata": {"n": "1"}}])

        async def found(filters: dict[str, object]) -> int:
            return len((await client.list_messages("first", filters))[0])

        assert await found({"metadata": {"n": "*"}}) == 2
        assert await found({"metadata": {"n": 1}}) == 1
        assert await found({"metadata": {"n": {"in": [1, "1"]}}}) == 2
        assert await found({"metadata": {"n": {"$in": [1, "1"]}}}) == 0
        assert await found({"metadata": {"n": {"eq": 1}}}) == 0
        assert await found({"metadata": {"n": {"gte": 1, "lt": 2}}}) == 1
        assert await found({"metadata": {"n": {"ne": 1}}}) == 1
        assert await found({"content": {"icontains": "PRIVATE"}}) == 2
        assert await found({"content": {"contains": "PRIVATE"}}) == 0
        assert await found({"OR": [{"metadata": {"n": 1}}, {"metadata": {"n": "1"}}]}) == 2
        assert await found({"NOT": [{"metadata": {"n": 1}}]}) == 1
        assert await found({"AND": [{"peer_id": "person"}, {"metadata": {"n": "1"}}]}) == 1


async def test_limits_are_refused_with_the_content_in_the_refusal(served: Served) -> None:
    """As the real service does; that is why no refusal is passed on."""
    async with httpx.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {KEY}"}) as http:
        url = f"{served.url}/v3/workspaces/space/sessions/first/messages"
        long = await http.post(url, json={"messages": [{"content": "x" * 25_001, "peer_id": "p"}]})
        assert (long.status_code, "xxx" in long.text) == (422, True)
        many = await http.post(url, json={"messages": [{"content": "x", "peer_id": "p"}] * 101})
        assert many.status_code == 422
        page = await http.post(f"{served.url}/v3/workspaces/space/peers/list?size=101", json={})
        assert page.status_code == 422
        bad = await http.post(f"{served.url}/v3/workspaces/space/peers", json={"id": "a b"})
        assert bad.status_code == 422


async def test_the_fake_is_scripted_from_another_process_too(served: Served) -> None:
    """Its remote control, as a campaign uses it."""
    async with httpx.AsyncClient(trust_env=False, base_url=served.url) as http:
        assert (await http.post("/_fake/plan", json=[{"route": "queue", "status": 418}])).json() == {"ok": True}
        async with _client(served) as client:
            with pytest.raises(RemoteUnavailable):
                await client.queue_status()
            await client.add_messages("first", [MESSAGE])
        assert [row["content"] for row in (await http.get("/_fake/rows")).json()] == [PRIVATE]
        assert len((await http.get("/_fake/requests")).json()) == 2


async def test_a_fault_that_is_none_is_refused_by_the_running_fake(served: Served) -> None:
    """It says why, adds none of the plan, and serves on."""
    async with httpx.AsyncClient(trust_env=False, base_url=served.url) as http:
        for plan in (b"{}", b"{", b"null", b'[{"status": 503}, {"route": "("}]', b"[" * 100_000):
            assert (await http.post("/_fake/plan", content=plan)).status_code == 422
        assert (await http.post("/_fake/keys", content=b"5")).status_code == 422
    async with _client(served) as client:
        assert await client.exists("", "space")


async def test_search_sees_a_message_late() -> None:
    """A list shows it at once, meaning takes a while."""
    with serving(FakeHoncho(workspaces=["space"], search_delay=3_600)) as served:
        async with HonchoClient(served.url, "space") as client:
            await client.add_messages("first", [MESSAGE])
            assert (await client.list_messages("first", {"peer_id": "person"}))[0]
            assert await client.search("private", {}, limit=5) == []
            assert (await client.queue_status())["pending_work_units"] == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("-5", None),
        ("abc", None),
        ("inf", None),
        ("nan", None),
        ("", None),
        (None, None),
        ("Thu, 01 Jan 1970 00:16:43 GMT", 3.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("99999999", 99_999_999.0),
    ],
)
def test_retry_after_is_read_in_both_forms_and_nonsense_ignored(header: str | None, seconds: float | None) -> None:
    """Seconds, or a date against our clock."""
    assert retry_after(header, 1_000.0) == seconds


@pytest.mark.parametrize(
    "url",
    [
        *("", "honcho.example.org", "ftp://x", "http://", "http://u:p@x", "http://x?a=1", "http://x:port"),
        *("http://x\0y", "http://a..b", "http://exämple..org", "http://xn--.org", f"http://{'a' * 64}", "http://[::1"),
    ],
)
def test_the_address_is_explicit_and_checked(url: str) -> None:
    """There is no default that could send somebody's words to a cloud."""
    with pytest.raises(SettingsError, match=r"honcho\.url"):
        HonchoClient(url, "space")


# -- keys ------------------------------------------------------------------------------------------------------------
def test_a_key_is_read_from_where_the_reference_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable, a private file, a descriptor, a keyring."""
    assert KeySource("env:THE_KEY", {"THE_KEY": KEY}).read().reveal() == KEY
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    assert KeySource(f"file:{file}").read().reveal() == KEY
    reading, writing = os.pipe()
    os.write(writing, KEY.encode())
    os.close(writing)
    source = KeySource(f"fd:{reading}")
    assert source.read().reveal() == source.read().reveal() == KEY
    ring = types.ModuleType("keyring")
    ring.get_password = lambda service, user: KEY if (service, user) == ("rlm", "me") else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", ring)
    assert KeySource("keyring:rlm/me").read().reveal() == KEY
    with pytest.raises(CredentialError):
        KeySource("keyring:rlm/other").read()


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Like ssh."""
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o644)
    with pytest.raises(CredentialError, match="chmod 600"):
        KeySource(f"file:{file}").read()


def test_an_address_may_be_of_any_usual_form() -> None:
    """A name, an address of either family, a port, a path, a name in another script."""
    for url in (
        "http://honcho",
        "http://[::1]:8000",
        "https://127.0.0.1/api/",
        "https://bücher.example.",
        "http://a_b",
    ):
        assert HonchoClient(url, "space")


def test_a_key_s_place_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A named pipe that nobody writes to does not hold the start up."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("pipe", ".", "absent", "absent/key", "n" * 300):
        with pytest.raises(CredentialError, match="the key's file"):
            KeySource(f"file:{tmp_path / name}").read()


@pytest.mark.parametrize(
    "wrong",
    [
        *(KEY, "", "env:", "env:A B", "file:relative", "file:/a\0b", "keyring:x", f"vault:{KEY}"),
        *("fd:x", "fd:²", "fd:٣", "fd:99999999999999999999"),
    ],
)
def test_a_key_in_place_of_a_reference_is_refused_without_repeating_it(wrong: str) -> None:
    """Somebody pastes the key itself into the settings."""
    with pytest.raises(SettingsError) as caught:
        KeySource(wrong)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("wrong", ["", "  ", "two\nlines", "schlüssel", "x" * 9_000])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(wrong: str) -> None:
    """The message says what is wrong, not with which text."""
    with pytest.raises(CredentialError) as caught:
        KeySource("env:K", {"K": wrong}).read()
    assert not wrong.strip() or wrong not in str(caught.value)


def test_a_secret_shows_itself_to_nobody() -> None:
    """repr, str, format, json and pickle of the secret and of what holds it."""
    secret, source = Secret(KEY), KeySource.fixed(KEY)
    shown = f"{secret} {secret!r} {source!r} {HonchoClient('http://x', 'space', key=source)!r} {[secret]}"
    assert KEY not in shown
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
