"""A fake host as a process: `python -m rlm_memory.testing --state-root DIR`; `--help` tells the options."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from rlm_memory.testing import FakeHost, Seen

FOR_EVER_SECONDS = 1e9


def main() -> None:
    """Run until killed; prints `ready` when it listens."""
    parser = argparse.ArgumentParser(prog="python -m rlm_memory.testing")
    parser.add_argument("--state-root", type=Path, required=True)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--foreign", action="store_true")
    parser.add_argument("--attach", type=Path)
    parser.add_argument("--hold", metavar="TOOL", help="never answer this tool; print `held` when it is called")
    told = parser.parse_args()

    def script(seen: Seen) -> float:
        if told.hold is None or seen.data.get("name") != told.hold:
            return 0.0
        print("held", flush=True)
        return FOR_EVER_SECONDS

    with FakeHost(told.folder or told.state_root / "fake", foreign=told.foreign, script=script) as host:
        if told.attach is None:
            host.listen(told.state_root)
        else:
            host.attach(told.attach)
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
