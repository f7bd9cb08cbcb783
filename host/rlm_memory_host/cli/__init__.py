"""The command `rlm-memory`: what an operator types.

Owns: the entry point, the exit codes (0 fine, 1 degraded or findings, 2 failure or bad use), how errors are shown. Does
not own: what commands do (the other modules here, and `rlm_memory_host.demo`).

The first thing that happens is `process.harden`: before arguments, settings or secrets are read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code. Errors are one line on stderr."""
    from rlm_memory_host.errors import HostError
    from rlm_memory_host.process import harden

    try:
        hardened = harden()
        return _run(list(sys.argv[1:] if arguments is None else arguments), hardened=hardened)
    except HostError as error:
        print(f"rlm-memory: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except OSError as error:
        print(f"rlm-memory: the system refused it: {error.strerror or type(error).__name__}", file=sys.stderr)
        return 2


def _run(arguments: list[str], *, hardened: bool) -> int:
    from rlm_memory_host.cli.root import application

    try:
        application()(arguments, prog_name="rlm-memory", obj=hardened)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
