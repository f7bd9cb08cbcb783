"""The text memory from the settings: store, captured sessions, recall, and its word on how it is.

Owns: the order in which these are made. Does not own: any of them. A damaged or unreadable memory never keeps the host
from starting: what cannot be opened is reported, its tools say so, and artifacts work.

Source: design page "The memory model"; "Recall, resident text, guard, audit, health, tools", Health.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.assembly.sessions import After, Sessions
from rlm_memory_host.contracts.judging import JudgeModel
from rlm_memory_host.contracts.memory import Layer, Status, project_layer
from rlm_memory_host.contracts.remote import Offered
from rlm_memory_host.errors import HostError, SettingsError
from rlm_memory_host.logs import LOGGER, where
from rlm_memory_host.recall.resident_files import ResidentFiles
from rlm_memory_host.recall.service import Recall
from rlm_memory_host.settings import Settings
from rlm_memory_host.storage.postings import Strengths
from rlm_memory_host.textmemory import bindings
from rlm_memory_host.textmemory.activity import Activity
from rlm_memory_host.textmemory.guarding import guard_of
from rlm_memory_host.textmemory.health import HINTS, TextHealth
from rlm_memory_host.textmemory.opening import Opened, open_memory
from rlm_memory_host.textmemory.service import DEFAULT_JUDGING, Judging, Parts, TextMemory
from rlm_memory_host.tools.status import Feature, merged
from rlm_memory_host.tools.text_services import TextServices

if TYPE_CHECKING:
    from rlm_memory_host.assembly.remote import OutboxMemory

OWNER: Final = "local"


@dataclass(frozen=True, slots=True)
class Around:
    """What the text memory is put between: a remote memory, a model, threads for it."""

    remote: OutboxMemory | None
    model: JudgeModel | None
    pool: Executor


@dataclass(frozen=True, slots=True)
class Text:
    """An opened text memory."""

    opened: Opened
    services: TextServices
    sessions: Sessions
    resident_files: ResidentFiles
    remote: OutboxMemory | None = None

    def offer(self, memory_ids: frozenset[str]) -> None:
        """Offer what a command announced of these memories and kept."""
        if self.remote is not None:
            self.remote.settle(lambda note: is_kept(self.opened, note), memory_ids)

    @property
    def activity(self) -> Activity:
        """How memories are used; the host keeps it every `KEEP_SECONDS` and at its end."""
        return self.services.memory.activity

    @property
    def health(self) -> TextHealth:
        """The board that its parts write to."""
        return self.opened.health

    def claimed(self, root: Path, own_id: str) -> str:
        """The project that a root opens: an id that its repository carries counts where an operator linked the two."""
        try:
            return bindings.project_for(self.opened.store, root, own_id)
        except (HostError, OSError):
            return own_id

    def features(self) -> Mapping[str, Feature]:
        """Every feature that is not off, as the status shows it; what is quarantined or suspect degrades the index."""
        found = {
            name: Feature(item.state, item.code or None, item.hint or None, item.since or None)
            for name, item in self.health.features().items()
            if item.state != "off"
        }
        problems = self.opened.store.problems()
        if problems:
            code = next((item.code for item in problems if item.code in HINTS), "QUARANTINED")
            found = merged(found, {"index": Feature("degraded", code, HINTS[code])})
        return found


def open_text(settings: Settings, redaction: Redaction, around: Around) -> Text | None:
    """The text memory; None where it is switched off. Raises SettingsError, and for nothing on disk."""
    if not settings.memory.enabled:
        return None
    repositories = {project_layer(name): folder for name, folder in settings.memory.repositories.items()}
    opened = open_memory(
        settings.state_root,
        OWNER,
        extra_deny_patterns=settings.guard.extra_deny_patterns,
        hand_edits=settings.memory.hand_edits,
        repositories=repositories,
    )
    human_peer = settings.honcho.user_peer if settings.honcho is not None else "user"
    sessions = Sessions(opened.store, redaction, opened.health, human_peer)
    memory = TextMemory(
        Parts(
            opened.store,
            guard_of(opened.guard),
            sessions.capture,
            around.remote,
            around.model,
            settings.memory.profile,
            judging=judging_of(settings, opened.health, has_model=around.model is not None),
            strengths=strengths_of(settings),
            on_fault=opened.health.fault,
        )
    )
    if around.remote is not None:
        around.remote.settle(lambda note: is_kept(opened, note))
    recall = Recall(
        memory, remote=around.remote, observations=settings.memory.observations, injects=settings.memory.recall
    )
    captures = settings.honcho is not None and settings.honcho.capture
    sessions.serve(
        memory, recall, After(around.remote if captures else None, around.model, around.pool, extracts(settings))
    )
    services = TextServices(memory, recall, around.remote, human_peer, opened.health)
    files = ResidentFiles(recall, opened.store.folder, opened.health.warning)
    recall.on_resident = files.asked
    return Text(opened, services, sessions, files, around.remote)


def strengths_of(settings: Settings) -> Strengths:
    """The ranking's strengths."""
    return Strengths(**settings.memory.ranking.model_dump())


def judging_of(settings: Settings, health: TextHealth, *, has_model: bool) -> Judging:
    """What a model is asked about; how it goes is a feature of the text memory's health."""
    if not has_model:
        return DEFAULT_JUDGING
    health.set("judge", "on")

    def told(fallback: str) -> None:
        health.set("judge", "degraded" if fallback else "on", fallback)

    asked = settings.memory.judge
    return Judging(told=told) if asked is None else Judging(asked.relations, asked.habits, asked.seconds, told)


def extracts(settings: Settings) -> bool:
    """Whether a model may propose candidates: one from the settings only where they say so."""
    return settings.memory.judge is None or settings.memory.judge.extract


def is_kept(opened: Opened, note: Offered) -> bool:
    """Whether what a note tells is on file as it was announced, and neither forgotten nor hidden."""
    try:
        found = opened.store.get(Layer.parse(note.layer), note.memory_id)
    except (HostError, OSError, ValueError):
        return False
    if found is None or found.block.status in (Status.ARCHIVED, Status.HIDDEN):
        return False
    return (found.block.version, found.block.updated_at) == (note.version, note.ts)


def opened_or_reported(make: Callable[[], Text | None]) -> tuple[Text | None, str]:
    """(the text memory, ""), or (None, code) where it broke in a way that nobody foresaw. Raises SettingsError."""
    try:
        return make(), ""
    except SettingsError:
        raise
    except Exception as error:
        LOGGER.error("text_memory_failed %s", where(error))
        return None, getattr(error, "code", "STORE_UNAVAILABLE")
