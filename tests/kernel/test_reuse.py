"""Reuse in a real kernel against the fake host: blocks, functions, cells, the reasons, what was made from what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rlm_memory.testing import FakeHost

pytestmark = [pytest.mark.kernel, pytest.mark.compat]

BLOCK = """
ran = []
def block(year, version='v1', sql='select 1', **more):
    with e.computation(sql, {'year': year}, title='By year', source='w', source_version=version, **more) as c:
        if not c.reused:
            ran.append(year)
            c.set({'year': year})
    return c
"""


@pytest.fixture
def kernel(kernel: Any) -> Any:
    kernel.run("e = memory.experiments").ok()
    return kernel


def test_a_block_computes_once_and_says_what_changed(kernel: Any, host: FakeHost) -> None:
    """The same: reused with the recorded value. Another parameter, code or version: computed, with its name."""
    kernel.run(BLOCK).ok()
    told = kernel.run(
        "for k in (dict(year=1), dict(year=1), dict(year=2), dict(year=2, sql='select 2'),\n"
        "          dict(year=2, version='v2'), dict(year=1, refresh=True)):\n"
        "    c = block(**k); why = c.why.replace(c.reuse.nearest or '-', '#')\n"
        "    print(c.reused, c.value, c.reuse.changed, c.ref is not None, why)\n"
        "print(ran, e.last_reuse is c.reuse, e.load(c.ref))"
    ).ok()
    assert told.splitlines() == [
        "False {'year': 1} () True nothing was recorded with this title and source",
        "True {'year': 1} () True same fingerprint, same source version, bytes verified",
        "False {'year': 2} (\"params['year']\",) True params['year'] changed since #",
        "False {'year': 2} ('code',) True code changed since #",
        "False {'year': 2} ('source_version',) True recorded for source version 'v1', not for 'v2'",
        "False {'year': 1} () True refresh=True asked to compute again",
        "[1, 2, 2, 2, 1] True {'year': 1}",
    ]
    notes = [host.store.annotations[card["experiment_id"]] for card in host.store.cards()]
    assert all(note["statistics"]["compute_seconds"] >= 0 for note in notes)
    assert "select" not in str(notes)
    assert kernel.run("s = e.saved; print(s.hits, e.last_reuse)").ok() == (
        "1 not reused: refresh=True asked to compute again\n"
    )


def test_a_block_that_fails_or_forgets_records_nothing(kernel: Any, host: FakeHost) -> None:
    """An exception goes on; a block without a value says so; values of no kind that can be kept are refused."""
    options = "title='t', source_version='v'"
    for body, error in (
        ("c.set(1); 1 / 0", "ZeroDivisionError: "),
        ("pass", "Invalid: the block ended without c.set(value)"),
        ("c.set(object())", "Invalid: record: there is no codec"),
        ("c.value", "Invalid: there is no value yet"),
    ):
        assert (kernel.run(f"with e.computation('q', {options}) as c: {body}").error or "").startswith(error)
    assert (kernel.run("e.computation('q', title='t').value").error or "").startswith(
        "Invalid: the computation has not"
    )
    assert host.store.cards() == []


def test_what_may_not_be_reused_is_recorded_and_never_reused(kernel: Any, host: FakeHost) -> None:
    """No version, the version "unknown", nothing given: computed each time, and it says why."""
    code = (
        "for given in (dict(query='q'), dict(query='q', source_version='unknown'),\n"
        "              dict(query=None, source_version='v')):\n"
        "    for turn in range(2):\n"
        "        with e.computation(title='t', **given) as c:\n"
        "            if not c.reused: c.set([turn])\n"
        "    print(c.reused, c.value, c.why[:44])\n"
        "print(e.get(query=None, source_version='v'), e.last_reuse.why[:30])\n"
    )
    assert kernel.run(code).ok().splitlines() == [
        "False [1] no source_version was given, so freshness ca",
        "False [1] no source_version was given, so freshness ca",
        "False [1] nothing was given of the computation (no fin",
        "None nothing was given of the compu",
    ]
    assert len(host.store.cards()) == 4


def test_setting_a_value_in_a_reused_block_warns_and_keeps_the_recorded(kernel: Any, host: FakeHost) -> None:
    """Whoever forgets to ask is told, and gets the recorded value."""
    code = (
        "import warnings\n"
        "for value in ('first', 'second'):\n"
        "    with warnings.catch_warnings(record=True) as said:\n"
        "        warnings.simplefilter('always')\n"
        "        with e.computation('q', title='t', source_version='v') as c: c.set(value)\n"
        "    print(c.value, ['if not c.reused' in str(w.message) for w in said])\n"
    )
    assert kernel.run(code).ok() == "first []\nfirst [True]\n"
    assert len(host.store.cards()) == 1


def test_the_async_block_is_the_same(kernel: Any) -> None:
    """Awaited in a cell; several at once, each with its own decision."""
    code = (
        "import asyncio\n"
        "async def one(n):\n"
        "    async with memory.aio.experiments.computation('q', {'n': n}, title='t', source_version='v') as c:\n"
        "        await asyncio.sleep(0)\n"
        "        if not c.reused: c.set(n)\n"
        "    return c.reused, await c.load(), e.last_reuse is c.reuse\n"
        "first = await one(1)\n"
        "print(first, await asyncio.gather(*(one(n) for n in range(3))))"
    )
    assert kernel.run(code).ok() == ("(False, 1, True) [(False, 0, True), (True, 1, True), (False, 2, True)]\n")


def test_parallel_threads_read_their_own_decision(kernel: Any) -> None:
    """One global would give a thread the reason of another."""
    code = (
        "from concurrent.futures import ThreadPoolExecutor\nimport threading\n"
        "e.record([0], title='t', query='q', params={'n': 0}, source_version='v')\n"
        "gate = threading.Barrier(4)\n"
        "def one(n):\n"
        "    found = e.get(query='q', params={'n': n}, source_version='v'); gate.wait()\n"
        "    return e.last_reuse.reused == (found is not None) == (n == 0)\n"
        "with ThreadPoolExecutor(4) as pool: print(list(pool.map(one, range(4))))"
    )
    assert kernel.run(code).ok() == "[True, True, True, True]\n"


CACHED = """
calls = []
rate = 2
def scale(n): return n * rate
@memory.experiments.cached(source='w', source_version='v1', title='Scaled', ignore=['calls', 'note'])
def scaled(n, /, step=1, *, note=None):
    calls.append(n)
    return scale(n) + step
