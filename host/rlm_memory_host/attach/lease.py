"""One host per kernel: a lock named after the connection file, in a place that all hosts of a user share.

Owns: where that place is and how a lease is named. The place must not depend on the environment, or two hosts would
look in two places: `/run/user/<uid>` where the system made it, else `/tmp/rlm-memory-<uid>` with mode 0700. Where
someone else took that name, attaching is refused rather than done without a lease.

Source: design page "Kernel <-> host", Host side.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rlm_memory_host.process import FileLock, private_folder


def runtime_folder() -> Path:
    """This user's short-lived folder, made if needed. Raises SettingsError when it is not safely ours."""
    system = Path("/run/user") / str(os.geteuid())
    try:
        ours = system.stat().st_uid == os.geteuid()
    except OSError:
        ours = False
    base = system / "rlm-memory" if ours else Path("/tmp") / f"rlm-memory-{os.geteuid()}"
    return private_folder(base)


def lease_folder() -> Path:
    """The folder of this user's leases, made if needed. Raises SettingsError when it is not safely ours."""
    return private_folder(runtime_folder() / "leases")


def lease(connection_file: Path) -> FileLock:
    """The lease of one kernel, not yet taken. `connection_file` must be canonical."""
    name = hashlib.sha256(os.fsencode(connection_file)).hexdigest()[:32]
    return FileLock(lease_folder() / f"{name}.lock", ephemeral=True)
