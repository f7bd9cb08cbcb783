"""The environment that a kernel starts with. Pure: from one mapping to another.

Owns: which variables are left out and which are set. Does not own: reading the settings, starting the kernel
(`provisioner`). What a kernel's own code reads from files or asks of other processes is no matter of this module.

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlm_memory_host.settings import KernelSettings

MIN_SECRET_CHARS: Final = 8
"""A shorter value is no credential: leaving out every variable that equals "1" would break kernels and hide nothing."""
HARMLESS: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "TMPDIR"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("PYTHONPATH", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONWARNINGS", "PYTHONNOUSERSITE"),
        *("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_PATH", "JUPYTER_RUNTIME_DIR"),
        *("JPY_SESSION_NAME", "JPY_PARENT_PID", "JUPYTER_PLATFORM_DIRS", "MPLBACKEND", "MPLCONFIGDIR"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
        *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "POLARS_MAX_THREADS"),
        *("RLM_MEMORY_CONFIG", "RLM_MEMORY_HOST", "RLM_MEMORY_PROGRESS"),
    }
)
HARMLESS_PREFIX: Final = "LC_"


@dataclass(frozen=True, slots=True)
class KernelEnvironment:
    """What the kernel gets, and the names of credentials that were left out of it."""

    variables: dict[str, str]
    removed: tuple[str, ...]


def kernel_environment(
    given: Mapping[str, str], settings: KernelSettings, *, session_dir: Path, state_root: Path
) -> KernelEnvironment:
    """The environment of a kernel that would have been started with `given`."""
    removed = tuple(sorted(credentials_in(given, settings.credentials)))
    kept = {name: value for name, value in given.items() if name not in removed}
    if settings.environment == "allowlist":
        allowed = HARMLESS.union(settings.allow)
        kept = {name: kept[name] for name in kept if name in allowed or name.startswith(HARMLESS_PREFIX)}
    kept["RLM_SESSION_DIR"] = str(session_dir)
    kept["RLM_MEMORY_STATE_ROOT"] = str(state_root)
    return KernelEnvironment(kept, removed)


def credentials_in(given: Mapping[str, str], names: list[str]) -> set[str]:
    """The variables that hold a credential: those of these names, and every other one that holds the same value."""
    secrets = {given[name] for name in names if len(given.get(name, "")) >= MIN_SECRET_CHARS}
    return {name for name, value in given.items() if name in names or value in secrets}