"""


def test_a_cached_function_runs_once_for_each_computation(kernel: Any, host: FakeHost) -> None:
    """Arguments by value however they are passed, globals two calls away, the code; another kernel's too."""
    kernel.run(CACHED).ok()
    code = (
        "print(scaled(1), scaled(1), scaled(1, 1), scaled(1, step=1, note=object()), calls, scaled.__name__)\n"
        "print(scaled(1, step=2), e.last_reuse.changed)\n"
        "rate = 3; print(scaled(1), e.last_reuse.changed, len(calls))"
    )
    assert kernel.run(code).ok().splitlines() == [
        "3 3 3 3 [1] scaled",
        "4 (\"params['step']\",)",
        "4 (\"params['scale().rate']\",) 3",
    ]
    kernel.run(CACHED.replace("source_version='v1'", "source_version='v1', tags=['x']")).ok()
    assert kernel.run("print(scaled(1), calls, e.last_reuse.reused)").ok() == "3 [] True\n"
    assert len(host.store.cards()) == 3


def test_blocks_and_cached_functions_survive_a_snapshot(kernel: Any, start_kernel: Callable[..., Any]) -> None:
    """A pickled block holds its reference, not its value; a function goes on reusing where its source is known."""
    kernel.run("import dill\n" + CACHED).ok()
    kernel.run("@e.cached(source_version='v')\ndef plain(n): return n * rate").ok()
    code = (
        "with e.computation('q', title='big', source_version='v') as c: c.set('x' * 100_000)\n"
        "block = dill.dumps(c); plain(1); scaled(1)\n"
        "print(len(block) < 5000, dill.dumps([block, plain, scaled], recurse=True).hex())"
    )
    small, blob = kernel.run(code).ok().split()
    assert small == "True"
    fresh = start_kernel()
    fresh.run("%load_ext rlm_memory\nimport dill\ncalls, rate = [], 2").ok()
    again = fresh.run(
        f"block, plain, scaled = dill.loads(bytes.fromhex('{blob}'))\nc = dill.loads(block)\n"
        "print(len(c.value), c.ref.title)"
    )
    assert again.ok() == "100000 big\n"
    assert fresh.run("print(plain(1), memory.experiments.last_reuse.reused)").ok() == "2 True\n"
    assert (fresh.run("scaled(1)").error or "").startswith("Invalid: the computation calls 'scale', whose source")


