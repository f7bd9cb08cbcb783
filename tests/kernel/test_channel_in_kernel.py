"""The channel in real kernels: every place a call may come from, floods, losses, interrupts."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel_patience import eventually
from rlm_memory import wire
from rlm_memory.testing import FakeHost, Seen

pytestmark = [pytest.mark.kernel, pytest.mark.fronts, pytest.mark.compat]

ECHO = {"echo": lambda arguments: {"n": arguments["n"]}}


def slow_calls(seen: Seen) -> float:
    return 3600.0 if seen.data.get("name") == "echo" else 0.0


@pytest.fixture
def echo(
    make_host: Callable[..., FakeHost], state_root: Path, start_kernel: Callable[..., Any]
) -> tuple[FakeHost, Any]:
    """A host with one tool, `echo`, and a kernel with the extension loaded."""
    host = make_host(tools=ECHO)
    host.listen(state_root)
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory").ok()
    return host, kernel


PLACES = {
    "a plain cell": "print(dsh_tools.call('echo', {'n': 1})['n'])",
    "a cell that awaits": "print((await dsh_tools.call('echo', {'n': 1}))['n'])",
    "the async twin": "print((await dsh_tools.aio.call('echo', {'n': 1}))['n'])",
    "a coroutine, blocking": "async def f():\n    return dsh_tools.call('echo', {'n': 1})['n']\nprint(await f())",
    "a worker thread": (
        "import threading\nout = []\n"
        "t = threading.Thread(target=lambda: out.append(dsh_tools.call('echo', {'n': 1})['n']))\n"
        "t.start(); t.join(); print(out[0])"
    ),
    "a thread in a coroutine": (
        "import asyncio\nprint((await asyncio.to_thread(dsh_tools.call, 'echo', {'n': 1}))['n'])"
    ),
    "a nested event loop": (
        "import nest_asyncio, asyncio\nnest_asyncio.apply()\n"
        "async def f():\n    return (await dsh_tools.aio.call('echo', {'n': 1}))['n']\n"
        "print(asyncio.get_event_loop().run_until_complete(f()))"
    ),
    "an event loop of its own in a thread": (
        "import asyncio, threading\nout = []\n"
        "async def f():\n    out.append((await dsh_tools.aio.call('echo', {'n': 1}))['n'])\n"
        "t = threading.Thread(target=lambda: asyncio.run(f()))\nt.start(); t.join(); print(out[0])"
    ),
    "except and finally": (
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    a = dsh_tools.call('echo', {'n': 1})['n']\n"
        "finally:\n    b = dsh_tools.call('echo', {'n': 1})['n']\nprint(a if a == b else 'no')"
    ),
    "a script under %run": (
        "import pathlib\np = pathlib.Path('script.py')\n"
        "p.write_text(\"print(dsh_tools.call('echo', {'n': 1})['n'])\")\n%run -i script.py"
    ),
    "a widget callback": (
        "import ipywidgets\nb = ipywidgets.Button()\n"
        "b.on_click(lambda _b: print(dsh_tools.call('echo', {'n': 1})['n']))\nb.click()"
    ),
}


async def test_a_call_works_from_wherever_python_runs(echo: tuple[FakeHost, Any]) -> None:
    """Each kind of caller gets its answer, in the same kernel, one after the other."""
    _host, kernel = echo
    answers = {place: kernel.run(code).ok().strip() for place, code in PLACES.items()}
    assert answers == dict.fromkeys(PLACES, "1")


def test_a_call_works_in_a_subshell(echo: tuple[FakeHost, Any]) -> None:
    """Kernels with subshells (ipykernel 7) answer a call made in one; older ones have none to try."""
    _host, kernel = echo
    if kernel.run("import ipykernel; print(ipykernel.version_info[0])").ok() == "6\n":
        return
    client = kernel.client
    client.control_channel.send(client.session.msg("create_subshell_request"))
    content = client.get_control_msg(timeout=30)["content"]
    message = client.session.msg(
        "execute_request", {"code": "x = dsh_tools.call('echo', {'n': 7})['n']", "silent": False}
    )
    message["header"]["subshell_id"] = content["subshell_id"]
    client.shell_channel.send(message)
    assert client.get_shell_msg(timeout=30)["content"]["status"] == "ok"
    assert kernel.run("print(x)").ok().strip() == "7"


@pytest.mark.timeout(300)
def test_an_output_flood_does_not_delay_or_lose_a_call(echo: tuple[FakeHost, Any]) -> None:
    """20,000 flushed prints share iopub with the requests, and each of 40 calls is answered."""
    _host, kernel = echo
    flood = (
        "import sys\nanswers = []\n"
        "for i in range(20_000):\n    print(i); sys.stdout.flush()\n"
        "    if i % 500 == 0:\n        answers.append(dsh_tools.call('echo', {'n': i})['n'])\n"
        "right = answers == list(range(0, 20_000, 500))"
    )
    # By the reply: a client that reads slowly loses output of such a flood, the cells' idle status with it.
    kernel.client.execute(flood, user_expressions={"right": "right"})
    content = kernel.client.get_shell_msg(timeout=240)["content"]
    assert content["user_expressions"]["right"]["data"]["text/plain"] == "True"


def test_five_hundred_threads_each_get_their_own_answer(echo: tuple[FakeHost, Any]) -> None:
    """More callers than the window holds wait their turn, and none gets another's reply."""
    _host, kernel = echo
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(500) as pool:\n"
        "    got = list(pool.map(lambda n: dsh_tools.call('echo', {'n': n})['n'], range(500)))\n"
        "print(got == list(range(500)))"
    )
    assert kernel.run(code).ok().strip() == "True"


