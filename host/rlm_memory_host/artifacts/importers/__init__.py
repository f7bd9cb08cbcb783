"""Bringing results in: exports of rlm-memory, joblib caches, pins boards, MLflow file stores.

A reader per source says what is there (`Found`); `taking` puts it into the store. A source is only read: no byte of it
is changed, no link in it is followed, nothing of it is executed or unpickled.
"""

from rlm_memory_host.artifacts.importers.archive import open_export
from rlm_memory_host.artifacts.importers.found import Found, Item, Skipped
from rlm_memory_host.artifacts.importers.joblib_cache import find_joblib
from rlm_memory_host.artifacts.importers.mlflow_runs import find_mlflow
from rlm_memory_host.artifacts.importers.pins_board import find_pins
from rlm_memory_host.artifacts.importers.taking import Taken, look, take
from rlm_memory_host.artifacts.importers.tree import Tree

__all__ = [
    "Found",
    "Item",
    "Skipped",
    "Taken",
    "Tree",
    "find_joblib",
    "find_mlflow",
    "find_pins",
    "look",
    "open_export",
    "take",
]
