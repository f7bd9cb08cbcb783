"""`memory.experiments` in a real kernel against the fake host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel_patience import eventually
from rlm_memory.testing import FakeHost

pytestmark = [pytest.mark.kernel, pytest.mark.compat]


def exports(host: FakeHost) -> list[Path]:
    return list((host.session_dir / "exports").iterdir())


def test_a_busy_cell_gets_its_answers_and_no_other_cell_runs_early(kernel: Any) -> None:
    """A record and a search inside a running cell answer at once; the next queued cell starts after it (case G2-01)."""
    kernel.client.execute(
        "import time\nt = time.monotonic(); ref = memory.experiments.record({'a': 1}, title='busy')\n"
        "quick = time.monotonic() - t < 5\nhits = memory.experiments.search('busy'); found = len(hits)\n"
        "for i in range(50): memory.experiments.search('busy')\n"
        "time.sleep(1); end = time.monotonic()"
    )
    kernel.client.execute("start = time.monotonic()")
    assert kernel.run("print(quick, bool(ref), found, start >= end)").ok().strip() == "True True 1 True"


def test_forked_children_get_a_named_error_and_the_parent_goes_on(kernel: Any) -> None:
    """Each of eight jobs in four children is told where to call from (case G2-03)."""
    code = (
        "import multiprocessing as mp\n"
        "def job(i):\n"
        "    try: return ('ok', str(memory.experiments.record({'i': i}, title=f'child {i}')))\n"
        "    except Exception as e: return (type(e).__name__, str(e))\n"
        "with mp.get_context('fork').Pool(4) as p: out = p.map(job, range(8), chunksize=1)\n"
        "print(len(set(out)), out[0][0], 'forked child' in out[0][1])\n"
        "print(memory.experiments.search('parent still works') is not None, mp.active_children())"
    )
    assert kernel.run("memory.status()\n" + code).ok().splitlines() == ["1 Forked True", "True []"]


def test_threads_record_and_load_their_own_and_print_nothing(kernel: Any, host: FakeHost) -> None:
    """Sixteen threads make 64 cards; one that records later leaves the next cell's output alone (case G2-05)."""
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def one(i):\n"
        "    r = memory.experiments.record({'i': i}, title=f't{i}'); return memory.experiments.load(r)['i'] == i\n"
        "with ThreadPoolExecutor(16) as ex: print(all(ex.map(one, range(64))))"
    )
    assert kernel.run(code).ok().strip() == "True"
    assert len(host.store.cards()) == 64
    assert exports(host) == []
    kernel.run(
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(1), memory.experiments.record('later', title='later'))).start()"
    ).ok()
    assert kernel.run("time.sleep(3); print('cell 2')").text == "cell 2\n"
    assert eventually(lambda: len(host.store.cards()) == 65)


def test_what_is_recorded_comes_back_and_nothing_stays_in_exports(kernel: Any, host: FakeHost) -> None:
    """Objects of the plain kinds, by every kind of reference, blocking and awaited."""
    for value in ("{'a': [1, 2.5, None, 'é']}", "[1, 2]", "'text é'", "b'octets'", "7"):
        assert (
            kernel.run(f"print(memory.experiments.load(memory.experiments.record({value}, title='v')) == {value})").ok()
            == "True\n"
        )
    code = (
        "r = await memory.aio.experiments.record({'k': 1}, title='one', tags=['t'])\n"
        "h = (await memory.aio.experiments.search('one'))[0]\n"
        "refs = [r, h, h.resolve(), r.experiment_id, r.experiment_id[:12], r.short_id, "
        "r.artifact_id, {'experiment_id': r.experiment_id}]\n"
        "print([memory.experiments.load(x) for x in refs] == [{'k': 1}] * len(refs), "
        "await memory.aio.experiments.load(h) == r.load())"
    )
    assert kernel.run(code).ok() == "True True\n"
    assert exports(host) == []


def test_a_short_id_that_fits_two_results_names_both(kernel: Any, host: FakeHost) -> None:
    """The candidates and their titles are in the message; an unknown short id is the host's NotFound."""
    kernel.run("refs = [memory.experiments.record({'i': i}, title=f'n{i}') for i in range(12)]").ok()
    code = (
        "from rlm_memory import references\nreferences.SHORTEST = 1\n"
        "from collections import Counter\n"
        "first = Counter(r.experiment_id[:5] for r in refs).most_common(1)[0][0]\n"
        "memory.experiments.load(first)"
    )
    error = kernel.run(code).error or ""
    assert error.startswith("Invalid: 'exp_")
    assert "is the start of" in error
    assert "('n" in error
    assert (kernel.run("memory.experiments.load('exp_zzzzzzzz')").error or "").startswith("NotFound: ")


