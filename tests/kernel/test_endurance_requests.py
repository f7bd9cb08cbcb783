"""A thousand requests while the host is stopped, killed or replaced: each is answered once, and run once."""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator

import psutil
import pytest
from counting import CountingHost, counting_pair, start_cell
from real_kernels import Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.compat, pytest.mark.fronts]

MANY = 1000
SETTING = """
import asyncio, threading, collections, time
from concurrent.futures import ThreadPoolExecutor
outcomes = {}
def note(n, call):
    try:
        outcomes[n] = call()["n"]
    except memory.errors.HostUnavailable as error:
        outcomes[n] = error.code
async def anote(n, call):
    try:
        outcomes[n] = (await call)["n"]
    except memory.errors.HostUnavailable as error:
        outcomes[n] = error.code
def once(n, seconds=0.0): return dsh_tools.call("count_once", {"n": n, "seconds": seconds})
def aonce(n, seconds=0.0): return dsh_tools.aio.call("count_once", {"n": n, "seconds": seconds})
async def gather(numbers, seconds=0.0, tool="count_once"):
    arguments = [{"n": n, "seconds": seconds} for n in numbers]
    await asyncio.gather(*(anote(each["n"], dsh_tools.aio.call(tool, each)) for each in arguments))
def spread(numbers, seconds=0.0, threads=1000):
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda n: note(n, lambda: once(n, seconds)), numbers))
"""


@pytest.fixture(scope="module", params=["auto", "comm"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CountingHost, Kernel]]:
    """One host and one kernel for all tests here: what a host's end leaves in the kernel must not trouble the next."""
    with counting_pair(tmp_path_factory.mktemp("pair"), RLM_MEMORY_ROUTE=request.param) as (host, kernel):
        kernel.run(SETTING).ok()
        yield host, kernel


@pytest.fixture
def kernel(pair: tuple[CountingHost, Kernel]) -> Kernel:
    pair[1].run("outcomes.clear()\nmemory.status()").ok()
    return pair[1]


def outcomes(kernel: Kernel) -> dict[int, int | str]:
    return ast.literal_eval(kernel.run("print(outcomes)").ok())


def replace_host(counting: CountingHost, kernel: Kernel) -> None:
    """Kill the host and start the next one. The kernel stands still meanwhile: a start may outlast its patience."""
    os.kill(kernel.pid, signal.SIGSTOP)
    try:
        counting.kill()
        counting.start()
    finally:
        os.kill(kernel.pid, signal.SIGCONT)


FORMS = {"coroutines": "await gather(range(1000), 0.002)", "threads": "spread(range(1000), 0.002, 1000)"}


@pytest.mark.parametrize("form", ["coroutines", pytest.param("threads", marks=pytest.mark.slow)])
def test_a_host_that_is_stopped_in_the_middle_answers_each_request_once(
    form: str, counting: CountingHost, kernel: Kernel
) -> None:
    """A thousand callers, the host stopped for three seconds: every one gets its own answer, and each call ran once."""
    wait = start_cell(kernel, FORMS[form])
    counting.wait_runs(100)
    counting.pause()
    try:
        psutil.Process(kernel.pid).cpu_percent(3.0)
    finally:
        counting.go_on()
    assert wait()["status"] == "ok"
    assert outcomes(kernel) == {n: n for n in range(MANY)}
    assert counting.runs() == dict.fromkeys(range(MANY), 1)


def test_a_request_that_a_killed_host_may_have_run_is_not_run_again(counting: CountingHost, kernel: Kernel) -> None:
    """Killed with calls under way and started again: no call runs twice, every wait ends, each answer is true."""
    wait = start_cell(kernel, "await gather(range(300), 0.05)")
    counting.wait_runs(20)
    replace_host(counting, kernel)
    assert wait()["status"] == "ok"
    told, runs = outcomes(kernel), counting.runs()
    assert set(runs.values()) == {1}
    assert len(told) == 300
    answered = {n for n, outcome in told.items() if outcome == n}
    assert answered <= set(runs)
    assert {told[n] for n in told if n not in answered} == {"HOST_LOST"}
    assert 0 < 300 - len(answered) <= 64
    assert kernel.run("print(once(1000)['n'])").ok().strip() == "1000"


def test_a_repeatable_request_goes_on_with_the_next_host(counting: CountingHost, kernel: Kernel) -> None:
    """Calls that change nothing when they run twice outlive the host: no caller hears of its end."""
    wait = start_cell(kernel, "await gather(range(100), 0.2, 'count_again')")
    counting.wait_runs(10)
    replace_host(counting, kernel)
    assert wait()["status"] == "ok"
    assert outcomes(kernel) == {n: n for n in range(100)}


def test_a_request_whose_caller_gave_up_is_not_run_when_the_host_wakes(counting: CountingHost, kernel: Kernel) -> None:
    """Stopped for longer than callers wait: they hear HOST_LOST, and a host that goes on drops what they gave up."""
    counting.pause()
    try:
        kernel.run("await gather(range(200))").ok()
    finally:
        counting.go_on()
    assert set(outcomes(kernel).values()) == {"HOST_LOST"}
    assert kernel.run("print(once(1000)['n'])").ok().strip() == "1000"
    assert counting.runs() == {1000: 1}


def test_requests_that_are_cancelled_at_once_leave_nothing_behind(counting: CountingHost, kernel: Kernel) -> None:
    """Hundreds of calls withdrawn as soon as they are sent do not use up the host's places for this kernel."""
    code = (
        "for _ in range(10):\n"
        "    tasks = [asyncio.ensure_future(aonce(n)) for n in range(60)]\n"
        "    await asyncio.sleep(0)\n"
        "    for t in tasks: t.cancel()\n"
        "    await asyncio.gather(*tasks, return_exceptions=True)\n"
        "print(once(5000)['n'])"
    )
    assert kernel.run(code).ok().strip() == "5000"
    assert counting.runs()[5000] == 1
