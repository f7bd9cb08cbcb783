"""Everything that leaves for the memory service, put together from the settings: outbox, client, worker.

Owns: building and ending them in the right order, the start's checks. Does not own: what is sent (capture, notes, cards
use `admission`), any decision. Part of the composition root: only `app` and commands import it.

A start fails where the configuration is wrong (section 16: fail closed) and never because the service is away (fail
open): that is the worker's business from then on.

Source: DeepSeek Honcho specification, sections 16, 18, 19.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from rlm_memory_host.contracts.delivery import SOURCE, Redactor
from rlm_memory_host.contracts.delivery_ids import is_remote_id
from rlm_memory_host.contracts.delivery_ports import Admission, Outcome, Watcher
from rlm_memory_host.contracts.egress import HonchoSettings, OutboxSettings
from rlm_memory_host.contracts.ids import project_key
from rlm_memory_host.delivery.circuit import CircuitPolicy
from rlm_memory_host.delivery.decisions import RetryPolicy
from rlm_memory_host.delivery.operator import Action, act
from rlm_memory_host.delivery.outbox import Opened, Outbox
from rlm_memory_host.delivery.worker import DeliveryWorker, WorkerPolicy
from rlm_memory_host.errors import RemoteError, SettingsError
from rlm_memory_host.honcho.client import HonchoClient
from rlm_memory_host.honcho.credentials import KeySource
from rlm_memory_host.honcho.writer import HonchoWriter, Provisioning
from rlm_memory_host.logs import short_hash
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.settings import Settings

CHECK_SECONDS: Final = 2.0
"""How long a start waits for the service's word on the workspace; the worker asks again."""


