"""An MLflow file store (`mlruns`): each artifact file of a run is one result, and each run's record is another.

Owns: the documented layout `<experiment>/<run>/` with `meta.yaml`, `params/`, `metrics/`, `tags/` and `artifacts/`.
PATH is the `mlruns` folder, or one experiment's folder in it. A run's parameters, last metrics and tags go into the
summary and tags of its cards; all of them, with every step of every metric, lie in the run's record, a JSON result.
Models and pickles are kept as bytes and never loaded. Deleted experiments and runs are left out, and so are artifacts
that lie elsewhere (a remote `artifact_uri`): what is not below PATH is not read.
"""

from __future__ import annotations

import hashlib
import math
import mimetypes
from collections.abc import Iterator
from typing import Any, Final

from rlm_memory.wire import MEDIA_JSON, UNSAFE_FILESYSTEM_ENTRY, VALIDATION

from rlm_memory_host.artifacts.importers.found import Found, Item, described, fitting
from rlm_memory_host.artifacts.importers.tree import Entry, Tree
from rlm_memory_host.artifacts.importers.yaml_text import MAX_BYTES, NotPlain, load_mapping, text_of
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import DEFAULT_MEDIA_TYPE
from rlm_memory_host.storage.objects import Check

META: Final = "meta.yaml"
DELETED: Final = "deleted"
TRASH: Final = ".trash"
MAX_METRIC_BYTES: Final = 64 << 20
MAX_VALUE_BYTES: Final = 1 << 20

_MEDIA: Final = {".parquet": "application/vnd.apache.parquet", ".npy": "application/x-npy", ".npz": "application/x-npz"}


def find_mlflow(tree: Tree) -> Found:
    """Every run below the folder."""
    runs: dict[tuple[str, ...], list[Entry]] = {}
    entries = tree.walk()
    metas = {entry.parts[:-1] for entry in entries if entry.parts[-1] == META}
    tops = {folder for folder in metas if not any(folder[:depth] in metas for depth in range(len(folder)))}
    for entry in entries:
        run = next((entry.parts[: len(top) + 1] for top in tops if entry.parts[: len(top)] == top), None)
        if run is not None and run in metas and TRASH not in run:
            runs.setdefault(run, []).append(entry)
    found = Found()
    names: dict[tuple[str, ...], tuple[str, bool]] = {}
    for run, files in sorted(runs.items()):
        top = run[:-1]
        if top not in names:
            told = _meta(tree, top, found)
            names[top] = _name(told or {}, top), told is None or text_of(told.get("lifecycle_stage")) == DELETED
        name, is_gone = names[top]
        if not is_gone:
            _Run(tree, run, files, name).add_to(found)
    return found


def _meta(tree: Tree, folder: tuple[str, ...], found: Found) -> dict[str, Any] | None:
    name = "/".join((*folder, META))
    try:
        return load_mapping(tree.read(name, MAX_BYTES) or b"")
    except NotPlain as error:
        found.skip(name, VALIDATION, f"it cannot be read: {error}")
        return None


def _name(told: dict[str, Any], folder: tuple[str, ...]) -> str:
    return text_of(told.get("name")) or (folder[-1] if folder else "experiment")


