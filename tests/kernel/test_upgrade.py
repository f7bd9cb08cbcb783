"""A kernel whose host offers a direct channel uses it, and loses nothing when that ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from counting import CountingHost, counting_pair
from hosts import host_says
from kernel_patience import eventually
from real_kernels import Kernel, running_kernel

pytestmark = [pytest.mark.kernel, pytest.mark.compat, pytest.mark.fronts]

SETTING = """
%load_ext rlm_memory
import os, socket, threading, time
from rlm_memory import kernel as _kernel, wire as _wire
memory.status()
def once(n, seconds=0.0): return dsh_tools.call("count_once", {"n": n, "seconds": seconds})["n"]
def again(n, seconds=0.0): return dsh_tools.call("count_again", {"n": n, "seconds": seconds})["n"]
def way(): return _kernel.connection().channel._route
def direct():
    end = time.monotonic() + 30
    while not way().is_direct() and time.monotonic() < end: memory.experiments.search(""); time.sleep(0.01)
    return way().is_direct()
def cut():
    "Shut the kernel's end of the direct channel down, whatever is under way."
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as one:
                    if str(one.getpeername()).endswith("direct.sock"): one.shutdown(socket.SHUT_RDWR)
        except OSError: pass
def later(seconds, call):
    timer = threading.Timer(seconds, call); timer.start(); return timer
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CountingHost, Kernel]]:
    with counting_pair(tmp_path_factory.mktemp("pair")) as (host, kernel):
        kernel.run(SETTING).ok()
        yield host, kernel


@pytest.fixture
def kernel(pair: tuple[CountingHost, Kernel]) -> Kernel:
    assert pair[1].run("print(direct())").ok() == "True\n"
    return pair[1]


def published(kernel: Kernel, code: str) -> list[str]:
    """The types of the messages that a cell published."""
    kinds: list[str] = []

    def take(message: dict[str, Any]) -> None:
        kinds.append(message["msg_type"])

    reply = kernel.client.execute_interactive(code, timeout=60, output_hook=take, allow_stdin=False)
    assert reply["content"]["status"] == "ok", reply["content"]
    return kinds


def test_the_calls_of_a_kernel_leave_its_output_channel(counting: CountingHost, kernel: Kernel) -> None:
    """Front ends get none of the requests once the direct channel is made."""
    assert "comm_open" not in published(kernel, "for n in range(20): once(n)")
    assert counting.runs() == dict.fromkeys(range(20), 1)


@pytest.mark.parametrize(("name", "value"), [("ROUTE", "comm"), ("HOST", "comm")])
def test_a_kernel_that_is_kept_to_its_own_channels_stays_there(
    counting: CountingHost, tmp_path: Any, name: str, value: str
) -> None:
    """A host attached by itself: every request is a comm, and every answer the same."""
    with running_kernel(tmp_path, **{f"RLM_MEMORY_{name}": value}) as kernel:
        message = {
            "type": "attach", "protocol": 1, "connection_file": kernel.manager.connection_file, "pid": kernel.pid,
            "cwd": str(tmp_path), "extension": "0.1.0",
        }  # fmt: skip
        line = attached(counting, message)
        try:
            kernel.run(SETTING).ok()
            assert published(kernel, "for n in range(20): once(n)").count("comm_open") == 20
            assert kernel.run("print(way().is_direct())").ok() == "False\n"
        finally:
            line.shutdown(socket.SHUT_RDWR)
            line.close()
    assert counting.runs() == dict.fromkeys(range(20), 1)


def test_a_child_forked_after_the_connection_broke_has_a_channel_of_its_own(
    counting: CountingHost, kernel: Kernel
) -> None:
    """The session goes on, so a child is let in before the kernel itself has connected again."""
    told = kernel.run("""
route = way()._direct
cut()
end = time.monotonic() + 30
while _kernel.connection().known_host() is not None and time.monotonic() < end:
    route._bell.ring()  # its reader may listen for that alone while nobody calls
    time.sleep(0.01)
ear, rope = os.pipe()
child = os.fork()
if child == 0:
    try: said = str(once(41))
    except BaseException as error: said = repr(error)
    os.write(rope, said.encode()); os._exit(0)
os.close(rope)
print(_kernel.connection().known_host(), os.read(ear, 4096).decode(), os.waitpid(child, 0)[1])
""")
    assert told.ok() == "None 41 0\n"
    assert counting.runs() == {41: 1}


