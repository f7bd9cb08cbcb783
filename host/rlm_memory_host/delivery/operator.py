"""What an operator may do with the outbox: list, show, retry, drop, export. Without content unless it is asked for.

Owns: the views of the three folders and the actions on them. Does not own: the command line (`cli.outbox`), deliveries
under way (`worker`). Listing reads files that are replaced as a whole, so it needs no lock; acting needs the outbox.

Source: design page "Overview", On the command line; DeepSeek Honcho specification, section 18.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from rlm_memory_host.contracts.delivery import MAX_DOCUMENT_BYTES, DeliveryDocument, parse_document
from rlm_memory_host.contracts.delivery_ids import is_delivery_id
from rlm_memory_host.delivery.folders import (
    DEAD_LETTER,
    FOLDER,
    MAX_REASON_BYTES,
    PENDING,
    QUARANTINE,
    REASON,
    printable,
)
from rlm_memory_host.delivery.outbox import Outbox
from rlm_memory_host.errors import NotFound, StoreError
from rlm_memory_host.storage.files import FileLayer

Place = Literal["pending", "dead-letter", "quarantine"]
Action = Literal["retry", "drop"]


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of the outbox, content-free."""

    name: str
    """The delivery id, or the file's name in quarantine."""
    place: Place
    created_at: str | None = None
    attempts: int = 0
    ambiguous: bool = False
    messages: int = 0
    code: str | None = None
    """Of the last failure; the reason in quarantine."""
    next_attempt_at: str | None = None


def listing(state_root: Path, files: FileLayer | None = None) -> list[Listed]:
    """Everything in the outbox: pending in order, then dead letters, then what is in quarantine."""
    files = files or FileLayer()
    found = [
        _listed(document, place) for place in (PENDING, DEAD_LETTER) for document in documents(state_root, place, files)
    ]
    quarantine = state_root / FOLDER / QUARANTINE
    for entry in sorted(files.scan(quarantine), key=lambda entry: entry.name):
        if entry.name.endswith(REASON):
            note = _note(files, quarantine / entry.name)
            name = printable(entry.name.removesuffix(REASON))
            found.append(Listed(name, "quarantine", created_at=note.get("at"), code=note.get("reason")))
    return found


def documents(state_root: Path, place: str, files: FileLayer | None = None) -> list[DeliveryDocument]:
    """The readable documents of `pending` or `dead-letter`, in order of admission."""
    files = files or FileLayer()
    folder = state_root / FOLDER / place
    found: list[DeliveryDocument] = []
    for entry in files.scan(folder):
        name = entry.name.removesuffix(".json")
        if is_delivery_id(name):
            try:
                found.append(parse_document(files.read_all(folder / entry.name, MAX_DOCUMENT_BYTES), name))
            except (OSError, StoreError):
                continue  # gone meanwhile, or a matter for the next start's quarantine
    return sorted(found, key=lambda document: document.created_at)


def find(state_root: Path, prefix: str) -> DeliveryDocument:
    """The document whose id starts with `prefix`. Raises NotFound where none or several do."""
    found = [
        document
        for place in (PENDING, DEAD_LETTER)
        for document in documents(state_root, place)
        if document.request.delivery_id.startswith(prefix)
    ]
    if len(found) != 1 or not prefix:
        what = "no delivery" if not found else "more than one delivery"
        raise NotFound(f"{what} has an id that starts so; `rlm-memory outbox ls` lists them", "DELIVERY_NOT_FOUND")
    return found[0]


def about(state_root: Path, memory_ids: Collection[str], session: str = "") -> list[str]:
    """The ids of pending deliveries and dead letters about one of these memories or results, or of this session."""
    return [
        document.request.delivery_id
        for place in (PENDING, DEAD_LETTER)
        for document in documents(state_root, place)
        if (session and document.request.scope.dsh_session_id == session)
        or any(
            message.metadata.get(name) in memory_ids
            for message in document.request.messages
            for name in ("memory_id", "experiment_id")
        )
    ]


def shown(document: DeliveryDocument, *, content: bool) -> dict[str, Any]:
    """A document for an operator; texts only where `content` asks for them."""
    told: dict[str, Any] = json.loads(document.to_json())
    for message in told["request"]["messages"]:
        if not content:
            message["content"] = f"[{len(message['content'])} characters; --content shows them]"
    return told


def export(state_root: Path) -> Generator[bytes]:
    """Every document, one JSON line each, with its place. It holds the texts: treat it like the outbox."""
    for place in (PENDING, DEAD_LETTER):
        for document in documents(state_root, place):
            line = {"place": place, "document": json.loads(document.to_json())}
            yield json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n"


def act(outbox: Outbox, action: Action, delivery_ids: Sequence[str]) -> dict[str, list[str]]:
    """Retry dead letters, or drop deliveries for good; the ids that it was done for and those that it was not."""
    perform = outbox.revive if action == "retry" else outbox.drop
    done = [name for name in delivery_ids if perform(name)]
    return {"done": done, "not_done": [name for name in delivery_ids if name not in done]}


def _listed(document: DeliveryDocument, place: str) -> Listed:
    failure = document.failure
    return Listed(
        document.request.delivery_id,
        "pending" if place == PENDING else "dead-letter",
        document.created_at,
        document.attempts,
        document.ambiguous,
        len(document.request.messages),
        None if failure is None else failure.code,
        document.next_attempt_at,
    )


def _note(files: FileLayer, path: Path) -> dict[str, str]:
    """The texts of a reason, for a terminal; none where the file is no reason of ours."""
    try:
        note: Any = json.loads(files.read_all(path, MAX_REASON_BYTES))
    except (OSError, StoreError, ValueError, RecursionError):
        return {}
    if not isinstance(note, dict):
        return {}
    told = cast("dict[str, Any]", note)
    return {name: printable(value)[:200] for name, value in told.items() if isinstance(value, str)}