def test_a_cached_function_refuses_what_it_cannot_tell_apart(kernel: Any, host: FakeHost) -> None:
    """By name, before anything is computed; a recorded result counts by its bytes; a coroutine function stays one."""
    kernel.run("import pandas as pd\ntable = pd.DataFrame({'a': [1]})\nr = e.record(table, title='t')").ok()
    kernel.run(
        "@e.cached(source_version='v')\ndef total(ref, times=1): "
        "return int(memory.experiments.load(ref)['a'].sum()) * times\n"
        "@e.cached(source_version='v')\ndef reads(): return int(table['a'].sum())\n"
        "@e.cached(source_version='v')\nasync def later(n): return n\n"
    ).ok()
    error = kernel.run("total(table)").error or ""
    assert error.startswith("Invalid: total() is called with 'ref', a DataFrame, which has no canonical form")
    assert (kernel.run("reads()").error or "").startswith("Invalid: the computation reads 'table', a DataFrame")
    assert len(host.store.cards()) == 1
    code = (
        "print(total(r), total(r), e.last_reuse.reused, await later(2), await later(2), e.last_reuse.reused)\n"
        "print([n.title for n in e.lineage(e.search('total')[0]).nodes])"
    )
    assert kernel.run(code).ok() == "1 1 True 2 2 True\n['total', 't']\n"


CELL = (
    "%%experiment --source w --source-version v1 --title 'Twice the total'\nruns.append(1)\ntotal = sum(xs)\ntotal * 2"
)


def test_a_cell_is_run_once_and_loaded_after(kernel: Any, host: FakeHost) -> None:
    """The last expression is shown, run or loaded; a changed variable that it reads is named; errors record nothing."""
    kernel.run("runs = []; xs = [1, 2]").ok()
    refusal = kernel.run(CELL.replace("runs.append(1)", "runs.append(xs[0]); con"))
    assert (refusal.error or "").startswith("NameError")
    cell = CELL.replace("--title", "--ignore runs --title")
    first, again = kernel.run(cell), kernel.run(cell)
    assert [one.data[-1]["text/plain"] for one in (first, again)] == ["6", "6"]
    assert first.text.endswith("(nothing was recorded with this title and source)\n")
    assert again.text.startswith("reused art_")
    kernel.run("xs = [1, 3]").ok()
    changed = kernel.run(cell)
    assert changed.data[-1]["text/plain"] == "8"
    assert "(params['xs'] changed since art_" in changed.text
    assert kernel.run("print(len(runs))").ok() == "3\n"
    kernel.run("%%experiment --source-version v --title t\n1 / 0")
    assert len(host.store.cards()) == 2


def test_the_result_of_a_cell_may_be_a_variable(kernel: Any) -> None:
    """It is set whether the cell ran or not; a semicolon shows nothing; magics inside work."""
    kernel.run("before = 1").ok()
    cell = "%%experiment --source-version v --title t --result answer\nwd = %pwd\nanswer = before + len(str(wd)) * 0"
    assert kernel.run(cell).text.startswith("computed and recorded art_")
    kernel.run("del answer").ok()
    assert kernel.run(cell).text.startswith("reused art_")
    assert kernel.run("print(answer)").ok() == "1\n"
    assert kernel.run("%%experiment --source-version v --title u\n5;").data == []