def test_files_are_recorded_as_they_are_under_any_name(kernel: Any, host: FakeHost, tmp_path: Path) -> None:
    """Odd names keep their code points beside the card, and the bytes come back exactly (case G3-05)."""
    names = ["a b.png", "100%.txt", "img%20%26.png", "x#y?z.csv", "t:1.txt", "caf\u00e9.txt", "cafe\u0301.txt"]
    names += ["\u6e2c\u5b9a.txt", "n" * 250 + ".bin"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    code = (
        "from pathlib import Path\nbad = []\n"
        f"for n in {names!a}:\n"
        "    r = memory.experiments.record(Path(n), title=n[:100])\n"
        "    p = memory.experiments.preview(r)\n"
        "    if memory.experiments.load(r) != n.encode() or p.lineage['file_name'] != n: bad.append(n)\n"
        "print(bad)"
    )
    assert kernel.run(code).ok() == "[]\n"
    assert len(host.store.cards()) == len(names)
    assert exports(host) == []
    error = kernel.run("memory.experiments.record(1, title='x' * 201)").error
    assert error == "Invalid: title has 201 characters, the limit is 200"


def test_relative_paths_count_from_the_kernels_current_folder(kernel: Any, host: FakeHost, tmp_path: Path) -> None:
    """As for `open`, also after os.chdir; a missing file names the absolute path and records nothing (case G6-09)."""
    (tmp_path / "proj" / "nb").mkdir(parents=True)
    (tmp_path / "proj" / "data").mkdir()
    (tmp_path / "proj" / "data" / "x.csv").write_text("a\n1\n")
    kernel.run("import os; os.chdir('proj/nb')").ok()
    code = (
        "r = memory.experiments.record('../data/x.csv', title='x', source='../data/x.csv')\n"
        "print(memory.experiments.load(r))"
    )
    assert kernel.run(code).ok() == "b'a\\n1\\n'\n"
    kernel.run("os.chdir('/')").ok()
    error = kernel.run(code).error or ""
    assert error.startswith("FileNotFoundError: no file to record at /../data/x.csv")
    assert len(host.store.cards()) == 1


def test_only_the_exports_of_the_session_folder_may_be_recorded(kernel: Any, host: FakeHost) -> None:
    """A file of one's own in exports/ stays there; any other of the session's folder is refused."""
    own = host.session_dir / "exports" / "mine.txt"
    own.write_text("mine")
    (host.session_dir / "manifest.json").write_text("{}")
    assert (
        kernel.run(f"print(memory.experiments.load(memory.experiments.record({str(own)!r}, title='m')))").ok()
        == "b'mine'\n"
    )
    assert own.exists()
    error = kernel.run(f"memory.experiments.record({str(host.session_dir / 'manifest.json')!r}, title='m')").error or ""
    assert error.startswith("UnsafeSource: ")
    assert (kernel.run("memory.experiments.record('/dev/null', title='m')").error or "").startswith("UnsafeSource: ")


def test_a_failed_record_leaves_nothing_in_exports(
    make_host: Callable[..., FakeHost], state_root: Path, start_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """Refused by the host, or interrupted: the encoded file is gone either way, blocking and awaited."""
    host = make_host(
        tools={}, script=lambda seen: 3600.0 if seen.data.get("arguments", {}).get("title") == "slow" else 0.0
    )
    host.listen(state_root)
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory").ok()
    error = kernel.run("memory.experiments.record({'a': 1}, title='t')").error or ""
    assert error.startswith("Denied: this host does not offer memory_artifact_record")
    assert exports(host) == []
    for count, call in enumerate(("memory.experiments", "await memory.aio.experiments"), start=1):
        kernel.client.execute(f"{call}.record({{'a': 1}}, title='slow')", stop_on_error=False)
        assert eventually(lambda count=count: sum("slow" in str(seen.data) for seen in host.seen) == count)
        assert len(exports(host)) == 1
        kernel.manager.interrupt_kernel()
        assert eventually(lambda: exports(host) == [])
        assert kernel.client.get_shell_msg(timeout=30)["content"]["status"] == "error"


def test_only_a_fresh_result_is_reused_and_the_reason_is_told(kernel: Any) -> None:
    """Same computation and version: reused. Another version, no version, nothing given: None, each with its words."""
    kernel.run(
        "e = memory.experiments\nr = e.record([1], title='q', query='select 1\\n', "
        "params={'n': 1}, source_version='v1')\n"
        "e.record([2], title='nothing said', source_version='v1')\n"
        "why = lambda **k: (e.get(**k) is not None, e.last_reuse.why)"
    ).ok()
    told = kernel.run(
        "for k in (dict(query='select 1', params={'n': 1}, source_version='v1'), "
        "dict(fingerprint=r.query_fingerprint, source_version='v1'),\n"
        "          dict(query='select 1', params={'n': 1}, source_version='v2'), "
        "dict(query='select 1', params={'n': 1}),\n"
        "          dict(query='select 1', params={'n': 1.0}, source_version='v1'), "
        "dict(source_version='v1')): print(*why(**k), sep=': ')"
    ).ok()
    assert told.splitlines() == [
        "True: same fingerprint, same source version, bytes verified",
        "True: same fingerprint, same source version, bytes verified",
        "False: recorded for source version 'v1', not for 'v2'",
        "False: no source_version was given, so freshness cannot be told and nothing is reused",
        "False: no recorded result has this fingerprint",
        "False: nothing was given of the computation (no fingerprint, query, "
        "params or inputs), so nothing can be the same",
    ]


def test_staleness_names_both_versions_and_odd_versions_are_refused(kernel: Any) -> None:
    """`load` gives the bytes as recorded; "" and 1 are refused, None asks for nothing (case G3-13)."""
    kernel.run("r = memory.experiments.record('v one', title='d', source='s', source_version='1')").ok()
    stale = kernel.run("print(memory.experiments.resolve(r, current_source_version='v2'))").ok()
    assert "stale: recorded from '1', now 'v2'" in stale
    kinds = (
        "said = [memory.experiments.resolve(r, v).freshness for v in (None, '1', 'unknown')]\n"
        "print(*said, memory.experiments.load(r))"
    )
    assert kernel.run(kinds).ok() == "not_checked fresh unverifiable v one\n"
    for odd in ("''", "1"):
        assert (kernel.run(f"memory.experiments.resolve(r, {odd})").error or "").startswith(
            "Invalid: current_source_version"
        )


def test_damaged_bytes_are_an_error_never_data(kernel: Any, host: FakeHost) -> None:
    """The host refuses to resolve them, and `load` raises Integrity."""
    kernel.run("r = memory.experiments.record('right', title='d')").ok()
    host.store.object_path(host.store.cards()[0]["artifact_id"]).write_bytes(b"wrong")
    assert (kernel.run("memory.experiments.load(r)").error or "").startswith("Integrity: ")


def test_a_large_result_is_not_loaded_by_a_slip(kernel: Any) -> None:
    """Over the bound `load` asks for a part or for full=True."""
    kernel.run(
        "from rlm_memory import operations\noperations.MAX_INLINE_LOAD_BYTES = 3\n"
        "r = memory.experiments.record('large', title='d')"
    ).ok()
    error = kernel.run("memory.experiments.load(r)").error or ""
    assert error.startswith("Invalid: this result has 5 bytes, over the 3 bytes")
    assert kernel.run("print(memory.experiments.load(r, full=True))").ok() == "large\n"


def test_what_is_shown_does_not_depend_on_run_place_or_day(kernel: Any) -> None:
    """Reprs, text and HTML: content-derived ids only, no address, path or time, and text of others stays inert."""
    kernel.run(
        "r = memory.experiments.record({'a': 1}, title='<b>t</b>\\x1b[31m\\u202e', "
        "tags=['x'], source='s', source_version='v')"
    ).ok()
    text = kernel.run(
        "print(r); print(memory.experiments.search('')); "
        "print(memory.experiments.resolve(r)); print(memory, memory.experiments)"
    ).ok()
    assert text.splitlines() == [
        "Recorded('<b>t</b>\\\\x1b[31m\\\\u202e', 1 item, art_afnl2724yv)",
        "#  title                   size    source  tags  why     id",
        "0  <b>t</b>\\x1b[31m\\u202e  1 item  s @ v   x     newest  art_afnl2724yv",
        "Resolved('<b>t</b>\\\\x1b[31m\\\\u202e', 1 item, not checked, art_afnl2724yv)",
        "memory: experiments, remember(), search(), recall(), read(), record(), correct(), forget(), status(), "
        "fingerprint(), errors, aio "
        "memory.experiments: record, search, resolve, load, preview, get, computation, cached, lineage, compare",
    ]
    html = kernel.run("print(r._repr_html_(), memory.experiments.search('')._repr_html_())").ok()
    assert "<b>" not in html
    assert "&lt;b&gt;t&lt;/b&gt;" in html
    assert "2026" not in html


def test_completions_offer_methods_and_ids(kernel: Any) -> None:
    """Tab after `memory.experiments.` and inside `memory.experiments["`."""
    kernel.run("r = memory.experiments.record({'a': 1}, title='t')").ok()
    code = (
        "keys = memory.experiments._ipython_key_completions_()\n"
        "print(dir(memory), keys == [r.experiment_id], memory.experiments[keys[0]].title)"
    )
    assert kernel.run(code).ok() == (
        "['aio', 'close', 'correct', 'errors', 'experiments', 'fingerprint', 'forget', 'read', 'recall', 'record', "
        "'remember', 'search', 'share', 'status'] True t\n"
    )


def test_snapshots_are_small_and_work_in_a_fresh_kernel(
    kernel: Any, host: FakeHost, start_kernel: Callable[..., Any]
) -> None:
    """`memory` and its parts under 128 bytes; results load there too and hold no path of the store."""
    code = (
        "import dill\nr = memory.experiments.record({'a': 1}, title='t')\n"
        "things = [memory, memory.experiments, memory.aio, memory.aio.experiments, dsh_tools]\n"
        "print(max(len(dill.dumps(t)) for t in things) < 128)\n"
        "held = [memory, r, memory.experiments.search('t'), memory.experiments.resolve(r)]\n"
        "blob = dill.dumps(held); print(blob.hex())"
    )
    small, blob = kernel.run(code).ok().split()
    assert small == "True"
    assert str(host.store.object_path("")).encode() not in bytes.fromhex(blob)
    assert str(host.session_dir).encode() not in bytes.fromhex(blob)
    fresh = start_kernel()
    code = (
        f"import dill\nm, r, hits, v = dill.loads(bytes.fromhex('{blob}'))\n"
        "print(m.experiments.load(r), hits[0].load(), v.load(), len(hits))"
    )
    assert fresh.run(code).ok() == "{'a': 1} {'a': 1} {'a': 1} 1\n"
    error = (
        kernel.run("from rlm_memory.kernel import connection\nimport pickle; pickle.dumps(connection().channel)").error
        or ""
    )
    assert error.startswith("TypeError: the live channel to the host cannot be pickled")


def test_an_argument_that_says_nothing_of_the_object_is_refused_by_name(kernel: Any, host: FakeHost) -> None:
    """Rather than left unheard; a figure's format and a sample's seed reach the codec."""
    code = (
        "import pathlib, pandas as pd, matplotlib.figure\npathlib.Path('x.csv').write_text('a')\n"
        "d, f = pd.DataFrame({'a': range(100)}), pathlib.Path('x.csv')\n"
        "for obj, given in ((d, dict(as_text=True)), (d, dict(as_text=False)), (f, dict(as_text=True)),\n"
        "                   (d, dict(media_type='text/csv')), (d, dict(image='svg')), (f, dict(image='svg')),\n"
        "                   (matplotlib.figure.Figure(), dict(image='bmp'))):\n"
        "    try: memory.experiments.record(obj, title='t', **given)\n"
        "    except memory.errors.Invalid as error: print(str(error).split()[0].split('=')[0].strip(':'))\n"
    )
    refused = kernel.run(code).ok().split()
    assert refused == ["as_text", "as_text", "as_text", "media_type", "image", "image", "image"]
    assert host.store.cards() == []
    assert exports(host) == []
    code = (
        "p = memory.experiments.record(matplotlib.figure.Figure(), title='p', image='svg')\n"
        "r = memory.experiments.record(d, title='r')\n"
        "a, b, c = (memory.experiments.load(r, sample=9, seed=n)['a'].tolist() for n in (1, 1, 2))\n"
        "print(p.load().media_type, a == b, a == c)"
    )
    assert kernel.run(code).ok() == "image/svg+xml True False\n"
