"""A progress line for what takes longer than a second, only where a person watches.

Owns: when to show and how it vanishes. A notebook that runs unattended (nbval, nbclient, papermill) and a worker thread
show nothing, so that a cell's outputs are the same with and without it.

Source: design page "Overview", Decisions (progress bars).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Any, Final

QUIET_SECONDS: Final = 1.0
STEP_SECONDS: Final = 0.2


def somebody_watches() -> bool:
    """A live front end (a Jupyter server's session, VS Code) or a terminal, and the main thread.

    `RLM_MEMORY_PROGRESS` set to 1 or 0 decides it by hand.
    """
    told = os.environ.get("RLM_MEMORY_PROGRESS")
    if told in ("0", "1"):
        return told == "1"
    if threading.current_thread() is not threading.main_thread():
        return False
    if "PYTEST_CURRENT_TEST" in os.environ or "PAPERMILL_INPUT_PATH" in os.environ:
        return False
    return "JPY_SESSION_NAME" in os.environ or "VSCODE_PID" in os.environ


class Progress:
    """A context manager; `advance(bytes)` is cheap and shows nothing within the first second."""

    def __init__(self, what: str, total_bytes: int) -> None:
        self._what, self._total, self._done = what, total_bytes, 0
        self._next = time.monotonic() + QUIET_SECONDS
        self._handle: Any = None
        self._wanted = somebody_watches()

    def __enter__(self) -> Progress:
        return self

    def advance(self, amount: int) -> None:
        self._done += amount
        if not self._wanted or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + STEP_SECONDS
        self._show(f"{self._what}: {self._done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._show("")

    def _show(self, text: str) -> None:
        display: Any = sys.modules.get("IPython.display")
        if display is None:
            return
        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = display.display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
