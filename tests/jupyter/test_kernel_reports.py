"""Reported troubles of comms and kernels (cases G2), each with the test that holds it:

| case | trouble | test |
|---|---|---|
| G2-01 | a call in a running cell waits for a reply that the kernel cannot read | `tests/kernel/test_experiments.py` |
| G2-03 | a forked child uses its parent's connection | `tests/kernel/test_experiments.py` |
| G2-05 | threads: replies and printed notes go to the wrong place | `tests/kernel/test_experiments.py` |
| G2-07 | large values and an output flood | here |
| G2-09 | the extension is loaded twice, reloaded, edited under autoreload | `tests/kernel/test_extension.py` |
| G2-11 | the kernel is killed while it records | here |
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_front import TOKEN, JupyterServer, eventually, kernels_of, run

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

MEGABYTE = 1 << 20


def tell(server: JupyterServer, kernel_id: str, code: str) -> str:
    """Run one cell with a client of its own: one that is there during a flood is fed what it cannot eat."""
    client = server.client(kernel_id)
    try:
        return run(client, code)
    finally:
        client.stop_channels()


@contextlib.contextmanager
def comm_frames(connection_file: Path) -> Iterator[list[int]]:
    """The sizes of all comm messages that a kernel publishes meanwhile, as they are on the wire."""
    info = json.loads(connection_file.read_text())
    sizes: list[int] = []
    ended = threading.Event()
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.rcvhwm = 0
        socket.subscribe(b"comm-")
        socket.connect(f"tcp://127.0.0.1:{info['iopub_port']}")

        def read() -> None:
            while not ended.is_set():
                if socket.poll(100):
                    sizes.append(sum(map(len, socket.recv_multipart())))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield sizes
        finally:
            ended.set()
            reader.join()


def execute_through(server: JupyterServer, kernel_id: str, code: str, seconds: float) -> list[str]:
    """Run a cell over the server's WebSocket, as a page does; the text of the streams that came through."""
    from websocket import create_connection

    address = f"ws://127.0.0.1:{server.port}/api/kernels/{kernel_id}/channels?token={TOKEN}"
    identity = uuid.uuid4().hex
    header = {"msg_id": identity, "msg_type": "execute_request", "session": uuid.uuid4().hex, "username": ""}
    header |= {"version": "5.4", "date": datetime.now(UTC).isoformat()}
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
    request = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    shown: list[str] = []
    page = create_connection(address, timeout=seconds)
    try:
        page.send(json.dumps(request))
        while True:
            message = json.loads(page.recv())
            if message["msg_type"] == "stream":
                shown.append(message["content"]["text"])
            if message["msg_type"] == "execute_reply" and message["parent_header"]["msg_id"] == identity:
                assert message["content"]["status"] == "ok", message["content"]
                return shown
    finally:
        page.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_large_frame_and_a_flood_of_output_go_through_a_server(
    jupyter: Callable[..., JupyterServer], state_root: Path
) -> None:
    """192 MB in a cell that prints 200,000 lines, default limits: exact, and no comm message over 1 MiB (G2-07)."""
    server = jupyter()
    kernel_id = server.start("python3")
    tell(server, kernel_id, "%load_ext rlm_memory\nimport numpy as np, pandas as pd, pathlib")
    code = (
        "frame = pd.DataFrame(np.random.default_rng(0).random((3_000_000, 8)))\n"
        "for i in range(100_000): print(i)\n"
        "ref = memory.experiments.record(frame, title='192 MB')\n"
        "for i in range(100_000): print(i)\n"
        "pathlib.Path('told').write_text(ref.experiment_id)"
    )
    with comm_frames(server.connection_file(kernel_id)) as sizes:
        execute_through(server, kernel_id, code, 600)
        told = (server.folder / "told").read_text()
        back = (
            f"b = memory.experiments.load({told!r})\n"
            "print(ref.experiment_id, b.equals(frame), b.columns.equals(frame.columns), b.index.equals(frame.index))"
        )
        assert tell(server, kernel_id, back) == f"{told} True True True\n"
    assert len(sizes) >= 2
    assert max(sizes) < MEGABYTE


def test_what_a_killed_kernel_had_recorded_is_found_and_the_host_forgets_the_kernel(
    state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """SIGKILL in a loop of records: each printed one loads, its traces are gone, the next kernel is served (G2-11)."""
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory\nmemory.experiments.search('')").ok()
    assert [item["pid"] for item in kernels_of(state_root)] == [kernel.pid]
    kernel.client.execute(
        "for i in range(1000): print(memory.experiments.record({'i': i}, title=f'n{i}').experiment_id, flush=True)"
    )
    printed = ""
    while printed.count("\n") < 10:
        message = kernel.client.get_iopub_msg(timeout=60)
        assert message["msg_type"] != "error", message["content"]
        printed += message["content"]["text"] if message["msg_type"] == "stream" else ""
    os.kill(kernel.pid, signal.SIGKILL)
    # Its session waits for a restart while the connection file is there, as a manager that restarts a kernel leaves it.
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    eventually(lambda: not kernels_of(state_root), "the host lets the kernel go")
    assert not list((state_root / "attachments").iterdir())
    eventually(lambda: not list((state_root / "sessions").iterdir()), "the session folder is gone")
    assert not list(state_root.glob("artifacts/projects/*/tmp/*"))

    ids = printed.split("\n")[:-1]
    following = start_kernel()
    loaded = f"[memory.experiments.load(one)['i'] for one in {ids!r}]"
    code = f"%load_ext rlm_memory\nprint({loaded} == list(range({len(ids)})))"
    assert following.run(code).ok() == "True\n"
    found = "print(all(memory.experiments.search(f'n{i}')[0].title == f'n{i}' for i in range(10)))"
    assert following.run(found).ok() == "True\n"
