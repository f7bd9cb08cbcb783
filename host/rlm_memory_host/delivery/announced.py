"""What is about to be kept and then sent: one small document a note, from before its commit until it is in the outbox.

Owns: `<state root>/outbox/announced/`. Does not own: whether a note was kept (the host's start compares), sending.

Order of writes: announcement (temp file, fsync, rename, fsync of the folder) -> the memory's commit -> the outbox's
admission -> unlink. Killed before the commit: the next start finds no such memory and drops the announcement. Killed
after it: the next start offers the note, under the same delivery id. The unlink is not flushed: an announcement that
comes back is offered again, which is the same delivery, and is looked up before it is sent.

Texts are redacted before they come here. Thread-safe: every note has a file of its own.

Source: DeepSeek Honcho specification, section 12; design page "Honcho, the outbox, capture and recall".
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.contracts.remote import Offered
from rlm_memory_host.errors import StoreError
from rlm_memory_host.storage.files import FileLayer, writing

FOLDER: Final = "announced"
MAX_BYTES: Final = 1 << 20


class Announced:
    """The announcements of a state root."""

    def __init__(self, state_root: Path, files: FileLayer | None = None) -> None:
        self._folder = state_root / "outbox" / FOLDER
        self._files = files or FileLayer()

    def keep(self, note: Offered) -> None:
        """Announce a note; durable at return. Raises Unwritable."""
        target = self._path(note)
        temp = target.with_suffix(".tmp")
        with writing():
            self._files.make_folder(self._folder)
            with suppress(FileNotFoundError):
                self._files.unlink(temp)
            descriptor = self._files.create(temp)
            try:
                self._files.write(descriptor, json.dumps(asdict(note), ensure_ascii=False).encode())
                self._files.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._files.rename(temp, target)
            self._files.fsync_folder(self._folder)

    def drop(self, note: Offered) -> None:
        """The announcement is done with; twice is once. Raises Unwritable."""
        with writing(), suppress(FileNotFoundError):
            self._files.unlink(self._path(note))

    def all(self) -> list[Offered]:
        """What was announced and not dropped, oldest first; what is no announcement is removed."""
        found: list[Offered] = []
        for entry in self._files.scan(self._folder):
            path = self._folder / entry.name
            try:
                row: Any = json.loads(self._files.read_all(path, MAX_BYTES))
                note = replace(Offered(**row), supersedes=tuple(row["supersedes"]))
                known = self._path(note) == path
            except (OSError, StoreError, ValueError, TypeError, KeyError):
                known, note = False, None
            if note is not None and known:
                found.append(note)
            else:
                with suppress(OSError):
                    self._files.unlink(path)
        return sorted(found, key=lambda note: (note.ts, note.delivery_id))

    def drop_about(self, memory_ids: Collection[str]) -> None:
        """Drop the announcements of memories. Raises Unwritable."""
        for entry in self._files.scan(self._folder):
            if entry.name.partition("-")[0] in memory_ids:
                with writing(), suppress(FileNotFoundError):
                    self._files.unlink(self._folder / entry.name)

    def _path(self, note: Offered) -> Path:
        return self._folder / f"{note.memory_id}-{note.delivery_id}.json"
