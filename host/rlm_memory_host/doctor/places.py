"""The doctor's look at this installation: settings, versions, kernelspecs, Jupyter's environment, roots, the socket.

Owns: these checks and the order of all. Does not own: what the system lets other processes do (`protections`).

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from rlm_memory import wire

from rlm_memory_host import settings
from rlm_memory_host.attach import dial, kernelspec
from rlm_memory_host.attach.environment import credentials_in
from rlm_memory_host.doctor import protections
from rlm_memory_host.doctor.findings import Finding
from rlm_memory_host.errors import HostError
from rlm_memory_host.settings import Settings

LOOK_SECONDS: Final = 30.0
DESCRIPTORS: Final = Path("/proc/self/fd")
"""Through it a socket is reached whose path is too long for an address."""
JUPYTER: Final = ("jupyter-lab", "jupyter-server", "jupyter-notebook", "jupyterhub-singleuser", "jupyter")


def examine(config: Path | None, state_root: Path | None, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Every finding, in reading order. Takes some seconds."""
    findings = [*versions(), *kernelspecs(), *jupyter_environment(environ)]
    try:
        loaded = settings.load(config, state_root, environ=environ).settings
    except HostError as error:
        fix = "mend that key; `rlm-memory config show` says which files count"
        return [Finding("settings", "problem", str(error), fix), *findings, *protections.examine("none")]
    return [
        Finding("settings", "ok", "they can be read"),
        *findings,
        *roots(loaded, environ),
        *socket(loaded),
        *permissions(loaded),
        *credentials(loaded, environ),
        *protections.examine(loaded.kernel.sandbox),
    ]


def versions() -> Iterator[Finding]:
    """The two distributions of this environment."""
    host = metadata.version("rlm-memory-host")
    try:
        kernel = metadata.version("rlm-memory")
    except metadata.PackageNotFoundError:
        kernel = "none"
    if host == kernel:
        yield Finding("versions", "ok", f"rlm-memory and rlm-memory-host {host}")
    else:
        text = f"rlm-memory-host is {host} and rlm-memory is {kernel}"
        yield Finding("versions", "problem", text, f"pip install rlm-memory=={host} rlm-memory-host=={host}")


def kernelspecs() -> Iterator[Finding]:
    """The kernelspecs of our name on Jupyter's path."""
    found = kernelspec.installed()
    if not found:
        text = "Jupyter finds no kernelspec rlm-memory; %load_ext rlm_memory works without"
        yield Finding("kernelspec", "warning", text, "rlm-memory kernel install")
    for path, spec in found:
        fault = _kernelspec_fault(spec)
        if fault is None:
            yield Finding("kernelspec", "ok", str(path.parent))
        else:
            fix = f"remove {path.parent} and run `rlm-memory kernel install`"
            yield Finding("kernelspec", "problem", f"{path.parent}: {fault}", fix)


def _kernelspec_fault(spec: Mapping[str, Any]) -> str | None:
    try:
        python = str(spec["argv"][0])
        provisioner = spec["metadata"]["kernel_provisioner"]["provisioner_name"]
    except (KeyError, IndexError, TypeError):
        return "it is not a kernelspec of ours"
    if provisioner != kernelspec.PROVISIONER:
        return "it names another provisioner"
    if not Path(python).is_absolute():
        return None
    if not os.access(python, os.X_OK):
        return "its Python is gone"
    theirs = _version_in(python, "rlm-memory")
    ours = metadata.version("rlm-memory-host")
    return None if theirs == ours else f"its Python has rlm-memory {theirs or 'not at all'}, this host is {ours}"


