"""`rlm-memory doctor` against real faults: each is named, with its fix; an installation without one is said to be fine.

Wrong settings, stale kernelspecs, credentials in the shell, a missing sandbox and open folders are in `test_commands`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from hosts import host_says, stop_host
from jupyter_front import JupyterServer
from rlm_memory.testing import FakeHost

SCRIPTS = Path(sys.executable).parent
VERSION = metadata.version("rlm-memory-host")
Findings = dict[str, list[dict[str, str]]]


def doctor(cwd: Path, *words: str, **environment: str) -> Findings:
    """The findings by check. What is wrong has a fix, and the exit code says how wrong it is."""
    done = subprocess.run(
        [sys.executable, "-m", "rlm_memory_host", "doctor", "--json", *words],
        cwd=cwd,
        env={**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}", **environment},
        text=True,
        capture_output=True,
        timeout=110,
    )
    report = json.loads(done.stdout)
    states = {finding["state"] for finding in report["findings"]}
    assert done.returncode == (2 if "problem" in states else 1 if "warning" in states else 0)
    found: Findings = {}
    for finding in report["findings"]:
        assert bool(finding["fix"]) or finding["state"] in {"ok", "note"}
        found.setdefault(finding["check"], []).append(finding)
    return found


@pytest.mark.fronts
@pytest.mark.kernel
def test_an_installation_without_a_fault_is_said_to_be_fine(
    tmp_path: Path, state_root: Path, start_host: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Versions, kernelspec, Jupyter, root, host, sandbox and the trial of the protection: each says that it holds.

    Who runs it as root is told so, and of nothing else.
    """
    host = start_host()
    found = doctor(tmp_path)
    fine = {name for name, findings in found.items() if {item["state"] for item in findings} == {"ok"}}
    expected = {"settings", "versions", "kernelspec", "jupyter", "state root", "host", "host memory", "sandbox"}
    assert fine >= expected, found
    assert f"pid {host.pid}" in found["host"][0]["text"]
    wrong = {name for name, items in found.items() if any(item["state"] in {"warning", "problem"} for item in items)}
    assert wrong == ({"privileges"} if os.geteuid() == 0 else set()), found
    assert any(item["text"].startswith("tried: another process") for item in found["host memory"])
    assert "real boundary" in found["same user"][0]["text"]


@pytest.mark.fronts
@pytest.mark.kernel
def test_two_state_roots_in_use_are_named(tmp_path: Path, state_root: Path) -> None:
    """The shell names one, a command another, and in both something is: both paths, which one counts, and the fix."""
    other = tmp_path / "other"
    for root in (state_root, other):
        (root / "artifacts" / "projects").mkdir(parents=True)
        root.chmod(0o700)
    [finding] = doctor(tmp_path, "--state-root", str(other))["state root"]
    assert finding["state"] == "warning"
    assert f"({other}, {state_root})" in finding["text"] or f"({state_root}, {other})" in finding["text"]
    assert finding["text"].endswith(f"this one counts here: {other}")
    assert "state_root" in finding["fix"]


def test_distributions_of_two_releases_are_named(tmp_path: Path, state_root: Path) -> None:
    """A kernel side of another version that Python finds first."""
    other = tmp_path / "site" / "rlm_memory-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: rlm-memory\nVersion: 9.9.9\n")
    [finding] = doctor(tmp_path, PYTHONPATH=str(other.parent))["versions"]
    assert finding["state"] == "problem"
    assert finding["text"] == f"rlm-memory-host is {VERSION} and rlm-memory is 9.9.9"
    assert f"rlm-memory=={VERSION}" in finding["fix"]


def test_a_running_host_of_another_release_is_named(tmp_path: Path, state_root: Path) -> None:
    """It serves until it is stopped; the fix stops it."""
    with FakeHost(tmp_path / "fake") as host:
        host.listen(state_root)
        [finding] = doctor(tmp_path)["host"]
    assert (finding["state"], finding["fix"]) == ("warning", "rlm-memory host stop")
    assert finding["text"] == f"the running host is 0, installed is {VERSION}"


