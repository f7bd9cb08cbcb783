"""Run the notebooks and store their outputs: `./dev run python notebooks/refresh.py` from anywhere.

Each runs in a kernel of its own on one empty state root, in the order of their names, as a reader would. No times and
no widget state are stored, so that a run without a change leaves no difference.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import hygiene  # noqa: E402
from hosts import stop_host  # noqa: E402


def refresh(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, kernel_name="python3", record_timing=False, resources={"metadata": {"path": HERE}}
    )
    client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
    nbformat.write(notebook, path)
    print(f"{path.name}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    try:
        for path in sorted(HERE.glob("*.ipynb")):
            refresh(path)
    finally:
        stop_host(Path(os.environ["RLM_MEMORY_STATE_ROOT"]))
        hygiene.leave()
