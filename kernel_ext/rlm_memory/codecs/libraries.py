"""The data libraries, reached late: importing `rlm_memory.codecs` loads none of them.

Owns: lazy access to numpy, pandas, pyarrow and the optional ones, and looking at what the session has loaded already.
Does not own: what is done with them. Everything here is typed `Any`: their own types are not precise enough for strict
checking, and the packages may be absent.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, cast

from rlm_memory import errors


def loaded(name: str) -> Any:
    """The module if this process has imported it, else None; never imports. An object implies it."""
    return sys.modules.get(name)


def class_of(value: Any) -> Any:
    """The exact type of a value of unknown type."""
    return cast(Any, type(value))


def need(name: str, purpose: str) -> Any:
    """Import a library, or say plainly that it is missing and for what it is needed.

    Raises `errors.Invalid` when it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as fault:
        extra = (
            "pip install 'rlm-memory[data]'"
            if name.partition(".")[0] in _DATA
            else f"pip install {name.partition('.')[0]}"
        )
        raise errors.Invalid(f"{purpose} needs {name}, which this kernel does not have. Install it: {extra}") from fault


def optional(name: str) -> Any:
    """Import a library if it is there, else None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_DATA = frozenset({"numpy", "pandas", "pyarrow"})


def numpy() -> Any:
    return need("numpy", "An array")


def pandas() -> Any:
    return need("pandas", "A pandas object")


def pyarrow() -> Any:
    return need("pyarrow", "A table")


def compute() -> Any:
    return need("pyarrow.compute", "A table")


def parquet() -> Any:
    return need("pyarrow.parquet", "A table")
