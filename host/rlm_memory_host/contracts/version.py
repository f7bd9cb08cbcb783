"""The version of this release, read once from the installed distribution."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def version() -> str:
    """The version of `rlm-memory-host`; "0" when it runs from a source tree that was never installed."""
    try:
        return metadata.version("rlm-memory-host")
    except metadata.PackageNotFoundError:
        return "0"
