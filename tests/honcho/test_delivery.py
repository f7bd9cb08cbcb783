"""Deliveries reach the service once and in order, whatever it does (simulated time, real files)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.delivery.decisions import RetryPolicy
from rlm_memory_host.delivery.worker import WorkerPolicy
from rlm_memory_host.honcho.credentials import KeySource
from rlm_memory_host.honcho.fake import FakeHoncho, Fault
from world import EPOCH, MESSAGES, World, check_exactly_once_in_order, exchange, now, simulate


def test_an_exchange_arrives_with_its_metadata_and_its_session(tmp_path: Path) -> None:
    """What the service holds afterwards: messages, peers, session metadata, every key of section 11.3 that is known."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.start()
            request = exchange("session-1", 1, "I prefer tea", "Noted")
            assert world.outbox.admit(request).is_new
            await world.until_empty()
            rows = world.fake.rows(request.delivery_id)
            assert [(row["peer_id"], row["content"]) for row in rows] == [
                ("person", "I prefer tea"),
                ("assistant", "Noted"),
            ]
            assert rows[0]["metadata"] == {
                "source": "deepseek-honcho",
                "schema_version": 1,
                "delivery_id": request.delivery_id,
                "dsh_session_id": "session-1",
                "dsh_event_seq": 10,
                "dsh_turn": 1,
                "dsh_agent_kind": "root",
                "project_id": "project",
                "owner_peer_id": "person",
                "role": "user",
                "captured_at": rows[0]["created_at"],
                "plugin_version": "1.0",
            }
            session = world.fake.store.workspaces["space"].sessions[request.scope.honcho_session_id]
            assert session.row["metadata"]["dsh_session_id"] == "session-1"
            assert session.peers["person"]["observe_me"] is True
            assert session.peers["assistant"]["observe_me"] is False
            assert world.worker.status()["delivered"] == 1

    simulate(main)


def test_metadata_that_others_put_on_a_session_survives(tmp_path: Path) -> None:
    """The service replaces metadata as a whole; ours is merged in."""

    async def main() -> None:
        async with World(tmp_path) as world:
            request = exchange("session-1", 1)
            space = world.fake.store.workspaces["space"]
            session = world.fake.store.session(space, request.scope.honcho_session_id)
            session.row.columns["metadata"] = {"theirs": 1}
            world.start()
            world.outbox.admit(request)
            await world.until_empty()
            assert session.row["metadata"]["theirs"] == 1
            assert session.row["metadata"]["dsh_session_id"] == "session-1"

    simulate(main)


def test_sessions_run_side_by_side_and_each_keeps_its_order(tmp_path: Path) -> None:
    """Four at once at most, one at a time within a session."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.fake.plan.add(Fault(route=MESSAGES, times=None, wait=1.0))
            requests = [exchange(f"s{n % 6}", n) for n in range(60)]
            for request in requests:
                world.outbox.admit(request, first_time=True)
            world.start()
            seconds = await world.until_empty()
            check_exactly_once_in_order(world.fake, requests)
            assert 14 <= seconds < 30

    simulate(main)


def test_g4_01_an_answer_that_is_lost_leaves_one_row(tmp_path: Path) -> None:
    """The service commits and drops the line, twice, the second time committing five seconds later."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.fake.plan.add(
                Fault(route=MESSAGES, commit_after=0.001, drop=True), Fault(route=MESSAGES, commit_after=5, drop=True)
            )
            request = exchange("s", 1)
            second = exchange("s", 2)
            world.start()
            world.outbox.admit(request)
            await world.until_empty()
            world.outbox.admit(second)
            await world.until_empty()
            check_exactly_once_in_order(world.fake, [request, second])
            assert world.worker.status()["delivered"] == 2
            assert len(world.sent()) == 2

    simulate(main)


