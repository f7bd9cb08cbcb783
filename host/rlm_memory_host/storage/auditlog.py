"""The audit log's file: one owner's chain on disk, what it ends with, and the salts of its contents.

Owns: `audit.ndjson` and `.state/salts/`: appending the records that are due, seeing that the end is not what was
remembered, saying so. Does not own: a record's form and the verification of a chain (`audit`), the manifest that
remembers the last record and when a record is due (`journal`), the write lock, which every change here needs.

Order of writes: salts -> [the journal's manifest, with the records in it] -> the records appended, flushed. A crash in
between leaves records missing at the end; `publish` is called again with them and appends those that are not there.

Salts are not flushed: a lost salt makes a content hash meaningless, as a purge does, and breaks nothing.

Source: design page "Recall, resident text, guard, audit, health, tools", Audit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.contracts.memory import AuditNote
from rlm_memory_host.storage import audit, ndjson
from rlm_memory_host.storage.audit import Tail, Verification
from rlm_memory_host.storage.files import FileLayer, writing

_TAIL_BYTES: Final = 16_384

OnFault = Callable[[str, str], None]
"""(feature, code): told about what went wrong without failing the change."""


class AuditLog:
    """The audit log of one owner. Not thread-safe by itself: the journal's lock is held for changes."""

    def __init__(self, files: FileLayer, folder: Path, on_fault: OnFault) -> None:
        self._files = files
        self._folder = folder
        self._on_fault = on_fault
        self._torn = False

    @property
    def path(self) -> Path:
        """The log."""
        return self._folder / "audit.ndjson"

    def verify(self, remembered: Tail, pending: Sequence[Mapping[str, Any]]) -> Verification:
        """Check the whole chain; `pending` records may be missing at its end. Raises OSError."""
        try:
            data = self._files.read_all(self.path, ndjson.MAX_LOG_BYTES)
        except FileNotFoundError:
            data = b""
        lines = data.split(b"\n")
        found = audit.verify(lines[:-1], remembered, pending)
        if lines[-1]:
            torn = audit.Break(found.tail.seq + 1, "AUDIT_TORN")
            return replace(found, breaks=(*found.breaks, torn))
        return found

    def fault(self, remembered: Tail) -> str:
        """Why the log does not end with the remembered record; "" when it does. A quick look."""
        broken = self._broken(remembered)
        return broken[0] if broken else ""

    def records(self, notes: Sequence[AuditNote], remembered: Tail, now: str) -> list[dict[str, Any]]:
        """The records that follow the remembered one for some notes, `now` as their time. Writes their salts."""
        tail = remembered
        records: list[dict[str, Any]] = []
        if notes and (broken := self._broken(remembered)):
            reason, last = broken
            records.append(audit.segment(reason, last, remembered, now))
            tail = audit.tail_of(records[-1])
            self._on_fault("audit", reason)
        for note in self._with_torn(notes):
            salted = self._salted(note, tail.seq + 1)
            records.append(audit.record(note, tail, now, salted))
            tail = audit.tail_of(records[-1])
        return records

    def _with_torn(self, notes: Sequence[AuditNote]) -> Sequence[AuditNote]:
        if not notes or not (self._torn or tail_of_file(self._files, self.path, 1)[-1:] not in (b"", b"\n")):
            return notes
        self._torn = False
        return (AuditNote("audit-torn", "host", code="AUDIT_TORN"), *notes)

    def _broken(self, remembered: Tail) -> tuple[str, Tail] | None:
        """Why the log does not end with the remembered record, and what it ends with; None when it does."""
        end = tail_of_file(self._files, self.path, _TAIL_BYTES)
        whole = end.rpartition(b"\n")[0]
        row = ndjson.decode(whole.rpartition(b"\n")[2]) if whole else None
        last = audit.tail_of(row) if row else Tail()
        if last == remembered or (remembered.seq == 0 and not whole):
            return None
        if row is None:
            return ("AUDIT_DAMAGED" if whole else "AUDIT_MISSING"), Tail(remembered.seq, audit.ZEROS)
        return ("AUDIT_SHORTENED" if last.seq < remembered.seq else "AUDIT_REPLACED"), last

    def publish(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Append the records that the log does not have yet. Raises Unwritable."""
        if not records:
            return
        end = tail_of_file(self._files, self.path, _TAIL_BYTES).rpartition(b"\n")[0]
        row = ndjson.decode(end.rpartition(b"\n")[2]) if end else None
        last = audit.tail_of(row).seq if row else 0
        missing = [record for record in records if audit.tail_of(record).seq > last]
        if missing and missing[0].get("prev") != (audit.tail_of(row).hash if row else audit.ZEROS):
            self._on_fault("audit", "AUDIT_SHORTENED" if row else "AUDIT_MISSING")
        torn = ndjson.append(self._files, self.path, [ndjson.encode(record) for record in missing])
        if torn:
            self._torn = True
            self._on_fault("audit", "AUDIT_TORN")

    def _salted(self, note: AuditNote, seq: int) -> tuple[str, ...]:
        if not note.contents:
            return ()
        salt = os.urandom(16)
        folder = make_durable(self._files, self._folder / ".state" / "salts")
        row = {"seq": seq, "target": note.target, "salt": salt.hex()}
        ndjson.append(self._files, folder / salt_name(note.target), [ndjson.encode(row)], durable=False)
        return tuple(audit.salted_hash(salt, text) for text in note.contents)


def salt_name(target: str) -> str:
    """The file in `.state/salts/` that holds the salts of a target."""
    return hashlib.sha256(target.encode("utf-8", "surrogatepass")).hexdigest()[:2] + ".ndjson"


def tail_of_file(files: FileLayer, path: Path, count: int) -> bytes:
    """The last bytes of a file, at least `count` of them where it has so many; empty without one."""
    try:
        descriptor = files.open_read(path)
    except FileNotFoundError:
        return b""
    try:
        size = os.fstat(descriptor).st_size
        wanted = min(size, max(count, _TAIL_BYTES))
        return os.pread(descriptor, wanted, size - wanted)
    finally:
        os.close(descriptor)


def make_durable(files: FileLayer, folder: Path) -> Path:
    """Make a folder and those above it where they are missing, and flush each new one's parent. Raises Unwritable."""
    missing: list[Path] = []
    above = folder
    while not is_there(files, above):
        missing.append(above)
        above = above.parent
    with writing():
        for step in reversed(missing):
            if files.make_folder(step):
                files.fsync_folder(step.parent)
    return folder


def is_there(files: FileLayer, path: Path) -> bool:
    """Whether there is anything of that name."""
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True
