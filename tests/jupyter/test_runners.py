"""The programs that run notebooks: each loads the extension, records and finds, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from hosts import host_says
from jupyter_front import eventually, kernels_of

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

CELLS = (
    "%load_ext rlm_memory\nimport os",
    "r = memory.experiments.record({'a': [1, 2]}, title='from a runner', source_version='v1')\nr.title",
    "[hit.title for hit in memory.experiments.search('runner')]",
    "memory.experiments.load(r)",
    "bool(os.environ.get('RLM_SESSION_DIR')), os.environ.get('HONCHO_API_KEY')",
)
OUTPUTS = (None, "'from a runner'", "['from a runner']", "{'a': [1, 2]}", "(True, None)")


@pytest.fixture
def notebook(tmp_path: Path, state_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notebook with the outputs that it should have, and a credential in the runner's environment."""
    monkeypatch.setenv("HONCHO_API_KEY", "planted-secret-0002")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    for number, (cell, text) in enumerate(zip(cells, OUTPUTS, strict=True), 1):
        cell.execution_count = number
        if text is not None:
            data = {"text/plain": text}
            cell.outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=number)]
    spec = {"name": "rlm-memory", "display_name": "Python (rlm-memory)", "language": "python"}
    path = tmp_path / "work.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    return path


def results(path: Path) -> list[str]:
    cells = nbformat.read(path, 4).cells
    return [output["data"]["text/plain"] for cell in cells for output in cell.outputs if "data" in output]


def run(*command: str, cwd: Path, **environment: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=110,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def assert_nothing_is_left(state_root: Path) -> None:
    assert host_says(state_root, {"type": "status"}) is not None
    eventually(lambda: not kernels_of(state_root), "the host lets the kernel go")
    assert not list((state_root / "attachments").iterdir())
    # What was recorded is in the store; the session folder held nothing else.
    eventually(lambda: not list((state_root / "sessions").iterdir()), "the session folder is gone")
    assert not list(Path(os.environ["JUPYTER_RUNTIME_DIR"]).glob("kernel-*.json"))


def test_nbconvert_and_so_nbclient_run_it(notebook: Path, state_root: Path, tmp_path: Path) -> None:
    """Executed with the notebook's own kernel name."""
    run("nbconvert", "--to", "notebook", "--execute", "--output", "done.ipynb", str(notebook), cwd=tmp_path)
    assert results(tmp_path / "done.ipynb") == [text for text in OUTPUTS if text]
    assert_nothing_is_left(state_root)


def test_papermill_runs_it(notebook: Path, state_root: Path, tmp_path: Path) -> None:
    """Papermill's own manager and client."""
    run("papermill", "--no-progress-bar", str(notebook), str(tmp_path / "done.ipynb"), cwd=tmp_path)
    assert results(tmp_path / "done.ipynb") == [text for text in OUTPUTS if text]
    assert_nothing_is_left(state_root)


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (("--nbval",), {}),
        (("--nbval-lax",), {}),
        (("--nbval", "--nbval-kernel-name", "rlm-memory"), {}),
        (("--nbval", "--nbval-current-env"), {"JUPYTER_DEFAULT_PROVISIONER_NAME": "rlm-memory-provisioner"}),
    ],
    ids=["nbval", "lax", "kernel-name", "current-env"],
)
def test_nbval_compares_it(
    notebook: Path, state_root: Path, tmp_path: Path, options: tuple[str, ...], environment: dict[str, str]
) -> None:
    """The outputs written in the notebook are what a run gives, the session folder and the missing credential too."""
    common = ("-q", "-p", "nbval.plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    environment = {**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run("pytest", *common, *options, str(notebook), cwd=tmp_path, **environment)
    assert_nothing_is_left(state_root)


def test_a_kernel_that_an_editor_started_needs_the_extension_alone(tmp_path: Path, state_root: Path) -> None:
    """No kernelspec, no provisioner, no manager: the process, its connection file, and `%load_ext`."""
    from jupyter_client.blocking.client import BlockingKernelClient
    from jupyter_client.connect import write_connection_file
    from jupyter_front import is_open
    from jupyter_front import run as run_cell

    path = tmp_path / "editor.json"
    write_connection_file(str(path), key=b"0" * 32)
    process = subprocess.Popen([sys.executable, "-m", "ipykernel_launcher", "-f", str(path)], cwd=tmp_path)
    try:
        client = BlockingKernelClient(connection_file=str(path))
        client.load_connection_file()
        eventually(lambda: is_open(client.hb_port), "the kernel opens its ports")
        client.start_channels()
        client.wait_for_ready(timeout=60)
        for cell in CELLS[:2]:
            run_cell(client, cell)
        assert "from a runner" in run_cell(client, f"print({CELLS[2]})")
        client.shutdown()
        process.wait(60)
        client.stop_channels()
    finally:
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)
    eventually(lambda: not kernels_of(state_root), "the host lets the kernel go")
