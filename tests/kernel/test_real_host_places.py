"""Where a call may come from, and two hosts that both want the kernel: with the extension, against real hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hosts import host_says, stop_host
from kernel_patience import eventually

pytestmark = [pytest.mark.kernel, pytest.mark.compat]

ROUND = "e.load(e.record({{'n': {0}}}, title='{1}'))['n']"
PLACES = {
    "nested loop, awaited": (
        "import nest_asyncio, asyncio\nnest_asyncio.apply()\n"
        "async def f():\n    a = memory.aio.experiments\n"
        "    return (await a.load(await a.record({'n': 1}, title='nested')))['n']\n"
        "print(asyncio.get_event_loop().run_until_complete(f()))"
    ),
    "nested loop, blocking": (
        f"async def f():\n    return {ROUND.format(1, 'nested, blocking')}\n"
        "print(asyncio.get_event_loop().run_until_complete(f()))"
    ),
    "a loop in a thread": (
        "import threading\nout = []\n"
        f"async def f():\n    out.append({ROUND.format(1, 'in a thread')})\n"
        "t = threading.Thread(target=lambda: asyncio.run(f()))\nt.start(); t.join(); print(out[0])"
    ),
    "a gathering": (
        "a = memory.aio.experiments\n"
        "refs = await asyncio.gather(*(a.record({'n': i}, title=f'gathered {i}') for i in range(20)))\n"
        "back = await asyncio.gather(*(a.load(r) for r in refs))\nprint(int([b['n'] for b in back] == list(range(20))))"
    ),
}


def test_nested_loops_and_threads_reach_the_real_host(start_kernel: Callable[..., Any]) -> None:
    """Records and loads under nest_asyncio, awaited and blocking, on a loop of a thread, twenty at once."""
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\ne = memory.experiments").ok()
    assert {place: kernel.run(code).ok().strip() for place, code in PLACES.items()} == dict.fromkeys(PLACES, "1")


def test_subshells_and_the_main_shell_reach_the_real_host_at_once(start_kernel: Callable[..., Any]) -> None:
    """While the main shell's cell runs, two subshells make the first calls of the kernel; each gets its own result."""
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\nimport threading\ne, go = memory.experiments, threading.Event()").ok()
    if kernel.run("import ipykernel; print(ipykernel.version_info[0])").ok() == "6\n":
        return
    client = kernel.client
    shells: list[str] = []
    for _ in range(2):
        client.control_channel.send(client.session.msg("create_subshell_request"))
        shells.append(client.get_control_msg(timeout=60)["content"]["subshell_id"])
    main = client.execute(f"go.wait(60); x0 = {ROUND.format(0, 'of shell 0')}")
    waited = {main}
    for number, shell in enumerate(shells, 1):
        code = f"x{number} = [{ROUND.format(number, f'of shell {number}')} for _ in range(5)]; go.set()"
        message = client.session.msg("execute_request", {"code": code, "silent": False})
        message["header"]["subshell_id"] = shell
        client.shell_channel.send(message)
        waited.add(message["header"]["msg_id"])
    while waited:
        reply = client.get_shell_msg(timeout=60)
        waited.discard(reply["parent_header"]["msg_id"])
        assert reply["content"]["status"] == "ok", reply["content"]
    assert kernel.run("print(x0, set(x1), set(x2), len(e.search('of shell')))").ok().strip() == "0 {1} {2} 3"


@pytest.fixture
def other_root(tmp_path: Path) -> Iterator[Path]:
    """A second state root, with a host of its own."""
    root = tmp_path / "other"
    root.mkdir(mode=0o700)
    with ExitStack() as stack:
        stack.callback(stop_host, root)
        process = subprocess.Popen(
            [sys.executable, "-m", "rlm_memory_host", "host", "run", "--state-root", str(root)],
            stdin=subprocess.DEVNULL,
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        assert eventually(lambda: host_says(root, {"type": "status"}) is not None)
        yield root


def attach(kernel: Any, root: Path) -> dict[str, Any]:
    """As `rlm-memory attach --existing`: a host is asked to serve a kernel. The connection closes again."""
    line = {"type": "attach", "protocol": 1, "connection_file": str(Path(kernel.manager.connection_file).absolute())}
    answer = host_says(root, {**line, "pid": kernel.pid, "cwd": str(root.parent), "extension": "0"})
    assert answer is not None
    return answer


def test_a_kernel_that_another_host_took_meanwhile_is_served_by_that_one(
    other_root: Path, state_root: Path, start_kernel: Callable[..., Any], start_host: Callable[..., Any]
) -> None:
    """The kernel's own host is told that another serves it already: the call is answered by the other, not refused."""
    start_host()
    kernel = start_kernel()
    # The hello goes unheard until the kernel dials, as when the other host attaches in that very moment.
    kernel.run(
        "%load_ext rlm_memory\nimport rlm_memory.finding as c, time\n"
        "first = c.localsocket.dial\n"
        "def dial(*given):\n    open('dialling', 'w').close()\n"
        "    while not __import__('os').path.exists('taken'): time.sleep(0.02)\n"
        "    return first(*given)\n"
        "c.localsocket.dial = dial"
    ).ok()
    folder = state_root.parent
    sent = kernel.client.execute("r = memory.experiments.record({'a': 1}, title='raced')")
    assert eventually((folder / "dialling").exists)
    assert attach(kernel, other_root)["status"] == "ok"
    (folder / "taken").touch()
    while (reply := kernel.client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != sent:
        pass
    assert reply["content"]["status"] == "ok", reply["content"]
    assert kernel.run("print(memory.experiments.load(r), len(memory.experiments.search('')))").ok() == "{'a': 1} 1\n"
    here, there = (host_says(root, {"type": "status"}) or {} for root in (state_root, other_root))
    assert (len(here["kernels"]), len(there["kernels"])) == (0, 1)


def test_two_hosts_want_a_kernel_and_each_call_is_answered_once(
    other_root: Path, state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """The second host is refused while the first lives; when the first is killed the kernel goes on, with one host."""
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\nr = memory.experiments.record({'a': 1}, title='kept')").ok()
    assert attach(kernel, other_root)["code"] == "KERNEL_LEASED"
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    os.kill(status["pid"], signal.SIGKILL)
    assert eventually(lambda: attach(kernel, other_root)["status"] == "ok")
    # The kernel's next call hears the host that holds it now; its project there is empty, and says so.
    assert kernel.run("print(len(memory.experiments.search('kept')))").ok() == "0\n"
    assert kernel.run("print(memory.experiments.load(memory.experiments.record([2], title='new')))").ok() == "[2]\n"
    assert host_says(state_root, {"type": "status"}) is None