def test_magics_name_what_is_wrong(kernel: Any, host: FakeHost) -> None:
    """Each misuse is one line, and nothing is recorded."""
    kernel.run("class C: pass\nthing = C()").ok()
    for code, words in (
        ("%%experiment\n1", "--title"),
        ("%%experiment --title t --nonsense 1\n1", "unrecognized arguments: --nonsense"),
        ("%%experiment --title t\nx = 1", "ends without an expression"),
        ("%%experiment --title t --result y\nx = 1", "no variable 'y'"),
        ("%%experiment --title t\nawait z\n1", "await"),
        ("%%experiment --title t\n1 +", "is not Python"),
        ("%%experiment --title t\nthing", "reads 'thing', a C"),
        ("%keep nosuch", "no variable 'nosuch'"),
        ("%keep", "required: name"),
    ):
        error = kernel.run(code).error or ""
        assert error.startswith("Invalid: "), (code, error)
        assert words in error
    assert host.store.cards() == []


def test_a_variable_is_kept_with_one_line(kernel: Any, host: FakeHost) -> None:
    """Its name is the title, unless one is given; text stays text."""
    kernel.run("table = {'a': 1}; path = '/no/such/file.csv'").ok()
    assert kernel.run("%keep table").ok() == "Recorded('table', 1 item, art_afnl2724yv)"
    kernel.run("%keep path --title 'A name' --tag x --tag y --source s --source-version v").ok()
    card = host.store.cards()[0]
    assert [card[name] for name in ("title", "tags", "source", "source_version")] == ["A name", ["x", "y"], "s", "v"]


def test_magics_come_and_go_with_the_extension(kernel: Any) -> None:
    """One of each over reloads, none after unloading, and another owner's stays."""
    count = (
        "all_magics = get_ipython().magics_manager.magics\n"
        "print([m for k, m in (('cell', 'experiment'), ('line', 'keep')) if m in all_magics[k]])"
    )
    kernel.run("%reload_ext rlm_memory\n%load_ext rlm_memory").ok()
    assert kernel.run(count).ok() == "['experiment', 'keep']\n"
    assert kernel.run("x = 1\n%keep x").ok().startswith("Recorded(")
    kernel.run("%unload_ext rlm_memory").ok()
    assert kernel.run(count).ok() == "[]\n"
    kernel.run("get_ipython().register_magic_function(lambda line: 'mine', 'line', 'keep')\n%load_ext rlm_memory").ok()
    kernel.run("%unload_ext rlm_memory").ok()
    assert kernel.run("%keep").ok() == "'mine'"


def test_lineage_shows_what_a_result_was_made_from(kernel: Any, host: FakeHost) -> None:
    """Parents by reference and by input, each result once, the same text and HTML in every run."""
    kernel.run(
        "a = e.record([1], title='<raw>', source='w', source_version='v')\n"
        "b = e.record([2], title='clean', derived_from=a)\n"
        "c = e.record([3], title='model', inputs={'clean': b}, query='fit', derived_from=[a])\n"
        "line = await memory.aio.experiments.lineage(c)"
    ).ok()
    shown = kernel.run(
        "print(line); print(len(line), line.edges == ((c.experiment_id, a.experiment_id), "
        "(c.experiment_id, b.experiment_id), (b.experiment_id, a.experiment_id)), line.cut)"
    ).ok()
    a, b, c = ("art_" + card["artifact_id"][4:14] for card in reversed(host.store.cards()))
    assert shown.splitlines() == [
        f"{c}  model",
        f"  from {a}  <raw>  w @ v",
        f"  from {b}  clean",
        f"    from {a}  <raw>  w @ v (as above)",
        "3 True False",
    ]
    html = kernel.run("print(line._repr_html_())").ok()
    assert html.count("<li>") == html.count("</li>") == 4
    assert html.count("<ul>") == html.count("</ul>") == 3
    assert "<raw>" not in html
    assert (kernel.run("e.lineage('exp_" + "a" * 52 + "')").error or "").startswith("NotFound: ")