@pytest.mark.fronts
@pytest.mark.kernel
def test_a_host_that_is_silent_is_named_with_its_process(
    tmp_path: Path, state_root: Path, start_host: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Halted, as a debugger or a full terminal leaves it."""
    host = start_host()
    host.send_signal(signal.SIGSTOP)
    try:
        [finding] = doctor(tmp_path)["host"]
    finally:
        host.send_signal(signal.SIGCONT)
    assert finding["state"] == "problem"
    assert f"(pid {host.pid})" in finding["text"]
    assert "end the process" in finding["fix"]


@pytest.mark.fronts
@pytest.mark.kernel
def test_credentials_in_a_running_jupyter_server_are_named(
    jupyter: Callable[..., JupyterServer], tmp_path: Path, state_root: Path
) -> None:
    """The server's process and the variable, not its value; this shell has none."""
    secret = "planted-" + "secret-0004"
    server = jupyter(HONCHO_API_KEY=secret)
    [finding] = [
        item for item in doctor(tmp_path).get("credentials", []) if f"(pid {server.process.pid})" in item["text"]
    ]
    assert finding["state"] == "warning"
    assert "HONCHO_API_KEY" in finding["text"]
    assert "give them to the host alone" in finding["fix"]
    assert secret not in json.dumps(finding)


def test_a_kernelspec_whose_python_lacks_the_kernel_side_is_named(tmp_path: Path, state_root: Path) -> None:
    """A real environment without it: kernels of that spec would start and find no extension."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True, timeout=60)
    python = tmp_path / "bare" / "bin" / "python"
    spec = tmp_path / "jupyter" / "kernels" / "rlm-memory"
    spec.mkdir(parents=True)
    content = {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "metadata": {"kernel_provisioner": {"provisioner_name": "rlm-memory-provisioner"}},
    }
    (spec / "kernel.json").write_text(json.dumps(content))
    [finding] = [
        item for item in doctor(tmp_path, JUPYTER_PATH=str(tmp_path / "jupyter"))["kernelspec"] if item["state"] != "ok"
    ]
    assert finding["state"] == "problem"
    assert f"its Python has rlm-memory not at all, this host is {VERSION}" in finding["text"]
    assert "rlm-memory kernel install" in finding["fix"]


def test_a_jupyter_whose_environment_lacks_the_host_is_named(tmp_path: Path, state_root: Path) -> None:
    """A real environment again, first on PATH: its Jupyter would leave the kernel out of its list without a word."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True, timeout=60)
    scripts = tmp_path / "bare" / "bin"
    (scripts / "jupyter-lab").write_text(f"#!{scripts}/python\n")
    (scripts / "jupyter-lab").chmod(0o755)
    [finding] = doctor(tmp_path, PATH=f"{scripts}{os.pathsep}{os.environ['PATH']}")["jupyter"]
    assert finding["state"] == "problem"
    assert f"{scripts}/jupyter-lab has rlm-memory-host not at all" in finding["text"]
    assert finding["fix"] == f"{scripts}/python -m pip install rlm-memory-host=={VERSION}"


@pytest.mark.fronts
@pytest.mark.kernel
def test_a_path_too_long_for_a_socket_is_no_fault_where_it_can_be_dialled(tmp_path: Path) -> None:
    """Over 107 bytes: on Linux host and doctor reach it through its folder; elsewhere the doctor names it."""
    root = tmp_path / ("long-" * 30)
    root.mkdir(mode=0o700)
    command = [sys.executable, "-m", "rlm_memory_host", "host", "run", "--state-root", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as host:
        try:
            assert host.stdout is not None
            assert b"listening" in host.stdout.readline()
            found = doctor(tmp_path, "--state-root", str(root))
        finally:
            stop_host(root)
    assert "socket" not in found
    assert f"pid {host.pid}" in found["host"][0]["text"]
    assert host_says(root, {"type": "status"}) is None


def test_a_path_too_long_for_a_socket_is_named_where_it_cannot_be_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, which has no folder of descriptors to go through."""
    from rlm_memory_host import settings
    from rlm_memory_host.doctor import places

    loaded = settings.load(None, tmp_path / ("long-" * 30), environ={}).settings
    monkeypatch.setattr(places, "DESCRIPTORS", tmp_path / "none")
    [finding] = places.socket(loaded)
    assert (finding.state, finding.fix) == ("problem", "choose a shorter state_root")


def test_a_folder_of_another_user_is_named(tmp_path: Path, state_root: Path) -> None:
    """As root it is made so; otherwise the system's own root folder is one."""
    if os.geteuid() == 0:
        (state_root / "run").mkdir()
        os.chown(state_root / "run", 65534, 65534)
        [finding] = doctor(tmp_path)["permissions"]
        assert "belongs to another user (uid 65534)" in finding["text"]
    else:
        [finding] = doctor(tmp_path, "--state-root", "/usr")["permissions"]
        assert "belongs to another user (uid 0)" in finding["text"]
    assert finding["state"] == "problem"
