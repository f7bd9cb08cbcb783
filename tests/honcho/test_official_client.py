"""The official client runs against the shipped fake server, unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from honcho import Honcho
from honcho.api_types import MessageCreateParams, PeerConfig, SessionPeerConfig
from honcho.http.exceptions import AuthenticationError, NotFoundError, RateLimitError
from rlm_memory_host.honcho.fake import FakeHoncho, Fault, Served, serving


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(FakeHoncho(api_keys={"fake-key"})) as server:
        yield server


@pytest.fixture
def honcho(served: Served) -> Iterator[Honcho]:
    with httpx.Client(trust_env=False) as http:
        yield Honcho(api_key="fake-key", base_url=served.url, workspace_id="space", max_retries=0, http_client=http)


def test_a_conversation_is_stored_listed_searched_and_changed(honcho: Honcho) -> None:
    """What an application does first: peers, a session, messages, and finding them again."""
    alice, bot = (
        honcho.peer("alice", metadata={"team": "red"}),
        honcho.peer("bot", configuration=PeerConfig(observe_me=False)),
    )
    session = honcho.session("first", peers=[(alice, SessionPeerConfig(observe_me=True)), (bot, SessionPeerConfig())])
    stored = session.add_messages([alice.message("I prefer green tea", metadata={"turn": 1}), bot.message("Noted")])
    assert [message.content for message in stored] == ["I prefer green tea", "Noted"]
    assert [message.content for message in session.messages(filters={"metadata": {"turn": 1}})] == [
        "I prefer green tea"
    ]
    assert [message.content for message in session.messages(size=1, reverse=True)] == ["Noted", "I prefer green tea"]
    assert session.search("green tea")[0].content == "I prefer green tea"
    assert honcho.search("tea", filters={"peer_id": "alice"})[0].id == stored[0].id
    assert alice.search("tea")
    changed = session.update_message(stored[0], metadata={"turn": 2})
    assert changed.metadata == {"turn": 2}
    assert session.get_message(stored[0].id).metadata == {"turn": 2}
    assert {peer.id for peer in session.peers()} == {"alice", "bot"}
    assert session.get_peer_configuration("alice").observe_me is True
    session.set_peer_configuration("alice", SessionPeerConfig(observe_others=True))
    session.remove_peers("bot")
    session.add_peers("carol")
    session.set_peers(["alice"])
    assert [peer.id for peer in session.peers()] == ["alice"]


def test_what_is_derived_of_a_peer_can_be_asked_for(honcho: Honcho) -> None:
    """Representation, dialectic, card, context, conclusions."""
    alice = honcho.peer("alice")
    session = honcho.session("first", peers=[alice])
    session.add_messages(alice.message("I work in Lisbon"))
    assert "Lisbon" in alice.representation()
    assert "Lisbon" in session.representation(alice)
    assert "Lisbon" in (alice.chat("Lisbon?") or "")
    assert "Lisbon" in "".join(alice.chat_stream("Lisbon?"))
    assert alice.set_card(["works in Lisbon"]) == ["works in Lisbon"]
    assert alice.get_card() == ["works in Lisbon"]
    assert alice.context().peer_card == ["works in Lisbon"]
    made = alice.conclusions.create([{"content": "likes rivers"}])
    assert [item.content for item in alice.conclusions.list()] == ["likes rivers"]
    assert alice.conclusions.query("rivers")[0].id == made[0].id
    assert alice.conclusions.get(made[0].id).content == "likes rivers"
    alice.conclusions.delete(made[0].id)
    assert not list(alice.conclusions.list())
    assert session.context().messages[0].content == "I work in Lisbon"
    assert session.summaries().short_summary is None
    assert honcho.queue_status().pending_work_units == 0
    honcho.schedule_dream("alice")


def test_metadata_that_is_given_replaces_what_was_there(honcho: Honcho) -> None:
    """The service does not merge; a get-or-create without metadata leaves it alone."""
    honcho.peer("alice", metadata={"a": 1})
    assert honcho.peer("alice", metadata={"b": 2}).get_metadata() == {"b": 2}
    honcho.session("first", metadata={"a": 1})
    assert honcho.session("first").get_metadata() == {"a": 1}
    honcho.session("first").set_metadata({"c": 3})
    assert honcho.session("first").get_metadata() == {"c": 3}


def test_lists_of_workspaces_peers_and_sessions_come_in_pages(honcho: Honcho) -> None:
    """More than a page of each, and clones and deletions of sessions."""
    for number in range(55):
        honcho.peer(f"peer-{number}", metadata={"even": number % 2 == 0})
    assert len(list(honcho.peers())) == 55
    assert len(list(honcho.peers(filters={"metadata": {"even": True}}))) == 28
    session = honcho.session("first", peers=["peer-1"])
    session.add_messages(honcho.peer("peer-1").message("hello"))
    clone = session.clone()
    assert [message.content for message in clone.messages()] == ["hello"]
    assert len(list(honcho.peer("peer-1").sessions())) == 2
    clone.delete()
    assert [item.id for item in honcho.sessions()] == ["first"]
    assert list(honcho.workspaces()) == ["space"]


async def test_the_asynchronous_side_works_too(served: Served) -> None:
    """The same calls through `aio`."""
    honcho = Honcho(api_key="fake-key", base_url=served.url, workspace_id="space", max_retries=0)
    try:
        alice = await honcho.aio.peer("alice")
        session = await honcho.aio.session("first")
        await session.aio.add_messages([MessageCreateParams(content="I like rivers", peer_id="alice")])
        page = await session.aio.messages(filters={"peer_id": "alice"})
        assert [message.content async for message in page] == ["I like rivers"]
        assert "rivers" in await alice.aio.representation()
        assert (await session.aio.search("rivers"))[0].content == "I like rivers"
    finally:
        await honcho._async_http_client.close()
        honcho._http.close()


def test_errors_reach_the_client_as_its_own(served: Served, honcho: Honcho) -> None:
    """A wrong key, what is not there, and a limit with Retry-After."""
    with httpx.Client(trust_env=False) as http:
        stranger = Honcho(api_key="wrong", base_url=served.url, workspace_id="space", max_retries=0, http_client=http)
        with pytest.raises(AuthenticationError):
            stranger.peer("alice").get_metadata()
    with pytest.raises(NotFoundError):
        honcho.peer("alice").conclusions.get("nothing")
    served.fake.plan.add(Fault(route="POST .*/search$", status=429, headers={"Retry-After": "3"}))
    with pytest.raises(RateLimitError) as caught:
        honcho.search("anything")
    assert caught.value.retry_after == 3