def test_g4_01_a_call_that_was_not_carried_out_is_sent_again_after_settling(tmp_path: Path) -> None:
    """A dropped line that committed nothing, then one that commits late."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.fake.plan.add(Fault(route=MESSAGES, drop=True), Fault(route=MESSAGES, commit_after=5, drop=True))
            request = exchange("s", 1)
            world.start()
            world.outbox.admit(request)
            seconds = await world.until_empty()
            check_exactly_once_in_order(world.fake, [request])
            assert seconds >= 20 + 40
            assert len(world.sent()) == 2

    simulate(main)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_is_not_taken_for_a_no(tmp_path: Path, status: int) -> None:
    """After a 5xx the rows may be there: look before sending again."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.fake.plan.add(Fault(route=MESSAGES, commit=True, status=status))
            request = exchange("s", 1)
            world.start()
            world.outbox.admit(request)
            await world.until_empty()
            check_exactly_once_in_order(world.fake, [request])
            assert len(world.sent()) == 1

    simulate(main)


def test_a_timeout_is_settled_before_it_is_looked_up(tmp_path: Path) -> None:
    """The caller gives up after ten seconds, the service commits after twelve."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.fake.plan.add(Fault(route=MESSAGES, commit_after=12))
            request = exchange("s", 1)
            world.start()
            world.outbox.admit(request)
            await world.until(lambda: any(waiting.unknown for waiting in world.outbox.waiting()))
            on_disk = json.loads((tmp_path / "outbox/pending" / f"{request.delivery_id}.json").read_bytes())
            assert on_disk["ambiguous"] is True
            await world.until_empty()
            check_exactly_once_in_order(world.fake, [request])

    simulate(main)


def test_a_slowly_dripping_answer_ends_at_the_total_deadline(tmp_path: Path) -> None:
    """A byte now and then keeps no call alive, and the rows that it committed are found."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.fake.plan.add(Fault(route=MESSAGES, commit=True, drip=0.5))
            request = exchange("s", 1)
            world.start()
            world.outbox.admit(request)
            assert await world.until_empty() < 40
            check_exactly_once_in_order(world.fake, [request])

    simulate(main)


def test_only_what_is_missing_is_sent_again(tmp_path: Path) -> None:
    """Another writer left a part of the delivery."""

    async def main() -> None:
        async with World(tmp_path) as world:
            request = exchange("s", 1, "first", "second")
            space = world.fake.store.workspaces["space"]
            session = world.fake.store.session(space, request.scope.honcho_session_id)
            world.fake.store.add_message(space, session, request.messages[0].model_dump())
            world.start()
            world.outbox.admit(request)
            await world.until_empty()
            check_exactly_once_in_order(world.fake, [request])
            assert world.worker.status()["partial_found"] == 1

    simulate(main)


def test_rows_that_are_not_ours_send_the_delivery_to_dead_letter(tmp_path: Path) -> None:
    """A row under our delivery id with another text: nothing is sent, the operator sees it."""

    async def main() -> None:
        async with World(tmp_path) as world:
            request, after = exchange("s", 1, "first", "second"), exchange("s", 2)
            space = world.fake.store.workspaces["space"]
            session = world.fake.store.session(space, request.scope.honcho_session_id)
            strange = {**request.messages[0].model_dump(), "content": "something else"}
            world.fake.store.add_message(space, session, strange)
            world.start()
            world.outbox.admit(request)
            world.outbox.admit(after)
            await world.until_empty()
            assert len(world.fake.rows(request.delivery_id)) == 1
            assert len(world.fake.rows(after.delivery_id)) == 2
            dead = json.loads((tmp_path / "outbox/dead-letter" / f"{request.delivery_id}.json").read_bytes())
            assert dead["failure"]["code"] == "PARTIAL_DELIVERY"

    simulate(main)


