"""The kernel side's parts without a kernel: the channel's table, the path rule, classes over reloads."""

from __future__ import annotations

import asyncio
import errno
import gc
import pickle
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from rlm_memory import errors, kept, recording, sources, wire
from rlm_memory.attaching import KernelConnection
from rlm_memory.channel import HostChannel, Pending
from rlm_memory.display import clean, size
from rlm_memory.route import wait_done


class LoopRoute:
    """A route to nowhere: remembers what was sent, and replies when told to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.cancelled: list[str] = []
        self.reply: Any = None

    def open(self, on_reply: Any, is_ours: Any) -> None:
        self.reply, self.is_ours = on_reply, is_ours

    def send(self, request_id: str, data: Mapping[str, Any], repeat_of: str | None = None) -> None:
        self.sent.append((request_id, str(data["type"])))

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)

    def wait(self, answered: Future[Any], seconds: float) -> bool:
        return wait_done(answered, seconds)

    def attended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def refusal(self) -> None:
        return None

    def close(self) -> None: ...


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A channel on a route to nowhere, with a clock that moves when told to."""

    def __init__(self) -> None:
        self.route, self.clock = LoopRoute(), Clock()
        self.channel = HostChannel(self.route, clock=self.clock)

    def pass_time(self, seconds: float, step: float = 0.125) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end - 1e-9:
            self.clock.now += step
            self.channel.tick()

    def sent(self, kind: str) -> int:
        return sum(1 for _id, sent in self.route.sent if sent == kind)


def test_a_request_is_repeated_with_a_doubling_pause_under_one_id() -> None:
    """After 2, 6 and 14 s while the host answers pings; never a second id."""
    bench = Bench()
    pending = bench.channel.submit(wire.CALL, {"name": "x", "arguments": {}})
    counts: list[int] = []
    for _ in range(15):
        bench.pass_time(1.0)
        for request_id, kind in list(bench.route.sent):
            if kind == wire.PING:
                bench.route.reply(request_id, {"status": "ok"})
        counts.append(sum(1 for request_id, _kind in bench.route.sent if request_id == pending.id))
    assert counts == [1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4]
    assert bench.sent(wire.CALL) == 4


def test_silence_fails_every_waiting_request_within_the_promise() -> None:
    """Queued ones too; and the next request starts with a clean slate."""
    bench = Bench()
    waiting = [bench.channel.submit(wire.CALL) for _ in range(wire.WINDOW + 3)]
    bench.pass_time(wire.LOST_SECONDS)
    for pending in waiting:
        fault = pending.future.exception(0)
        assert isinstance(fault, errors.HostUnavailable)
        assert fault.code == wire.HOST_LOST
    fresh = bench.channel.submit(wire.CALL)
    bench.pass_time(2.0)
    assert not fresh.future.done()


def test_a_kernel_that_stood_still_does_not_take_its_host_for_dead() -> None:
    """A laptop that slept for an hour has observed one tick of silence."""
    bench = Bench()
    pending = bench.channel.submit(wire.CALL)
    bench.clock.now += 3600
    bench.channel.tick()
    assert not pending.future.done()
    assert bench.sent(wire.PING) == 1


def test_who_waits_for_a_connection_that_fails_is_told_at_once() -> None:
    """Ten callers and no host: one attempt, and all of them hear why; the next call tries again."""
    route = LoopRoute()
    connection = KernelConnection(HostChannel(route), {"RLM_MEMORY_HOST": "comm"})

    def ask(_number: int) -> str:
        with pytest.raises(errors.HostUnavailable) as caught:
            connection.ensure()
        return str(caught.value)

    with ThreadPoolExecutor(10) as pool:
        said = set(pool.map(ask, range(10)))
    assert len(said) == 1
    assert len({request_id for request_id, _kind in route.sent}) == 1
    ask(0)
    assert len({request_id for request_id, _kind in route.sent}) == 2


def test_any_answer_to_a_ping_is_a_sign_of_life() -> None:
    """A foreign host answers UNSUPPORTED_REQUEST, and is alive."""
    bench = Bench()
    pending = bench.channel.submit(wire.CALL, retransmit=False)
    for _ in range(20):
        bench.pass_time(1.0)
        for request_id, kind in bench.route.sent:
            if kind == wire.PING:
                bench.route.reply(request_id, wire.error(wire.UNSUPPORTED_REQUEST, "no"))
    assert not pending.future.done()
    assert bench.sent(wire.CALL) == 1


