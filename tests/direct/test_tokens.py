"""Who may use the direct channel, and what whoever holds a token cannot do to the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import rlm_memory
import zmq
from hosts import host_says
from plain_python import Script, running_script
from rlm_memory import errors, wire
from rlm_memory_host.attach.guest import open_guest

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

CONNECT = "import json, rlm_memory\nmemory = rlm_memory.connect()"
TRY = "try:\n    {0}\nexcept memory.errors.MemoryFault as e:\n    print(type(e).__name__, e.code)"
USE = "from rlm_memory import memory\n" + TRY.format("print('in', len(memory.experiments.search('')))")


def shared(script: Script) -> dict[str, str]:
    return json.loads(script.run("print(json.dumps(memory.share()))").ok())


@contextmanager
def raw(offer: dict[str, str]) -> Iterator[Any]:
    """A bare socket with that offer's token."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        secret = offer["RLM_MEMORY_TOKEN"].encode()
        peer.curve_secretkey, peer.curve_publickey = secret, zmq.curve_public(secret)
        peer.curve_serverkey = offer["RLM_MEMORY_SERVER_KEY"].encode()
        peer.linger, peer.rcvtimeo = 0, 20_000
        peer.connect(offer["RLM_MEMORY_ADDRESS"])
        yield peer


def ask(peer: Any, request_id: str, data: Any, origin: str = "raw", kind: bytes = b"open") -> None:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    peer.send(wire.Letter(kind, origin, request_id, None, body).encode())


def answer(peer: Any) -> tuple[str, Any]:
    return wire.parse_reply_frame(peer.recv())


@pytest.mark.parametrize("folder", ["s", "a-state-root-with-a-name-that-is-too-long-for-the-address-of-a-socket" * 2])
def test_ipc_where_it_fits_and_loopback_where_not(tmp_path: Path, folder: str) -> None:
    """Both work, and a worker in the same session finds what its parent recorded."""
    import tempfile

    from hosts import stop_host

    with tempfile.TemporaryDirectory(prefix="rlm-", dir="/tmp") as short:
        root = Path(short) / folder
        try:
            with running_script(tmp_path, RLM_MEMORY_STATE_ROOT=str(root)) as script:
                script.run(CONNECT).ok()
                offer = shared(script)
                scheme = "ipc://" if len(folder) < 10 else "tcp://127.0.0.1:"
                assert offer["RLM_MEMORY_ADDRESS"].startswith(scheme)
                script.run("memory.experiments.record({'a': 1}, title='of the parent')").ok()
                with running_script(tmp_path, **offer) as worker:
                    assert worker.run(USE).ok() == "in 1\n"
        finally:
            stop_host(root)


