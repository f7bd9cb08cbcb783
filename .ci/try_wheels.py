"""Try built wheels the way a user gets them: in clean environments, with only what the wheels themselves ask for.

    python .ci/try_wheels.py DIST LOCK

The kernel side alone first (it must work without the host's dependencies), then the host with its demo extra, whose
demo runs from the wheels, away from the source tree. Versions are those of the lock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

KERNEL_ALONE = """
import importlib.util, rlm_memory, rlm_memory.wire, rlm_memory.errors
assert "site-packages" in rlm_memory.__file__, rlm_memory.__file__
from IPython.core.interactiveshell import InteractiveShell
for absent in ("rlm_memory_host", "pydantic", "httpx", "pandas"):
    assert importlib.util.find_spec(absent) is None, absent
print("the kernel side imports alone")
"""


def pins(lock: Path) -> str:
    """The lock's versions as constraints, without the hashes (a local wheel has none in any lock)."""
    lines = [line.rstrip(" \\") for line in lock.read_text().splitlines() if line and not line.startswith((" ", "#"))]
    return "\n".join(lines) + "\n"


def run(*command: str | Path, cwd: Path) -> None:
    print("$", " ".join(Path(command[0]).parts[-1:] + tuple(map(str, command[1:]))), flush=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment |= {"UV_SYSTEM_CERTS": "1", "RLM_MEMORY_STATE_ROOT": str(cwd / "state")}
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def make(folder: Path, constraints: Path, *wheels: str) -> Path:
    uv = Path(sys.executable).parent / "uv"
    run(uv, "venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    only = ("--only-binary", ":all:", "--compile-bytecode", "--constraint", constraints)
    run(uv, "pip", "install", "--quiet", "--python", python, *only, *wheels, cwd=folder)
    run(uv, "pip", "check", "--python", python, cwd=folder)
    return python.parent


def main(dist: Path, lock: Path) -> None:
    kernel = str(next(dist.glob("rlm_memory-*.whl")))
    host = str(next(dist.glob("rlm_memory_host-*.whl")))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        constraints = work / "constraints.txt"
        constraints.write_text(pins(lock))
        alone = make(work / "alone", constraints, kernel)
        run(alone / "python", "-c", KERNEL_ALONE, cwd=work)
        both = make(work / "both", constraints, kernel + "[data]", host + "[demo]")
        run(both / "rlm-memory", "--version", cwd=work)
        run(both / "rlm-memory", "demo", cwd=work)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
