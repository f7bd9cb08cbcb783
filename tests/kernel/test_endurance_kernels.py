"""Kernels that crash, fork, sleep or are meddled with, on a real host: who is answered, and who gets a clear error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pytest
from counting import CountingHost, counting_pair, start_cell
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.restarter import KernelRestarter
from jupyter_client.session import Session
from kernel_patience import eventually
from real_kernels import Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.compat, pytest.mark.fronts]

SETTING = """
%load_ext rlm_memory
def once(n, seconds=0.0):
    return dsh_tools.call("count_once", {"n": n, "seconds": seconds})["n"]
"""
SLEEP_SECONDS = 8.0
"""More than the silence after which a host counts as lost."""


@pytest.fixture(scope="module", params=["auto", "comm"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CountingHost, Kernel]]:
    """One host and one kernel for the tests that leave both as they were."""
    with counting_pair(tmp_path_factory.mktemp("pair"), RLM_MEMORY_ROUTE=request.param) as (host, kernel):
        kernel.run(SETTING).ok()
        yield host, kernel


@pytest.fixture
def kernel(pair: tuple[CountingHost, Kernel]) -> Kernel:
    return pair[1]


# -- crash and restart -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_kernel_that_crashes_in_a_call_is_served_again_after_its_restart(
    number: signal.Signals, counting: CountingHost, kernel: Kernel
) -> None:
    """What restarts crashed kernels brings it back: same session, next generation, and its call did not run twice."""
    (before,) = counting.kernels()
    kernel.client.execute("once(1, 60.0)")
    counting.wait_runs(1)
    os.kill(kernel.pid, number)
    restarter = KernelRestarter(kernel_manager=kernel.manager, debug=False)
    assert eventually(lambda: not kernel.manager.is_alive())
    restarter.poll()
    kernel.client.wait_for_ready(timeout=60)
    kernel.run(SETTING).ok()
    assert kernel.run("print(once(2))").ok().strip() == "2"
    (after,) = counting.kernels()
    assert (after["session"], after["generation"]) == (before["session"], before["generation"] + 1)
    assert kernel.pid != before["pid"]
    assert eventually(lambda: counting.kernels()[0]["pid"] == kernel.pid)
    assert counting.runs() == {1: 1, 2: 1}


# -- forks -------------------------------------------------------------------------------------------------------------

FORKS = {
    "os.fork": (
        "import os, json\nr, w = os.pipe()\npid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n        once(2); said = 'ran'\n"
        "    except BaseException as e:\n        said = f'{type(e).__name__}: {e}'\n"
        "    os.write(w, said.encode()); os._exit(0)\n"
        "os.close(w); os.waitpid(pid, 0); said = os.read(r, 4000).decode(); os.close(r); print(said)"
    ),
    "a forked worker": (
        "import multiprocessing as mp\n"
        "def work(q):\n"
        "    try:\n        memory.experiments.search('x'); q.put('ran')\n"
        "    except BaseException as e:\n        q.put(f'{type(e).__name__}: {e}')\n"
        "c = mp.get_context('fork'); q = c.SimpleQueue(); p = c.Process(target=work, args=(q,)); p.start()\n"
        "print(q.get()); p.join()"
    ),
    "a forked pool": (
        "import multiprocessing as mp\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "def work(n):\n"
        "    try:\n        once(n); return 'ran'\n"
        "    except BaseException as e:\n        return f'{type(e).__name__}: {e}'\n"
        "with ProcessPoolExecutor(1, mp_context=mp.get_context('fork')) as pool:\n"
        "    print(pool.submit(work, 2).result())"
    ),
    "the async twin in a child": (
        "import asyncio, os\nr, w = os.pipe()\npid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        asyncio.events._set_running_loop(None)\n"
        "        call = dsh_tools.aio.call('count_once', {'n': 2})\n"
        "        asyncio.new_event_loop().run_until_complete(call); said = 'ran'\n"
        "    except BaseException as e:\n        said = f'{type(e).__name__}: {e}'\n"
        "    os.write(w, said.encode()); os._exit(0)\n"
        "os.close(w); os.waitpid(pid, 0); said = os.read(r, 4000).decode(); os.close(r); print(said)"
    ),
}


def test_forked_children_use_the_kernels_session_over_a_channel_of_their_own(
    counting: CountingHost, kernel: Kernel
) -> None:
    """However the child was made, and while other threads are in the middle of calls."""
    busy = (
        "import threading\nstop = threading.Event()\n"
        "def go():\n    while not stop.is_set(): once(1)\n"
        "threads = [threading.Thread(target=go) for _ in range(4)]\n"
        "for t in threads: t.start()"
    )
    kernel.run(busy).ok()
    said = {
        name: kernel.run("import warnings; warnings.simplefilter('ignore')\n" + code).ok().strip()
        for name, code in FORKS.items()
    }
    assert said == dict.fromkeys(FORKS, "ran")
    kernel.run("stop.set()\nfor t in threads: t.join()").ok()
    assert kernel.run("print(once(3))").ok().strip() == "3"
    assert counting.runs()[2] == len(FORKS) - 1
    assert counting.runs()[3] == 1


def test_a_spawned_child_is_told_that_it_is_no_kernel(counting: CountingHost, kernel: Kernel) -> None:
    """`memory` pickles into it as a name, and using it there says where it works."""
    code = (
        "import multiprocessing as mp, pathlib, sys\n"
        "pathlib.Path('child_work.py').write_text('''\n"
        "def work(memory):\n"
        "    try:\n        return repr(memory.experiments.search('x'))\n"
        "    except Exception as e:\n        return f'{type(e).__name__}: {e}'\n''')\n"
        "sys.path.insert(0, '.')\nimport child_work\n"
        "with mp.get_context('spawn').Pool(1) as pool:\n    print(pool.apply(child_work.work, (memory,)))"
    )
    assert kernel.run(code).ok().startswith("HostUnavailable: memory works inside a Jupyter kernel")


# -- other front ends --------------------------------------------------------------------------------------------------


@pytest.fixture
def other(kernel: Kernel) -> Iterator[BlockingKernelClient]:
    """A second front end on the same kernel."""
    client = BlockingKernelClient(connection_file=kernel.manager.connection_file)
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()


@pytest.mark.parametrize("pair", ["comm"], indirect=True)
def test_a_second_front_end_that_meddles_does_not_change_an_answer(
    counting: CountingHost, kernel: Kernel, other: BlockingKernelClient
) -> None:
    """It closes every comm it sees, forges replies with another key and without signature, and repeats old ones."""
    wait = start_cell(kernel, "answer = once(1, 2.0)")
    counting.wait_runs(1)
    seen: list[str] = []

    def sees() -> bool:
        message = other.get_iopub_msg(timeout=30)
        if message["msg_type"] == "comm_open":
            seen.append(message["content"]["comm_id"])
        return bool(seen)

    assert eventually(sees)
    (ours,) = seen
    lie = {"comm_id": ours, "data": {"status": "ok", "isError": False, "value": {"n": 666}, "content": []}}
    forger = Session(key=b"another key of thirty-six characters", signature_scheme="hmac-sha256")
    for channel in (other.control_channel, other.shell_channel):
        channel.send(other.session.msg("comm_close", {"comm_id": ours, "data": {}}))
        forger.send(channel.socket, "comm_msg", lie)
        unsigned = other.session.serialize(other.session.msg("comm_msg", lie))
        unsigned[1] = b""
        channel.socket.send_multipart(unsigned)
        old = other.session.serialize(other.session.msg("comm_close", {"comm_id": ours, "data": {}}))
        channel.socket.send_multipart(old)
        channel.socket.send_multipart(old)
    assert wait()["status"] == "ok"
    assert kernel.run("print(answer)").ok().strip() == "1"
    # The answered id is remembered: who holds the kernel's key cannot answer it a second time.
    other.control_channel.send(other.session.msg("comm_msg", lie))
    assert kernel.run("print(answer, once(2))").ok().split() == ["1", "2"]
    assert counting.runs() == {1: 1, 2: 1}


CALLBACK = """
said = []
def opened(comm, message):
    @comm.on_msg
    def _(message):
        try:
            said.append(once(message["content"]["data"]["n"]))
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
get_ipython().kernel.comm_manager.register_target("a widget", opened)
def probe(stream, ident, message):
    try:
        said.append(once(2))
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
get_ipython().kernel.control_handlers["probe_request"] = probe
"""


def test_a_front_ends_message_may_call_memory(
    counting: CountingHost, kernel: Kernel, other: BlockingKernelClient
) -> None:
    """A handler for a front end's comm gets its answer; the control thread, which the answer needs, a clear error."""
    kernel.run(CALLBACK).ok()
    other.shell_channel.send(other.session.msg("comm_open", {"comm_id": "w", "target_name": "a widget", "data": {}}))
    other.shell_channel.send(other.session.msg("comm_msg", {"comm_id": "w", "data": {"n": 1}}))
    assert eventually(lambda: counting.runs() == {1: 1})
    assert kernel.run("print(said)").ok().strip() == "[1]"
    other.control_channel.send(other.session.msg("probe_request", {}))
    assert eventually(lambda: "this is the kernel's control thread" in kernel.run("print(said)").ok())
    assert counting.runs() == {1: 1}


