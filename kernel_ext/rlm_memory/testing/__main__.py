"""`python -m rlm_memory.testing --state-root DIR [--folder DIR] [--foreign] [--attach CONNECTION_FILE]`."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from rlm_memory.testing import FakeHost


def main() -> None:
    """Run until killed; prints `ready` when it listens."""
    parser = argparse.ArgumentParser(prog="python -m rlm_memory.testing")
    parser.add_argument("--state-root", type=Path, required=True)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--foreign", action="store_true")
    parser.add_argument("--attach", type=Path)
    told = parser.parse_args()
    with FakeHost(told.folder or told.state_root / "fake", foreign=told.foreign) as host:
        if told.attach is None:
            host.listen(told.state_root)
        else:
            host.attach(told.attach)
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
