"""Writing an export: chosen results of one project, each object hashed as it is copied.

Owns: what goes in and in which order (objects, cards and sidecars, texts, the manifest last). Does not own: how it
becomes visible in one step (`sinks`). The store is only read, without a lock: a result that is removed meanwhile ends
the export with its name, and nothing is left. A damaged object is refused, never exported.

Source: design page "Exact results", Operators.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rlm_memory.wire import ARTIFACT_MISSING, INVALID_ARGUMENT, INVALID_PATH

from rlm_memory_host.artifacts.commit import Parts
from rlm_memory_host.artifacts.export import describing
from rlm_memory_host.artifacts.export.layout import (
    CRATE,
    FORMAT,
    MANIFEST,
    README,
    SCRIPT,
    VERSION,
    card_name,
    object_name,
    sidecar_name,
)
from rlm_memory_host.artifacts.export.sinks import FolderSink, Sink, ZipSink
from rlm_memory_host.contracts.records import ExperimentCardV1
from rlm_memory_host.contracts.version import version
from rlm_memory_host.errors import Integrity, StoreError
from rlm_memory_host.storage.cards import read_card, read_sidecar
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.objects import BUFFER_BYTES, Check, Progress

Form = Literal["folder", "zip"]


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export holds."""

    experiments: int
    objects: int
    bytes: int


@dataclass(slots=True)
class Bundle:
    """An export being written: `files` is what the manifest will list."""

    sink: Sink
    files: dict[str, dict[str, object]] = field(default_factory=dict[str, dict[str, object]])

    def add(self, name: str, parts: Iterator[bytes]) -> tuple[str, int]:
        """Write one file and note its digest and size."""
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for data in parts:
                digest.update(data)
                size += len(data)
                yield data

        self.sink.add(name, counted())
        self.files[name] = {"sha256": digest.hexdigest(), "bytes": size}
        return digest.hexdigest(), size


def export(
    parts: Parts,
    experiments: Sequence[str],
    target: Path,
    form: Form,
    *,
    check: Check,
    progress: Progress | None = None,
    forbidden: Sequence[Path] = (),
    outside: FileLayer | None = None,
    now: datetime | None = None,
) -> Exported:
    """Write the named experiments to a new folder or zip file at `target`; complete there, or nothing is.

    `forbidden` are folders that the target may not lie in (the store itself); `outside` is the file layer that writes.
    Raises NotFound, Integrity (damaged or missing bytes), StoreError (INVALID_PATH, INVALID_ARGUMENT), Unwritable, and
    what `check` raises.
    """
    chosen = list(dict.fromkeys(experiments))
    if not chosen:
        raise StoreError("nothing to export: name experiments, or say --all", INVALID_ARGUMENT)
    place = target.parent.resolve() / target.name
    if any(place.is_relative_to(folder.resolve()) for folder in forbidden):
        raise StoreError("the target lies inside the store; name a place outside it", INVALID_PATH)
    cards = [read_card(parts.files, parts.layout, parts.project_id, experiment) for experiment in chosen]
    layer = outside or FileLayer()
    sink = FolderSink(layer, place) if form == "folder" else ZipSink(layer, place)
    try:
        done = _write(parts, cards, Bundle(sink), check, progress, now or datetime.now(UTC))
        sink.finish()
    except BaseException:
        sink.abandon()
        raise
    return done


def _write(
    parts: Parts,
    cards: Sequence[ExperimentCardV1],
    bundle: Bundle,
    check: Check,
    progress: Progress | None,
    now: datetime,
) -> Exported:
    objects = {card.artifact.artifact_id: card for card in cards}
    total = sum(card.artifact.bytes for card in objects.values())
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        check()
        if progress is not None:
            progress(done, total)

    for artifact, card in sorted(objects.items()):
        check()
        found, size = bundle.add(object_name(artifact), _object(parts, card, advance))
        if (found, size) != (card.artifact.sha256, card.artifact.bytes):
            raise Integrity(f"{card.experiment_id}: the stored bytes are damaged; nothing was exported")
    for card in cards:
        check()
        # The card as it was read and checked, and only a sidecar that can be read.
        data = parts.files.read_all(parts.layout.card(card.experiment_id), 1 << 20)
        bundle.add(card_name(card.experiment_id), iter([data]))
        if read_sidecar(parts.files, parts.layout, card.experiment_id) is not None:
            note = parts.files.read_all(parts.layout.sidecar(card.experiment_id), 1 << 20)
            bundle.add(sidecar_name(card.experiment_id), iter([note]))
    moment = now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    bundle.add(README, iter([describing.readme(cards)]))
    bundle.add(CRATE, iter([describing.crate(cards, moment)]))
    bundle.add(SCRIPT, iter([Path(__file__).with_name("verify.py").read_bytes()]))
    document = {
        "format": FORMAT,
        "version": VERSION,
        "tool": f"rlm-memory {version()}",
        "createdAt": moment,
        "experiments": [card.experiment_id for card in cards],
        "files": bundle.files,
    }
    manifest = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True).encode("utf-8")
    bundle.sink.add(MANIFEST, [manifest])
    return Exported(len(cards), len(objects), total)


def _object(parts: Parts, card: ExperimentCardV1, advance: Callable[[int], None]) -> Iterator[bytes]:
    try:
        descriptor = parts.files.open_read(parts.layout.object(card.artifact.artifact_id))
    except OSError:
        raise Integrity(f"{card.experiment_id}: the stored bytes are missing", ARTIFACT_MISSING) from None
    try:
        while data := os.read(descriptor, BUFFER_BYTES):
            yield data
            advance(len(data))
    except OSError:
        raise Integrity(f"{card.experiment_id}: the stored bytes cannot be read") from None
    finally:
        os.close(descriptor)
