"""What an operator looks at: a project's folder as it lies on disk, its soundness and its size. Nothing here writes.

Removing and bringing back is `artifacts.removal`; taking results elsewhere is `artifacts.export`, bringing them in
`artifacts.importers`. None of it is reachable from a tool (section 28.5: operator-only).
"""

from rlm_memory_host.artifacts.operators.shelf import Removed, Shelf, find_experiment, projects
from rlm_memory_host.artifacts.operators.usage import Usage, measure
from rlm_memory_host.artifacts.operators.verifying import Finding, Report, verify

__all__ = ["Finding", "Removed", "Report", "Shelf", "Usage", "find_experiment", "measure", "projects", "verify"]