def test_a_refusal_goes_to_dead_letter_without_a_word_of_the_content(tmp_path: Path) -> None:
    """A 422 repeats the content; the document's failure, the status and the log do not."""

    async def main() -> None:
        async with World(tmp_path) as world:
            body = [{"type": "string_too_long", "loc": ["body"], "msg": "no", "input": "private words"}]
            world.fake.plan.add(Fault(route=MESSAGES, status=422, body={"detail": body}))
            request, after = exchange("s", 1), exchange("s", 2)
            world.start()
            world.outbox.admit(request)
            world.outbox.admit(after)
            await world.until_empty()
            dead = json.loads((tmp_path / "outbox/dead-letter" / f"{request.delivery_id}.json").read_bytes())
            assert {key: dead["failure"][key] for key in ("code", "status")} == {
                "code": "REMOTE_REJECTED",
                "status": 422,
            }
            assert "private words" not in json.dumps([dead, world.worker.status()])
            check_exactly_once_in_order(world.fake, [after])
            assert world.outbox.revive(request.delivery_id)
            await world.until_empty()
            assert len(world.fake.rows(request.delivery_id)) == 2

    simulate(main)


def _retry_gaps(world: World) -> list[tuple[float, float]]:
    by_path: dict[str, list[float]] = {}
    for request in world.sent():
        by_path.setdefault(request.path, []).append(request.at - EPOCH)
    return [(times[0], times[1]) for times in by_path.values() if len(times) > 1]


@pytest.mark.parametrize("kind", ["seconds", "date"])
def test_g4_05_retry_after_is_kept_and_the_retries_spread(tmp_path: Path, kind: str) -> None:
    """Fifty sessions, each told once to come back in three seconds: none does earlier, and not all in one instant."""

    async def main() -> None:
        async with World(tmp_path) as world:
            until = "3" if kind == "seconds" else formatdate(now() + 3, usegmt=True)
            world.fake.plan.add(Fault(route=MESSAGES, per_path=True, status=429, headers={"Retry-After": until}))
            requests = [exchange(f"s{n}", n) for n in range(50)]
            for request in requests:
                world.outbox.admit(request, first_time=True)
            world.start()
            assert await world.until_empty() < 60
            check_exactly_once_in_order(world.fake, requests)
            gaps = _retry_gaps(world)
            assert len(gaps) == 50
            if kind == "seconds":
                assert all(second - first >= 3 for first, second in gaps)
                # Nor does anybody else while the service asked for silence.
                said = sorted(first for first, _ in gaps)
                asked = sorted(request.at - EPOCH for request in world.fake.requests)
                assert not any(a < said[0] + 3 and a > said[0] for a in asked)
            again = sorted(second for _, second in gaps)
            assert again[-1] - again[0] >= 1

    simulate(main)


@pytest.mark.parametrize("value", ["-5", "abc", "99999999", "nan"])
def test_g4_05_a_senseless_retry_after_falls_back_and_a_huge_one_is_capped(tmp_path: Path, value: str) -> None:
    """Bad values give the normal back-off; a huge one ends at the documented cap and shows in the status."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.fake.plan.add(Fault(route=MESSAGES, status=429, headers={"Retry-After": value}))
            request = exchange("s", 1)
            world.outbox.admit(request)
            world.start()
            await world.until(lambda: world.worker.status()["retried"] == 1)
            huge = value == "99999999"
            assert (world.worker.status()["paused_seconds"] > 299) is huge
            seconds = await world.until_empty()
            assert (300 <= seconds <= 331) if huge else seconds <= 3
            check_exactly_once_in_order(world.fake, [request])

    simulate(main)


def test_g4_07_an_expired_login_costs_two_requests_and_loses_nothing(tmp_path: Path) -> None:
    """401 for everything: it stops, says so, keeps all, and goes on by itself with the new credential."""
    keys = {"KEY": "old-key"}

    async def main() -> None:
        fake = FakeHoncho(api_keys={"new-key"}, workspaces=["space"], now=now)
        async with World(tmp_path, fake=fake, key=KeySource("env:KEY", keys)) as world:
            requests = [exchange(f"s{n}", n) for n in range(20)]
            for request in requests:
                world.outbox.admit(request)
            world.start()
            await asyncio.sleep(86_400)
            assert len(fake.requests) <= 2
            status = world.worker.status()
            assert status["login_needed"] is True
            assert (status["pending"], status["dead_letter"]) == (20, 0)
            keys["KEY"] = "new-key"
            await world.until_empty(120)
            check_exactly_once_in_order(fake, requests)
            assert world.worker.status()["login_needed"] is False

    simulate(main)


def test_g4_07_a_403_of_one_session_holds_that_session_alone(tmp_path: Path) -> None:
    """The circuit opens, another session's delivery is the probe, and only the refused one is held, visibly."""

    async def main() -> None:
        async with World(tmp_path) as world:
            refused = exchange("s0", 0)
            path = f"/sessions/{refused.scope.honcho_session_id}/messages$"
            world.fake.plan.add(Fault(route=f"POST .*{path}", times=None, status=403))
            others = [exchange(f"s{n}", n) for n in range(1, 10)]
            for request in [refused, exchange("s0", 100), *others]:
                world.outbox.admit(request)
            world.start()
            await world.until(lambda: len(world.outbox.waiting()) == 2)
            await asyncio.sleep(86_400)
            assert world.worker.status()["held"] == 1
            assert world.worker.status()["circuit"] == "closed"
            assert sum(path[:-1] in request.path for request in world.sent()) == 1
            check_exactly_once_in_order(world.fake, others)
            world.fake.plan.clear()
            world.worker.retry_now()
            await world.until_empty(60)
            assert len(world.fake.rows(refused.delivery_id)) == 2

    simulate(main)


