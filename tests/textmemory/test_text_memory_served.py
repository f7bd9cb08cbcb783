"""Text memory through a real host and real kernels: what a person writes in one session is found in the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import host_says
from served import LOAD, until

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]


def stop(state_root: Path) -> None:
    """Stop the host; the kernel that started it is still its parent, so its end shows in nobody listening."""
    host_says(state_root, {"type": "stop"})
    until(lambda: host_says(state_root, {"type": "status"}) is None, "the host is gone")


def test_a_decision_is_found_in_a_second_session_corrected_and_forgotten(
    state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """Remember, restart everything, recall, correct, read the history, ask to forget."""
    first = start_kernel()
    first.run(LOAD).ok()
    said = first.run("memory.remember('The rig runs at 41 degrees.', title='Rig temperature', kind='decision')").ok()
    assert said.startswith("kept (NEW, project, version 1)")
    stop(state_root)

    second = start_kernel()
    second.run(f"{LOAD}\nhits = memory.recall('At which temperature does the rig run?')").ok()
    assert second.run("print(hits[0].title, '|', hits[0].text, '|', hits[0].labels)").ok().strip() == (
        'Rig temperature | The rig runs at 41 degrees. | ("a model\'s note, not confirmed",)'
    )
    second.run("done = memory.correct('The rig runs at 43 degrees.', id=hits[0].id, expected_version=1)").ok()
    assert second.run("print(done.state, done.version)").ok().split() == ["active", "2"]
    second.run("whole = memory.read(hits[0].id, history=True)[0]").ok()
    assert second.run("print(whole.text, whole.value['history'][0]['text'])").ok().strip() == (
        "The rig runs at 43 degrees. The rig runs at 41 degrees."
    )
    # Code in a notebook is nobody's own word: forgetting is a proposal, and a person decides.
    assert "proposed for a person's review" in second.run("memory.forget(hits[0].id)").ok()
    late = "try:\n    memory.correct('x y z.', id=hits[0].id, expected_version=1)\n"
    late += "except memory.errors.Conflict as error:\n    print(error.code)"
    assert second.run(late).ok().strip() == "VERSION_CONFLICT"


def test_one_search_covers_memories_and_results(start_kernel: Callable[..., Any]) -> None:
    """A merged list, narrowed by kind; an experiment search sees results only."""
    kernel = start_kernel()
    kernel.run(
        f"{LOAD}\nmemory.experiments.record({{'a': 1}}, title='Cohort response table')\n"
        "memory.record('The cohort response is computed per week.', kind='procedure')"
    ).ok()
    shown = "print(sorted(h.kind for h in {call}))"
    calls = {
        "memory.search('cohort response')": "['experiment-card', 'memory']",
        "memory.search()": "['experiment-card', 'memory']",
        "memory.search('cohort response', kind='experiment-card')": "['experiment-card']",
        "memory.search('cohort response', kind='procedure')": "['memory']",
        "memory.search('cohort response', kind='fact')": "[]",
    }
    for call, kinds in calls.items():
        assert kernel.run(shown.format(call=call)).ok().strip() == kinds, call
    assert kernel.run("print([h.title for h in memory.experiments.search('cohort')])").ok().strip() == (
        "['Cohort response table']"
    )


def test_the_async_twins_run_at_once(start_kernel: Callable[..., Any]) -> None:
    """Several at a time, in one cell."""
    kernel = start_kernel()
    code = (
        f"{LOAD}\nimport asyncio\n"
        "texts = ('Salt is measured at noon.', 'Every boat carries a flag.')\n"
        "done = await asyncio.gather(*(memory.aio.remember(text) for text in texts))\n"
        "print([d.state for d in done], len(await memory.aio.search()))"
    )
    assert kernel.run(code).ok().strip() == "['active', 'active'] 2"


def test_status_tells_of_every_part_and_shows_no_content(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """`memory_status` and the host's own status: features, counts, no text."""
    kernel = start_kernel()
    kernel.run(f"{LOAD}\nmemory.remember('The zanzibar marker is blue.')").ok()
    details = json.loads(kernel.run("import json; print(json.dumps(memory.status().details))").ok())
    assert details["status"] == "active"
    assert details["memory"]["memories"] == {"active": 1}
    assert details["outbox"] is None
    assert {"storage", "guard", "recall", "write", "audit", "habit", "artifact"} <= details["features"].keys()
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    assert status["features"].keys() == details["features"].keys()
    assert "zanzibar" not in json.dumps(details) + json.dumps(status)
    assert "zanzibar" not in "".join(path.read_text() for path in (state_root / "logs").iterdir())