class _Run:
    """One run's folder."""

    def __init__(self, tree: Tree, folder: tuple[str, ...], files: list[Entry], experiment: str) -> None:
        self._tree = tree
        self._folder = folder
        self._files = files
        self._experiment = experiment

    def add_to(self, found: Found) -> None:
        """Note the run's record and its artifacts, or why there are none."""
        told = _meta(self._tree, self._folder, found)
        is_run = told is not None and (text_of(told.get("run_id")) or text_of(told.get("run_uuid")))
        if told is None or not is_run or text_of(told.get("lifecycle_stage")) == DELETED:
            return
        record = self._record(told, found)
        found.items.append(self._record_item(record))
        for entry in self._below("artifacts"):
            if entry.sort != "file":
                found.skip(entry.name, UNSAFE_FILESYSTEM_ENTRY, "it is a link or no regular file")
            else:
                found.items.append(self._artifact_item(entry, record))

    def _below(self, part: str) -> list[Entry]:
        depth = len(self._folder)
        return [entry for entry in self._files if len(entry.parts) > depth + 1 and entry.parts[depth] == part]

    def _key(self, entry: Entry) -> str:
        return "/".join(entry.parts[len(self._folder) + 1 :])

    def _values(self, part: str, limit: int, found: Found) -> dict[str, str]:
        values: dict[str, str] = {}
        for entry in self._below(part):
            data = self._tree.read(entry.name, limit) if entry.sort == "file" else None
            if data is None:
                found.skip(entry.name, UNSAFE_FILESYSTEM_ENTRY, "it is a link, no regular file, or too long")
            else:
                values[self._key(entry)] = data.decode("utf-8", "replace")
        return values

    def _record(self, told: dict[str, Any], found: Found) -> dict[str, Any]:
        fields = ("run_id", "run_uuid", "run_name", "status", "start_time", "end_time", "source_name")
        metrics = self._values("metrics", MAX_METRIC_BYTES, found)
        return {
            "experiment": self._experiment,
            "run": {key: text_of(told.get(key)) for key in fields if text_of(told.get(key))},
            "params": {
                key: value.rstrip("\n") for key, value in self._values("params", MAX_VALUE_BYTES, found).items()
            },
            "metrics": {key: list(_steps(text)) for key, text in metrics.items()},
            "tags": self._values("tags", MAX_VALUE_BYTES, found),
        }

    def _record_item(self, record: dict[str, Any]) -> Item:
        data = ids.canonical_json(record)

        def read(check: Check) -> Iterator[bytes]:
            check()
            yield data

        request = self._request(record, "run record", {"run": True}, MEDIA_JSON)
        return Item("/".join((*self._folder, META)), len(data), read, request, note=self._note(record))

    def _artifact_item(self, entry: Entry, record: dict[str, Any]) -> Item:
        key, name = self._key(entry), entry.name
        suffix = "." + key.rpartition(".")[2].lower()
        media = _MEDIA.get(suffix) or mimetypes.guess_type(f"x{suffix}", strict=True)[0] or DEFAULT_MEDIA_TYPE
        request = self._request(record, key, {"path": key}, media)
        return Item(name, entry.size, lambda check: self._tree.chunks(name, check), request, note=self._note(record))

    def _note(self, record: dict[str, Any]) -> dict[str, Any]:
        last = {key: steps[-1]["value"] for key, steps in record["metrics"].items() if steps}
        values = {"params": record["params"], "metrics": last, "tags": record["tags"]}
        return fitting({"from": "mlflow", "experiment": self._experiment, **record["run"], "values": values}, "values")

    def _request(self, record: dict[str, Any], what: str, identity: dict[str, Any], media_type: str) -> Any:
        run = self._folder[-1]
        shown = record["run"].get("run_name") or run[:8]
        metrics = [f"{key}={steps[-1]['value']}" for key, steps in record["metrics"].items() if steps]
        params = [f"{key}={value}" for key, value in record["params"].items()]
        own = [f"{key}={value}" for key, value in record["tags"].items() if not key.startswith("mlflow.")]
        summary = [f"MLflow run {shown} of {self._experiment}, {record['run'].get('status', 'unknown status')}."]
        summary += [
            f"Metrics: {', '.join(metrics)}." if metrics else "",
            f"Parameters: {', '.join(params)}." if params else "",
        ]
        identity = {"importer": "mlflow", "experiment": self._experiment, "run": run, **identity}
        return described(
            title=f"{self._experiment} / {shown}: {what}",
            summary="\n".join(text for text in summary if text),
            fingerprint=hashlib.sha256(ids.canonical_json(identity)).hexdigest(),
            source=f"mlflow:{self._experiment}",
            version=f"run-{run}",
            media_type=media_type,
            tags=["mlflow", *own],
        )


def _steps(text: str) -> Iterator[dict[str, Any]]:
    """The lines `timestamp value step` of a metric; a value that is no finite number stays text."""
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2:
            continue
        step = words[2] if len(words) > 2 else "0"
        yield {"timestamp": _number(words[0]), "value": _number(words[1]), "step": _number(step)}


def _number(text: str) -> int | float | str:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text
