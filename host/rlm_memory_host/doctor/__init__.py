"""What is wrong with an installation, and what holds: `rlm-memory doctor`.

Owns: the checks and their order. Each is a function that looks and returns findings; none changes anything but for
short-lived processes of its own. Does not own: how findings are shown (`cli.doctor`).
"""

from __future__ import annotations

from rlm_memory_host.doctor.findings import Finding, exit_code
from rlm_memory_host.doctor.places import examine

__all__ = ["Finding", "examine", "exit_code"]