@pytest.mark.parametrize("call", ["once", "again"])
def test_a_connection_that_breaks_in_a_call_costs_nothing(counting: CountingHost, kernel: Kernel, call: str) -> None:
    """The answer comes the other way, the tool ran once, and the direct channel is made again."""
    assert kernel.run(f"t = later(0.5, cut)\nprint({call}(1, 2.0), way().is_direct())").ok() == "1 False\n"
    assert counting.runs() == {1: 1}
    assert kernel.run("print(once(2), direct())").ok() == "2 True\n"
    assert counting.runs() == {1: 1, 2: 1}


def test_a_connection_that_breaks_again_and_again_loses_and_doubles_nothing(
    counting: CountingHost, kernel: Kernel
) -> None:
    """Threads and coroutines call on while the channel is cut every few hundredths of a second."""
    code = (
        "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\nend = threading.Event()\n"
        "def cutting():\n    while not end.wait(0.03): cut()\n"
        "t = threading.Thread(target=cutting); t.start()\n"
        "async def some(n): return (await dsh_tools.aio.call('count_once', {'n': n, 'seconds': 0.002}))['n']\n"
        "with ThreadPoolExecutor(8) as pool: a = list(pool.map(once, range(400)))\n"
        "b = list(await asyncio.gather(*(some(n) for n in range(400, 800))))\n"
        "end.set(); t.join()\nprint(a + b == list(range(800)), direct())"
    )
    kernel.run("before = len(os.listdir('/proc/self/fd'))").ok()
    assert kernel.run(code).ok() == "True True\n"
    # The sockets of all those channels are closed, some a moment later.
    assert eventually(lambda: kernel.run("print(len(os.listdir('/proc/self/fd')) < before + 20)").ok() == "True\n")
    assert counting.runs() == dict.fromkeys(range(800), 1)


def test_a_session_that_the_channel_calls_over_goes_on_over_the_kernels_channels(
    counting: CountingHost, kernel: Kernel
) -> None:
    """REQUEST_SCOPE_CLOSED on the direct channel ends the channel and no request."""
    code = (
        "def closed():\n"
        "    (flight,) = _kernel.connection().channel._flight\n"
        "    way()._from_direct(flight, _wire.error(_wire.REQUEST_SCOPE_CLOSED, 'over'))\n"
        "t = later(0.5, closed)\nprint(once(1, 2.0), way().is_direct())"
    )
    assert kernel.run(code).ok() == "1 False\n"
    assert counting.runs() == {1: 1}


def test_a_host_that_is_killed_in_a_call_is_told_within_its_time_and_the_next_one_serves_directly(
    counting: CountingHost, kernel: Kernel
) -> None:
    """HOST_LOST, as over the kernel's channels, and nothing is repeated that may have run."""
    sent = kernel.client.execute(
        "try:\n    once(1, 60.0)\nexcept memory.errors.HostUnavailable as e:\n    said = e.code", allow_stdin=False
    )
    counting.wait_runs(1)
    counting.kill()
    counting.start()
    while kernel.client.get_shell_msg(timeout=60)["parent_header"]["msg_id"] != sent:
        pass
    assert kernel.run("print(said, once(2), direct())").ok() == "HOST_LOST 2 True\n"
    assert counting.runs() == {1: 1, 2: 1}


def attached(counting: CountingHost, message: dict[str, Any]) -> Any:
    """Ask the host to attach to a kernel; the open line keeps it there."""
    from rlm_memory import localsocket, wire

    line, answer = localsocket.dial(wire.socket_path(counting.state_root), message)
    assert answer["status"] == "ok"
    assert eventually(lambda: bool(host_says(counting.state_root, {"type": "status"})))
    return line


def test_a_route_that_is_none_is_refused_by_name(counting: CountingHost, tmp_path: Any) -> None:
    """A typing error does not silently choose."""
    with running_kernel(tmp_path, RLM_MEMORY_ROUTE="com") as kernel:
        kernel.run("%load_ext rlm_memory").ok()
        error = kernel.run("memory.experiments.search('x')").error or ""
    assert error == "HostUnavailable: RLM_MEMORY_ROUTE is 'com'; it may be auto, comm"
    assert not counting.runs()