def test_g4_07_a_single_session_that_is_refused_does_not_stop_a_later_one(tmp_path: Path) -> None:
    """Only one session, refused twice; when another turns up, its delivery is the probe."""

    async def main() -> None:
        async with World(tmp_path) as world:
            refused, other = exchange("s0", 0), exchange("s1", 1)
            path = f"/sessions/{refused.scope.honcho_session_id}/messages$"
            world.fake.plan.add(Fault(route=f"POST .*{path}", times=None, status=403))
            world.outbox.admit(refused)
            world.start()
            await asyncio.sleep(3_600)
            assert len(world.sent()) == 2
            assert world.worker.status()["login_needed"] is True
            world.outbox.admit(other)
            await world.until(lambda: len(world.outbox.waiting()) == 1, 120)
            assert world.fake.rows(other.delivery_id)

    simulate(main)


def test_three_days_without_the_service_cost_little_and_lose_nothing(tmp_path: Path) -> None:
    """72 simulated hours of an outage with admissions going on; then everything arrives, once and in order."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.start()
            requests = []
            world.transport.is_unreachable = True
            for hour in range(72):
                requests.append(exchange(f"s{hour % 5}", hour))
                world.outbox.admit(requests[-1])
                await asyncio.sleep(3_600)
            assert world.worker.status()["circuit"] in ("open", "half-open")
            # One probe every five minutes at most, beside the first few.
            assert world.worker.status()["retried"] < 72 * 12 + 50
            began = world.transport.knocked[0]
            by_hour = Counter(int((at - began) // 3_600) for at in world.transport.knocked)
            assert len(by_hour) == 72
            assert max(by_hour.values()) <= 30
            assert max(count for hour, count in by_hour.items() if hour) <= 13
            world.transport.is_unreachable = False
            assert await world.until_empty(3_600) < 1_300
            check_exactly_once_in_order(world.fake, requests)
            assert world.worker.status()["dead_letter"] == 0

    simulate(main)


def test_a_long_outage_that_swallows_answers_ends_with_one_row_each(tmp_path: Path) -> None:
    """For a day every answer is lost at random, before or after the commit, early or late."""

    async def main() -> None:
        async with World(tmp_path) as world:
            half = {"route": MESSAGES, "times": 100}
            world.fake.plan.add(
                Fault(**half, probability=0.2, drop=True),
                Fault(**half, probability=0.2, commit=True, drop=True),
                Fault(**half, probability=0.2, commit_after=8, drop=True),
                Fault(**half, probability=0.3, commit_after=14),
                Fault(**half, probability=0.2, commit=True, status=500, reset_after=True),
                Fault(route="messages/list$", times=100, probability=0.3, status=503),
            )
            requests = [exchange(f"s{n % 7}", n) for n in range(70)]
            for request in requests:
                world.outbox.admit(request)
            world.start()
            await world.until_empty(3 * 86_400)
            check_exactly_once_in_order(world.fake, requests)
            assert world.worker.status()["delivered"] == 70

    simulate(main)


def test_a_restart_looks_up_before_it_sends(tmp_path: Path) -> None:
    """The process ends between the commit at the service and the acknowledgement here."""

    async def main() -> None:
        fake = FakeHoncho(workspaces=["space"], now=now)
        request, after = exchange("s", 1), exchange("s", 2)
        async with World(tmp_path, fake=fake) as world:
            fake.plan.add(Fault(route=MESSAGES, commit=True, wait=5))
            world.outbox.admit(request, first_time=True)
            world.outbox.admit(after, first_time=True)
            world.start()
            await world.until(lambda: len(fake.rows()) == 2)
        async with World(tmp_path, fake=fake) as world:
            assert world.opened.pending == 2
            world.start()
            await world.until_empty()
            check_exactly_once_in_order(fake, [request, after])
            assert len(world.sent()) == 2

    simulate(main)


def test_a_restart_lets_a_call_of_the_process_before_settle(tmp_path: Path) -> None:
    """Killed right after sending; the service carries it out twelve seconds later, long after the restart."""

    async def main() -> None:
        fake = FakeHoncho(workspaces=["space"], now=now)
        request = exchange("s", 1)
        async with World(tmp_path, fake=fake) as world:
            fake.plan.add(Fault(route=MESSAGES, commit_after=12))
            world.outbox.admit(request, first_time=True)
            world.start()
            await world.until(lambda: bool(world.sent()))
        async with World(tmp_path, fake=fake) as world:
            world.start()
            await world.until_empty()
            await fake.settle()
            check_exactly_once_in_order(fake, [request])

    simulate(main)


def test_the_same_delivery_admitted_again_after_it_arrived_makes_no_second_row(tmp_path: Path) -> None:
    """A caller that cannot know whether it had admitted before simply admits again."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.start()
            request = exchange("s", 1)
            for _ in range(3):
                world.outbox.admit(request)
                await world.until_empty()
            check_exactly_once_in_order(world.fake, [request])

    simulate(main)


