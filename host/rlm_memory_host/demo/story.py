"""What the demo does and what must hold: two sessions, a double SIGKILL between them, and facts checked from outside.

Owns: the order of events, the questions put to each kernel after its notebook, the checks. Does not own: processes
(`processes`), the notebooks (`notebook`), how it looks (`show`). The notebooks do the work; a question only reads the
variables that they left and measures. The object's bytes are hashed here too, by neither kernel nor host.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.demo.notebook import QUICK_START, SECOND_SESSION, code_cells
from rlm_memory_host.demo.processes import Session, session
from rlm_memory_host.errors import HostError

QUESTION: Final = "how heavy are the birds on each island"
SLICE_COLUMNS: Final = ("island", "year", "body_mass_g")
SLICE_SPECIES: Final = "Gentoo"
OTHER_VERSION: Final = "a later release"

_DIGEST: Final = """
import hashlib as _hashlib, json as _json, time as _time
def _digest(frame):
    text = frame.to_json(orient="split", double_precision=15) + repr([str(kind) for kind in frame.dtypes])
    return _hashlib.sha256(text.encode()).hexdigest()
def _timed(work):
    begin = _time.perf_counter()
    return work(), (_time.perf_counter() - begin) * 1000
"""

_FIRST: Final = (
    _DIGEST
    + """
print(_json.dumps({"experiment_id": hit.experiment_id, "artifact_id": hit.artifact_id, "sha256": hit.sha256,
    "bytes": hit.bytes, "title": hit.title, "shape": list(hit.shape), "source": hit.source,
    "source_version": hit.source_version, "content": _digest(table)}))
"""
)

_SECOND: Final = (
    _DIGEST
    + f"""
_hits, _search_ms = _timed(lambda: memory.experiments.search({QUESTION!r}))
_hit = _hits[0]
_resolved, _verify_ms = _timed(lambda: memory.experiments.resolve(_hit, current_source_version=_hit.source_version))
_whole, _load_ms = _timed(lambda: memory.experiments.load(_hit))
_part, _slice_ms = _timed(lambda: memory.experiments.load(
    _hit, columns={list(SLICE_COLUMNS)!r}, filters=[("species", "==", {SLICE_SPECIES!r})]))
_rows = [[str(cell) for cell in row] for row in _part.round(1).values.tolist()]
_expected = _whole.loc[_whole["species"] == {SLICE_SPECIES!r}, {list(SLICE_COLUMNS)!r}]
_later = memory.experiments.resolve(_hit, current_source_version={OTHER_VERSION!r})
_reuse = memory.experiments.get(fingerprint=_hit.query_fingerprint, source_version=_hit.source_version)
_no_reuse = memory.experiments.get(fingerprint=_hit.query_fingerprint, source_version={OTHER_VERSION!r})
print(_json.dumps({{"experiment_id": _hit.experiment_id, "title": _hit.title, "matched": list(_hit.matched),
    "hits": len(_hits), "sha256": _resolved.sha256, "content": _digest(_whole), "fresh": _resolved.freshness,
    "later": _later.freshness, "reused": _reuse is not None and _reuse.experiment_id == _hit.experiment_id,
    "not_reused": _no_reuse is None, "slice_shape": list(_part.shape), "slice_equal": bool(_part.equals(_expected)),
    "table": [[str(name) for name in _part.columns], *_rows],
    "milliseconds": {{"search": _search_ms, "verify": _verify_ms, "load": _load_ms, "slice": _slice_ms}}}}))
"""
)


@dataclass(frozen=True, slots=True)
class Report:
    """What happened. `checks` are sentences with whether they hold; times in seconds, `milliseconds` apart."""

    recorded: Mapping[str, Any]
    found: Mapping[str, Any]
    checks: Mapping[str, bool]
    seconds: Mapping[str, float]

    @property
    def is_good(self) -> bool:
        return bool(self.checks) and all(self.checks.values())


def tell(say: Callable[[str], None]) -> Report:
    """Run the whole story in a temporary place; at the end neither a process nor a folder of it is left.

    `say` is told each step. Raises HostError when a step cannot be done at all.
    """
    _need_data()
    begin = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="rlm-memory-demo-"))
    seconds: dict[str, float] = {}
    try:
        say("first session: a host, a kernel, the quick start")
        recorded, first = _session(place, QUICK_START, _FIRST, seconds, "first session")
        stored = _stored_digest(place, recorded)
        say("both killed; second session: another host, another kernel, find it again")
        found, second = _session(place, SECOND_SESSION, _SECOND, seconds, "second session")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    gone = not place.exists() and all(process.poll() is not None for process in (*first, *second))
    seconds["in all"] = time.monotonic() - begin
    return Report(recorded, found, checks(recorded, stored, found, gone=gone), seconds)


def checks(recorded: Mapping[str, Any], stored: str, found: Mapping[str, Any], *, gone: bool) -> dict[str, bool]:
    """Every promise of the demo as a sentence, and whether the facts keep it."""
    return {
        "the stored bytes hash to what record returned": stored == recorded["sha256"],
        "a search in words found it first": found["experiment_id"] == recorded["experiment_id"],
        "the host verified the same bytes": found["sha256"] == recorded["sha256"],
        "the table came back equal, types included": found["content"] == recorded["content"],
        "the slice is the same as slicing the whole": bool(found["slice_equal"]) and found["slice_shape"][0] > 0,
        "it is fresh for the version it was made from": found["fresh"] == "fresh" and bool(found["reused"]),
        "it is stale for a later one, and not reused": found["later"] == "stale" and bool(found["not_reused"]),
        "no process and no folder is left": gone,
    }


def _session(
    place: Path, name: str, question: str, seconds: dict[str, float], label: str
) -> tuple[Any, tuple[Any, ...]]:
    """Run a notebook's cells and one question in a session of its own, then kill it. The answer and the processes."""
    begin = time.monotonic()
    with session(place) as running:
        seconds[f"{label}: start"] = time.monotonic() - begin
        begin = time.monotonic()
        for cell in code_cells(name):
            running.run(cell)
        seconds[f"{label}: notebook"] = time.monotonic() - begin
        answer = _ask(running, question)
        running.kill()
        return answer, (running.host, running.kernel)


def _ask(running: Session, question: str) -> dict[str, Any]:
    text = running.run(question).strip()
    try:
        return json.loads(text.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise HostError("the kernel's answer about what it did could not be read") from error


def _stored_digest(place: Path, recorded: Mapping[str, Any]) -> str:
    """SHA-256 of the object's file as it lies in the store; empty when it is not there once."""
    files = list((place / "state").glob(f"**/objects/*/{recorded['artifact_id']}"))
    return hashlib.sha256(files[0].read_bytes()).hexdigest() if len(files) == 1 else ""


def _need_data() -> None:
    for module in ("pandas", "pyarrow", "palmerpenguins"):
        if importlib.util.find_spec(module) is None:
            raise HostError(f"the demo needs {module}: pip install 'rlm-memory-host[demo]'")
