"""Block digests beside a topic file: they tell which blocks a hand edit touched.

Owns: `derived/digests/<hash of the file's name>.json`, written after each change and never flushed: it can be deleted
at any time, and then a hand edit makes every block of its file unreviewed. Does not own: what follows from an edit.

Source: design page "The memory model", Storage, Hand edits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rlm_memory_host.errors import Unwritable
from rlm_memory_host.storage import ndjson
from rlm_memory_host.storage.auditlog import make_durable
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.topics import TopicFile

_MAX_BYTES = 8 << 20


def of(file: TopicFile) -> dict[str, str]:
    """The digest of each good block's bytes, by id."""
    return {
        name: hashlib.sha256(file.data[span.start : span.stop]).hexdigest()[:24] for name, span in file.places().items()
    }


def write(files: FileLayer, folder: Path, name: str, sha256: str, file: TopicFile) -> None:
    """Remember the blocks of the file `name` as it is now; failing to is no failure."""
    document = {"file": sha256, "blocks": of(file)}
    try:
        target = make_durable(files, folder / "derived" / "digests") / _file_name(name)
        ndjson.replace(files, target, json.dumps(document, separators=(",", ":")).encode(), durable=False)
    except (Unwritable, OSError):
        pass


def read(files: FileLayer, folder: Path, name: str, sha256: str) -> Mapping[str, str] | None:
    """The digests of the file `name` when it had the hash `sha256`; None when nobody remembers."""
    try:
        data = files.read_all(folder / "derived" / "digests" / _file_name(name), _MAX_BYTES)
        document = cast("dict[str, Any]", json.loads(data))
        return cast("dict[str, str]", document["blocks"]) if document["file"] == sha256 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file_name(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:40] + ".json"
