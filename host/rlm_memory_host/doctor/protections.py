"""Which protections hold here, told by trying them.

Owns: the trial (one process that made itself unreadable as the host does, one that did not, and a third that tries to
look into both), this process's privileges, bubblewrap. Does not own: the protection itself (`process.harden`).

The trial runs without privileges: as root it gives them up first (uid 65534), since root can always look. Processes are
forked, not executed, so that it works where that uid cannot reach this Python.

Source: design page "Kernel <-> host", What is and is not a boundary.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from rlm_memory_host.doctor.findings import Finding
from rlm_memory_host.process import PR_SET_DUMPABLE

NOBODY: Final = 65534
PTRACE_SEIZE: Final = 0x4206
CAPABILITIES: Final = {19: "CAP_SYS_PTRACE", 21: "CAP_SYS_ADMIN", 38: "CAP_PERFMON"}
"""Who holds one of these can look into every process, or make itself able to."""
TRIAL_SECONDS: Final = 20.0


def examine(sandbox: Literal["none", "bubblewrap"]) -> Iterator[Finding]:
    """Findings on privileges, on what another process of the user can do, and on the sandbox."""
    yield from privileges(os.geteuid(), _effective_capabilities())
    if sys.platform.startswith("linux"):
        yield from judged(trial(hardened=True), trial(hardened=False))
    else:
        text = "on this system other processes of the same user can read the host's memory"
        yield Finding("host memory", "warning", text, "run agents' kernels as another user or in a container")
    text = "files of your user are readable to your kernels, the store's among them, and they can signal the host"
    yield Finding("same user", "note", f"{text}; another user or a container is the real boundary")
    yield from bubblewrap(sandbox)


def privileges(uid: int, capabilities: int) -> Iterator[Finding]:
    """Privileges with which nothing of this holds. Pure."""
    held = [name for bit, name in CAPABILITIES.items() if capabilities >> bit & 1]
    if uid == 0:
        text = "this runs as root: a kernel of root can read any process, so the host's protection does not hold"
        yield Finding("privileges", "warning", text, "run Jupyter and the host as an ordinary user")
    elif held:
        text = f"this user holds {', '.join(held)}: a kernel can read any process"
        yield Finding("privileges", "warning", text, "start without these capabilities")
    else:
        yield Finding("privileges", "ok", "an ordinary user without capabilities that read other processes")


def _effective_capabilities() -> int:
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)


def judged(hardened: dict[str, bool] | None, open_one: dict[str, bool] | None) -> Iterator[Finding]:
    """What the two trials say together: a protection is proven only where the unprotected process was open. Pure."""
    if hardened is None or open_one is None:
        yield Finding("host memory", "note", "the trial could not be run here")
        return
    for name, possible in hardened.items():
        if possible:
            text = f"another process of the same user can {name} of the host"
            yield Finding("host memory", "problem", text, "run agents' kernels as another user or in a container")
        elif open_one.get(name):
            yield Finding("host memory", "ok", f"tried: another process of the user cannot {name} of the host")
        else:
            text = f"this system lets no process {name} of any other; the host adds nothing to that"
            yield Finding("host memory", "ok", text)


def trial(*, hardened: bool) -> dict[str, bool] | None:
    """What an unprivileged process could do to one of its own user; None where it could not be tried."""
    try:
        return _tried(hardened)
    except (OSError, ValueError):
        return None


def _tried(hardened: bool) -> dict[str, bool]:
    ready, tell_ready = os.pipe()
    target = _fork(lambda: _wait_to_be_looked_at(tell_ready, hardened), close=ready)
    os.close(tell_ready)
    try:
        with os.fdopen(ready, "rb") as pipe:
            if pipe.read(1) != b"+":
                raise OSError("the target did not start")
        answer, tell = os.pipe()
        looker = _fork(lambda: _look_into(target, tell), close=answer)
        os.close(tell)
        with os.fdopen(answer, "rb") as pipe:
            text = pipe.read()
        os.waitpid(looker, 0)
        return json.loads(text)
    finally:
        os.kill(target, signal.SIGKILL)
        os.waitpid(target, 0)


def _fork(run: Callable[[], None], close: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.close(close)
        signal.alarm(int(TRIAL_SECONDS))
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        run()
    finally:
        os._exit(0)


def _dumpable(value: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, value, 0, 0, 0)


def _wait_to_be_looked_at(tell: int, hardened: bool) -> None:
    _dumpable(0 if hardened else 1)
    os.write(tell, b"+")
    while True:
        signal.pause()


def _look_into(pid: int, tell: int) -> None:
    _dumpable(1)
    folder = f"/proc/{pid}"
    found = {
        "read the environment": _is_possible(lambda: os.read(os.open(f"{folder}/environ", os.O_RDONLY), 1)),
        "open the memory": _is_possible(lambda: os.open(f"{folder}/mem", os.O_RDONLY)),
        "list the open files": _is_possible(lambda: os.listdir(f"{folder}/fd")),  # noqa: PTH208
        "trace the execution": ctypes.CDLL(None).ptrace(PTRACE_SEIZE, pid, None, None) == 0,
    }
    os.write(tell, json.dumps(found).encode())


def _is_possible(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def bubblewrap(sandbox: Literal["none", "bubblewrap"]) -> Iterator[Finding]:
    """Whether kernels could be put into a sandbox here, tried with a real one."""
    wanted = sandbox == "bubblewrap"
    program = shutil.which("bwrap")
    if program is None:
        text = "bwrap is not installed" + (", and kernel.sandbox asks for it" if wanted else "")
        fix = "install bubblewrap (Debian, Ubuntu: apt install bubblewrap)"
        yield Finding("sandbox", "problem" if wanted else "note", text, fix)
        return
    command = [program, "--ro-bind", "/", "/", "--unshare-net", "--unshare-pid", "--dev", "/dev", "--proc", "/proc"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, timeout=TRIAL_SECONDS, check=False)
        works = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    if works:
        state = "kernels run in one" if wanted else 'off; kernel.sandbox = "bubblewrap" switches it on'
        yield Finding("sandbox", "ok", f"bwrap works here ({state})")
    else:
        text = "bwrap is installed and cannot make a sandbox here (are user namespaces forbidden?)"
        yield Finding("sandbox", "problem" if wanted else "note", text, "allow user namespaces, or use a container")
