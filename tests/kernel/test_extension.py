"""Loading, reloading and unloading the extension in real kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlm_memory.testing import FakeHost

pytestmark = [pytest.mark.kernel, pytest.mark.compat]

COUNTS = """
import threading
def counts():
    shell = get_ipython(); k = shell.kernel
    hooks = sum(len(v) for v in shell.events.callbacks.values())
    targets = sorted(k.comm_manager.targets)
    depth = 0
    for handlers in (k.control_handlers, k.shell_handlers):
        for name in ("comm_msg", "comm_close"):
            h = handlers.get(name)
            while type(h).__name__ == "_Hook":
                h = h._original; depth += 1
    return hooks, targets, depth, sorted(t.name for t in threading.enumerate() if "Thread-" not in t.name)
"""


def test_loading_again_and_again_changes_nothing(kernel: Any) -> None:
    """Twice loaded, ten times reloaded: the same hooks, targets and threads; old references and classes go on."""
    kernel.run(COUNTS).ok()
    kernel.run("ref = memory.experiments.record({'a': 1}, title='old')\nfrom rlm_memory.errors import NotFound").ok()
    kernel.run("held = memory\nfirst = counts()").ok()
    kernel.run("%load_ext rlm_memory").ok()
    for _ in range(10):
        kernel.run("%reload_ext rlm_memory").ok()
    assert kernel.run("print(counts() == first, counts()[2], memory is held)").ok().split() == ["True", "4", "True"]
    assert kernel.run("print(memory.experiments.load(ref))").ok().strip() == "{'a': 1}"
    caught = (
        "try:\n    memory.experiments.load('no-such')\n"
        "except NotFound as e:\n    print('caught', isinstance(e, memory.errors.NotFound))"
    )
    assert kernel.run(caught).ok().strip() == "caught True"


def test_autoreload_of_every_module_keeps_classes_and_connection(kernel: Any) -> None:
    """Every module touched under `%autoreload 2`: a result made before is still an instance, an old except catches."""
    kernel.run(COUNTS).ok()
    kernel.run(
        "ref = memory.experiments.record({'a': 1}, title='old')\nheld = memory.errors.NotFound\nkind = type(ref)\n"
        "first = counts()[1:]\nfrom rlm_memory.results import Recorded\n%load_ext autoreload\n%autoreload 2"
    ).ok()
    # Touching for real would trouble every other test; autoreload compares with the times that it noted.
    kernel.run(
        "import sys\nfrom IPython.extensions import autoreload as a\n"
        "r = next(c.__self__ for c in get_ipython().events.callbacks['pre_run_cell'] if hasattr(c, '__self__')"
        " and type(c.__self__).__name__ == 'AutoreloadMagics')._reloader\n"
        "touched = [n for n in r.modules_mtimes if n.split('.')[0] == 'rlm_memory']\n"
        "for n in touched: r.modules_mtimes[n] = 0"
    ).ok()
    outcome = kernel.run("print(len(touched) > 15, isinstance(ref, Recorded), memory.experiments.load(ref))")
    assert outcome.ok().strip().splitlines()[-1] == "True True {'a': 1}"
    caught = "try:\n    memory.experiments.load('no-such')\nexcept held:\n    print('caught')"
    assert kernel.run(caught).ok().strip() == "caught"
    again = "print(type(memory.experiments.record({'a': 1}, title='old')) is kind, counts()[1:] == first)"
    assert kernel.run(again).ok().strip() == "True True"


@pytest.mark.parametrize("code", ["import rlm_memory", "%reload_ext rlm_memory", "%load_ext rlm_memory"])
def test_memory_comes_back_after_a_reset(code: str, kernel: Any) -> None:
    """`%reset -f` takes the names away; each of these brings them back, and the next call works."""
    kernel.run("%reset -f").ok()
    assert kernel.run("memory").error == "NameError: name 'memory' is not defined"
    kernel.run(code).ok()
    assert kernel.run("print(memory.status().connected)").ok().strip() == "True"


def test_unloading_gives_the_kernel_back_as_it_was(host: FakeHost, start_kernel: Callable[..., Any]) -> None:
    """Handlers, callbacks and names after `%unload_ext` are those of before; loading again works."""
    kernel = start_kernel()
    kernel.run(COUNTS).ok()
    kernel.run(
        "k = get_ipython().kernel\nshell, control = dict(k.shell_handlers), dict(k.control_handlers)\nfirst = counts()"
    ).ok()
    kernel.run("%load_ext rlm_memory").ok()
    assert kernel.run("print(memory.status().connected)").ok().strip() == "True"
    kernel.run("%unload_ext rlm_memory").ok()
    same = "print(k.shell_handlers == shell, k.control_handlers == control, counts() == first)"
    assert kernel.run(same).ok().strip() == "True True True"
    assert kernel.run("memory").error == "NameError: name 'memory' is not defined"
    kernel.run("%load_ext rlm_memory").ok()
    assert kernel.run("print(memory.status().connected)").ok().strip() == "True"


def test_a_taken_name_is_left_alone_with_one_warning(host: FakeHost, start_kernel: Callable[..., Any]) -> None:
    """The user's `memory` stays what it is, and `from rlm_memory import memory` gives ours; dsh_tools stays too."""
    kernel = start_kernel()
    kernel.run("memory = 'mine'\ndsh_tools = 'shim'").ok()
    outcome = kernel.run("%load_ext rlm_memory")
    assert outcome.text.count("the name 'memory' is taken") == 1
    assert "the name" not in kernel.run("%reload_ext rlm_memory").ok()
    assert kernel.run("print(memory, dsh_tools)").ok().strip() == "mine shim"
    assert kernel.run("from rlm_memory import memory as m; print(m.status().connected)").ok().strip() == "True"


