"""`./dev` on machines that lack things: it says what is missing, changes nothing it should not, and can be repeated."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.fronts

ROOT = Path(__file__).resolve().parents[2]


def dev(
    *arguments: str, path: str | None = None, prelude: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ./dev under this Python; `prelude` is code that changes the machine it believes to be on."""
    code = f"{textwrap.dedent(prelude)}\nimport runpy, sys\nsys.argv = {['dev', *arguments]!r}\n"
    code += f"runpy.run_path({str(ROOT / 'dev')!r}, run_name='__main__')"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RLM_MEMORY_")}
    environment = {**inherited, **({} if path is None else {"PATH": path}), **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, timeout=100)


@pytest.fixture
def empty_path(tmp_path: Path) -> str:
    """A PATH on which nothing is found."""
    folder = tmp_path / "nothing"
    folder.mkdir()
    return str(folder)


@pytest.mark.parametrize("version", ["(3, 8, 18, 'final', 0)", "(3, 10, 13, 'final', 0)", "(3, 14, 0, 'final', 0)"])
def test_a_wrong_python_is_named_with_what_to_do(empty_path: str, version: str):
    result = dev("demo", path=empty_path, prelude=f"import sys\nsys.version_info = {version}")
    assert result.returncode == 1
    assert "needs Python 3.11, 3.12 or 3.13" in result.stderr
    assert "python3.13 ./dev demo" in result.stderr


def test_a_wrong_python_makes_way_for_a_right_one_on_path(tmp_path: Path):
    right = tmp_path / "python3.12"
    right.write_text('#!/bin/sh\necho "switched to me with $*"\n')
    right.chmod(0o755)
    result = dev("demo", "-q", path=str(tmp_path), prelude="import sys\nsys.version_info = (3, 9, 1, 'final', 0)")
    assert result.stdout.strip() == f"switched to me with {ROOT / 'dev'} demo -q"