# -- sleep -------------------------------------------------------------------------------------------------------------


def stopped(processes: list[int], seconds: float) -> None:
    """Stop processes for a while, as a machine that sleeps does."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        psutil.Process().cpu_percent(seconds)
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("who", [pytest.param("kernel", marks=pytest.mark.slow), "both"])
def test_a_machine_that_sleeps_in_a_call_goes_on_with_it(who: str, counting: CountingHost, kernel: Kernel) -> None:
    """Longer than a host's silence may last: the call that waited is answered, and ran once."""
    wait = start_cell(kernel, "answer = once(1, 1.0)")
    counting.wait_runs(1)
    stopped([kernel.pid, *([counting.process.pid] if who == "both" else [])], SLEEP_SECONDS)
    assert wait()["status"] == "ok"
    assert kernel.run("print(answer, once(2))").ok().split() == ["1", "2"]
    assert counting.runs() == {1: 1, 2: 1}


@pytest.mark.slow
def test_the_first_call_after_a_sleep_works(counting: CountingHost, kernel: Kernel) -> None:
    """Neither side takes the other for dead after a sleep in which nothing was asked."""
    session = counting.kernels()[0]["session"]
    stopped([kernel.pid, counting.process.pid], SLEEP_SECONDS)
    assert kernel.run("print(once(1))").ok().strip() == "1"
    assert [item["session"] for item in counting.kernels()] == [session]


