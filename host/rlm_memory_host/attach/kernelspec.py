"""The kernelspec `rlm-memory` and the Jupyter server's settings that belong to it.

Owns: what both files say, where a kernelspec is looked for, writing and removing one. Does not own: what the
provisioner does (`provisioner`). The distribution carries both files for its own environment (`host/jupyter/`, held to
this module by a test); installing writes a spec for another place.

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.errors import SettingsError

NAME: Final = "rlm-memory"
PROVISIONER: Final = "rlm-memory-provisioner"
UNTRACKED: Final = (
    *("comm_info_request", "comm_info_reply", "kernel_info_request", "kernel_info_reply", "shutdown_request"),
    *("shutdown_reply", "interrupt_request", "interrupt_reply", "debug_request", "debug_reply", "stream"),
    *("display_data", "update_display_data", "execute_input", "execute_result", "error", "status", "clear_output"),
    *("debug_event", "input_request", "input_reply", "comm_msg", "comm_close"),
)
"""Messages that a Jupyter server must not take for the kernel's state: its default list and, last, the host's answers.

Without the last two, a running cell that got an answer is shown as idle and can be culled.
"""


def specification(python: str) -> dict[str, Any]:
    """What `kernel.json` holds. `python` runs the kernel; the word "python" stands for the Jupyter server's own."""
    return {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python (rlm-memory)",
        "language": "python",
        "metadata": {"debugger": True, "kernel_provisioner": {"provisioner_name": PROVISIONER}},
    }


def server_settings() -> dict[str, Any]:
    """What the Jupyter server's configuration file of this distribution holds."""
    return {"ServerApp": {"jpserver_extensions": {"rlm_memory_host.attach.serverext": True}}}


def folder(prefix: Path | None, *, user: bool) -> Path:
    """Where the spec is installed: below `prefix`, in the user's Jupyter folder, or in this environment."""
    if prefix is not None:
        return prefix.absolute() / "share" / "jupyter" / "kernels" / NAME
    if user:
        from jupyter_core.paths import jupyter_data_dir

        return Path(jupyter_data_dir()) / "kernels" / NAME
    return Path(sys.prefix) / "share" / "jupyter" / "kernels" / NAME


def install(place: Path) -> None:
    """Write the spec for this Python, replacing an earlier one. Raises SettingsError when the place is not writable."""
    text = json.dumps(specification(sys.executable), indent=2) + "\n"
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "kernel.json").write_text(text, "utf-8")
    except OSError as error:
        raise SettingsError(f"the kernelspec cannot be written there ({error.strerror}); try --user") from error


def remove(place: Path) -> bool:
    """Remove the spec; whether there was one. Files that are not ours stay, and their folder with them."""
    spec = place / "kernel.json"
    if not spec.is_file():
        return False
    try:
        spec.unlink()
        if not any(place.iterdir()):
            place.rmdir()
    except OSError as error:
        raise SettingsError(f"the kernelspec cannot be removed ({error.strerror})") from error
    return True


def installed() -> list[tuple[Path, dict[str, Any]]]:
    """Every spec of that name on Jupyter's path, the one that counts first; an unreadable one is an empty object."""
    from jupyter_core.paths import jupyter_path

    found: list[tuple[Path, dict[str, Any]]] = []
    for base in jupyter_path("kernels"):
        spec = Path(base) / NAME / "kernel.json"
        if spec.is_file():
            try:
                found.append((spec, json.loads(spec.read_text("utf-8"))))
            except (OSError, ValueError):
                found.append((spec, {}))
    return found
