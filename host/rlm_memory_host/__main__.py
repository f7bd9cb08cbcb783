"""`python -m rlm_memory_host` is the command `rlm-memory`."""

from __future__ import annotations

import sys

from rlm_memory_host.cli import main

if __name__ == "__main__":
    sys.exit(main())
