"""The decisions apart from any I/O."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_memory_host.contracts.delivery import DeliveryMessage
from rlm_memory_host.contracts.delivery_ports import RemoteRow
from rlm_memory_host.delivery.circuit import Circuit, CircuitPolicy
from rlm_memory_host.delivery.decisions import Bury, Retry, RetryPolicy, after_failure, backoff, compare, settle
from rlm_memory_host.delivery.lanes import Lanes, Waiting
from rlm_memory_host.errors import RemoteAuth, RemoteBusy, RemoteRejected, RemoteUnavailable, RemoteUnknownOutcome

POLICY = RetryPolicy()


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_grows_to_its_cap_and_is_never_hot(attempts: int, fraction: float) -> None:
    """From a tenth of a second to five minutes, whatever the count."""
    seconds = backoff(attempts, POLICY, lambda: fraction)
    assert 0.1 <= seconds <= min(300.0, 2.0 ** min(attempts, 20))


def test_settling_doubles_from_twenty_seconds_to_its_cap() -> None:
    """A busy service needs up to ten seconds to show a row."""
    assert [settle(n, POLICY) for n in range(8)] == [20, 20, 40, 80, 160, 320, 640, 640]


def _after(error: Exception, **changed: object) -> Retry | Bury:
    known: dict[str, object] = {"attempts": 1, "unknown": 1, "was_ambiguous": False, "policy": POLICY}
    return after_failure(error, fraction=lambda: 0.5, **{**known, **changed})  # type: ignore[arg-type]


def test_an_outcome_decides_what_follows() -> None:
    """One row each of the table."""
    assert _after(RemoteRejected("x")) == Bury("REMOTE_REJECTED")
    assert _after(RemoteAuth("x", status=401)) == Retry(0.0, False, "REMOTE_AUTH")
    assert _after(RemoteUnknownOutcome("x")) == Retry(20.0, True, "REMOTE_UNKNOWN_OUTCOME")
    assert _after(RemoteUnknownOutcome("x", retry_after=60)) == Retry(60.0, True, "REMOTE_UNKNOWN_OUTCOME")
    assert _after(RemoteUnavailable("x")) == Retry(0.1 + 1.9 / 2, False, "REMOTE_UNAVAILABLE")
    assert _after(RemoteUnavailable("x"), was_ambiguous=True) == Retry(0.1 + 1.9 / 2, True, "REMOTE_UNAVAILABLE")
    assert _after(RemoteBusy("x", retry_after=3)) == Retry(4.0, False, "REMOTE_BUSY", pause=3)
    assert _after(RemoteBusy("x", retry_after=10**8)) == Retry(315.0, False, "REMOTE_BUSY", pause=300)
    assert _after(RemoteBusy("x")) == Retry(0.1 + 1.9 / 2, False, "REMOTE_BUSY")
    assert _after(RemoteUnavailable("x"), policy=RetryPolicy(max_attempts=1)) == Bury("ATTEMPTS_EXHAUSTED")


def _message(text: str) -> DeliveryMessage:
    return DeliveryMessage(role="user", peer_id="p", content=text, created_at="2026-01-01T00:00:00Z")


def _row(text: str) -> RemoteRow:
    return RemoteRow("r", "p", text, {"role": "user"})


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), st.lists(st.sampled_from("abcx"), max_size=8))
def test_what_is_missing_and_what_is_there_make_the_delivery(texts: list[str], held: list[str]) -> None:
    """Repeated texts count; a foreign row is an inconsistency; nothing is sent that is there."""
    found = compare([_message(text) for text in texts], [_row(text) for text in held])
    if set(held) - set(texts):
        assert found.state == "inconsistent"
        assert not found.missing
        return
    left = list(held)
    expected = [text for text in texts if not (text in left and not left.remove(text))]
    assert [message.content for message in found.missing] == expected
    assert found.state == ("complete" if not expected else "partial" if held else "absent")
    assert found.surplus == len(held) - (len(texts) - len(expected))


def test_a_service_that_was_never_heard_from_gets_one_delivery_at_a_time() -> None:
    """And all of them once it answered well."""
    circuit = Circuit(CircuitPolicy(), 4)
    assert circuit.permission(0, 0).slots == 1
    assert circuit.permission(0, 1).slots == 0
    circuit.succeeded()
    assert circuit.permission(0, 1).slots == 3


def test_transient_failures_open_the_circuit_and_the_cooldown_doubles() -> None:
    """Five in a row; then one probe after 30, 60, 120, 240 and 300 seconds."""
    circuit = Circuit(CircuitPolicy(), 4)
    now = 0.0
    for _ in range(5):
        assert circuit.state(now) == "closed"
        circuit.failed(RemoteUnavailable("x"), "lane", now)
    for cooldown in (30, 60, 120, 240, 300, 300):
        assert circuit.permission(now, 0).until == now + cooldown
        # Those that were under way when it opened change nothing.
        circuit.failed(RemoteUnavailable("x"), "other", now + 1)
        now += cooldown
        assert (circuit.state(now), circuit.permission(now, 0).slots) == ("half-open", 1)
        circuit.failed(RemoteUnavailable("x"), "lane", now)
    circuit.succeeded()
    assert circuit.state(now) == "closed"


def test_a_session_scoped_key_does_not_slow_the_others_down_for_ever() -> None:
    """401 for one session only: after a second one, with the key at work elsewhere, the session is held."""
    circuit = Circuit(CircuitPolicy(), 4)
    circuit.failed(RemoteAuth("x", status=401), "lane", 0)
    assert circuit.permission(30, 0).avoid == {"lane"}
    assert circuit.succeeded() == ()
    circuit.failed(RemoteAuth("x", status=401), "lane", 40)
    assert circuit.succeeded() == ("lane",)


class _Model:
    """What lanes must do, written naively."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_lanes_keep_order_and_never_run_one_lane_twice(data: st.DataObject) -> None:
    """Random admissions, starts, retries, removals and holds against a naive model."""
    lanes, model = Lanes(), _Model()
    running: dict[str, Waiting] = {}
    now, count = 0.0, 0
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["add", "take", "done", "again", "wait", "withdraw", "hold", "hurry"]))
        if action == "add":
            lane = data.draw(st.sampled_from("ABC"))
            count += 1
            lanes.add(Waiting(str(count), lane, f"{count:04d}", due=now))
            model.lines.setdefault(lane, []).append(str(count))
        elif action == "take":
            taken = lanes.take(now)
            if taken is not None:
                assert taken.lane not in running
                assert model.lines[taken.lane][0] == taken.delivery_id
                assert taken.due <= now
                assert taken.held is None
                running[taken.lane] = taken
            else:
                firsts = [lanes.get(line[0]) for lane, line in model.lines.items() if line and lane not in running]
                assert not [w for w in firsts if w is not None and w.due <= now and w.held is None]
        elif action in ("done", "again") and running:
            lane = data.draw(st.sampled_from(sorted(running)))
            waiting = running.pop(lane)
            if action == "done":
                lanes.remove(waiting)
                model.lines[lane].pop(0)
            else:
                waiting.due = now + 3
                lanes.put_back(waiting)
        elif action == "wait":
            now += 1
        elif action == "withdraw" and len(lanes):
            waiting = data.draw(st.sampled_from(sorted(lanes, key=lambda w: w.delivery_id)))
            if not lanes.is_under_way(waiting):
                lanes.remove(waiting)
                model.lines[waiting.lane].remove(waiting.delivery_id)
        elif action == "hold":
            lanes.hold(data.draw(st.sampled_from("ABC")), "REMOTE_AUTH")
        elif action == "hurry":
            lanes.hurry(now)
    assert len(lanes) == sum(map(len, model.lines.values()))
    assert lanes.under_way == len(running)
