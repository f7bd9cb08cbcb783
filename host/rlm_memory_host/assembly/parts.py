"""All services of a host, opened in order, and what the host asks of them together.

Owns: the order (guard, artifacts, outbox, text memory), the features of all of them. Does not own: tasks, the socket,
shutdown (`app`).

Source: design page "Overview", Layers; "Style", house rule 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rlm_memory_host.assembly.artifacts import open_store, with_cards
from rlm_memory_host.assembly.judging import judge_of
from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.assembly.sending import Sending, open_sending
from rlm_memory_host.assembly.text import Around, Text, open_text, opened_or_reported
from rlm_memory_host.assembly.tools import Served, build_tools, report_of
from rlm_memory_host.attach.project import Project, project_of
from rlm_memory_host.contracts.judging import JudgeModel
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.guard import Guard
from rlm_memory_host.logs import LOGGER, RateLimited, where
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.recall import results
from rlm_memory_host.settings import Settings
from rlm_memory_host.textmemory.guarding import guard_of
from rlm_memory_host.tools.artifacts import ArtifactPort
from rlm_memory_host.tools.status import Feature, overall, survey
from rlm_memory_host.tools.tool import Call, Tool


@dataclass(frozen=True, slots=True)
class Assembled:
    """The opened services of one host."""

    settings: Settings
    guard: Guard
    store: ArtifactPort | None
    sending: Sending
    text: Text | None
    text_fault: str
    metrics: Metrics
    log: RateLimited = field(default_factory=lambda: RateLimited(LOGGER))

    def tools(self, kernels: Callable[[], int]) -> list[Tool]:
        """Every tool, in the order in which they are listed."""
        return build_tools(
            Served(
                artifacts=self.store,
                text=None if self.text is None else self.text.services,
                remote=self.sending.remote,
                cards=self.sending.cards,
                metrics=self.metrics,
                check=guard_of(self.guard),
                profile=self.settings.memory.profile,
                text_fault=self.text_fault,
                kernels=kernels,
                features=self.features,
                outbox=self.sending.status,
            )
        )

    def features(self) -> Mapping[str, Feature]:
        """How everything but the artifact store is."""
        found = dict(self.text.features()) if self.text is not None else {}
        if self.text_fault:
            hint = "the text memory cannot be opened; `rlm-memory memory validate` and the host's log say more"
            found |= {name: Feature("unavailable", self.text_fault, hint) for name in ("recall", "write")}
        return found | dict(self.sending.features())

    def health(self) -> tuple[str, dict[str, Any]]:
        """The three states and every feature's, for the local socket."""
        scope = Scope(project_id=self.settings.project.id or "host-status", session_id="", session_dir=None)
        _, features = survey(Call(scope), report_of(self.store), self.features)
        return overall(features), {name: item.to_value() for name, item in features.items()}

    def look(self) -> None:
        """What is to be done from time to time, in a thread that nobody waits for. One failure keeps nothing else."""
        text = self.text
        if text is None:
            return
        steps = (text.resident_files.look, text.sessions.look, text.activity.keep)
        for step in steps if text.activity.is_due() else steps[:2]:
            try:
                step()
            except Exception as error:
                self.log.warning("look", "look_failed %s", where(error))

    def ended(self, session: str) -> None:
        """A kernel or guest ended."""
        if self.text is not None:
            self.text.sessions.over(session)

    def close(self) -> None:
        """Keep what is only in memory, and close the artifacts."""
        try:
            if self.text is not None:
                self.text.activity.keep()
                self.text.resident_files.look()
        finally:
            if self.store is not None:
                self.store.close()

    def project_of(self, cwd: Path) -> Project:
        """The project of a kernel's folder; it reads small files."""
        configured = self.settings.project.id
        return project_of(cwd, configured) if self.text is None else project_of(cwd, configured, self.text.claimed)


async def assemble(settings: Settings, model: JudgeModel | None, pool: Executor) -> Assembled:
    """Open everything, in the host's loop; `model` takes the place of the settings' one.

    Raises SettingsError, CredentialError, StoreError of the artifacts.
    """
    loop = asyncio.get_running_loop()
    model = model or await loop.run_in_executor(pool, judge_of, settings)
    guard = Guard(settings.guard.extra_deny_patterns)
    redaction = Redaction(guard, (settings.state_root, settings.artifact_root))
    metrics = Metrics()
    artifacts = await loop.run_in_executor(pool, open_store, settings, guard)
    sending = await open_sending(settings, redaction, metrics)
    store = None if artifacts is None else with_cards(artifacts, sending.cards, settings, redaction, metrics)
    around = Around(sending.remote, model, pool)
    try:
        text, fault = await loop.run_in_executor(
            pool, lambda: opened_or_reported(lambda: open_text(settings, redaction, around))
        )
    except BaseException:
        if store is not None:
            await loop.run_in_executor(pool, store.close)
        await sending.close(0.0)
        raise
    if store is not None and text is not None:
        text.services.recall.cards = partial(results.for_message, store.search)
    return Assembled(settings, guard, store, sending, text, fault, metrics)