def test_five_hundred_coroutines_each_get_their_own_answer(echo: tuple[FakeHost, Any]) -> None:
    """The same on one event loop, and no request had to be sent twice."""
    host, kernel = echo
    code = (
        "import asyncio\n"
        "got = await asyncio.gather(*(dsh_tools.aio.call('echo', {'n': n}) for n in range(500)))\n"
        "print([g['n'] for g in got] == list(range(500)))"
    )
    assert kernel.run(code).ok().strip() == "True"
    assert all(seen.transmission == 1 for seen in host.seen if seen.kind == wire.CALL)


def test_no_more_than_the_window_is_in_flight(
    make_host: Callable[..., FakeHost], state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """A host that answers nothing has seen exactly 64 calls of 100 callers."""
    host = make_host(tools=ECHO, script=slow_calls)
    host.listen(state_root)
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\nmemory.status()").ok()
    kernel.run(
        "import asyncio\ntasks = [asyncio.ensure_future(dsh_tools.aio.call('echo', {'n': n})) for n in range(100)]\n"
        "await asyncio.sleep(0.5)"
    ).ok()
    ids = {seen.request_id for seen in host.seen if seen.kind == wire.CALL and seen.data["name"] == "echo"}
    assert len(ids) == wire.WINDOW
    assert kernel.run("for t in tasks: t.cancel()\nawait asyncio.sleep(0.5)\nprint('free')").ok().strip() == "free"


def test_a_lost_request_is_sent_again_under_the_same_id(
    make_host: Callable[..., FakeHost], state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """The host drops the first arrival of every call; the caller gets one answer, and the tool ran once."""
    runs: list[int] = []
    host = make_host(
        tools={"echo": lambda arguments: (runs.append(arguments["n"]), {"n": arguments["n"]})[1]},
        script=lambda seen: None if seen.kind == wire.CALL and seen.transmission == 1 else 0.0,
    )
    host.listen(state_root)
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory").ok()
    assert kernel.run("print(dsh_tools.call('echo', {'n': 5})['n'])").ok().strip() == "5"
    arrivals = [seen for seen in host.seen if seen.kind == wire.CALL]
    assert [seen.transmission for seen in arrivals] == [1, 2]
    assert len({seen.request_id for seen in arrivals}) == 1
    assert runs == [5]


def test_a_slow_tool_runs_once_while_pings_keep_its_caller_waiting(
    make_host: Callable[..., FakeHost], state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """A call that takes longer than the loss limit is still answered, since the host answers pings meanwhile."""
    host = make_host(tools=ECHO, script=lambda seen: 8.0 if seen.kind == wire.CALL else 0.0)
    host.listen(state_root)
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory").ok()
    assert kernel.run("print(dsh_tools.call('echo', {'n': 5})['n'])").ok().strip() == "5"
    assert wire.PING in host.kinds()


INTERRUPTED = {
    "blocking": "dsh_tools.call('echo', {'n': 1})",
    "awaited": "await dsh_tools.aio.call('echo', {'n': 1})",
    "blocking in a coroutine": "async def f():\n    return dsh_tools.call('echo', {'n': 1})\nawait f()",
    "blocking in a task": (
        "import asyncio\nasync def f():\n    return dsh_tools.call('echo', {'n': 1})\nawait asyncio.create_task(f())"
    ),
    "awaited under gather": (
        "import asyncio\nawait asyncio.gather(*(dsh_tools.aio.call('echo', {'n': n}) for n in range(3)))"
    ),
}


@pytest.mark.parametrize("form", INTERRUPTED)
def test_an_interrupt_ends_the_wait_and_cancels_the_call(
    form: str, make_host: Callable[..., FakeHost], state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """The cell ends long before the host's answer, the host hears of it, and the kernel goes on."""
    host = make_host(tools=ECHO, script=slow_calls)
    host.listen(state_root)
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\nmemory.status()").ok()
    code = "import time\ntry:\n" + textwrap.indent(INTERRUPTED[form], "    ")
    code += "\nexcept BaseException as e:\n    ended = (time.monotonic(), type(e).__name__)\n    raise"
    message_id = kernel.client.execute(code, stop_on_error=False)
    assert eventually(lambda: any(seen.data.get("name") == "echo" for seen in host.seen))
    began = time.monotonic()  # one clock for all processes of a machine
    kernel.manager.interrupt_kernel()
    reply = kernel.client.get_shell_msg(timeout=30)
    while reply["parent_header"].get("msg_id") != message_id:
        reply = kernel.client.get_shell_msg(timeout=30)
    assert reply["content"]["status"] == "error"
    ended, name = kernel.run("print(*ended)").ok().split()
    assert name in ("KeyboardInterrupt", "CancelledError")
    assert float(ended) - began < 1.0  # the promise itself; a tick is 0.1 s
    waiting = {seen.request_id for seen in host.seen if seen.data.get("name") == "echo"}
    assert eventually(lambda: waiting <= set(host.cancelled))
    assert kernel.run("print('on')").ok().strip() == "on"


def test_a_dead_host_is_noticed_and_the_kernel_goes_on_with_the_next_one(
    state_root: Path, tmp_path: Path, start_kernel: Callable[..., Any]
) -> None:
    """SIGKILL while a call waits: HOST_LOST within 6 s; with a host again, the same kernel's next call is answered."""
    kernel = start_kernel()
    with fake_process(state_root, "--hold", "memory_search") as first:
        kernel.run("%load_ext rlm_memory\nmemory.experiments.record([1], title='one')").ok()
        kernel.client.execute(
            "import time\nt = time.monotonic()\n"
            "try:\n    memory.experiments.search('one')\n"
            "except memory.errors.HostUnavailable as e:\n    lost = (e.code, time.monotonic() - t)"
        )
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        first.kill()
        reply = kernel.client.get_shell_msg(timeout=30)
        assert reply["content"]["status"] == "ok"
    code, seconds = kernel.run("print(*lost)").ok().split()
    assert code == wire.HOST_LOST
    assert float(seconds) < wire.LOST_SECONDS
    with fake_process(state_root):
        assert kernel.run("print(len(memory.experiments.search('one')))").ok().strip() == "1"


def test_a_host_that_went_away_between_calls_is_replaced_without_an_error(
    state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """The broken lifeline is seen before the next request is sent."""
    kernel = start_kernel()
    with fake_process(state_root):
        kernel.run("%load_ext rlm_memory\nmemory.experiments.record([1], title='one')").ok()
    with fake_process(state_root):
        assert kernel.run("print(len(memory.experiments.search('one')))").ok().strip() == "1"


def test_a_request_over_the_cap_is_refused_before_it_is_sent(echo: tuple[FakeHost, Any]) -> None:
    """More than 1 MiB inline is TooLarge, and nothing of it went out."""
    host, kernel = echo
    outcome = kernel.run("dsh_tools.call('echo', {'n': 'x' * (1 << 20)})")
    assert outcome.error is not None
    assert outcome.error.startswith("TooLarge: ")
    assert wire.CALL not in host.kinds()


def test_a_front_end_that_closes_our_comm_does_not_lose_the_reply(
    make_host: Callable[..., FakeHost], state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """Front ends answer an unknown comm with comm_close; the call still gets its reply."""
    host = make_host(tools=ECHO, script=lambda seen: 1.0 if seen.data.get("name") == "echo" else 0.0)
    host.listen(state_root)
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\nmemory.status()").ok()
    kernel.client.execute("answer = dsh_tools.call('echo', {'n': 3})['n']")
    assert eventually(lambda: any(seen.data.get("name") == "echo" for seen in host.seen))
    request_id = next(seen.request_id for seen in host.seen if seen.data.get("name") == "echo")
    client = kernel.client
    for channel in (client.control_channel, client.shell_channel):
        channel.send(client.session.msg("comm_close", {"comm_id": request_id, "data": {}}))
    assert client.get_shell_msg(timeout=30)["content"]["status"] == "ok"
    assert kernel.run("print(answer)").ok().strip() == "3"


class fake_process:
    """A fake host as a process of its own, to be killed."""

    def __init__(self, state_root: Path, *options: str) -> None:
        command = [sys.executable, "-m", "rlm_memory.testing", "--state-root", str(state_root), *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))

    def __enter__(self) -> subprocess.Popen[bytes]:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