def test_shutdown_is_bounded_and_leaves_the_rest_durable(tmp_path: Path) -> None:
    """A service that answers after a minute does not hold a shutdown up; nothing is lost and nothing doubled."""

    async def main() -> None:
        fake = FakeHoncho(workspaces=["space"], now=now)
        requests = [exchange(f"s{n}", n) for n in range(8)]
        async with World(tmp_path, fake=fake) as world:
            for request in requests:
                world.outbox.admit(request)
            fake.plan.add(Fault(route=MESSAGES, times=None, commit=True, wait=60))
            world.start()
            await asyncio.sleep(1)
            began = asyncio.get_running_loop().time()
            assert await world.worker.stop(5.0) is False
            assert asyncio.get_running_loop().time() - began <= 6
            assert len(list((tmp_path / "outbox/pending").iterdir())) == 8
        fake.plan.clear()
        async with World(tmp_path, fake=fake) as world:
            world.start()
            await world.until_empty()
            check_exactly_once_in_order(fake, requests)

    simulate(main)


def test_shutdown_drains_what_it_can(tmp_path: Path) -> None:
    """With a service that works, the outbox is empty at the end."""

    async def main() -> None:
        async with World(tmp_path) as world:
            requests = [exchange(f"s{n % 3}", n) for n in range(30)]
            for request in requests:
                world.outbox.admit(request)
            world.start()
            assert await world.worker.stop(5.0) is True
            check_exactly_once_in_order(world.fake, requests)

    simulate(main)


