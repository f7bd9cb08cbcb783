"""`rlm-memory lab`, `run`, `attach` and `doctor`, as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hosts import host_says
from jupyter_front import eventually, kernels_of
from rlm_memory_host.doctor import exit_code, protections
from rlm_memory_host.doctor.findings import Finding

pytestmark = pytest.mark.fronts


def rlm_memory(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rlm_memory_host", *words],
        cwd=cwd,
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=110,
        umask=0o022,
    )


def written(path: Path, *cells: str) -> Path:
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    return path


@pytest.mark.kernel
def test_run_executes_a_notebook_and_keeps_the_original(tmp_path: Path, state_root: Path) -> None:
    """The result lies beside it, with the user's own file mode; nothing stays behind."""
    path = written(tmp_path / "work.ipynb", "%load_ext rlm_memory", "memory.experiments.record(b'x', title='t').title")
    before = path.read_bytes()
    done = rlm_memory("run", str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cell 2 of 2" in done.stderr
    result = tmp_path / "work.executed.ipynb"
    assert nbformat.read(result, 4).cells[1].outputs[0]["data"]["text/plain"] == "'t'"
    assert result.stat().st_mode & 0o777 == 0o644
    assert path.read_bytes() == before
    eventually(lambda: not kernels_of(state_root), "the host lets the kernel go")


@pytest.mark.kernel
def test_run_says_which_cell_failed_and_writes_what_there_is(tmp_path: Path, state_root: Path) -> None:
    """Exit 1: the notebook's own fault, in one line, and in the result."""
    path = written(tmp_path / "work.ipynb", "1 + 1", "1 / 0", "never = 1")
    done = rlm_memory("run", str(path), "--output", str(tmp_path / "out.ipynb"), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    cells = nbformat.read(tmp_path / "out.ipynb", 4).cells
    assert [bool(cell.outputs) for cell in cells] == [True, True, False]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "missing.ipynb"), "there is no notebook"),
        (("run", "broken.ipynb"), "cannot be read as a notebook"),
        (("run", "good.ipynb", "--kernel", "no-such-kernel"), "no kernelspec 'no-such-kernel'"),
    ],
)
def test_run_refuses_what_it_cannot_run(tmp_path: Path, state_root: Path, words: tuple[str, ...], says: str) -> None:
    """Exit 2 and one line."""
    (tmp_path / "broken.ipynb").write_text("not a notebook")
    written(tmp_path / "good.ipynb", "1")
    done = rlm_memory(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.executed.ipynb"))


def test_lab_starts_jupyterlab_with_the_kernel_and_the_settings(tmp_path: Path, state_root: Path) -> None:
    """What JupyterLab itself says that it is configured with; its own options go through."""
    done = rlm_memory("lab", "--show-config-json", "--ServerApp.port=9876", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["MultiKernelManager"]["default_kernel_name"] == "rlm-memory"
    assert {"comm_msg", "comm_close", "status"} <= set(shown["MappingKernelManager"]["untracked_message_types"])
    assert shown["ServerApp"]["port"] in (9876, "9876")


@pytest.mark.kernel
def test_attach_serves_a_kernel_that_never_loads_the_extension(
    tmp_path: Path, state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """A host is started where none runs, and knows the kernel's process from the kernel itself."""
    kernel = start_kernel()
    file = kernel.manager.connection_file
    done = rlm_memory("attach", "--existing", file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [item["pid"] for item in kernels_of(state_root)] == [kernel.pid]


@pytest.mark.kernel
def test_attach_refuses_a_file_behind_which_nobody_answers(tmp_path: Path, state_root: Path) -> None:
    """A left-over connection file is named as such, and nothing of it is kept."""
    from jupyter_client.connect import write_connection_file

    file = tmp_path / "left-over.json"
    write_connection_file(str(file), key=b"0" * 32)
    done = rlm_memory("attach", "--existing", str(file), cwd=tmp_path)
    assert done.returncode == 2
    assert "no kernel answers" in done.stderr
    assert kernels_of(state_root) == []
    assert not list((state_root / "attachments").iterdir())
    assert host_says(state_root, {"type": "status"}) is not None


# -- doctor ------------------------------------------------------------------------------------------------------------
def doctor(cwd: Path, **environment: str) -> dict[str, dict[str, str]]:
    done = rlm_memory("doctor", "--json", cwd=cwd, **environment)
    report = json.loads(done.stdout)
    assert done.returncode == report["exit"]
    assert all(finding["fix"] for finding in report["findings"] if finding["state"] in {"warning", "problem"})
    return {finding["check"]: finding for finding in report["findings"] if finding["state"] != "ok"}


def test_doctor_names_a_kernelspec_whose_python_is_gone_and_a_credential_in_the_shell(
    tmp_path: Path, state_root: Path
) -> None:
    """Each with what to do; no secret is shown."""
    stale = tmp_path / "jupyter" / "kernels" / "rlm-memory"
    stale.mkdir(parents=True)
    spec = {
        "argv": ["/no/such/python", "-m", "ipykernel_launcher"],
        "metadata": {"kernel_provisioner": {"provisioner_name": "rlm-memory-provisioner"}},
    }
    (stale / "kernel.json").write_text(json.dumps(spec))
    secret = "planted-secret-0003"
    found = doctor(tmp_path, JUPYTER_PATH=str(tmp_path / "jupyter"), HONCHO_API_KEY=secret)
    assert "its Python is gone" in found["kernelspec"]["text"]
    assert "HONCHO_API_KEY" in found["credentials"]["text"]
    assert secret not in json.dumps(found)


def test_doctor_names_a_jupyter_that_lacks_the_package_and_a_missing_sandbox(tmp_path: Path, state_root: Path) -> None:
    """The Jupyter that is on PATH belongs to another Python; and kernel.sandbox asks for what is not there."""
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\nexit 1\n")
    (other / "jupyter-lab").write_text(f"#!{other}/python3\n")
    config = tmp_path / "given.toml"
    config.write_text('[kernel]\nsandbox = "bubblewrap"\n')
    for path, mode in ((other / "python3", 0o755), (other / "jupyter-lab", 0o755), (config, 0o600)):
        path.chmod(mode)
    found = doctor(tmp_path, PATH=str(other), RLM_MEMORY_CONFIG=str(config))
    assert "not at all" in found["jupyter"]["text"]
    assert found["jupyter"]["state"] == found["sandbox"]["state"] == "problem"
    assert "bubblewrap" in found["sandbox"]["fix"]


def test_doctor_names_wrong_settings_and_open_folders(tmp_path: Path, state_root: Path) -> None:
    """The key is named; a state root that others can enter is too."""
    state_root.chmod(0o755)
    assert "chmod 700" in doctor(tmp_path)["permissions"]["fix"]
    config = tmp_path / "given.toml"
    config.write_text("[kernel]\nsandbox = 'jail'\n")
    config.chmod(0o600)
    assert "kernel.sandbox" in doctor(tmp_path, RLM_MEMORY_CONFIG=str(config))["settings"]["text"]


def test_the_trial_tells_a_protected_process_from_an_open_one() -> None:
    """The unprotected twin can be looked into, so that "refused" says something of the protection."""
    hardened, open_one = protections.trial(hardened=True), protections.trial(hardened=False)
    assert hardened is not None
    assert open_one is not None
    assert not any(hardened.values())
    assert open_one["read the environment"]


@pytest.mark.parametrize(
    ("uid", "capabilities", "state"),
    [
        (1000, 0, "ok"),
        (0, 0, "warning"),
        (1000, 1 << 19, "warning"),
        (1000, 1 << 21, "warning"),
        (1000, 1 << 38, "warning"),
    ],
)
def test_privileges_under_which_nothing_holds_are_named(uid: int, capabilities: int, state: str) -> None:
    """Root, and the capabilities that read other processes."""
    assert [finding.state for finding in protections.privileges(uid, capabilities)] == [state]


def test_what_the_trial_found_open_is_a_problem() -> None:
    """And what was closed anyway is not claimed for the protection."""
    states = [item.state for item in protections.judged({"a": True, "b": False}, {"a": True, "b": False})]
    assert states == ["problem", "ok"]
    assert exit_code([Finding("x", "note", ""), Finding("x", "warning", "")]) == 1
