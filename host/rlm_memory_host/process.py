"""The host as a process: what it denies to its own user's other processes, its folders, its one-per-root lock.

Owns: making the process unreadable, private folders and files whatever the umask, the lock of a state root, pids and
their start times. Does not own: what lies in the folders, signals and shutdown (`app`), the socket (`attach.door`).

Lock: an advisory `flock` on `<state root>/host.lock`, a file that the host never deletes (deleting it would let two
hosts lock two inodes of one name). Somebody else may delete it, with the whole root: then a second lock, outside and
named after the root's path, still keeps another host out, until the first one has noticed and ended. Both fall with
the process, however that ends; the pid written in them is only a hint.

Source: design page "Kernel <-> host", sections Host side and What is and is not a boundary.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from rlm_memory_host.errors import HostError, SettingsError

PR_SET_DUMPABLE: Final = 4
PR_GET_DUMPABLE: Final = 3
LOCK_NAME: Final = "host.lock"
OWN_NAMES: Final = frozenset(
    {LOCK_NAME, "run", "logs", "sessions", "attachments", "artifacts", "index", "memory", "outbox", "dsh"}
)
"""What lies in a state root."""


class AlreadyRunning(HostError):
    """Another host holds the state root. `pid` is what it wrote there, None when it has not yet."""

    default_code = "HOST_RUNNING"

    def __init__(self, pid: int | None) -> None:
        super().__init__(f"a host already runs for this state root (pid {pid if pid else 'unknown'})")
        self.pid = pid


class _Given:
    """What this process was started with."""

    umask: int | None = None


def given_umask() -> int:
    """The umask before `harden`: what we start for the user, and the files that we write for them, get it back."""
    return 0o022 if _Given.umask is None else _Given.umask


def harden() -> bool:
    """Make this process unreadable to other processes of the same user; True when that holds.

    Must run before a secret or a setting is read. Linux: not dumpable, so `/proc/<pid>/environ`, `mem` and `fd` are
    closed to the same uid and ptrace is refused; no core files. Elsewhere only core files are switched off and the
    answer is False: there another uid or a container is the only boundary. A 0600 file of the same user stays
    readable and signals stay allowed everywhere.
    """
    refuse_unsupported_platform()
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _Given.umask = os.umask(0o077)
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 and libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0


def refuse_unsupported_platform(platform: str = sys.platform) -> None:
    """Raise SettingsError on Windows: file modes, peer credentials and locks there are not what this host relies on."""
    if platform == "win32":
        raise SettingsError(
            "the rlm-memory host does not run on Windows (it relies on file modes, Unix sockets and peer "
            "credentials); run it under WSL 2, or point the kernel at a host on Linux or macOS",
            "UNSUPPORTED_PLATFORM",
        )


def private_folder(path: Path) -> Path:
    """Make `path` a folder of ours with mode 0700, under any umask; a looser one is tightened.

    Raises SettingsError when something else is there: a link, a file, another owner.
    """
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise SettingsError(f"the folder {path.name!r} of the state root is not a real folder; remove it")
    if found.st_uid != os.geteuid():
        raise SettingsError(f"the folder {path.name!r} belongs to another user; choose another state root")
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
    return path


def claim_state_root(path: Path) -> Path:
    """Make or take the state root itself; refuse a folder in use for something else.

    Only a folder that is already private, or holds nothing but what a host or a kernel that starts one puts there, is
    taken: tightening a shared folder that somebody named by mistake would lock others out of it.

    Raises SettingsError, also for a file and where no folder can be made.
    """
    try:
        return _claimed(path)
    except OSError as error:
        raise SettingsError(
            f"state_root: it cannot be used as a folder ({error.strerror or type(error).__name__}); name another one"
        ) from error


def _claimed(path: Path) -> Path:
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077 and not OWN_NAMES.issuperset(entry.name for entry in path.iterdir()):
            raise SettingsError(
                "state_root: the folder exists, others can read it and it holds files that are not the host's; "
                "name a folder for rlm-memory alone, or chmod it to 700 first"
            )
    return private_folder(path)


def open_private(path: Path, flags: int) -> int:
    """Open or create a file of ours with mode 0600 under any umask; a link in its place is refused."""
    fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) != 0o600:
            os.fchmod(fd, 0o600)
    except OSError:
        os.close(fd)
        raise
    return fd


def write_private(path: Path, data: bytes) -> None:
    """Replace a small private file as a whole and durably: temp file, fsync, rename, fsync of the folder."""
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = open_private(temp, os.O_WRONLY | os.O_TRUNC)
    try:
        try:
            view = memoryview(data)
            while view:
                # A disk that fills up takes a part and says so only to the next write.
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        temp.replace(path)
    except OSError:
        temp.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class FileLock:
    """An advisory lock on a file, held while the context is open. Not reentrant; one per process and path.

    `ephemeral` locks are unlinked on release; taking one checks that the locked inode still has the name, so two
    holders can never lock two inodes. Others leave their file for ever.
    """

    def __init__(self, path: Path, *, ephemeral: bool = False) -> None:
        self.path = path
        self._ephemeral = ephemeral
        self._fd: int | None = None

    def acquire(self) -> bool:
        """Take the lock now or not at all; True when it is held."""
        import fcntl

        while True:
            fd = open_private(self.path, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if error.errno in {errno.EAGAIN, errno.EACCES}:
                    return False
                raise
            if self._is_current(fd):
                self._fd = fd
                os.ftruncate(fd, 0)
                os.write(fd, f"{os.getpid()}\n".encode())
                return True
            os.close(fd)

    def is_kept(self) -> bool:
        """Whether it is held and its file is still there under its name: nobody else can have taken it."""
        return self._fd is not None and self._is_current(self._fd)

    def _is_current(self, fd: int) -> bool:
        held = os.fstat(fd)
        try:
            named = self.path.lstat()
        except FileNotFoundError:
            return False
        return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)

    def release(self) -> None:
        """Give the lock back; twice is once."""
        if self._fd is None:
            return
        if self._ephemeral:
            self.path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None

    def holder(self) -> int | None:
        """The pid that the holder wrote, as a hint for messages."""
        try:
            return int(self.path.read_text("ascii").strip() or 0) or None
        except (OSError, ValueError):
            return None

    def __enter__(self) -> FileLock:
        if self._fd is None and not self.acquire():
            raise AlreadyRunning(self.holder())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


def host_lock(state_root: Path) -> FileLock:
    """The lock that makes a process the host of a state root."""
    return FileLock(state_root / LOCK_NAME)


def place_lock(state_root: Path) -> FileLock:
    """The second lock of a host, outside the state root: it stays when somebody removes that. Raises SettingsError."""
    name = hashlib.sha256(os.fsencode(state_root.resolve())).hexdigest()[:32]
    return FileLock(private_folder(runtime_folder() / "hosts") / f"{name}.lock", ephemeral=True)


def runtime_folder() -> Path:
    """This user's short-lived folder, made if needed. Raises SettingsError when it is not safely ours.

    It must not depend on the environment, or two hosts would look in two places: `/run/user/<uid>` where the system
    made it, else `/tmp/rlm-memory-<uid>` with mode 0700.
    """
    system = Path("/run/user") / str(os.geteuid())
    try:
        ours = system.stat().st_uid == os.geteuid()
    except OSError:
        ours = False
    return private_folder(system / "rlm-memory" if ours else Path("/tmp") / f"rlm-memory-{os.geteuid()}")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid together with its start time, which tells it from a later process with the same number.

    `started` is in the kernel's clock ticks since boot; 0 where the platform does not tell.
    """

    pid: int
    started: int

    def is_alive(self) -> bool:
        """Whether that very process still runs (a zombie does not)."""
        return identify(self.pid) == self


def identify(pid: int) -> ProcessId | None:
    """The running process with that pid, None when there is none, it is a zombie or it is another user's."""
    if pid <= 0:
        return None
    if not sys.platform.startswith("linux"):
        try:
            os.kill(pid, 0)
        except OSError:
            return None
        return ProcessId(pid, 0)
    folder = Path("/proc") / str(pid)
    try:
        # The owner of the folder is root for a process that made itself unreadable; the status file tells the truth.
        text = (folder / "stat").read_text("utf-8", "replace")
        uid = next(
            line for line in (folder / "status").read_text("utf-8", "replace").splitlines() if line[:4] == "Uid:"
        )
    except (OSError, StopIteration):
        return None
    fields = text.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"} or int(uid.split()[2]) != os.geteuid():
        return None
    return ProcessId(pid, int(fields[19]))