def test_lineage_ends_at_its_bounds_and_in_a_circle(kernel: Any, host: FakeHost) -> None:
    """Notes are written by whoever recorded: a circle, a stranger's id and a long chain do no harm."""
    kernel.run("refs = [e.record([n], title=f'n{n}') for n in range(3)]").ok()
    zero, one, two = (card["experiment_id"] for card in reversed(host.store.cards()))
    notes = host.store.annotations
    notes[zero]["lineage"] = {"derived_from": [one, "exp_" + "b" * 52, "nonsense", 7]}
    notes[one]["lineage"] = {"derived_from": [two, zero]}
    notes[two]["lineage"] = "no mapping"
    assert [line.split("  ")[-1] for line in kernel.run("print(e.lineage(refs[0]))").ok().splitlines()] == [
        *("n0", "n1", "n2", "n0 (as above)", "not in this project"),
    ]
    cut = kernel.run("from rlm_memory import lineage\nlineage.MAX_NODES = 2\nprint(e.lineage(refs[0]).cut)")
    assert cut.ok() == "True\n"


def test_results_open_lazily_and_compare(kernel: Any) -> None:
    """A dataset of a table, a map of an array; what changed between two tables; large ones only on purpose."""
    code = (
        "import pandas as pd, numpy as np\n"
        "a = e.record(pd.DataFrame({'n': [1, 2], 'x': ['a', 'b']}), title='a')\n"
        "b = e.record(pd.DataFrame({'n': [1, 3], 'x': ['a', 'b']}), title='b')\n"
        "m = e.record(np.arange(4), title='m')\n"
        "print(e.open(a).count_rows(), type(e.open(m)).__name__, (await memory.aio.experiments.open(m))[3])\n"
        "d = e.compare(a, b)\n"
        "print(bool(e.compare(a, a)), bool(d), [x.what for x in d.differences], d.differences[0].where.split(':')[0])\n"
        "print(bool(await memory.aio.experiments.compare(a, b)))"
    )
    assert kernel.run(code).ok().splitlines() == ["2 memmap 3", "False True ['value'] n", "True"]
    assert (kernel.run("e.open(e.record({'a': 1}, title='j'))").error or "").startswith("Invalid: open: only tables")
    kernel.run("from rlm_memory import operations\noperations.MAX_INLINE_LOAD_BYTES = 3").ok()
    assert "full=True" in (kernel.run("e.compare(a, b)").error or "")
    assert kernel.run("print(bool(e.compare(a, b, full=True)))").ok() == "True\n"


def test_a_host_without_notes_still_reuses(
    make_host: Callable[..., FakeHost], state_root: Any, start_kernel: Callable[..., Any]
) -> None:
    """A plain DSH host keeps no notes: reuse works, without the component and the seconds."""
    host = make_host(foreign=True)
    host.listen(state_root)
    kernel = start_kernel(RLM_SESSION_DIR=str(host.session_dir))
    kernel.run("%load_ext rlm_memory\ne = memory.experiments").ok()
    kernel.run(BLOCK).ok()
    told = kernel.run("for y in (1, 1, 2): c = block(y); print(c.reused, c.why, c.reuse.seconds_saved)").ok()
    assert told.splitlines() == [
        "False no recorded result has this fingerprint None",
        "True same fingerprint, same source version, bytes verified None",
        "False no recorded result has this fingerprint None",
    ]
    assert (kernel.run("e.lineage(c.ref)").error or "").startswith("Unsupported: ")


def test_the_seconds_that_reuse_saved_are_told_each_time_and_in_total(kernel: Any) -> None:
    """What the record says that the computation took; a record without a time saves none that is known."""
    code = (
        "e.record([1], title='slow', query='slow', source_version='v', compute_seconds=12.5)\n"
        "e.record([2], title='untold', query='untold', source_version='v')\n"
        "told = []\n"
        "for query in ('slow', 'slow', 'untold', 'never'):\n"
        "    e.get(query=query, source_version='v'); told.append(e.last_reuse.seconds_saved)\n"
        "print(told, e.saved, e.saved.seconds)"
    )
    assert kernel.run(code).ok() == "[12.5, 12.5, None, None] 3 results reused, 25.0 s of computing saved 25.0\n"
