"""The kernel side against the real host: started by the kernel, killed, started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from hosts import host_says
from kernel_patience import eventually

pytestmark = pytest.mark.kernel


def test_a_kernel_starts_a_host_loses_it_and_goes_on(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """No host runs: one is started. It is killed: the same kernel's next calls work, and what was recorded is there."""
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory").ok()
    kernel.run("r = memory.experiments.record({'a': 1}, title='kept', source_version='v', query='q')").ok()
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    os.kill(status["pid"], signal.SIGKILL)
    assert eventually(lambda: host_says(state_root, {"type": "status"}) is None)
    code = (
        "try:\n    memory.experiments.search('kept')\n"
        "except memory.errors.HostUnavailable as e:\n    print('lost', e.code)\n"
        "print(memory.experiments.load(r), memory.experiments.search('kept')[0].title)\n"
        "print(memory.experiments.get(query='q', source_version='v'))"
    )
    lines = kernel.run(code).ok().splitlines()
    assert lines[-2:] == ["{'a': 1} kept", "Resolved('kept', 1 item, fresh, art_afnl2724yv)"]
    after = host_says(state_root, {"type": "status"})
    assert after is not None
    assert after["pid"] != status["pid"]
    assert not psutil.pid_exists(status["pid"])


def test_equal_bytes_of_different_types_come_back_as_what_each_was(start_kernel: Callable[..., Any]) -> None:
    """4711 and "4711", None and "null", "" and b"" and an empty file: every record loads as itself, in any order."""
    kernel = start_kernel()
    code = (
        "%load_ext rlm_memory\nimport pathlib\ne = memory.experiments\n"
        "pathlib.Path('empty.txt').write_bytes(b'')\n"
        "values = [4711, '4711', None, 'null', 'hello', b'hello', b'', '', pathlib.Path('empty.txt')]\n"
        "refs = [e.record(v, title=f'value {i}') for i, v in enumerate(values)]\n"
        "back = [e.load(r) for r in refs]\n"
        "print(back == [*values[:-1], b''], [type(b).__name__ for b in back])\n"
        "print(e.get(fingerprint=refs[0].query_fingerprint, source_version='v'), e.last_reuse.why[:17])"
    )
    assert kernel.run(code).ok().splitlines() == [
        "True ['int', 'str', 'NoneType', 'str', 'str', 'bytes', 'bytes', 'str', 'bytes']",
        "None nothing was given",
    ]


def test_one_fingerprint_holds_one_kind_and_what_is_left_out_stays(start_kernel: Callable[..., Any]) -> None:
    """A named computation cannot give both a number and its text; a repeat wipes neither tags nor a written summary."""
    kernel = start_kernel()
    code = (
        "%load_ext rlm_memory\ne = memory.experiments\n"
        "e.record(4711, title='number', query='q', tags=['keep'])\n"
        "try:\n    e.record('4711', title='text', query='q')\n"
        "except memory.errors.Invalid as error:\n    print(error.code)\n"
        "e.record(4711, title='again', query='q')\nprint(e.search('again')[0].tags)\n"
        "for given in ('mine', None, 'better', None):\n"
        "    e.record(4711, title='again', query='q', summary=given)\n    print(e.search('again')[0].summary)\n"
        "for bad in (dict(tags=5), dict(media_type=5), dict(derived_from='garbage!')):\n"
        "    try:\n        e.record('x', title='t', **bad)\n"
        "    except memory.errors.Invalid:\n        print('Invalid')"
    )
    assert kernel.run(code).ok().splitlines() == [
        *("VALIDATION", "('keep',)", "mine", "mine", "better", "better"),
        *("Invalid", "Invalid", "Invalid"),
    ]


