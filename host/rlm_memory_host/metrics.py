"""Numbers about what a host does: counters and durations, declared in one table, without content.

Owns: the table, counting, what a snapshot looks like, the page made from the table (`docs/metrics.md`). Does not own:
when something is counted. A label's value is a code, a name of ours or a short hash; anything else is shown as
`other`, so that no text of a caller, no id and no path can come in this way.

Source: DeepSeek Honcho specification, sections 18 and 33.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_left
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the classes of durations, in seconds; what is longer is in one class more."""
MAX_LABELS: Final = 64
"""Different label values of one metric; what comes after them is counted as `other`."""
_LABEL: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric: `label` names what its values are told apart by, "" where it has none."""

    name: str
    kind: Literal["counter", "histogram"]
    label: str
    meaning: str


DECLARED: Final = (
    Declared("outbox_outcomes", "counter", "what", "deliveries that are done with: delivered, dead, dropped"),
    Declared("delivery_failures", "counter", "code", "failed attempts at a delivery"),
    Declared("circuit_transitions", "counter", "to", "changes of the circuit: open, half-open, closed"),
    Declared("remote_seconds", "histogram", "route", "calls of the memory service, by route"),
    Declared("remote_bytes_sent", "counter", "route", "bytes of request bodies to the memory service, by route"),
    Declared(
        "recall", "counter", "outcome", "questions to the remote memory: attempt, hit, miss, timeout, error, cached"
    ),
    Declared("recall_truncated", "counter", "", "remote hits beyond the limit that was asked for"),
    Declared("recall_seconds", "histogram", "", "questions to the remote memory, until the answer or the deadline"),
    Declared("scope_rejections", "counter", "reason", "remote results that were not the caller's own, discarded"),
    Declared("card_hits", "counter", "where", "experiment cards found: local, remote, both"),
    Declared("card_search", "counter", "outcome", "remote searches for cards: attempt, hit, miss, timeout, error"),
    Declared("card_local_seconds", "histogram", "", "the local part of a search for cards"),
    Declared("card_merge_seconds", "histogram", "", "a search for cards with its remote part"),
    Declared(
        "artifact_record", "counter", "outcome", "records: attempt, saved, deduplicated, or the code of a refusal"
    ),
    Declared("artifact_bytes", "counter", "what", "bytes of recorded results: saved, deduplicated"),
    Declared("artifact_resolve", "counter", "outcome", "resolves by freshness, or by the code of a refusal"),
    Declared("artifact_record_seconds", "histogram", "", "records, from the call to durable bytes and card"),
    Declared("artifact_resolve_seconds", "histogram", "", "resolves, hashing included"),
    Declared("tool_calls", "counter", "tool", "tool calls, by tool"),
    Declared("tool_failures", "counter", "code", "tool calls that failed, by code"),
    Declared("tool_seconds", "histogram", "tool", "tool calls, by tool"),
)
"""Every metric there is."""

_BY_NAME: Final[Mapping[str, Declared]] = {item.name: item for item in DECLARED}


@dataclass(slots=True)
class _Histogram:
    count: int = 0
    total: float = 0.0
    most: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)
        self.buckets[bisect_left(BUCKETS, seconds)] += 1

    def quantile(self, part: float) -> float | None:
        """The upper bound of the class that holds the quantile; the longest for the open class; None without data."""
        if not self.count:
            return None
        wanted, seen = part * self.count, 0
        for number, held in enumerate(self.buckets[:-1]):
            seen += held
            if seen >= wanted:
                return min(BUCKETS[number], self.most)
        return self.most

    def told(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "sum": round(self.total, 6),
            "max": round(self.most, 6),
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "p99": self.quantile(0.99),
            "buckets": list(self.buckets),
        }


class Metrics:
    """The numbers of one host. Thread-safe. An undeclared name is a fault in our own code and raises KeyError."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[str, int]] = {}
        self._histograms: dict[str, dict[str, _Histogram]] = {}
        for item in DECLARED:
            if item.kind == "counter":
                self._counters[item.name] = {} if item.label else {"": 0}
            else:
                self._histograms[item.name] = {} if item.label else {"": _Histogram()}
        self._lock = threading.Lock()

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """Count something that happened."""
        with self._lock:
            held = self._counters[name]
            key = _key(name, label, held)
            held[key] = held.get(key, 0) + by

    def observe(self, name: str, seconds: float, label: str = "") -> None:
        """Take in a duration."""
        with self._lock:
            held = self._histograms[name]
            key = _key(name, label, held)
            if key not in held:
                held[key] = _Histogram()
            held[key].add(seconds)

    @contextmanager
    def timing(self, name: str, label: str = "") -> Generator[None]:
        """Take in how long the body took, also where it raises."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.observe(name, time.monotonic() - began, label)

    def value(self, name: str, label: str = "") -> int:
        """What a counter stands at."""
        with self._lock:
            return self._counters[name].get(label, 0)

    def snapshot(self) -> dict[str, Any]:
        """All of it as JSON; a metric without a label is one number, others are tables by label."""
        with self._lock:
            counters = {name: dict(sorted(held.items())) for name, held in self._counters.items()}
            histograms = {
                name: {label: item.told() for label, item in sorted(held.items())}
                for name, held in self._histograms.items()
            }
        return {
            "counters": {name: held if _BY_NAME[name].label else held[""] for name, held in counters.items()},
            "histograms": {name: held if _BY_NAME[name].label else held[""] for name, held in histograms.items()},
            "bucket_bounds_seconds": list(BUCKETS),
        }


def _key(name: str, label: str, held: Mapping[str, object]) -> str:
    if not _BY_NAME[name].label:
        return ""
    if label not in held and (_LABEL.fullmatch(label) is None or len(held) >= MAX_LABELS):
        return OTHER
    return label


def page() -> str:
    """The text of `docs/metrics.md`."""
    lines = [
        "# Metrics",
        "",
        "What `rlm-memory host status --json` shows under `metrics`. Made from `rlm_memory_host.metrics`;",
        "`tests/honcho/test_metrics.py` says how to renew it. Numbers since the host's start, in its memory only:",
        "nothing is sent anywhere. Labels are codes and names of ours; anything else is shown as `other`. Histograms",
        "give count, sum, maximum and upper bounds of p50, p95 and p99 in seconds, and the classes themselves.",
        "",
        "| metric | kind | by | what |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{item.name}` | {item.kind} | {item.label or '-'} | {item.meaning} |" for item in DECLARED]
    lines += [
        "",
        "Beside them the status shows what was captured (`capture`: events and exchanges taken, skipped, truncated,",
        "redacted, queued, by reason), the outbox (`outbox`: pending, ages, circuit, dead letters, duplicates and",
        "partial deliveries found), and `memory_status` the caller's project (`artifacts`: cards by state of remote",
        "indexing, bytes, bounds, integrity mode, calls and refusals by code; `artifacts.indexing`: the reconciler).",
        "`identity` names workspace, peers and project of the memory service by twelve characters of their SHA-256.",
    ]
    return "\n".join(lines) + "\n"
