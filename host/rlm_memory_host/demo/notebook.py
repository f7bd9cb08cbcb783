"""The tutorial's notebooks as lists of code cells.

Owns: where they are (in a wheel beside this module, in a clone in `notebooks/`) and reading them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory_host.errors import HostError

QUICK_START: Final = "01-quick-start.ipynb"
SECOND_SESSION: Final = "02-second-session.ipynb"


def code_cells(name: str) -> list[str]:
    """The code of a notebook, cell by cell. Raises HostError when this installation lacks it."""
    document: Any = json.loads(_find(name).read_text(encoding="utf-8"))
    cells = cast("list[dict[str, Any]]", document["cells"])
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _find(name: str) -> Path:
    here = Path(__file__).resolve()
    for folder in (here.parent, here.parents[3] / "notebooks"):
        if (folder / name).is_file():
            return folder / name
    raise HostError(f"this installation lacks the notebook {name}; install rlm-memory-host again")
