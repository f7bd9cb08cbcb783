"""A kernel in a bubblewrap sandbox: the command that starts it.

Owns: what such a kernel sees. Does not own: starting it (`provisioner`), trying bubblewrap (`doctor`).

The whole file system is read-only; the temporary folders, the system's run-time folder and the state root are empty
ones of the kernel's own, so that no socket of another program and nothing of the host is in it. Shown again on top: the
session folder and the folder of the kernel's channels (writable), the project's objects, the connection file, the
kernel's folder and its Python (read-only). No network, other process ids, and it dies with whoever started it.

What the user can read elsewhere, home included, stays readable: this keeps code from changing, reaching and signalling
things, not from reading them.

Source: design page "Kernel <-> host", What is and is not a boundary.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlm_memory import wire

from rlm_memory_host.errors import SettingsError
from rlm_memory_host.process import private_folder, runtime_folder

HIDDEN: Final = (Path("/tmp"), Path("/var/tmp"), Path("/run"))


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that one sandboxed kernel is about; all absolute."""

    state_root: Path
    session_dir: Path
    channels: Path
    objects: Path | None
    connection_file: Path
    cwd: Path
    # The kernel side too: installed from a checkout it lies outside the environment, perhaps below a hidden folder.
    python: tuple[Path, ...] = (Path(sys.prefix), Path(sys.base_prefix), Path(wire.__file__).parent)


def program() -> str:
    """Where bwrap is. Raises SettingsError when it is not installed: a kernel never starts without its sandbox."""
    found = shutil.which("bwrap")
    if found is None:
        raise SettingsError(
            'kernel.sandbox = "bubblewrap": bwrap is not installed; install bubblewrap, or set kernel.sandbox to "none"'
        )
    return found


def channels_folder(kernel_id: str) -> Path:
    """A private folder for a kernel's IPC sockets, made if needed; short, since a socket's path is."""
    name = hashlib.sha256(kernel_id.encode()).hexdigest()[:16]
    return private_folder(private_folder(runtime_folder() / "ipc") / name)


def command(bwrap: str, places: Places, kernel: Sequence[str]) -> list[str]:
    """The command that runs `kernel` in the sandbox. Pure but for looking which folders exist."""
    words = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    for hidden in HIDDEN:
        if hidden.is_dir() and not hidden.is_symlink():
            words += ["--tmpfs", str(hidden)]
    for path in (places.cwd, *places.python, places.connection_file):
        words += ["--ro-bind", str(path), str(path)]
    # After the folders above: it may lie below one of them, and stays hidden.
    words += ["--tmpfs", str(places.state_root)]
    if places.objects is not None:
        words += ["--ro-bind", str(places.objects), str(places.objects)]
    for path in (places.session_dir, places.channels):
        words += ["--bind", str(path), str(path)]
    return [*words, "--chdir", str(places.cwd), *kernel]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment in the sandbox: only the kernel's own channels lead to the host, and home cannot be written."""
    kept = {name: value for name, value in given.items() if name != "JPY_PARENT_PID"}
    return {
        **kept,
        "RLM_MEMORY_HOST": "comm",
        "TMPDIR": "/tmp",
        "IPYTHONDIR": "/tmp/ipython",
        "MPLCONFIGDIR": "/tmp/mpl",
    }
