"""What other processes can do to a running host: those of another user, and those of its own.

As root the tests give root up, since root can always look: both host and prober then run as nobody, with the one
capability that lets this Python be read below a closed home folder. Otherwise they run as who runs the tests. Another
user can only be tried by root: elsewhere there is no such test.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rlm_memory import wire

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

NOBODY = 65534
SECRET = "planted-" + "secret-0006"
READABLE = [
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
    "--bounding-set=-all,+dac_read_search",
]
PROBE = """
import ctypes, json, os, sys
def tried(attempt):
    try:
        found = attempt()
    except OSError as error:
        return type(error).__name__
    return found if isinstance(found, bool) else True
def reads(path):
    return tried(lambda: bool(open(path, "rb").read(1)))
told = {}
for name, pid in (("host", int(sys.argv[1])), ("twin", int(sys.argv[2]))):
    folder = f"/proc/{pid}"
    told[name] = {
        "environ": reads(folder + "/environ"),
        "mem": tried(lambda: open(folder + "/mem", "rb").close()),
        "fd": tried(lambda: bool(os.readlink(folder + "/fd/0"))),
        "maps": reads(folder + "/maps"),
        "trace": ctypes.CDLL(None).ptrace(0x4206, pid, None, None) == 0,
        "signal": tried(lambda: os.kill(pid, 0)),
    }
told["file"] = reads(sys.argv[3])
print(json.dumps(told))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter: what is refused below it is refused by the host's own modes."""
    folder = Path(tempfile.mkdtemp(prefix="rlm-memory-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def ordinary() -> list[str]:
    """The words before a command that make it run as an ordinary user."""
    if os.geteuid():
        return []
    setpriv = shutil.which("setpriv")
    assert setpriv, "setpriv is not on PATH; it is part of util-linux"
    return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *READABLE]


@pytest.fixture
def start(place: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`start(words before, *arguments of Python)` starts a process that waits; ended by the fixture."""
    with ExitStack() as stack:

        def run(before: list[str], *arguments: str) -> subprocess.Popen[bytes]:
            home = {"HOME": str(place), "HONCHO_API_KEY": SECRET, "PYTHONDONTWRITEBYTECODE": "1"}
            process = subprocess.Popen(
                [*before, sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                cwd=place,
                env={**os.environ, **home},
            )
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            assert process.stdout.readline(), "it ended before it said that it runs"
            return process

        yield run


def state_root_of(place: Path, uid: int) -> Path:
    """A new state root, of that user."""
    root = place / "state"
    root.mkdir(mode=0o700)
    os.chown(root, uid, -1)
    return root


def host_arguments(root: Path) -> list[str]:
    return ["-m", "rlm_memory_host", "host", "run", "--state-root", str(root)]


def test_a_process_of_the_same_user_cannot_look_into_the_host(
    place: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Environment, memory, open files and tracing are refused; its twin without protection is open to all of them.

    Files of the user and signals are no boundary, as the page says.
    """
    root = state_root_of(place, os.geteuid() or NOBODY)
    host = start(ordinary(), *host_arguments(root))
    twin = start(ordinary(), "-c", "import time; print('waits', flush=True); time.sleep(3600)")
    probe = [*ordinary(), sys.executable, "-c", PROBE, str(host.pid), str(twin.pid), str(root / "host.lock")]
    told = json.loads(subprocess.run(probe, capture_output=True, text=True, check=True, cwd=place, timeout=60).stdout)
    assert told["twin"] == {"environ": True, "mem": True, "fd": True, "maps": True, "trace": True, "signal": True}
    refused = "PermissionError"
    assert told["host"] == {
        "environ": refused,
        "mem": refused,
        "fd": refused,
        "maps": refused,
        "trace": False,
        "signal": True,
    }
    assert told["file"] is True


def as_nobody(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `look` finds in a forked process of another user; forked, since that user cannot start this Python."""
    answer, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(tell, json.dumps(look()).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(answer, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def tried(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "possible"


def says(path: Path) -> str:
    """What a host answers at a socket, or why it cannot be asked."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(30)
        try:
            peer.connect(str(path))
            peer.sendall(b'{"type": "status"}\n')
            return peer.makefile().readline()
        except OSError as error:
            return type(error).__name__


if os.geteuid() == 0:

    def test_another_user_reaches_nothing_of_the_host(
        place: Path, start: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        """Process, socket and files are refused; where somebody opened the folders, by the modes within and the uid."""
        root = state_root_of(place, 0)
        host = start([], *host_arguments(root))
        path = wire.socket_path(root)

        def look() -> dict[str, Any]:
            folder = f"/proc/{host.pid}"
            return {
                "environ": tried(lambda: Path(folder, "environ").read_bytes()),
                "mem": tried(lambda: Path(folder, "mem").open("rb").close()),
                "fd": tried(lambda: list(Path(folder, "fd").iterdir())),
                "trace": ctypes.CDLL(None).ptrace(0x4206, host.pid, None, None) == 0,
                "signal": tried(lambda: os.kill(host.pid, 0)),
                "root": tried(lambda: list(root.iterdir())),
                "lock": tried((root / "host.lock").read_bytes),
                "log": tried(lambda: list((root / "logs").iterdir())),
                "artifacts": tried(lambda: list((root / "artifacts").iterdir())),
                "socket": says(path),
            }

        refused = dict.fromkeys(
            ("environ", "mem", "fd", "signal", "root", "lock", "log", "artifacts", "socket"), "PermissionError"
        )
        assert as_nobody(look) == {**refused, "trace": False}
        root.chmod(0o755)
        assert as_nobody(look) == {**refused, "trace": False, "root": "possible"}
        path.parent.chmod(0o755)
        path.chmod(0o666)
        answer = as_nobody(look)["socket"]
        assert SECRET not in answer
        assert '"ok"' not in answer
        assert '"pid"' not in answer
        assert says(path).startswith('{"')
