"""The health of the text memory: what works, what is degraded and since when, from faults that really happened.

Owns: the features' states, `.state/health.json` for people and programs without a running host. Does not own: how the
host shows it (`tools.status`). Thread-safe. `off` never lowers the status; only storage out of reach is `unavailable`.

Source: design page "Recall, resident text, guard, audit, health, tools", Health.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from rlm_memory_host.errors import HostError
from rlm_memory_host.storage import ndjson
from rlm_memory_host.storage.auditlog import make_durable
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.journal import stamp, utc_now

FeatureState = Literal["on", "off", "degraded", "unavailable"]
FEATURES: Final = (
    "storage", "guard", "index", "recall", "write", "audit", "habit", "judge", "dream", "embeddings", "honcho",
    "outbox", "artifact",
)  # fmt: skip
HINTS: Final[Mapping[str, str]] = {
    "STORE_FULL": "free space on the state root's disk",
    "STORE_READ_ONLY": "make the state root writable",
    "LOCK_TIMEOUT": "another process holds the lock; look for one that hangs",
    "AUDIT_SHORTENED": "run `rlm-memory audit verify`",
    "AUDIT_MISSING": "run `rlm-memory audit verify`",
    "AUDIT_REPLACED": "run `rlm-memory audit verify`",
    "AUDIT_DAMAGED": "run `rlm-memory audit verify`",
    "AUDIT_TORN": "a write was cut off; nothing that was acknowledged is missing",
    "ACTIVITY_DAMAGED": "when memories were last read, and verdicts on them, are counted anew; nothing is to do",
    "LOG_DAMAGED": "run `rlm-memory memory validate`",
    "SUSPECT_TRUNCATION": "run `rlm-memory memory validate`, then `memory review --accept-edits`",
    "QUARANTINED": "run `rlm-memory memory validate`",
    "judge-failed": "the model of memory.judge is away or refuses; the rules answer instead",
    "judge-timeout": "the model of memory.judge is slower than memory.judge.seconds; the rules answer instead",
    "judge-answer": "the model of memory.judge does not answer with the JSON asked for; the rules answer instead",
    "UNSUPPORTED_VERSION": "upgrade rlm-memory-host",
}


@dataclass(frozen=True, slots=True)
class FeatureHealth:
    """How one feature is; `since` is when it last changed."""

    state: FeatureState = "off"
    code: str = ""
    since: str = ""
    hint: str = ""


class TextHealth:
    """The board. `fault` has the shape of a store's `on_fault`."""

    def __init__(self, files: FileLayer, folder: Path, clock: Callable[[], datetime] = utc_now) -> None:
        self._files = files
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._features: dict[str, FeatureHealth] = {name: FeatureHealth() for name in FEATURES}
        self._written = ""

    def set(self, feature: str, state: FeatureState, code: str = "") -> None:
        """Say how a feature is. Raises KeyError for one that is none."""
        with self._lock:
            old = self._features[feature]
            if (old.state, old.code) == (state, code):
                return
            since = stamp(self._clock())
            self._features[feature] = FeatureHealth(state, code, since, HINTS.get(code, ""))
        self._write()

    def fault(self, feature: str, code: str) -> None:
        """Something went wrong without failing a change: the feature is degraded until it is set again."""
        self.set(feature, "degraded", code)

    def failed(self, error: HostError) -> None:
        """A write failed: `write` says why until one succeeds."""
        self.set("write", "unavailable", error.code)

    def wrote(self) -> None:
        """A write succeeded."""
        self.set("write", "on")

    def features(self) -> dict[str, FeatureHealth]:
        """All features."""
        with self._lock:
            return dict(self._features)

    @property
    def status(self) -> Literal["active", "degraded", "unavailable"]:
        """The three states."""
        states = {name: feature.state for name, feature in self.features().items()}
        if states["storage"] == "unavailable":
            return "unavailable"
        return "degraded" if {"degraded", "unavailable"} & set(states.values()) else "active"

    def warning(self) -> str:
        """One stable line for affected results and the resident text; "" when nothing is wrong. No remote feature."""
        local = {name: item for name, item in self.features().items() if name not in ("honcho", "outbox", "embeddings")}
        wrong = [f"{name}: {item.code or item.state}" for name, item in local.items() if item.state in _WRONG]
        return f"memory is degraded ({', '.join(wrong)})" if wrong else ""

    def _write(self) -> None:
        """For reading without a host; failing to write it is no fault of its own."""
        document = {
            "status": self.status,
            "features": {
                name: {key: value for key, value in asdict(item).items() if value}
                for name, item in self.features().items()
            },
        }
        text = json.dumps(document, sort_keys=True, indent=1)
        if text == self._written:
            return
        try:
            folder = make_durable(self._files, self._folder / ".state")
            ndjson.replace(self._files, folder / "health.json", text.encode() + b"\n", durable=False)
            self._written = text
        except (HostError, OSError):
            pass


_WRONG: Final = frozenset({"degraded", "unavailable"})