def jupyter_environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the Jupyter that the user starts can load the provisioner."""
    for name in JUPYTER:
        script = shutil.which(name, path=environ.get("PATH"))
        python = _interpreter_of(script) if script else None
        if python is None:
            continue
        ours = Path(python).parent.resolve() == Path(sys.executable).parent.resolve()
        version = metadata.version("rlm-memory-host") if ours else _version_in(python, "rlm-memory-host")
        if version == metadata.version("rlm-memory-host"):
            yield Finding("jupyter", "ok", f"the environment of {script} has rlm-memory-host")
        else:
            text = f"the environment of {script} has rlm-memory-host {version or 'not at all'}, so its kernel is hidden"
            fix = f"{python} -m pip install rlm-memory-host=={metadata.version('rlm-memory-host')}"
            yield Finding("jupyter", "problem", text, fix)
        return
    yield Finding("jupyter", "note", "no Jupyter program is on PATH; an editor may bring its own")


def _interpreter_of(script: str) -> str | None:
    try:
        with Path(script).open("rb") as file:
            first = file.readline(1024).decode("utf-8", "replace").strip()
    except OSError:
        return None
    python = first.removeprefix("#!").strip().split(" ")[0]
    return python if first.startswith("#!") and "python" in Path(python).name else None


def _version_in(python: str, distribution: str) -> str | None:
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=LOOK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def roots(loaded: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """More than one state root in use: a kernel would not find what another recorded."""
    named = environ.get("RLM_MEMORY_STATE_ROOT")
    places = {loaded.state_root, wire.default_state_root().resolve(), *([Path(named).resolve()] if named else [])}
    used = sorted(str(place) for place in places if (place / "artifacts" / "projects").is_dir() or _answers(place))
    if len(used) < 2:
        yield Finding("state root", "ok", str(loaded.state_root))
        return
    text = f"several state roots are in use ({', '.join(used)}); this one counts here: {loaded.state_root}"
    fix = "set state_root in the user's rlm-memory.toml, or RLM_MEMORY_STATE_ROOT, to the same folder everywhere"
    yield Finding("state root", "warning", text, fix)


def _answers(place: Path) -> bool:
    try:
        return dial.ask(place, {"type": "status"}) is not None
    except (HostError, OSError):
        return False


def socket(loaded: Settings) -> Iterator[Finding]:
    """The local socket and the host behind it."""
    path = wire.socket_path(loaded.state_root)
    if len(os.fsencode(path)) > wire.SOCKET_PATH_BYTES and not DESCRIPTORS.is_dir():
        text = f"its path is over {wire.SOCKET_PATH_BYTES} bytes, which this system cannot bind"
        yield Finding("socket", "problem", text, "choose a shorter state_root")
        return
    try:
        answer = dial.ask(loaded.state_root, {"type": "status"})
    except (HostError, OSError) as error:
        fix = "`rlm-memory host stop`; where that does not help, end the process that is named"
        yield Finding("host", "problem", f"a host is there but refuses or is silent: {error}", fix)
        return
    ours = metadata.version("rlm-memory-host")
    if answer is None:
        yield Finding("host", "note", "none runs; a kernel that needs one starts it, for agents start it first")
    elif answer.get("version") != ours:
        text = f"the running host is {answer.get('version')}, installed is {ours}"
        yield Finding("host", "warning", text, "rlm-memory host stop")
    else:
        yield Finding("host", "ok", f"runs (pid {answer.get('pid')}) and answers")


def permissions(loaded: Settings) -> Iterator[Finding]:
    """Modes and owners of what the host keeps."""
    for place in {loaded.state_root, loaded.artifact_root, loaded.state_root / "run"}:
        try:
            found = place.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            yield Finding("permissions", "problem", f"{place}: {error.strerror}", "give the folder back to your user")
            continue
        if found.st_uid != os.geteuid():
            text = f"{place} belongs to another user (uid {found.st_uid})"
            yield Finding("permissions", "problem", text, "choose another state root, or give the folder back")
        elif stat.S_IMODE(found.st_mode) & 0o077:
            yield Finding("permissions", "warning", f"others can enter {place}", f"chmod 700 {place}")


def credentials(loaded: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Credentials where a kernel's code can read them: in environments of this user's processes."""
    here = sorted(credentials_in(environ, loaded.kernel.credentials))
    fix = "take them out of the shell that starts it; give them to the host alone"
    if here:
        text = f"{', '.join(here)} are in this shell's environment, and so in all that it starts"
        yield Finding("credentials", "warning", text, fix)
    for pid, names in _jupyter_servers(loaded.kernel.credentials):
        text = f"the Jupyter server (pid {pid}) holds {', '.join(names)}; a kernel's code can read them there"
        yield Finding("credentials", "warning", text, fix)


def _jupyter_servers(names: list[str]) -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")[:4]
            if not any(b"jupyter" in Path(os.fsdecode(word)).name.encode() for word in words):
                continue
            pairs = (folder / "environ").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        environ = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        found = sorted(credentials_in(environ, names))
        if found:
            yield int(folder.name), found
