"""Every card against its object, byte by byte: what `rlm-memory experiments verify` finds.

Owns: hashing each object that a card or a removed card names, once, and naming each fault. Does not own: serving
(`artifacts.store` verifies for itself), mending: the same record made again replaces a damaged object. No cache is
asked: size and times prove nothing here. Memory stays flat; no lock is held.

Source: DeepSeek Honcho specification, section 28.4; design page "Exact results", Resolve.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlm_memory.wire import ARTIFACT_CORRUPT, ARTIFACT_MISSING, INVALID_SCOPE, STORE_UNAVAILABLE, VALIDATION

from rlm_memory_host.artifacts.commit import Parts
from rlm_memory_host.artifacts.operators.shelf import Removed, Shelf
from rlm_memory_host.contracts.records import MAX_CARD_BYTES, ExperimentCardV1, parse_card
from rlm_memory_host.errors import NotFound, StoreError
from rlm_memory_host.storage.cards import not_found, read_card, read_sidecar
from rlm_memory_host.storage.objects import Check, hash_descriptor

Kind = Literal["card", "object", "sidecar"]
Advance = Callable[[str, int, int], None]
"""Called with (artifact id, bytes hashed of it, its bytes)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: of which experiment, in what, and why. No content."""

    experiment_id: str
    kind: Kind
    code: str
    reason: str
    removed: bool = False
    """Whether the card is a removed one that could be brought back."""


@dataclass(slots=True)
class Report:
    """What was looked at, and what is wrong."""

    cards: int = 0
    objects: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    strays: list[str] = field(default_factory=list[str])
    """Names in the cards folder that are none of ours; no fault."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def verify(parts: Parts, experiments: Sequence[str] | None, *, check: Check, advance: Advance | None = None) -> Report:
    """Hold cards (all, or those named) to their objects.

    `check` is called between steps and may raise to stop. Raises NotFound for a named experiment that is not there.
    """
    shelf = Shelf(parts)
    report = Report(strays=sorted(shelf.strays))
    if experiments is not None and any(name not in shelf.cards for name in experiments):
        raise not_found()
    looked = _Looked(parts, report, check, advance)
    for experiment in sorted(shelf.cards if experiments is None else set(experiments)):
        check()
        looked.card(experiment)
    if experiments is None:
        for gone in shelf.removals():
            check()
            looked.removed(gone)
    return report


class _Looked:
    def __init__(self, parts: Parts, report: Report, check: Check, advance: Advance | None) -> None:
        self._parts = parts
        self._report = report
        self._check = check
        self._advance = advance
        self._digests: dict[str, tuple[int, str] | StoreError] = {}

    def card(self, experiment: str) -> None:
        parts, layout = self._parts, self._parts.layout
        try:
            card = read_card(parts.files, layout, parts.project_id, experiment)
        except NotFound:
            if layout.card(experiment).exists():
                self._find(experiment, "card", INVALID_SCOPE, "the card belongs to another project")
            return
        except StoreError as error:
            self._find(experiment, "card", error.code, str(error))
            return
        self._report.cards += 1
        if layout.sidecar(experiment).exists() and read_sidecar(parts.files, layout, experiment) is None:
            self._find(experiment, "sidecar", VALIDATION, "the sidecar cannot be read; the result itself is unaffected")
        self._object(card, removed=False)

    def removed(self, gone: Removed) -> None:
        path = gone.path(self._parts.layout, "card")
        try:
            card = parse_card(self._parts.files.read_all(path, MAX_CARD_BYTES))
        except FileNotFoundError:
            return
        except OSError as error:
            self._find(gone.experiment_id, "card", STORE_UNAVAILABLE, _said(error), removed=True)
            return
        except StoreError as error:
            self._find(gone.experiment_id, "card", error.code, str(error), removed=True)
            return
        self._object(card, removed=True)

    def _object(self, card: ExperimentCardV1, *, removed: bool) -> None:
        artifact = card.artifact
        if artifact.artifact_id not in self._digests:
            self._digests[artifact.artifact_id] = self._hash(artifact.artifact_id, artifact.bytes)
        found = self._digests[artifact.artifact_id]
        if isinstance(found, StoreError):
            self._find(card.experiment_id, "object", found.code, str(found), removed=removed)
            return
        size, digest = found
        if size != artifact.bytes:
            reason = f"the object has {size:,} bytes, recorded were {artifact.bytes:,}"
            self._find(card.experiment_id, "object", ARTIFACT_CORRUPT, reason, removed=removed)
        elif digest != artifact.sha256:
            reason = f"the bytes changed: recorded {artifact.sha256}, found {digest}"
            self._find(card.experiment_id, "object", ARTIFACT_CORRUPT, reason, removed=removed)

    def _hash(self, artifact: str, size: int) -> tuple[int, str] | StoreError:
        try:
            descriptor = self._parts.files.open_read(self._parts.layout.object(artifact))
        except FileNotFoundError:
            return StoreError("the object is not there", ARTIFACT_MISSING)
        except OSError as error:
            return StoreError(_said(error), STORE_UNAVAILABLE)
        advance = self._advance
        try:
            held = os.fstat(descriptor).st_size

            def told(done: int) -> None:
                if advance is not None:
                    advance(artifact, done, held)

            # A longer file is not hashed to its end: its size says enough.
            digest = hash_descriptor(descriptor, size, self._check, told)
        except OSError as error:
            return StoreError(_said(error), STORE_UNAVAILABLE)
        finally:
            os.close(descriptor)
        self._report.objects += 1
        self._report.bytes += held
        return held, digest

    def _find(self, experiment: str, kind: Kind, code: str, reason: str, *, removed: bool = False) -> None:
        self._report.findings.append(Finding(experiment, kind, code, reason, removed))


def _said(error: OSError) -> str:
    return f"it cannot be read ({error.strerror or type(error).__name__})"
