"""`rlm-memory demo` does the main job in two killed sessions, tells the truth about it, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rlm_memory_host.demo.notebook import QUICK_START, SECOND_SESSION, code_cells
from rlm_memory_host.demo.story import Report, checks

pytestmark = pytest.mark.fronts

DEMO = [sys.executable, "-m", "rlm_memory_host", "demo"]

FACTS = {
    "experiment_id": "exp_a",
    "sha256": "aa",
    "content": "bb",
    "fresh": "fresh",
    "later": "stale",
    "reused": True,
    "not_reused": True,
    "slice_shape": [3, 3],
    "slice_equal": True,
}
RECORDED = {"experiment_id": "exp_a", "sha256": "aa", "content": "bb"}


def run_demo(temporary: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(temporary), **environment}
    return subprocess.run([*DEMO, *arguments], env=environment, text=True, capture_output=True)


@pytest.mark.kernel
def test_the_demo_holds_all_its_promises_and_leaves_nothing(tmp_path: Path):
    # Settings of a user's that would lead elsewhere must not matter.
    elsewhere = {"RLM_MEMORY_HOST": "none", "RLM_MEMORY_CONFIG": "/no/such/file", "RLM_SESSION_DIR": "/no/such/folder"}
    result = run_demo(tmp_path / "t", "--json", **elsewhere)
    assert result.returncode == 0, result.stderr + result.stdout
    document = json.loads(result.stdout)
    assert document["ok"] is True
    assert set(document) == {"ok", "recorded", "found", "checks", "seconds"}
    assert all(document["checks"].values())
    assert document["recorded"]["shape"] == [15, 6]
    assert document["found"]["slice_shape"] == [3, 3]
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.kernel
def test_the_demo_tells_which_step_failed_and_leaves_nothing(tmp_path: Path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "ipykernel_launcher.py").write_text("raise SystemExit('this kernel is broken')")
    result = run_demo(tmp_path / "t", PYTHONPATH=str(broken))
    assert result.returncode == 2
    assert "the kernel did not start: this kernel is broken" in result.stderr
    assert "Traceback" not in result.stderr
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("experiment_id", "exp_b"),
        ("sha256", "ab"),
        ("content", "bc"),
        ("fresh", "unverifiable"),
        ("later", "fresh"),
        ("reused", False),
        ("not_reused", False),
        ("slice_shape", [0, 3]),
        ("slice_equal", False),
    ],
)
def test_any_fact_that_is_not_as_promised_makes_the_report_a_failure(fact: str, value: object):
    assert Report(RECORDED, FACTS, checks(RECORDED, "aa", FACTS, gone=True), {}).is_good
    assert not Report(RECORDED, {}, checks(RECORDED, "aa", {**FACTS, fact: value}, gone=True), {}).is_good


def test_changed_bytes_in_the_store_and_leftovers_make_the_report_a_failure():
    assert not all(checks(RECORDED, "other", FACTS, gone=True).values())
    assert not all(checks(RECORDED, "", FACTS, gone=True).values())
    assert not all(checks(RECORDED, "aa", FACTS, gone=False).values())


@pytest.mark.parametrize("name", [QUICK_START, SECOND_SESSION])
def test_the_demo_runs_the_cells_of_the_tutorial_itself(name: str):
    """There is no copy to drift: in a clone the notebooks are read where they are."""
    notebook = json.loads((Path(__file__).resolve().parents[2] / "notebooks" / name).read_text())
    assert code_cells(name) == ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