def test_a_delivery_that_was_not_sent_can_be_taken_back(tmp_path: Path) -> None:
    """What a person forgets before it left does not leave; what may have left is said to be out of reach."""

    async def main() -> None:
        async with World(tmp_path) as world:
            kept, forgotten = exchange("s", 1), exchange("s", 2)
            world.outbox.admit(kept)
            world.outbox.admit(forgotten)
            assert world.outbox.withdraw(forgotten.delivery_id) is True
            world.fake.plan.add(Fault(route=MESSAGES, drop=True))
            world.start()
            await world.until(lambda: any(waiting.unknown for waiting in world.outbox.waiting()))
            assert world.outbox.withdraw(kept.delivery_id) is False
            await world.until_empty()
            check_exactly_once_in_order(world.fake, [kept])

    simulate(main)


def test_a_bound_on_attempts_ends_in_dead_letter_where_an_operator_set_one(tmp_path: Path) -> None:
    """By default there is none: a transient failure waits for ever."""

    async def main() -> None:
        policy = WorkerPolicy(retry=RetryPolicy(max_attempts=3))
        async with World(tmp_path, policy=policy) as world:
            request = exchange("s", 1)
            world.fake.plan.add(Fault(route=MESSAGES, times=None, status=429))
            world.outbox.admit(request)
            world.start()
            await world.until_empty()
            assert len(world.sent()) == 3
            assert world.worker.status()["dead_letter"] == 1

    simulate(main)


def test_an_absent_workspace_is_not_made_and_nothing_is_lost(tmp_path: Path) -> None:
    """Workspaces are looked up; when it is there, the deliveries arrive."""

    async def main() -> None:
        fake = FakeHoncho(now=now)
        async with World(tmp_path, fake=fake) as world:
            request = exchange("s", 1)
            world.outbox.admit(request)
            world.start()
            await asyncio.sleep(600)
            assert not fake.store.workspaces
            assert world.worker.status()["last_error_code"] == "REMOTE_WORKSPACE_MISSING"
            fake.store.workspace("space")
            await world.until_empty()
            check_exactly_once_in_order(fake, [request])

    simulate(main)


def test_a_session_removed_at_the_service_is_made_again(tmp_path: Path) -> None:
    """What we remember of the service is forgotten when it says otherwise."""

    async def main() -> None:
        async with World(tmp_path) as world:
            world.start()
            world.outbox.admit(exchange("s", 1))
            await world.until_empty()
            world.fake.store.workspaces.clear()
            world.fake.store.workspace("space")
            later = exchange("s", 2)
            world.outbox.admit(later)
            await world.until_empty()
            check_exactly_once_in_order(world.fake, [later])

    simulate(main)


def test_a_wrong_address_never_costs_a_delivery(tmp_path: Path) -> None:
    """A login page that answers 200, a redirect, a 404 in HTML: all is kept and arrives later."""

    async def main() -> None:
        async with World(tmp_path) as world:
            pages: list[dict[str, Any]] = [{"status": 302}, {"status": 405}, {"status": 404, "body": []}]
            for page in pages:
                world.fake.plan.add(Fault(route="", times=5, **page))
            request = exchange("s", 1)
            world.outbox.admit(request)
            world.start()
            await world.until_empty(86_400)
            check_exactly_once_in_order(world.fake, [request])

    simulate(main)


def test_times_of_admission_rise_strictly_within_a_session(tmp_path: Path) -> None:
    """Even where the clock stands still: the order on disk is the order of admission."""

    async def main() -> None:
        async with World(tmp_path) as world:
            requests = [exchange("s", n) for n in range(50)]
            for request in requests:
                world.outbox.admit(request)
            files = [tmp_path / "outbox/pending" / f"{request.delivery_id}.json" for request in requests]
            created = [json.loads(file.read_bytes())["createdAt"] for file in files]
            assert all(earlier < later for earlier, later in pairwise(created))

    simulate(main)