def test_loading_is_light_and_needs_no_host(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """No data package is imported nor what only calls need, nothing is started; `status` says why there is no host."""
    kernel = start_kernel(RLM_MEMORY_HOST="none")
    kernel.run("%load_ext rlm_memory").ok()
    heavy = (
        "import sys\nours = ('results', 'experiments', 'recording', 'computations', 'textmemory', 'codecs')\n"
        "names = ['pandas', 'numpy', 'pyarrow', 'pydantic', *(f'rlm_memory.{m}' for m in ours)]\n"
        "print([m for m in names if m in sys.modules])"
    )
    assert kernel.run(heavy).ok().strip() == "[]"
    assert "RLM_MEMORY_HOST=none" in kernel.run("memory.status()").ok()
    error = kernel.run("memory.experiments.search('x')").error
    assert error is not None
    assert error.startswith("HostUnavailable: RLM_MEMORY_HOST=none")
    assert list(state_root.iterdir()) == []


def test_help_and_completions_are_there_before_the_first_call(
    state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """What is imported later is shown at once: names by Tab, signatures and words by `?`, for both sides and magics."""
    kernel = start_kernel(RLM_MEMORY_HOST="none")
    kernel.run("%load_ext rlm_memory").ok()

    def completions(code: str) -> list[str]:
        kernel.client.complete(code)
        return kernel.client.get_shell_msg(timeout=60)["content"]["matches"]

    def told(code: str) -> str:
        kernel.client.inspect(code)
        return kernel.client.get_shell_msg(timeout=60)["content"]["data"].get("text/plain", "")

    for code, name in (
        ("memory.rec", "recall"),
        ("memory.ex", "experiments"),
        ("memory.aio.rec", "recall"),
        ("memory.experiments.rec", "record"),
    ):
        assert name in {match.split(".")[-1] for match in completions(code)}, code
    for code in ("memory.recall", "memory.aio.recall"):
        assert "question" in told(code)
        assert "What is known about a question" in told(code)
    assert "--title" in told("%keep")
    again = "import pickle\nprint(pickle.loads(pickle.dumps(memory)) is memory, memory.search.__name__)"
    assert kernel.run(again).ok().strip() == "True search"


def test_an_error_is_shown_as_one_line_below_the_place_it_came_from(kernel: Any) -> None:
    """No stack of the extension's own frames."""
    kernel.client.execute("def f():\n    return memory.experiments.load('no-such')\nf()")
    content = kernel.client.get_shell_msg(timeout=30)["content"]
    assert content["traceback"] == [
        "line 2: return memory.experiments.load('no-such')",
        "NotFound: no experiment with that id in this project",
    ]