def test_frames_travel_through_the_real_host_and_back(start_kernel: Callable[..., Any]) -> None:
    """A table by columns, its preview, its original in another kernel; a tampered object is refused."""
    kernel = start_kernel()
    code = (
        "%load_ext rlm_memory\nimport pandas as pd\n"
        "d = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\nr = memory.experiments.record(d, title='frame')\n"
        "print(memory.experiments.load(r).equals(d), list(memory.experiments.load(r, columns=['b']).columns))\n"
        "print(memory.experiments.preview(r))"
    )
    assert kernel.run(code).ok().splitlines() == [
        "True ['b']",
        "frame (preview, unverified)",
        "a  b",
        "1  x",
        "2  y",
    ]
    other = start_kernel()
    found = (
        "%load_ext rlm_memory\nprint(memory.experiments.search('frame')[0].load(), len(memory.experiments.search('')))"
    )
    assert other.run(found).ok().splitlines() == ["   a  b", "0  1  x", "1  2  y 1"]


def test_reuse_over_sessions_through_the_real_host(start_kernel: Callable[..., Any]) -> None:
    """A block, a function and a cell of one kernel are reused in another, with the reason, the seconds, the origin."""
    cell = "%%experiment --source w --source-version v1 --title Sum\nsum(numbers)"
    setting = (
        "%load_ext rlm_memory\ne = memory.experiments\nran, numbers = [], [1, 2]\n"
        "def block(n, version='v1'):\n"
        "    with e.computation('select', {'n': n}, title='Block', source='w', source_version=version) as c:\n"
        "        if not c.reused: ran.append(n); c.set({'n': n})\n"
        "    return c\n"
        "@e.cached(source='w', source_version='v1', ignore=['ran'])\n"
        "def double(ref):\n"
        "    ran.append('double'); return 2 * memory.experiments.load(ref)['n']\n"
    )
    first, second = start_kernel(), start_kernel()
    for kernel, told in ((first, "computed and recorded"), (second, "reused")):
        kernel.run(setting).ok()
        kernel.run("c = block(1); d = double(c.ref)").ok()
        assert kernel.run(cell).text.startswith(told)
    code = (
        "print(ran, c.reused, c.value, d, c.reuse.seconds_saved >= 0, e.saved.hits)\n"
        "print([n.title for n in e.lineage(e.search('double')[0]).nodes])\n"
        "print(block(2).reuse.changed, block(1, 'v2').reuse.changed)"
    )
    assert second.run(code).ok().splitlines() == [
        "[] True {'n': 1} 2 True 3",
        "['double', 'Block']",
        "(\"params['n']\",) ('source_version',)",
    ]
    second.run("numbers = [1, 3]").ok()
    assert "(params['numbers'] changed since art_" in second.run(cell).text


def test_arguments_that_are_no_tree_are_refused_in_one_line(start_kernel: Callable[..., Any]) -> None:
    """What holds itself and what is nested without end is Invalid, and the next call works."""
    kernel = start_kernel()
    code = (
        "%load_ext rlm_memory\nloop = {}; loop['a'] = loop\ndeep = here = {}\n"
        "for _ in range(5000):\n    here['a'] = {}; here = here['a']\n"
        "for bad in (loop, {'query': [loop]}, deep):\n"
        "    try:\n        dsh_tools.call('memory_search', bad)\n"
        "    except memory.errors.Invalid as error:\n        print(error)\n"
        "print(len(memory.experiments.search('')))"
    )
    refused = "memory_search: an argument is nested too deeply, or holds itself"
    assert kernel.run(code).ok().splitlines() == [refused, refused, refused, "0"]


def test_an_exit_hook_is_told_at_once_that_the_kernel_is_ending(
    start_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """A call in `atexit` neither waits nor fails with what the sockets say: one named error."""
    kernel = start_kernel()
    kernel.run(
        "%load_ext rlm_memory\nmemory.experiments.record([1], title='before')\nimport atexit\n"
        "def at_end():\n    with open('said.txt', 'w') as file:\n"
        "        try:\n            memory.experiments.search('before'); file.write('answered')\n"
        "        except Exception as error:\n            file.write(f'{type(error).__name__} {error.code}')\n"
        "atexit.register(at_end)"
    ).ok()
    kernel.manager.shutdown_kernel(now=False)
    said = (tmp_path / "said.txt").read_text()
    # A control thread that has not ended by then still brings the answer.
    assert said in ("HostUnavailable REQUEST_SCOPE_CLOSED", "answered")
