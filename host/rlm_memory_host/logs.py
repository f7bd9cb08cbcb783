"""Log files of the host: private, rotating, free of content.

Owns: where lines go, their mode and rotation. Does not own: what is worth a line. Callers log event names, counts,
durations, codes and hashes; never an argument, a result, a path of the store, a title or a secret.

Source: DeepSeek Honcho specification, section 18; design page "Style", house rule 7.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import logging.handlers
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.process import open_private

LOGGER: Final = logging.getLogger("rlm_memory_host")
MAX_BYTES: Final = 5 << 20
"""Size of one log file, bytes; three older ones are kept beside it."""
KEPT: Final = 3


class PrivateRotatingFile(logging.handlers.RotatingFileHandler):
    """A rotating file whose every generation is made with mode 0600, whatever the umask."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=KEPT, encoding="utf-8", delay=True)

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(
            io.FileIO(open_private(Path(self.baseFilename), os.O_WRONLY | os.O_APPEND), "ab"),
            encoding="utf-8",
            write_through=True,
        )

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not stop a host that can still serve; there is nowhere left to say it."""


class UtcFormatter(logging.Formatter):
    """`2026-08-21T10:00:00.123Z LEVEL event key=value`; of an exception type and place only."""

    converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", self.converter(record.created))
        line = f"{when}.{int(record.msecs):03d}Z {record.levelname} {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            line += f" {where(record.exc_info[1])}"
        return line.replace("\n", " ").replace("\r", " ")


def where(error: BaseException) -> str:
    """Type and place of an exception, without its text, which may carry content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else "?"
    return f"exception={type(error).__name__} at={place}"


def start(folder: Path, level: str) -> logging.Handler:
    """Send this host's log lines to `<folder>/host.log`; the handler is the caller's to close."""
    handler = PrivateRotatingFile(folder / "host.log")
    handler.setFormatter(UtcFormatter())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
    return handler


def stop(handler: logging.Handler) -> None:
    """Take a handler of `start` away again."""
    LOGGER.removeHandler(handler)
    handler.close()


def short_hash(text: str) -> str:
    """Twelve characters that stand for an identifier in a log."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


class RateLimited:
    """Lets one line of a kind through in `seconds`, and says how many it kept back. Thread-safe.

    An outage fails a thousand times and is one piece of news; the numbers are in the metrics.
    """

    def __init__(
        self, logger: logging.Logger, seconds: float = 60.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._seconds = seconds
        self._now = now
        self._last: dict[str, float] = {}
        self._kept_back: Counter[str] = Counter()
        self._lock = threading.Lock()

    def info(self, kind: str, message: str, *values: object) -> None:
        """Log at INFO, unless a line of that kind went by just now."""
        self._write(logging.INFO, kind, message, values)

    def warning(self, kind: str, message: str, *values: object) -> None:
        """Log at WARNING, unless a line of that kind went by just now."""
        self._write(logging.WARNING, kind, message, values)

    def _write(self, level: int, kind: str, message: str, values: tuple[object, ...]) -> None:
        with self._lock:
            now = self._now()
            if now - self._last.get(kind, -math.inf) < self._seconds:
                self._kept_back[kind] += 1
                return
            self._last[kind] = now
            kept_back = self._kept_back.pop(kind, 0)
        self._logger.log(level, f"{message} kept_back=%d", *values, kept_back)


class JsonLines:
    """An append-only file of JSON objects, private and rotating. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._handler = PrivateRotatingFile(path)
        self._handler.setFormatter(logging.Formatter("%(message)s"))

    def write(self, entry: dict[str, Any]) -> None:
        """Add one object as one line."""
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        self._handler.handle(logging.makeLogRecord({"msg": text, "levelno": logging.INFO, "levelname": "INFO"}))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()