@pytest.mark.parametrize("named", ["", "a\0b", "~no-user-of-that-name/state"])
def test_a_state_root_that_names_no_folder_is_refused(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is not set, say: no host is started in the folder that the script runs in."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.Invalid, match="state_root"):
        rlm_memory.connect(named)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_key_is_refused(start_script: Callable[..., Script], start_host: Callable[..., Any]) -> None:
    """A token that nobody was given, and the right token for another host's key: refused, soon and by name."""
    start_host()
    script = start_script()
    script.run(CONNECT).ok()
    offer = shared(script)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    for wrong in ({"RLM_MEMORY_TOKEN": secret}, {"RLM_MEMORY_SERVER_KEY": public}):
        assert start_script(**{**offer, **wrong}).run(USE).ok() == "HostUnavailable REQUEST_SCOPE_CLOSED\n"
    part = {name: value for name, value in offer.items() if name != "RLM_MEMORY_SERVER_KEY"}
    assert start_script(**part).run(USE).ok() == "Invalid INVALID_ARGUMENT\n"
    assert script.run("print(len(memory.experiments.search('')))").ok() == "0\n"


def test_a_token_ends_with_its_session(start_script: Callable[..., Script], start_host: Callable[..., Any]) -> None:
    """Replayed afterwards it is refused, and a worker that was connected already gets no answer to its next call."""
    start_host()
    script = start_script()
    script.run(CONNECT).ok()
    offer = shared(script)
    worker = start_script(**offer)
    assert worker.run(USE).ok() == "in 0\n"
    script.run("memory.close()").ok()
    assert worker.run(TRY.format("memory.experiments.search('')")).ok() == "HostUnavailable REQUEST_SCOPE_CLOSED\n"
    assert start_script(**offer).run(USE).ok() == "HostUnavailable REQUEST_SCOPE_CLOSED\n"
    said = script.run("memory.experiments.search('')").error or ""
    assert said.startswith(
        "HostUnavailable: memory works inside a Jupyter kernel (ipykernel), after rlm_memory.connect()"
    )
    assert script.run("memory = rlm_memory.connect()\nprint(len(memory.experiments.search('')))").ok() == "0\n"


async def test_rubbish_harms_nobody(
    start_script: Callable[..., Script], start_host: Callable[..., Any], state_root: Path, tmp_path: Path
) -> None:
    """Whoever holds a token may send anything: it is refused with a code or dropped, and others are served on."""
    start_host()
    script = start_script()
    script.run(CONNECT).ok()
    async with open_guest(state_root, tmp_path, "other") as other:
        with raw(shared(script)) as peer:
            for frames in (
                [b""],
                [b"x" * 5000],
                [b"open a\n{}"],
                [b"open a b c\xff\n{}"],
                [b"shut a b -\n{}"],
                [b"a"] * 9,
            ):
                peer.send_multipart(frames)
            for number, (data, code) in enumerate(
                (
                    (b"", "INVALID_REQUEST"),
                    (b"[" * 100_000, "INVALID_REQUEST"),
                    ([], "INVALID_REQUEST"),
                    ({"type": "planted"}, "UNSUPPORTED_REQUEST"),
                    ({"type": wire.PING, "project": "planted"}, "INVALID_REQUEST"),
                    ({"type": wire.CALL, "name": "x", "arguments": {"q": "x" * (1 << 20)}}, "PAYLOAD_TOO_LARGE"),
                )
            ):
                ask(peer, f"bad{number}", data)
                request_id, reply = answer(peer)
                assert (request_id, reply["code"]) == (f"bad{number}", code)
                assert "planted" not in json.dumps(reply)
            ask(peer, "nobody", b"", kind=b"close")
            ask(peer, "good", {"type": wire.PING})
            assert answer(peer) == ("good", {"status": "ok"})
            assert (await other.call("memory_status")).value
        with raw(shared(script)) as peer:
            ask(peer, "huge", b"x" * (wire.MAX_FRAME_BYTES + 1))
            assert (await other.call("memory_status")).value
    assert host_says(state_root, {"type": "status"}) is not None


def test_one_id_is_one_call(start_script: Callable[..., Script], start_host: Callable[..., Any]) -> None:
    """A repeated id is answered again and not run again; the same id of another channel is another request."""
    start_host()
    script = start_script()
    script.run(CONNECT).ok()
    folder = Path(
        script.run("from rlm_memory import kernel\nprint(kernel.connection().ensure().session_dir)").ok().strip()
    )
    (folder / "exports" / "one.txt").write_text("one")
    arguments = {
        "source_path": str(folder / "exports" / "one.txt"), "title": "one", "summary": "s",
        "query_fingerprint": "0" * 64, "source": "s", "source_version": "1",
    }  # fmt: skip
    call = {"type": wire.CALL, "name": "memory_artifact_record", "arguments": arguments}
    with raw(shared(script)) as peer:
        ask(peer, "same", call)
        first = answer(peer)
        assert first[1]["isError"] is False
        (folder / "exports" / "one.txt").unlink()
        ask(peer, "same", call)
        assert answer(peer) == first
        ask(peer, "same", call, origin="another")
        assert answer(peer)[1]["isError"] is True


def test_a_forked_child_speaks_for_itself(start_script: Callable[..., Script], start_host: Callable[..., Any]) -> None:
    """It loads what its parent recorded over a socket of its own; the parent goes on."""
    start_host()
    script = start_script()
    script.run(CONNECT).ok()
    code = (
        "import os\nr = memory.experiments.record({'a': 1}, title='kept')\nends = os.pipe()\npid = os.fork()\n"
        "if pid == 0:\n    os.write(ends[1], repr(memory.experiments.load(r)).encode()); os._exit(0)\n"
        "os.waitpid(pid, 0); print(os.read(ends[0], 100).decode(), memory.experiments.load(r))"
    )
    assert script.run(code).ok() == "{'a': 1} {'a': 1}\n"


def test_joblib_workers_use_the_shared_session(
    start_script: Callable[..., Script], start_host: Callable[..., Any]
) -> None:
    """`os.environ.update(memory.share())`, and functions that use `memory` run in loky's processes as they are."""
    start_host()
    script = start_script()
    code = (
        "import os, joblib\nos.environ.update(memory.share())\n"
        "def job(i):\n"
        "    from rlm_memory import memory\n"
        "    return memory.experiments.load(memory.experiments.record({'i': i}, title=f'job {i}'))['i'], os.getpid()\n"
        "out = joblib.Parallel(n_jobs=2)(joblib.delayed(job)(i) for i in range(6))\n"
        "print([i for i, _ in out], os.getpid() in {pid for _, pid in out}, len(memory.experiments.search('job')))\n"
        "from joblib.externals.loky import get_reusable_executor\nget_reusable_executor().shutdown(wait=True)"
    )
    script.run(CONNECT).ok()
    assert script.run(code).ok() == "[0, 1, 2, 3, 4, 5] False 6\n"


@pytest.mark.slow
def test_sixty_four_processes_at_once(start_script: Callable[..., Script], start_host: Callable[..., Any]) -> None:
    """Each records and loads its own in the shared session; nothing is lost, nobody gets another's."""
    start_host()
    script = start_script()
    script.run(CONNECT).ok()
    offer = shared(script)
    workers = [start_script(**offer) for _ in range(64)]
    for number, worker in enumerate(workers):
        worker.begin(
            "from rlm_memory import memory\n"
            f"mine = [{{'n': [{number}, i]}} for i in range(5)]\n"
            f"refs = [memory.experiments.record(m, title='w{number}') for m in mine]\n"
            "print([memory.experiments.load(r) for r in refs] == mine)"
        )
    assert [worker.end().ok() for worker in workers] == ["True\n"] * 64
    assert script.run("print(memory.status().details['artifacts']['project']['cards'])").ok() == "320\n"
