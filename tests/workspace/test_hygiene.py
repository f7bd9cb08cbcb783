"""The rules that every test run keeps: no skip where none is allowed, no process left, no file of a user's touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

TESTS = Path(__file__).resolve().parent.parent


def run_pytest(folder: Path, source: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_inner.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "hygiene", "-p", "no_skips", "-p", "no:cacheprovider", "-q", "."]
    command += options
    inherited = {name: value for name, value in os.environ.items() if name != "RLM_MEMORY_NO_SKIPS"}
    environment = {**inherited, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)


SKIPS = {
    "in a test": "import pytest\ndef test_a():\n    pytest.skip('no such thing')\n",
    "by mark": "import pytest\n@pytest.mark.skipif(True, reason='no such thing')\ndef test_a():\n    pass\n",
    "of a module": "import pytest\npytest.skip('no such thing', allow_module_level=True)\n",
}


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS)
def test_a_skipped_test_fails_a_run_that_allows_none_and_only_that(tmp_path: Path, source: str):
    strict = run_pytest(tmp_path, source, RLM_MEMORY_NO_SKIPS="1")
    assert strict.returncode not in (0, 5), strict.stdout
    assert "no such thing" in strict.stdout
    assert run_pytest(tmp_path, source).returncode in (0, 5)


def test_an_expected_failure_is_no_skip(tmp_path: Path):
    source = "import pytest\n@pytest.mark.xfail\ndef test_a():\n    assert 0\n"
    assert run_pytest(tmp_path, source, RLM_MEMORY_NO_SKIPS="1").returncode == 0


@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "-n", "2")], ids=["one process", "two workers"])
def test_a_detached_process_that_a_test_leaves_fails_the_run_and_is_ended(tmp_path: Path, options: tuple[str, ...]):
    source = (
        "import subprocess, sys, pathlib\n"
        "def test_a():\n"
        "    p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "    pathlib.Path('pid').write_text(str(p.pid))\n"
        "    p.returncode = 0\n"
    )
    result = run_pytest(tmp_path, source, *options, RLM_MEMORY_TEST_GRACE="0")
    assert result.returncode == 1, result.stdout
    assert "orphan process" in result.stdout
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_tests_see_a_home_of_their_own():
    home = Path(os.environ["HOME"])
    assert "rlm-memory-test-home-" in home.name
    assert Path.home() == home
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "JUPYTER_DATA_DIR", "IPYTHONDIR", "RLM_MEMORY_STATE_ROOT"):
        assert Path(os.environ[name]).is_relative_to(home), name


def test_no_two_modules_of_tests_have_one_name():
    """pytest imports a test by its file's name: of two with one name the whole suite stops at collection."""
    names = [path.name for path in TESTS.rglob("test_*.py")]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    assert names
    assert not twice, f"rename one of each: {twice}"