def test_the_script_compiles_on_pythons_that_it_turns_away():
    compile((ROOT / "dev").read_text(), "dev", "exec")
    import ast

    ast.parse((ROOT / "dev").read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_or_pip_is_refused_before_anything_is_made(tmp_path: Path, empty_path: str, module: str):
    place = tmp_path / "env"
    prelude = f"import sys\nsys.modules[{module!r}] = None\nimport importlib.util\n"
    prelude += "find = importlib.util.find_spec\n"
    prelude += f"importlib.util.find_spec = lambda name, *rest: None if name == {module!r} else find(name, *rest)"
    result = dev("setup", path=empty_path, prelude=prelude, RLM_MEMORY_VENV=str(place))
    assert result.returncode == 1
    assert "has no venv with pip" in result.stderr
    assert "apt install python3." in result.stderr
    assert not place.exists()


@pytest.mark.parametrize(("command", "missing"), [("test", "git"), ("check", "bash")])
def test_a_command_that_needs_a_program_says_so_when_it_is_absent(empty_path: str, command: str, missing: str):
    result = dev(command, path=empty_path)
    assert result.returncode == 1
    assert f"{missing} is not on PATH" in result.stderr


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(tmp_path: Path, empty_path: str):
    (tmp_path / "file").write_text("")
    result = dev("setup", path=empty_path, RLM_MEMORY_VENV=str(tmp_path / "file" / "env"))
    assert result.returncode == 1
    assert "cannot write" in result.stderr
    assert "RLM_MEMORY_VENV" in result.stderr


def test_a_machine_without_network_gets_told_what_stopped_and_may_try_again(tmp_path: Path, empty_path: str):
    place = tmp_path / "env"
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    nowhere |= {"PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull, "PIP_EXTRA_INDEX_URL": ""}
    result = dev("setup", path=empty_path, RLM_MEMORY_VENV=str(place), **nowhere)
    assert result.returncode == 1
    assert "the set-up stopped" in result.stderr
    assert "Run ./dev again" in result.stderr
    assert (place / ".rlm-memory-setup").read_text() == ""


def test_a_command_that_does_not_exist_is_a_bad_use():
    assert dev("tets").returncode == 2
    assert dev("run").returncode == 1
    assert dev("setup", RLM_MEMORY_LOCK="newest").returncode == 1


# -- the state of the environment -------------------------------------------------------------------------------------
@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """./dev as a module, on an environment folder of its own, with installers that only take notes."""
    monkeypatch.setenv("RLM_MEMORY_VENV", str(tmp_path / "env"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("dev_script", str(ROOT / "dev"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("dev_script", loader))
    loader.exec_module(module)
    module.steps = []

    def execute(*command: str) -> None:
        module.steps.append(" ".join(command))
        if "venv" in command:
            module.python().parent.mkdir(parents=True)
            module.python().symlink_to(sys.executable)
            (module.VENV / "lib/python3/site-packages/pip").mkdir(parents=True)

    module.execute = execute
    monkeypatch.setattr(shutil, "which", lambda name, **_options: None)
    return module


def test_a_ready_environment_costs_no_step(script: ModuleType):
    script.setup()
    assert len(script.steps) == 3
    script.setup()
    assert len(script.steps) == 3


def test_an_interrupted_set_up_starts_over_in_an_empty_folder(script: ModuleType):
    whole = script.execute

    def interrupted(*command: str) -> None:
        if "--require-hashes" in command:
            (script.VENV / "half-made").write_text("")
            raise KeyboardInterrupt
        whole(*command)

    script.execute = interrupted
    with pytest.raises(KeyboardInterrupt):
        script.setup()
    script.execute = whole
    script.setup()
    assert not (script.VENV / "half-made").exists()
    assert script.environment_state(script.fingerprint("requirements.lock")) == "ready"


def test_a_renewed_lock_is_installed_into_the_environment_that_is_there(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    script.setup()
    (script.VENV / "kept").write_text("")
    monkeypatch.setenv("RLM_MEMORY_LOCK", "compat")
    script.setup()
    assert (script.VENV / "kept").exists()
    assert "requirements-compat.lock" in script.steps[3]


@pytest.mark.parametrize("change", ["python", "place"])
def test_another_python_or_a_moved_clone_gets_a_new_environment(
    script: ModuleType, change: str, monkeypatch: pytest.MonkeyPatch
):
    script.setup()
    (script.VENV / "old").write_text("")
    if change == "python":
        monkeypatch.setattr(sys, "version_info", (3, 12, 99))
    else:
        monkeypatch.setattr(script, "fingerprint", lambda _lock: "moved content")
    script.setup()
    assert not (script.VENV / "old").exists()


def test_an_environment_whose_python_is_gone_is_made_anew(script: ModuleType):
    script.setup()
    script.python().unlink()
    script.setup()
    assert script.python().exists()


def test_an_environment_without_pip_gets_one_where_uv_is_gone(script: ModuleType, monkeypatch: pytest.MonkeyPatch):
    script.setup()
    (script.VENV / "kept").write_text("")
    shutil.rmtree(script.VENV / "lib")
    monkeypatch.setenv("RLM_MEMORY_LOCK", "compat")
    script.setup()
    assert (script.VENV / "kept").exists()
    assert any(step.endswith("-m ensurepip") for step in script.steps)


def test_a_folder_that_someone_else_made_is_never_touched(script: ModuleType):
    script.VENV.mkdir()
    (script.VENV / "mine").write_text("precious")
    with pytest.raises(SystemExit, match=r"was not made by \./dev"):
        script.setup()
    assert (script.VENV / "mine").read_text() == "precious"


def test_packages_install_from_hashes_and_wheels_only_and_never_elsewhere(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    script.setup()
    lock_step = next(step for step in script.steps if "requirements.lock" in step)
    for option in ("--require-hashes", "--only-binary :all:", "--no-deps"):
        assert option in lock_step
    environment = script.clean_environment()
    assert not {"PIP_TARGET", "PYTHONPATH"} & environment.keys()
    assert environment["PIP_USER"] == "0"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-compat.lock"])
def test_every_pin_of_a_lock_has_a_hash_and_no_address(lock: str):
    text = (ROOT / lock).read_text()
    assert "://" not in text
    entries = [entry for entry in text.replace("\\\n", " ").splitlines() if entry and not entry.startswith("#")]
    assert len(entries) > 100
    for entry in entries:
        assert "==" in entry, entry
        assert "--hash=sha256:" in entry, entry
