"""Cards and sidecars as files: reading one, writing one.

Owns: `cards/<experimentId>.json` and `cards/<experimentId>.ext.json`. Does not own: which cards there are
(`catalogue`), the commit lock and the order against objects (`artifacts.store`).

Order of writes: temp in `tmp/` -> flush -> rename into `cards/` -> flush the folder. The rename is the commit point of
a record: before it nobody sees the card, after it everybody does. A crash before leaves a temp file, swept a day later;
a crash between rename and folder flush leaves the card or, after a power cut, its absence; the record was not
acknowledged yet in either case. A sidecar is optional: missing or unreadable, its card is as good as before.

Source: DeepSeek Honcho specification, sections 27.3, 28.3; design page "Exact results".
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory import wire

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import MAX_CARD_BYTES, ExperimentCardV1, parse_card
from rlm_memory_host.errors import Integrity, NotFound, StoreError
from rlm_memory_host.storage.cardjournal import CardIdentity
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.objects import discard, file_clock_ns
from rlm_memory_host.storage.paths import ProjectLayout

SIDECAR_VERSION: Final = 1
REMEMBERED_CARDS: Final = 512


@dataclass(frozen=True, slots=True)
class CardFile:
    """A card with the identity and the SHA-256 of the file that says it."""

    card: ExperimentCardV1
    identity: CardIdentity
    digest: bytes


def card_identity(state: os.stat_result) -> CardIdentity:
    """What tells a changed card from an unchanged one."""
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def not_found() -> NotFound:
    """One text, whether a reference is malformed, unknown or another project's."""
    return NotFound("no such experiment in this project; search for it, or record it again")


def read_card(files: FileLayer, layout: ProjectLayout, project_id: str, experiment: str) -> ExperimentCardV1:
    """The card of an experiment id.

    Raises NotFound (also for another project's card), FormatVersion, Integrity (VALIDATION) when it is damaged,
    StoreError when it cannot be read.
    """
    return read_card_file(files, layout, project_id, experiment).card


class CardReader:
    """Reads cards of one project and remembers the last ones, each until its file's identity changes. Thread-safe."""

    def __init__(self, files: FileLayer, layout: ProjectLayout, project_id: str) -> None:
        self._files = files
        self._layout = layout
        self._project_id = project_id
        self._known: dict[str, CardFile] = {}
        self._lock = threading.Lock()

    def read(self, experiment: str) -> ExperimentCardV1:
        """As `read_card`."""
        return self.read_file(experiment).card

    def read_file(self, experiment: str) -> CardFile:
        """As `read_card_file`."""
        with self._lock:
            known = self._known.get(experiment)
        if known is not None and self._identity(experiment) == known.identity:
            return known
        started = file_clock_ns()
        file = read_card_file(self._files, self._layout, self._project_id, experiment)
        with self._lock:
            self._known.pop(experiment, None)
            if started > file.identity[3]:
                self._known[experiment] = file
            if len(self._known) > REMEMBERED_CARDS:
                del self._known[next(iter(self._known))]
        return file

    def _identity(self, experiment: str) -> CardIdentity | None:
        try:
            return card_identity(self._files.stat(self._layout.card(experiment)))
        except OSError:
            return None


def read_card_file(files: FileLayer, layout: ProjectLayout, project_id: str, experiment: str) -> CardFile:
    """As `read_card`, with what the file is that was read."""
    if not ids.is_experiment_id(experiment):
        raise not_found()
    try:
        data, state = files.read_whole(layout.card(experiment), MAX_CARD_BYTES)
    except FileNotFoundError:
        raise not_found() from None
    except OSError as error:
        raise _unreadable(error) from error
    card = parse_card(data)
    if card.project_id != project_id:
        raise not_found()
    if card.experiment_id != experiment:
        raise Integrity("the card's file has another experiment's name", wire.VALIDATION)
    return CardFile(card, card_identity(state), hashlib.sha256(data).digest())


def write_temporary(files: FileLayer, path: Path, data: bytes) -> None:
    """A flushed file at `path`, ready to be renamed. Raises OSError and leaves nothing."""
    descriptor = files.create(path)
    try:
        try:
            files.write(descriptor, data)
            files.fsync(descriptor)
        finally:
            os.close(descriptor)
    except Exception:
        discard(files, path)
        raise


def encode_sidecar(experiment: str, annotation: Mapping[str, Any]) -> bytes:
    """A sidecar's file. Raises StoreError (VALIDATION) over 64 KiB or for what JSON cannot hold."""
    document = {"schemaVersion": SIDECAR_VERSION, "experimentId": experiment, "annotation": dict(annotation)}
    try:
        size = wire.encoded_size(annotation)
        data = ids.canonical_json(document)
    except (wire.WireError, ValueError, TypeError, RecursionError):
        raise StoreError("the annotation is not JSON that can be stored", wire.VALIDATION) from None
    if size > wire.MAX_ANNOTATION_BYTES:
        raise StoreError(
            f"the annotation has {size:,} bytes, the limit is {wire.MAX_ANNOTATION_BYTES:,}", wire.VALIDATION
        )
    return data


def read_sidecar(files: FileLayer, layout: ProjectLayout, experiment: str) -> dict[str, Any] | None:
    """The annotation of an experiment id of the right form; None when there is none that can be read."""
    limit = 4 * wire.MAX_ANNOTATION_BYTES
    try:
        data = files.read_all(layout.sidecar(experiment), limit)
        document: Any = json.loads(data) if len(data) <= limit else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found = cast("dict[str, Any]", document)
    annotation = found.get("annotation")
    right = found.get("schemaVersion") == SIDECAR_VERSION and found.get("experimentId") == experiment
    return cast("dict[str, Any]", annotation) if right and isinstance(annotation, dict) else None


def publish(files: FileLayer, temporary: Path, target: Path) -> None:
    """Make a flushed temp file visible under its name, in one step. The folder is flushed by the caller."""
    try:
        files.rename(temporary, target)
    except Exception:
        discard(files, temporary)
        raise


def _unreadable(error: OSError) -> StoreError:
    return StoreError(f"the card cannot be read now ({type(error).__name__})", wire.STORE_UNAVAILABLE)
