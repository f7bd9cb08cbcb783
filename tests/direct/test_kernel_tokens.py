"""A kernel shares its session: with the workers it gives its token to, and with its forked children."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain_python import Script

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

USE = "from rlm_memory import memory\nprint(len(memory.experiments.search('')))"
TRY = """
try:
    memory.experiments.search("")
except memory.errors.MemoryFault as e:
    print(type(e).__name__, e.code)
"""


def test_a_worker_of_a_kernel_works_in_the_kernels_session(
    start_host: Callable[..., Any],
    start_kernel: Callable[..., Any],
    start_script: Callable[..., Script],
    state_root: Path,
) -> None:
    """What either records the other finds, in one session; the token is written nowhere."""
    start_host()
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\nr = memory.experiments.record({'a': 1}, title='of the kernel')").ok()
    offer = json.loads(kernel.run("import json\nprint(json.dumps(memory.share()))").ok())
    worker = start_script(**offer)
    assert worker.run(USE).ok() == "1\n"
    worker.run("memory.experiments.record({'b': 2}, title='of the worker')").ok()
    found = kernel.run(
        "hits = memory.experiments.search('')\nprint(sorted(h.title for h in hits), len({h.session_id for h in hits}))"
    )
    assert found.ok() == "['of the kernel', 'of the worker'] 1\n"
    assert json.loads(kernel.run("print(json.dumps(memory.share()))").ok()) == offer
    secret = offer["RLM_MEMORY_TOKEN"].encode()
    files = [path for path in state_root.rglob("*") if path.is_file()]
    assert files
    assert not [path.name for path in files if secret in path.read_bytes()]


def test_the_token_of_a_kernel_ends_when_the_kernel_is_restarted(
    start_host: Callable[..., Any], start_kernel: Callable[..., Any], start_script: Callable[..., Script]
) -> None:
    """A worker of the process that is gone speaks for nobody; the new process has a token of its own."""
    start_host()
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\nmemory.experiments.record({'a': 1}, title='before')").ok()
    before = json.loads(kernel.run("import json\nprint(json.dumps(memory.share()))").ok())
    worker = start_script(**before)
    assert worker.run(USE).ok() == "1\n"
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=60)
    kernel.run("%load_ext rlm_memory\nmemory.experiments.search('')").ok()
    after = json.loads(kernel.run("import json\nprint(json.dumps(memory.share()))").ok())
    assert after["RLM_MEMORY_TOKEN"] != before["RLM_MEMORY_TOKEN"]
    assert worker.run(TRY).ok() == "HostUnavailable REQUEST_SCOPE_CLOSED\n"
    assert start_script(**after).run(USE).ok() == "1\n"


FORK_WITHIN_AN_IMPORT = """
import os, signal, sys, threading, rlm_memory

memory = rlm_memory.connect()
importing, go_on = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "rlm_memory.experiments":
            importing.set()
            go_on.wait()
        return None

assert "rlm_memory.experiments" not in sys.modules
sys.meta_path.insert(0, Slow())
first = threading.Thread(target=lambda: memory.experiments.search("x"))
first.start()
importing.wait()
threading.Timer(0.5, go_on.set).start()
child = os.fork()
if child == 0:
    signal.alarm(20)
    memory.experiments.search("x")
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
first.join()
"""


def test_a_child_forked_in_the_middle_of_a_threads_first_call_is_whole(
    start_host: Callable[..., Any], start_script: Callable[..., Script]
) -> None:
    """What the thread was just importing is not locked for ever in the child."""
    start_host()
    assert start_script().run(FORK_WITHIN_AN_IMPORT).ok() == "7\n"