class Egress:
    """Use it as an asynchronous context manager inside the host's life; `opened` tells what the start found.

    Raises SettingsError where `[honcho]` is missing or incomplete, CredentialError where its key is, AlreadyRunning,
    StoreError.
    """

    def __init__(self, settings: Settings, redact: Redactor, metrics: Metrics | None = None) -> None:
        if settings.honcho is None:
            raise SettingsError("honcho: the table is missing; nothing is sent without it")
        self._settings, self._honcho = settings.outbox, settings.honcho
        self.metrics = metrics or Metrics()
        self.project_id = project_of(settings)
        self._own_project = settings.project.id
        self._watcher: Watcher | None = None
        self._key = None if self._honcho.key is None else KeySource(self._honcho.key)
        self.outbox = Outbox(
            settings.state_root,
            redact=redact,
            settle_seconds=self._settings.settle_seconds,
            longest_wait_seconds=max(self._settings.settle_seconds * 32, self._settings.backoff_cap_seconds),
        )
        self.opened: Opened | None = None

    @property
    def admission(self) -> Admission:
        """The port for whoever has something to send."""
        return self.outbox

    async def __aenter__(self) -> Self:
        self.client = make_client(self._honcho, self._key, self.metrics)
        try:
            if self._key is not None:
                await asyncio.to_thread(self.client.renew_key)
            writer = HonchoWriter(self.client, provisioning(self._honcho))
            with suppress(RemoteError, TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await writer.check()
            self.outbox.watch(self._done)
            self.opened = await asyncio.to_thread(self.outbox.open)
        except BaseException:
            await self.client.close()
            raise
        self.worker = DeliveryWorker(self.outbox, writer, worker_policy(self._settings), metrics=self.metrics)
        self._task = asyncio.create_task(self.worker.run(), name="delivery")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close(self._settings.drain_seconds)

    async def close(self, drain_seconds: float) -> None:
        """Take nothing in any more, send for at most `drain_seconds`, end; twice is once."""
        try:
            await self.worker.stop(drain_seconds)
            await self._task
        finally:
            await self.client.close()
            self.outbox.close()

    # -- whose is what -----------------------------------------------------------------------------------------------
    def repository_of(self, project: str) -> str | None:
        """What tells a project from others under the configured id: None for the configured one, else its own id.

        An id of a form that the service does not take goes as a digest, so that two of them never meet.
        """
        if project == self._own_project:
            return None
        return project if is_remote_id(project) else f"prj_{project_key(project)}"

    def labels_of(self, project: str) -> dict[str, str]:
        """The metadata that everything of a project carries, and by which it is asked for."""
        repository = self.repository_of(project)
        known = {"source": SOURCE, "project_id": self.project_id}
        return known if repository is None else known | {"repository_id": repository}

    def is_of_owner(self, sender: object, owner: object) -> bool:
        """Whether a message is this person's: sent by one of the two peers, and the assistant's for this person.

        A row of another writer may lack the owner; then only the person's own words are certain.
        """
        honcho = self._honcho
        if owner is None:
            return sender == honcho.user_peer
        return owner == honcho.user_peer and sender in (honcho.user_peer, honcho.assistant_peer)

    def identity(self) -> dict[str, Any]:
        """Whose memory it is, for a status: short hashes, never the ids (section 17.2)."""
        honcho = self._honcho
        named = {"workspace": honcho.workspace, "user_peer": honcho.user_peer, "project": self.project_id}
        if honcho.assistant_peer is not None:
            named["assistant_peer"] = honcho.assistant_peer
        return {name: short_hash(value) for name, value in named.items()}

    # -- what happens ------------------------------------------------------------------------------------------------
    def is_circuit_open(self) -> bool:
        """Whether the service is to be left alone now."""
        return self.worker.circuit_state() == "open"

    def watch(self, watcher: Watcher | None) -> None:
        """Tell `watcher` what becomes of deliveries."""
        self._watcher = watcher

    def _done(self, delivery_id: str, outcome: Outcome, code: str) -> None:
        self.metrics.count("outbox_outcomes", outcome)
        if self._watcher is not None:
            self._watcher(delivery_id, outcome, code)

    def status(self) -> dict[str, Any]:
        """For `memory_status`: counts, ages and codes."""
        return self.worker.status()

    async def act(self, action: Action, deliveries: list[str]) -> dict[str, list[str]]:
        """An operator's retry or drop. A retry also forgets waiting times and what is held."""
        told = await asyncio.to_thread(act, self.outbox, action, deliveries)
        if action == "retry":
            self.worker.retry_now()
        return told


def project_of(settings: Settings) -> str:
    """The project id that everything sent carries. Raises SettingsError where the service would not take one."""
    name = settings.project.id if settings.honcho is None else settings.honcho.project or settings.project.id
    if not is_remote_id(name):
        raise SettingsError(
            "honcho.project: what is sent needs a project id of 1 to 512 of the characters A-Z a-z 0-9 _ -; set it, or "
            "a project.id of that form"
        )
    return str(name)


def make_client(honcho: HonchoSettings, key: KeySource | None, metrics: Metrics | None = None) -> HonchoClient:
    """The client that the settings describe."""
    return HonchoClient(honcho.url, honcho.workspace, key=key, call_seconds=honcho.call_seconds, metrics=metrics)


def provisioning(honcho: HonchoSettings) -> Provisioning:
    """What may be created at the service."""
    return Provisioning(honcho.create_workspace, honcho.create_peers, honcho.create_sessions, honcho.observe_assistant)


def worker_policy(outbox: OutboxSettings) -> WorkerPolicy:
    """How the worker behaves."""
    retry = RetryPolicy(
        base_seconds=outbox.backoff_seconds,
        cap_seconds=outbox.backoff_cap_seconds,
        settle_seconds=outbox.settle_seconds,
        settle_cap_seconds=outbox.settle_seconds * 32,
        max_attempts=outbox.max_attempts or None,
    )
    circuit = CircuitPolicy(outbox.circuit_failures, outbox.circuit_cooldown_seconds, outbox.backoff_cap_seconds)
    return WorkerPolicy(outbox.concurrency, retry, circuit)
