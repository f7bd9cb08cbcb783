"""The kernelspec and the server's settings: what the distribution carries and what the command installs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host import settings
from rlm_memory_host.attach import kernelspec
from rlm_memory_host.attach.environment import kernel_environment
from rlm_memory_host.settings import KernelSettings

pytestmark = pytest.mark.fronts

CARRIED = Path(__file__).parents[2] / "host" / "jupyter"


def rlm_memory(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "rlm_memory_host", *words], text=True, capture_output=True)


def test_the_carried_files_are_what_the_code_says() -> None:
    """`host/jupyter/` is made from `attach.kernelspec`."""
    assert json.loads((CARRIED / "kernel.json").read_text()) == kernelspec.specification("python")
    assert json.loads((CARRIED / "server.json").read_text()) == kernelspec.server_settings()


def test_this_environment_has_the_spec_the_provisioner_and_the_server_settings() -> None:
    """What an installation gives is enough: Jupyter lists the kernel, finds its provisioner and reads the settings."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.provisioning.factory import KernelProvisionerFactory

    spec = KernelSpecManager().get_kernel_spec(kernelspec.NAME)
    assert KernelProvisionerFactory.instance().is_provisioner_available(spec)
    config = Path(sys.prefix) / "etc" / "jupyter" / "jupyter_server_config.d" / "rlm-memory.json"
    assert json.loads(config.read_text()) == kernelspec.server_settings()


def test_this_environment_has_the_front_end_extension() -> None:
    """JupyterLab's own look finds it, in this version, with the carried script."""
    from jupyter_core.paths import jupyter_path
    from jupyterlab_server.config import get_federated_extensions

    found = get_federated_extensions(jupyter_path("labextensions"))["rlm-memory"]
    assert found["version"] == metadata.version("rlm-memory-host")
    load = found["jupyterlab"]["_build"]["load"]
    assert (Path(found["ext_path"]) / load).read_text() == (CARRIED / "labextension" / load).read_text()


def test_our_list_keeps_all_that_the_server_does_not_track_by_itself() -> None:
    """The setting replaces the server's list, so ours must hold it."""
    from jupyter_server.services.kernels.kernelmanager import MappingKernelManager

    theirs = set(MappingKernelManager().untracked_message_types)
    assert theirs | {"comm_msg", "comm_close"} == set(kernelspec.UNTRACKED)


def test_the_command_installs_a_spec_for_this_python_and_removes_it(tmp_path: Path) -> None:
    """Installed twice is installed; removed twice is removed; what others put there stays."""
    place = tmp_path / "share" / "jupyter" / "kernels" / "rlm-memory"
    for _ in range(2):
        assert rlm_memory("kernel", "install", "--prefix", str(tmp_path)).returncode == 0
        assert json.loads((place / "kernel.json").read_text())["argv"][0] == sys.executable
    (place / "logo-svg.svg").write_text("<svg/>")
    for _ in range(2):
        assert rlm_memory("kernel", "remove", "--prefix", str(tmp_path)).returncode == 0
        assert [item.name for item in place.iterdir()] == ["logo-svg.svg"]


def test_two_places_at_once_are_refused(tmp_path: Path) -> None:
    """Which one was meant is not guessed."""
    result = rlm_memory("kernel", "install", "--user", "--prefix", str(tmp_path))
    assert result.returncode == 2
    assert "one of" in result.stderr
    assert not list(tmp_path.iterdir())


GIVEN = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "HONCHO_API_KEY": "secret-value-1",
    "SAME": "secret-value-1",
    "OTHER": "x",
    "SHORT": "1",
    "ONE": "1",
}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {"PATH", "LC_ALL", "OTHER", "SHORT", "ONE"}),
        ({"credentials": ["SHORT"]}, {"PATH", "LC_ALL", "HONCHO_API_KEY", "SAME", "OTHER", "ONE"}),
        ({"environment": "allowlist"}, {"PATH", "LC_ALL"}),
        ({"environment": "allowlist", "allow": ["OTHER", "SAME", "HONCHO_API_KEY"]}, {"PATH", "LC_ALL", "OTHER"}),
    ],
)
def test_a_kernel_gets_no_credential_by_name_or_by_value(changes: dict[str, Any], names: set[str]) -> None:
    """Left out: the named variables and copies of them; an allowlist lets no credential through either."""
    made = kernel_environment(GIVEN, KernelSettings(**changes), session_dir=Path("/s"), state_root=Path("/r"))
    assert made.variables.keys() == names | {"RLM_SESSION_DIR", "RLM_MEMORY_STATE_ROOT"}
    assert (made.variables["RLM_SESSION_DIR"], made.variables["RLM_MEMORY_STATE_ROOT"]) == ("/s", "/r")


def test_a_project_file_may_not_say_which_credentials_a_kernel_gets(tmp_path: Path) -> None:
    """A cloned repository cannot switch the cleaning off."""
    (tmp_path / settings.FILE_NAME).write_text("[kernel]\ncredentials = []\n")
    with pytest.raises(settings.SettingsError, match=r"kernel\.credentials"):
        settings.load(cwd=tmp_path, environ={}, user_folder=tmp_path / "u", state_root=tmp_path / "s")
