"""Ids that other programs must arrive at too, and what may leave under them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_memory_host.contracts.delivery import build_request
from rlm_memory_host.contracts.delivery_ids import (
    card_delivery_id,
    exchange_delivery_id,
    honcho_session_id,
    is_remote_id,
)
from rlm_memory_host.delivery.compose import Labels, Part, compose, make_scope, normalise
from rlm_memory_host.errors import Integrity, SettingsError
from world import exchange, keep

VECTORS = {
    "session-1": "dsh_qqexqkh4ggumruuscdpurea2qxph7uat62dlc67hpun6fhfxvgfq",
    "01JABCDEF": "dsh_evfyn7hbjxote4uotweezqrlxshyfktaogclfnqzb7i3axnispjq",
    "sess/é": "dsh_msm35yucrokhz7rw3kxhao4kiqjiw7vcgso5q2jqdvysj4m3oexq",
}
LABELS = Labels("2026-08-21T10:00:00Z", "1.0", turn=3)


@pytest.mark.parametrize(("session", "expected"), VECTORS.items())
def test_session_ids_are_those_of_the_vectors(session: str, expected: str) -> None:
    """`dsh_` and the base32 of the SHA-256 of the exact session id."""
    assert honcho_session_id(session) == expected
    assert is_remote_id(expected)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_different_sessions_never_share_an_id(one: str, other: str) -> None:
    """Exactness: no trimming, no case folding, no Unicode normal form."""
    try:
        ids = honcho_session_id(one), honcho_session_id(other)
    except UnicodeEncodeError:
        return
    assert (ids[0] == ids[1]) is (one == other)


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "é", "a" * 513, "x@example.org", "a\n", "*"])
def test_ids_that_the_service_does_not_take_are_refused_at_once(bad: str) -> None:
    """An address or a display name is not silently made into an identity."""
    assert not is_remote_id(bad)
    for field in ("workspace_id", "user_peer_id", "project_id"):
        given_ids = {"workspace_id": "w", "user_peer_id": "u", "project_id": "p", field: bad}
        with pytest.raises(SettingsError):
            make_scope(session_id="s", **given_ids)


def test_a_delivery_id_changes_with_each_of_its_parts_and_with_nothing_else() -> None:
    """Section 12.2: scope, session, turn, events, role and text after redaction."""
    base = {"workspace_id": "w", "user_peer_id": "u", "project_id": "p", "session_id": "s"}
    said = [("user", "hello")]

    def of(turn: int = 1, events: tuple[int, ...] = (4,), contents: object = said, **changed: str) -> str:
        return exchange_delivery_id(
            make_scope(**{**base, **changed}),
            turn=turn,
            event_sequences=events,
            contents=contents,  # type: ignore[arg-type]
        )

    variants = [
        of(),
        of(turn=2),
        of(events=(5,)),
        of(events=(4, 5)),
        of(contents=[("assistant", "hello")]),
        of(contents=[("user", "hello ")]),
        of(contents=[*said, *said]),
        *(of(**{name: "other"}) for name in base),
    ]
    assert len(set(variants)) == len(variants)
    assert of() == of()
    assert of() == "03cd9b414f855ba11b0e47646736c7326e8ab96b693e850175d6367fe09d3a17"


def test_a_card_gets_a_new_delivery_with_a_new_revision_only() -> None:
    """Section 29.2: retries and reconciliation arrive at the same id."""
    base = {"namespace": "n", "workspace_id": "w", "project_id": "p", "experiment_id": "exp_x", "revision": "1"}
    first = card_delivery_id(schema_version=1, **base)
    assert first == card_delivery_id(schema_version=1, **base)
    others = [card_delivery_id(schema_version=2, **base)]
    others += [card_delivery_id(schema_version=1, **{**base, name: "other"}) for name in base]
    assert len({first, *others}) == len(others) + 1


def test_the_id_is_that_of_the_text_that_leaves() -> None:
    """Redaction comes before identity, and the same secret-free text gives the same id."""

    def redact(text: str) -> str:
        return text.replace("hunter2", "[redacted]")

    scope = make_scope(workspace_id="w", user_peer_id="u", project_id="p", session_id="s", assistant_peer_id="a")
    secret = compose(scope, [Part("user", "my key is hunter2", LABELS.captured_at)], LABELS, redact)
    plain = compose(scope, [Part("user", "my key is [redacted]", LABELS.captured_at)], LABELS, keep)
    assert secret.request == plain.request
    assert (secret.redacted, plain.redacted) == (1, 0)


def test_nothing_left_after_redaction_is_refused_by_name() -> None:
    """An empty message says nothing and is not sent."""
    scope = make_scope(workspace_id="w", user_peer_id="u", project_id="p", session_id="s")
    with pytest.raises(Integrity) as caught:
        compose(scope, [Part("user", "secret", LABELS.captured_at)], LABELS, lambda _: " \n")
    assert caught.value.code == "EMPTY_AFTER_REDACTION"


def test_a_long_text_is_cut_or_skipped_as_configured() -> None:
    """It is never sent whole, and the cut is the same every time."""
    scope = make_scope(workspace_id="w", user_peer_id="u", project_id="p", session_id="s")
    part = Part("user", "x" * 30_000, LABELS.captured_at)
    cut = compose(scope, [part], LABELS, keep)
    assert len(cut.request.messages[0].content) == 25_000
    assert cut.request.messages[0].content.endswith("[truncated]")
    assert cut.truncated == 1
    with pytest.raises(Integrity, match="longer"):
        compose(scope, [part], LABELS, keep, oversize="skip")


def test_a_child_never_sends_as_the_human_and_notes_need_an_assistant() -> None:
    """Section 10.2: parent instructions are nobody's words."""
    child = make_scope(workspace_id="w", user_peer_id="u", project_id="p", session_id="s", agent_kind="child")
    with pytest.raises(Integrity, match="child"):
        compose(child, [Part("user", "do this", LABELS.captured_at)], LABELS, keep)
    with pytest.raises(Integrity, match="assistant_peer"):
        compose(child, [Part("memory-note", "a note", LABELS.captured_at)], LABELS, keep)


