"""A host that is killed between keeping what a log gave and keeping its cursor. Not a test.

Runs `rlm-memory host run` with its arguments; SIGKILL comes in place of the first cursor's write.
"""

import os
import signal
import sys
from pathlib import Path

from rlm_memory_host.cli import main
from rlm_memory_host.dsh.cursors import Cursor, Cursors


def killed(self: Cursors, log: Path, cursor: Cursor) -> None:
    """In the place of `Cursors.save`."""
    del self, log, cursor
    os.kill(os.getpid(), signal.SIGKILL)


Cursors.save = killed
sys.argv = ["rlm-memory", "host", "run", *sys.argv[1:]]
main()
