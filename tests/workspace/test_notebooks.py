"""The tutorial's notebooks are fit to publish; that they run is checked by `pytest --nbval notebooks`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rlm_memory_host.demo.notebook import QUICK_START, SECOND_SESSION

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> dict[str, object]:
    return json.loads(request.param.read_text())


def test_the_notebooks_are_there_and_in_the_readme():
    names = [path.name for path in NOTEBOOKS]
    more = ["03-what-a-kernel-cannot-see.ipynb", "04-reuse.ipynb", "05-texts-to-remember.ipynb"]
    assert names == [QUICK_START, SECOND_SESSION, *more]
    readme = (ROOT / "README.md").read_text()
    assert [name for name in names if f"(notebooks/{name})" not in readme] == []


def test_a_notebook_names_the_kernel_that_everyone_has(notebook: dict[str, dict[str, dict[str, str]]]):
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_every_output_is_stored_and_checked_and_none_is_an_error(notebook: dict[str, list[dict[str, object]]]):
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "run notebooks/refresh.py"
    assert any(cell["outputs"] for cell in code)
    for cell in code:
        assert not [output for output in cell["outputs"] if output["output_type"] == "error"]
        assert "NBVAL_" not in "".join(cell["source"])
        assert not re.search(r"0x[0-9a-f]{6,}|/tmp/", json.dumps(cell["outputs"]))


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_passes_alone_in_an_empty_place(path: Path):
    """No notebook leans on what another one left: each gets a run, and so a state root, of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", str(path)]
    result = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, env=os.environ)
    assert result.returncode == 0, result.stdout


def test_the_build_ships_the_notebooks_that_the_demo_reads():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "host" / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(module.NOTEBOOKS) == {QUICK_START, SECOND_SESSION}
