"""Waiting for what another process does. No conftest, whose name each folder of tests has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_SECONDS = 30.0


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait for something that another process does; False after a long time."""
    end = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            return False
        pause.wait(0.02)
    return True
