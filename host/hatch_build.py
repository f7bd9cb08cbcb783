"""Put the tutorial's notebooks into the distribution: `rlm-memory demo` runs their cells.

They live once, in the repository's `notebooks/`. A source distribution holds them inside the package, and a wheel built
from it finds them there; an editable install reads them where they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NOTEBOOKS = ("01-quick-start.ipynb", "02-second-session.ipynb")
PACKAGE = "rlm_memory_host/demo"


class TutorialNotebooks(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for name in NOTEBOOKS:
            source = Path(self.root).parent / "notebooks" / name
            if source.is_file():
                build_data["force_include"][str(source)] = f"{PACKAGE}/{name}"
            elif not (Path(self.root) / PACKAGE / name).is_file():
                raise FileNotFoundError(f"{name} is neither in notebooks/ of the repository nor in {PACKAGE}/")
