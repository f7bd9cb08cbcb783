"""One host per kernel: a lock named after the connection file, in a place that all hosts of a user share.

Owns: how a lease is named. Does not own: the place (`process.runtime_folder`). Where someone else took that, attaching
is refused rather than done without a lease.

Source: design page "Kernel <-> host", Host side.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rlm_memory_host.process import FileLock, private_folder, runtime_folder


def lease_folder() -> Path:
    """The folder of this user's leases, made if needed. Raises SettingsError when it is not safely ours."""
    return private_folder(runtime_folder() / "leases")


def lease(connection_file: Path) -> FileLock:
    """The lease of one kernel, not yet taken. `connection_file` must be canonical."""
    name = hashlib.sha256(os.fsencode(connection_file)).hexdigest()[:32]
    return FileLock(lease_folder() / f"{name}.lock", ephemeral=True)