def test_line_ends_and_unicode_are_put_in_one_form() -> None:
    """The same words typed on two systems are the same delivery."""
    assert normalise("e\u0301\r\nb\rc\x00") == "é\nb\nc"
    assert normalise("\ud800") == "?"


def test_a_delivery_must_be_findable_and_belong_to_its_session() -> None:
    """Without its own id in the metadata no look-up could ever find it."""
    good = exchange("s", 1).model_dump()
    with pytest.raises(Integrity, match="delivery_id"):
        build_request("a" * 64, good["scope"], good["messages"])
    with pytest.raises(Integrity, match="dshSessionId"):
        build_request(good["delivery_id"], {**good["scope"], "dsh_session_id": "other"}, good["messages"])


@pytest.mark.parametrize(
    "change",
    [
        {"content": "x" * 25_001},
        {"content": ""},
        {"content": "a\x00b"},
        {"peer_id": "a b"},
        {"created_at": "yesterday"},
        {"created_at": "2026-01-01T00:00:00"},
        {"metadata": {str(n): n for n in range(101)}},
        {"metadata": {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}},
        {"metadata": {"a": "\x00"}},
        {"metadata": {"secret-word\x00": 1}},
    ],
)
def test_what_the_service_would_refuse_is_refused_before_it_is_written(change: dict[str, object]) -> None:
    """Its limits are ours; the message names the place and repeats nothing."""
    good = exchange("s", 1).model_dump()
    first = {**good["messages"][0], **change}
    if "metadata" in change:
        first["metadata"] = {**good["messages"][0]["metadata"], **change["metadata"]}  # type: ignore[dict-item]
    with pytest.raises(Integrity) as caught:
        build_request(good["delivery_id"], good["scope"], [first])
    assert "messages" in str(caught.value)
    assert "secret-word" not in str(caught.value)
    assert "xxx" not in str(caught.value)
