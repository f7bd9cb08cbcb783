"""The notes that travel beside a card: kernel environment, and how they are made to fit.

Owns: which versions are named, and the bound. Source: design page "Exact results", Identity and layout (sidecar).
"""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from rlm_memory import wire
from rlm_memory.kept import state

NAMED: Final = (
    *("numpy", "pandas", "pyarrow", "polars", "xarray", "scipy", "sklearn"),
    *("matplotlib", "plotly", "duckdb", "geopandas", "torch", "statsmodels"),
)
_DISTRIBUTIONS: Final = {"sklearn": "scikit-learn"}


def environment() -> dict[str, Any]:
    """Versions of Python and of the data packages that this kernel has loaded. Nothing is imported for it."""
    versions: dict[str, str] = state().setdefault("versions", {})
    for name in NAMED:
        if name in sys.modules and name not in versions:
            try:
                versions[name] = version(_DISTRIBUTIONS.get(name, name))
            except PackageNotFoundError:
                continue
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "packages": dict(sorted(versions.items())),
    }


def fit(payload: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Leave out the preview, then the lineage, when the whole is over `wire.MAX_ANNOTATION_BYTES`; say what was."""
    left_out: list[str] = []
    for name in ("preview", "lineage"):
        if wire.encoded_size(payload) <= wire.MAX_ANNOTATION_BYTES:
            break
        if payload.pop(name, None) is not None:
            left_out.append(f"the {name} was left out, it is over {wire.MAX_ANNOTATION_BYTES >> 10} KiB")
    return payload, left_out
