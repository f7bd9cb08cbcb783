"""What a card says of its remote projection: the states and how one follows from another, and writing it into the card.

Owns: the transitions and the one write. Does not own: when something is sent or heard of (`indexer`).

`pending`: kept here, not handed in yet. `queued`: durable in this machine's outbox, no more. `indexed`: the service
said that it holds the card, or was found to hold it; whether its search shows it yet is the service's business.
`failed`: it refused the card. `disabled`: nothing is sent, with a code where that has a reason. What describes a result
does not change here, nor its `updated_at`.

Order of writes, under the project's commit lock: card to a temp file, flushed; renamed into `cards/` (the commit
point); `cards/` flushed; catalogue and journal told. Killed before the rename: the card says what it said, and the next
look finds the delivery in the outbox, or delivered, under the same id.

Source: DeepSeek Honcho specification, sections 27.3, 29.1, 29.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from rlm_memory_host.artifacts.commit import Parts
from rlm_memory_host.contracts.records import ExperimentCardV1, IndexStateV1
from rlm_memory_host.errors import NotFound, StoreError
from rlm_memory_host.storage.cards import CardFile, card_identity, publish, read_card, write_temporary
from rlm_memory_host.storage.files import writing

Change = Callable[[IndexStateV1], IndexStateV1 | None]
"""What a card says next; None where it stays as it is."""


def queued(revision: str, now: str) -> Change:
    """The outbox has this revision. What is indexed already stays so."""

    def change(index: IndexStateV1) -> IndexStateV1 | None:
        if index.projection_revision == revision and index.state in ("queued", "indexed"):
            return None
        return IndexStateV1(
            state="queued", projection_revision=revision, attempts=index.attempts + 1, last_attempt_at=now
        )

    return change


def indexed(revision: str) -> Change:
    """The service has this revision; of another one the news is old."""

    def change(index: IndexStateV1) -> IndexStateV1 | None:
        if index.projection_revision != revision or index.state not in ("queued", "failed"):
            return None
        return index.model_copy(update={"state": "indexed", "last_error_code": None})

    return change


def failed(revision: str, code: str, now: str) -> Change:
    """The service refused this revision."""

    def change(index: IndexStateV1) -> IndexStateV1 | None:
        if index.projection_revision != revision or index.state not in ("pending", "queued"):
            return None
        return index.model_copy(update={"state": "failed", "last_error_code": code, "last_attempt_at": now})

    return change


def disabled(code: str) -> Change:
    """Nothing of this card is sent, and why; until it is recorded anew with other words."""

    def change(index: IndexStateV1) -> IndexStateV1 | None:
        if index.state == "disabled" and index.last_error_code == code:
            return None
        return index.model_copy(update={"state": "disabled", "last_error_code": code})

    return change


def mark(parts: Parts, experiment: str, change: Change) -> ExperimentCardV1 | None:
    """Let a card say what follows; the card as it is now, None where there is none that can be read.

    Raises Unwritable, LockTimeout; the card is as it was then.
    """
    try:
        before = read_card(parts.files, parts.layout, parts.project_id, experiment)
    except (NotFound, StoreError):
        return None
    if change(before.index) is None:
        return before
    with parts.lock.held():
        try:
            card = read_card(parts.files, parts.layout, parts.project_id, experiment)
        except (NotFound, StoreError):
            return None
        index = change(card.index)
        return card if index is None else _write(parts, card.model_copy(update={"index": index}))


def _write(parts: Parts, card: ExperimentCardV1) -> ExperimentCardV1:
    layout, files = parts.layout, parts.files
    commits, counted = parts.lock.read()
    before = parts.catalogue.signature(commits)
    data = card.to_json()
    temporary = layout.new_temporary("card")
    with writing():
        if counted is not None:
            parts.lock.write(commits + 1, counted)
            commits += 1
        write_temporary(files, temporary, data)
        publish(files, temporary, layout.card(card.experiment_id))
        files.fsync_folder(layout.cards)
    identity = card_identity(files.stat(layout.card(card.experiment_id)))
    file = CardFile(card, identity, hashlib.sha256(data).digest())
    parts.catalogue.note_restated(before, parts.catalogue.signature(commits), file)
    return card
