"""A kernel of the kernelspec under a real Jupyter server: start, restart, death, delete."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from hosts import host_says
from jupyter_front import JupyterServer, environment_of, eventually, kernels_of, run

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

RECORD = "%load_ext rlm_memory\nr = memory.experiments.record({'a': 1}, title='under the server')"
FIND = "print([hit.title for hit in memory.experiments.search('server')])"


def tell(server: JupyterServer, kernel_id: str, code: str) -> str:
    """Run one cell in a kernel that answers, with a client of its own."""
    client = server.client(kernel_id)
    try:
        return run(client, code)
    finally:
        client.stop_channels()


def one_kernel(root: Path, generation: int) -> dict[str, Any]:
    """The kernel that the host serves, once it has that generation and a living process."""

    def look() -> dict[str, Any] | None:
        for item in kernels_of(root):
            if item["generation"] == generation and item["pid"] and psutil.pid_exists(item["pid"]):
                return item
        return None

    return eventually(look, f"the host serves the kernel in generation {generation}")


def test_a_kernel_lives_through_restart_and_death_and_leaves_nothing(
    jupyter: Callable[..., JupyterServer], state_root: Path
) -> None:
    """One session from start to delete, a generation for each process; afterwards no process, socket or folder."""
    server = jupyter(HONCHO_API_KEY="planted-secret-0001", COPY_OF_IT="planted-secret-0001", HARMLESS="kept")
    kernel_id = server.start()
    first = one_kernel(state_root, 1)
    tell(server, kernel_id, RECORD)
    told = environment_of(first["pid"])
    assert not {"HONCHO_API_KEY", "COPY_OF_IT"} & told.keys()
    assert told["HARMLESS"] == "kept"
    folder = Path(told["RLM_SESSION_DIR"])
    assert folder == state_root / "sessions" / first["session"]
    assert "HONCHO_API_KEY" in server.said()
    assert "planted-secret" not in server.said()

    server.ask("POST", f"api/kernels/{kernel_id}/restart")
    second = one_kernel(state_root, 2)
    assert "under the server" in tell(server, kernel_id, f"%load_ext rlm_memory\n{FIND}")
    os.kill(second["pid"], signal.SIGKILL)
    third = one_kernel(state_root, 3)
    assert "under the server" in tell(server, kernel_id, f"%load_ext rlm_memory\n{FIND}")
    assert first["session"] == second["session"] == third["session"]
    assert len({first["pid"], second["pid"], third["pid"]}) == 3

    connection_file = server.connection_file(kernel_id)
    server.delete(kernel_id)
    eventually(lambda: not kernels_of(state_root), "the host lets go of the deleted kernel")
    eventually(lambda: not folder.exists(), "the empty session folder is gone")
    assert not list((state_root / "attachments").iterdir())
    assert not connection_file.exists()
    assert not psutil.pid_exists(third["pid"])


def test_a_host_that_died_is_started_again_by_the_restart(
    jupyter: Callable[..., JupyterServer], state_root: Path
) -> None:
    """The host is killed; a restart of the kernel starts another, which knows the session and raises the generation."""
    server = jupyter()
    kernel_id = server.start()
    first = one_kernel(state_root, 1)
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    os.kill(status["pid"], signal.SIGKILL)
    server.ask("POST", f"api/kernels/{kernel_id}/restart")
    second = one_kernel(state_root, 2)
    assert second["session"] == first["session"]
    after = host_says(state_root, {"type": "status"})
    assert after is not None
    assert after["pid"] != status["pid"]


def test_a_running_cell_that_uses_memory_is_shown_as_busy(
    jupyter: Callable[..., JupyterServer], state_root: Path, tmp_path: Path
) -> None:
    """The host's answers on the control channel do not make the server believe that the cell has ended."""
    server = jupyter()
    kernel_id = server.start()
    client = server.client(kernel_id)
    run(client, RECORD)

    def told() -> dict[str, Any]:
        return server.ask("GET", f"api/kernels/{kernel_id}")

    code = (
        "import pathlib, time, datetime\nwhile not pathlib.Path('ask').exists(): time.sleep(0.05)\n"
        f"{FIND}\nnow = datetime.datetime.now(datetime.UTC).isoformat()\n"
        "pathlib.Path('new').write_text(now)\npathlib.Path('new').rename('asked')\nprint('answered', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.05)"
    )
    client.execute(code)
    eventually(lambda: told()["execution_state"] == "busy", "the server sees that the cell runs")
    (server.folder / "ask").touch()
    eventually((server.folder / "asked").exists, "the cell has its answer")
    # What the cell printed after the answer has passed the server, so the answer's own messages have too.
    answered = datetime.fromisoformat((server.folder / "asked").read_text())
    eventually(lambda: datetime.fromisoformat(told()["last_activity"]) > answered, "the server is up to date")
    state = told()["execution_state"]
    (server.folder / "go").touch()
    assert state == "busy"
    eventually(
        lambda: server.ask("GET", f"api/kernels/{kernel_id}")["execution_state"] == "idle", "the cell's end is seen"
    )
    client.stop_channels()


def test_settings_that_are_wrong_are_shown_and_no_kernel_starts(
    jupyter: Callable[..., JupyterServer], state_root: Path, tmp_path: Path
) -> None:
    """The front end gets the sentence with the key; nothing runs that would seem to have memory."""
    import urllib.error

    settings = tmp_path / "given.toml"
    settings.write_text("[kernel]\nenvironment = 'everything'\n")
    settings.chmod(0o600)
    server = jupyter(RLM_MEMORY_CONFIG=str(settings))
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.start()
    refused.value.close()
    assert "kernel.environment" in server.said()
    assert server.ask("GET", "api/kernels") == []
    assert not (state_root / "run").exists()