# -- many --------------------------------------------------------------------------------------------------------------


def memory_of(*pids: int) -> list[int]:
    return [psutil.Process(pid).memory_info().rss for pid in pids]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_requests_lose_nothing_and_cost_no_memory(counting: CountingHost, kernel: Kernel) -> None:
    """One after the other and 64 at once; in the second half neither process grows by more than 6 MiB."""
    code = (
        "import asyncio\n"
        "def half(start):\n"
        "    got = [once(n) for n in range(start, start + 1000)]\n"
        "    return got == list(range(start, start + 1000))\n"
        "async def other_half(start):\n"
        "    got = []\n"
        "    for first in range(start, start + 4000, 500):\n"
        "        some = (dsh_tools.aio.call('count_once', {'n': n}) for n in range(first, first + 500))\n"
        "        got += [each['n'] for each in await asyncio.gather(*some)]\n"
        "    return got == list(range(start, start + 4000))\n"
    )
    kernel.run(code).ok()
    both = (kernel.pid, counting.process.pid)
    assert kernel.run("print(half(0), await other_half(1000))", 280).ok().split() == ["True", "True"]
    before = memory_of(*both)
    assert kernel.run("print(half(5000), await other_half(6000))", 280).ok().split() == ["True", "True"]
    growth = [after - first for after, first in zip(memory_of(*both), before, strict=True)]
    assert max(growth) < 6 << 20
    assert counting.runs() == dict.fromkeys(range(10_000), 1)
