"""A kernel that has a foreign shim and not our extension, served by our real host: the contract's other half.

The first half, our extension with a foreign host, is in `tests/kernel/test_connect.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import host_says
from jupyter_front import eventually, kernels_of

pytestmark = pytest.mark.kernel

TOOLS = {"memory_search", "memory_artifact_record", "memory_artifact_resolve", "memory_status"}
SETTING = """
import asyncio, concurrent.futures, os, pathlib, sys
from rlm_memory.testing.foreignshim import Refused, ask, ask_soon
exports = pathlib.Path(os.environ["RLM_SESSION_DIR"]) / "exports"
def call(name, **arguments):
    return ask("dsh_tools.call", name=name, arguments=arguments)
def record(name, data, **more):
    (exports / name).write_bytes(data)
    about = dict(title=name, summary="bytes", source="w", source_version="v", query_fingerprint="0" * 64)
    told = call("memory_artifact_record", source_path=str(exports / name), **{**about, **more})
    assert not told["isError"], told["error"]
    return told
def first_answer():
    # Whoever repeats nothing has to know that the host listens; until then nobody does.
    for _ in range(10):
        try:
            return ask("dsh_tools.list", seconds=4)
        except TimeoutError:
            pass
"""


@pytest.fixture
def shimmed(state_root: Path, start_kernel: Callable[..., Any]) -> Any:
    """A kernel of the kernelspec, so that its host is there and attached, with the shim alone."""
    kernel = start_kernel("rlm-memory")
    kernel.run(SETTING).ok()
    assert kernel.run("print(first_answer()['status'], 'rlm_memory.extension' in sys.modules)").ok() == "ok False\n"
    return kernel


def test_the_shim_lists_records_finds_and_reads(shimmed: Any) -> None:
    """Name, description and parameters of each tool; recorded bytes come back by the path that resolve gives."""
    code = "tools = ask('dsh_tools.list')['tools']\nprint(*(t['name'] for t in tools if set(t) == KEYS))"
    listed = shimmed.run(code.replace("KEYS", "{'name', 'description', 'parameters'}")).ok().split()
    assert set(listed) >= TOOLS
    code = (
        "told = record('rates.bin', b'\\0\\1\\2')\n"
        "found = call('memory_search', query='rates')['value']['results'][0]\n"
        "there = call('memory_artifact_resolve', experiment_id=found['experiment_id'])['value']\n"
        "print(told['isError'], sorted(told), found['title'], pathlib.Path(there['path']).read_bytes())"
    )
    shown = shimmed.run(code).ok().strip()
    assert shown == "False ['content', 'isError', 'status', 'value'] rates.bin b'\\x00\\x01\\x02'"


def test_the_shim_gets_errors_in_the_two_shapes_of_the_contract(shimmed: Any) -> None:
    """A tool's failure is an envelope of an answered request; a bad request is an error with its code."""
    code = (
        "for name, arguments in (('no_such_tool', {}), ('memory_search', {'limit': 'many'}),\n"
        "                        ('memory_artifact_resolve', {'experiment_id': 'exp_' + 'a' * 52})):\n"
        "    told = call(name, **arguments)\n"
        "    print(told['status'], told['isError'], told['error']['info']['code'], bool(told['error']['message']))\n"
        "for kind, payload in (('no.such.request', {}), ('dsh_tools.call', {'name': 'memory_status', 'extra': 1}),\n"
        "                      ('dsh_tools.call', {'name': 5}), ('dsh_tools.list', {'session': 'of another'})):\n"
        "    try:\n        print(ask(kind, **payload))\n    except Refused as refused:\n        print(refused.code)"
    )
    assert shimmed.run(code).ok().splitlines() == [
        "ok True UNKNOWN_TOOL True",
        "ok True INVALID_ARGS True",
        "ok True CARD_NOT_FOUND True",
        "UNSUPPORTED_REQUEST",
        "INVALID_REQUEST",
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
    ]


def test_a_request_over_the_bound_is_answered_and_the_next_one_is_served(shimmed: Any) -> None:
    """Just over 1 MiB inline and twenty times that: an answer with the code, no silence; a 20 MB file is recorded."""
    code = (
        "for size in (1 << 20, 20 << 20):\n"
        "    try:\n        print(call('memory_search', query='x' * size))\n"
        "    except Refused as refused:\n        print(refused.code)\n"
        "print(record('large.bin', os.urandom(20_000_000))['value']['bytes'])"
    )
    assert shimmed.run(code).ok().splitlines() == ["PAYLOAD_TOO_LARGE", "PAYLOAD_TOO_LARGE", "20000000"]


def test_two_hundred_requests_at_once_each_get_their_own_answer(shimmed: Any) -> None:
    """Half from threads, half from coroutines of one cell: no reply is lost, none goes to another caller."""
    code = (
        "names = [f'{n}.bin' for n in range(10)]\n"
        "ids = [record(name, name.encode(), query_fingerprint=str(n) * 64)['value']['experiment_id']\n"
        "       for n, name in enumerate(names)]\n"
        "def one(n):\n"
        "    told = call('memory_artifact_resolve', experiment_id=ids[n % 10])\n"
        "    return told['value']['title'] == names[n % 10]\n"
        "async def soon(n):\n"
        "    arguments = {'experiment_id': ids[n % 10]}\n"
        "    told = await ask_soon('dsh_tools.call', name='memory_artifact_resolve', arguments=arguments)\n"
        "    return told['value']['title'] == names[n % 10]\n"
        "with concurrent.futures.ThreadPoolExecutor(25) as pool:\n"
        "    from_threads = list(pool.map(one, range(100)))\n"
        "from_coroutines = await asyncio.gather(*(soon(n) for n in range(100)))\n"
        "print(sum(from_threads), sum(from_coroutines))"
    )
    assert shimmed.run(code).ok() == "100 100\n"


def test_a_host_that_starts_again_serves_the_shim_without_being_told(shimmed: Any, state_root: Path) -> None:
    """SIGKILL, and a host that is started anew: it attaches by itself, and what was recorded is found."""
    shimmed.run("record('kept.bin', b'kept')").ok()
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    os.kill(status["pid"], signal.SIGKILL)
    eventually(lambda: host_says(state_root, {"type": "status"}) is None, "the host is gone")
    command = [sys.executable, "-m", "rlm_memory_host", "host", "run"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as host:
        try:
            eventually(lambda: kernels_of(state_root), "the new host serves the kernel")
            code = (
                "first_answer()\nfound = call('memory_search', query='kept')['value']['results']\n"
                "print([hit['title'] for hit in found])"
            )
            assert shimmed.run(code).ok() == "['kept.bin']\n"
        finally:
            host.terminate()