def test_replies_of_strangers_go_on_and_late_ones_of_ours_do_not() -> None:
    """Another shim's ids with the same prefix are not swallowed; a repeated reply of ours is."""
    bench = Bench()
    pending = bench.channel.submit(wire.CALL)
    assert bench.route.reply(wire.COMM_PREFIX + "stranger", {"status": "ok"}) is False
    assert bench.route.reply(pending.id, {"status": "ok", "n": 1}) is True
    assert bench.channel.wait(pending).fields == {"n": 1}
    assert bench.route.reply(pending.id, {"status": "ok", "n": 2}) is True
    assert bench.route.is_ours(pending.id)


def test_a_reply_that_breaks_the_contract_is_the_hosts_fault() -> None:
    """Neither ok nor error: the caller gets HostFault, not a hang."""
    bench = Bench()
    pending = bench.channel.submit(wire.CALL)
    bench.route.reply(pending.id, ["what"])
    with pytest.raises(errors.HostFault, match="cannot be read"):
        bench.channel.wait(pending)


def test_withdrawing_makes_room_for_the_next_and_tells_the_host() -> None:
    """Only what was sent is cancelled at the host."""
    bench = Bench()
    waiting = [bench.channel.submit(wire.CALL) for _ in range(wire.WINDOW + 2)]
    bench.channel.withdraw(waiting[-1])
    assert bench.route.cancelled == []
    bench.channel.withdraw(waiting[0])
    assert bench.route.cancelled == [waiting[0].id]
    assert bench.sent(wire.CALL) == wire.WINDOW + 1


async def test_a_cancelled_waiter_withdraws_its_request() -> None:
    """And no future is left behind that would complain later."""
    bench = Bench()
    pending: Pending = bench.channel.submit(wire.CALL)
    task = asyncio.create_task(bench.channel.wait_async(pending))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.route.cancelled == [pending.id]
    gc.collect()


def test_the_live_channel_refuses_to_be_pickled() -> None:
    """With words that say what to pickle instead."""
    with pytest.raises(TypeError, match="pickle `memory` itself"):
        pickle.dumps(Bench().channel)


def test_faults_pickle_with_what_they_carry() -> None:
    """A worker process hands its failure to its parent whole."""
    fault = errors.NotExact("no", where="column 'a'", changes="b")
    back = pickle.loads(pickle.dumps(fault))
    assert (type(back), str(back), back.where, back.changes, back.code) == (
        errors.NotExact,
        "no",
        "column 'a'",
        "b",
        wire.INVALID_ARGUMENT,
    )


def test_a_class_made_anew_at_a_reload_is_the_old_one_with_new_methods() -> None:
    """isinstance and except go on, new code runs, and a bare super() still finds its way."""

    def make(word: str) -> type:
        class Base:
            def say(self) -> str:
                return "base"

        class Thing(Base):
            def say(self) -> str:
                return word + " " + super().say()

        return kept.kept(Thing)

    first = make("old")
    thing = first()
    assert make("new") is first
    assert thing.say() == "new base"


# -- paths and looks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["../data/x.csv", "./x", "/etc/hosts", "data/x.parquet", "x.csv", "a/b.c/report.txt", "caf\u00e9.json"]
)
def test_a_str_that_is_plainly_a_path_is_one(text: str) -> None:
    """Whether or not a file is there: a missing one must be an error, not a text."""
    assert sources.looks_like_path(text)
    assert sources.as_path(text, None) == Path(text).absolute()
    assert sources.as_path(text, True) is None


@pytest.mark.parametrize(
    "text", ["", "yes/no", "Done.", "see x.csv", "https://x/y.csv", "a\n../b.csv", "v1.2", "and/or maybe.", "e.g."]
)
def test_other_text_is_text(text: str) -> None:
    """Until as_text=False says otherwise."""
    assert sources.as_path(text, None) is None
    assert sources.as_path(text, False) == Path(text).absolute()


def test_shown_text_is_one_inert_line() -> None:
    """Control and direction marks become visible, long text is cut, sizes are for people."""
    assert clean("a\nb\x1b[0m\u202ec") == "a b\\x1b[0m\\u202ec"
    assert len(clean("x" * 500)) == 48
    assert [size(n) for n in (0, 1, 999, 1000, 999_960, 1_500_000_000)] == [
        "0 bytes", "1 byte", "999 bytes", "1.0 kB", "1.0 MB", "1.5 GB",
    ]  # fmt: skip


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EROFS"])
def test_a_disk_that_is_full_is_an_error_of_ours_and_any_other_stays_what_it_is(code: str) -> None:
    """What the kernel writes for the host fails as the host's own writing does."""

    def failing(number: int) -> Any:
        raise OSError(number, "said by the system")

    with pytest.raises(errors.StoreUnavailable, match=code):
        recording.written(lambda: failing(getattr(errno, code)))
    with pytest.raises(FileNotFoundError):
        recording.written(lambda: failing(errno.ENOENT))
