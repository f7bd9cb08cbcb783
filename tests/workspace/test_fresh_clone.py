"""A newcomer's machine: a fresh clone, an empty home, and nothing on PATH but Python and git.

Long: each test installs everything. The clone's folder has spaces and letters beyond ASCII.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"
UV = Path(sys.executable).parent / "uv"
# Where packages come from, and how to get there, is the machine's own setting; nothing else is inherited.
NETWORK = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
NETWORK += ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


class Newcomer:
    """Runs ./dev in a fresh clone with an environment of almost nothing."""

    def __init__(self, folder: Path, *programs: Path) -> None:
        self.clone = folder / "meine Kopie ünï 目录"
        self.home = folder / "home"
        binaries = folder / "bin"
        self.home.mkdir()
        binaries.mkdir()
        for program in programs:
            (binaries / program.name).symlink_to(program)
        (binaries / "python3").symlink_to(BASE_PYTHON)
        (binaries / "git").symlink_to(shutil.which("git") or "git is needed")
        network = {name: os.environ[name] for name in NETWORK if name in os.environ}
        mark = {name: value for name, value in os.environ.items() if name == "RLM_MEMORY_TEST_RUN"}
        self.environment = {"PATH": str(binaries), "HOME": str(self.home), **network, **mark}
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.clone)], check=True)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        command = [str(self.clone / "dev"), *arguments]
        return subprocess.Popen(
            command, env=self.environment, cwd=self.home, text=True, start_new_session=True, **pipes
        )

    def run(self, *arguments: str) -> str:
        process = self.start(*arguments)
        text, _ = process.communicate()
        assert process.returncode == 0, text
        return text


def test_the_two_commands_of_the_readme_work_with_python_and_git_alone(tmp_path: Path):
    newcomer = Newcomer(tmp_path)
    demo = newcomer.run("demo")
    assert "verified" in demo
    assert not list(newcomer.home.glob("**/host.sock"))
    assert "passed" in newcomer.run("test", "tests/workspace/test_hygiene.py")
    status = subprocess.run(["git", "status", "--porcelain"], cwd=newcomer.clone, text=True, capture_output=True)
    assert status.stdout == "", "running the commands leaves files that git would want to add"


def test_a_killed_set_up_is_taken_up_again_and_uv_is_used_where_it_is(tmp_path: Path):
    newcomer = Newcomer(tmp_path, UV)
    packages = newcomer.clone / ".venv" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    process = newcomer.start("setup")
    while process.poll() is None and not list(packages.glob("*.dist-info")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "the set-up was over before it could be killed"
    newcomer.run("setup")
    newcomer.run("run", "uv", "pip", "check", "--python", str(newcomer.clone / ".venv"))
    assert "rlm_memory" in newcomer.run("run", "python", "-c", "import rlm_memory_host, rlm_memory; print(rlm_memory)")
