"""Everything that leaves for the memory service, as one part of a running host; nothing where none is configured.

Owns: opening `Egress` in the host's life, what its state means for health. Does not own: sending (`egress`).

What is wrong in the configuration ends the start (fail closed); an outbox that cannot be used does not: the feature
says so and the rest works.

Source: DeepSeek Honcho specification, sections 16, 18, 19.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.errors import StoreError
from rlm_memory_host.logs import LOGGER
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.process import AlreadyRunning
from rlm_memory_host.settings import Settings
from rlm_memory_host.tools.status import Feature

if TYPE_CHECKING:
    from rlm_memory_host.assembly.cards import OutboxCards
    from rlm_memory_host.assembly.remote import OutboxMemory
    from rlm_memory_host.egress import Egress

LOCK_SECONDS: Final = 5.0
"""How long a start waits for a command that works on the outbox."""


@dataclass(frozen=True, slots=True)
class Sending:
    """Egress with the remote memory and the remote cards over it.

    Where there is none, `fault` says why; "" where none is configured.
    """

    egress: Egress | None = None
    remote: OutboxMemory | None = None
    cards: OutboxCards | None = None
    fault: str = ""

    def status(self) -> Mapping[str, Any] | None:
        """Counts, ages and codes; None where nothing is sent."""
        return None if self.egress is None else self.egress.status()

    def features(self) -> Mapping[str, Feature]:
        """How the service and the outbox are."""
        if self.fault:
            hint = "nothing is sent; look at the outbox folder in the state root, then start the host again"
            return {"honcho": Feature("on"), "outbox": Feature("unavailable", self.fault, hint)}
        told = self.status()
        return {} if told is None else {"honcho": _service(told), "outbox": _outbox(told)}

    def identity(self) -> Mapping[str, Any] | None:
        """Whose memory it is, as short hashes; None where nothing is sent."""
        return None if self.egress is None else self.egress.identity()

    async def close(self, seconds: float) -> None:
        """Drain for at most `seconds` and end."""
        if self.egress is not None:
            await self.egress.close(seconds)


async def open_sending(settings: Settings, redaction: Redaction, metrics: Metrics) -> Sending:
    """Open what the settings ask for; belongs to the host's loop. Raises SettingsError, CredentialError."""
    if settings.honcho is None:
        return Sending()
    # Only here: a host that sends nothing loads no HTTP client.
    from rlm_memory_host.assembly.cards import OutboxCards
    from rlm_memory_host.assembly.remote import OutboxMemory
    from rlm_memory_host.egress import Egress

    until = time.monotonic() + LOCK_SECONDS
    while True:
        egress = Egress(settings, redaction, metrics)
        try:
            await egress.__aenter__()
        except AlreadyRunning:
            if time.monotonic() < until:
                await asyncio.sleep(0.1)
                continue
            LOGGER.error("outbox_unusable code=OUTBOX_BUSY")
            return Sending(fault="OUTBOX_BUSY")
        except StoreError as error:
            LOGGER.error("outbox_unusable code=%s", error.code)
            return Sending(fault=error.code)
        sends_cards = settings.honcho.index_cards and settings.artifacts.enabled
        cards = OutboxCards(egress, settings, redaction, metrics) if sends_cards else None
        return Sending(egress, OutboxMemory(egress, settings, redaction), cards)


def _service(told: Mapping[str, Any]) -> Feature:
    if told["login_needed"]:
        return Feature("degraded", "REMOTE_AUTH", "the service does not accept the key; renew what honcho.key names")
    if told["circuit"] != "closed":
        code = str(told["circuit_code"] or "REMOTE_UNAVAILABLE")
        return Feature("degraded", code, "the service is away; what is to be sent waits in the outbox")
    if told["pending"] and told["last_error_code"] and not told["last_success_at"]:
        return Feature("degraded", str(told["last_error_code"]), "nothing was delivered yet; it waits in the outbox")
    return Feature("on")


def _outbox(told: Mapping[str, Any]) -> Feature:
    if told["dead_letter"] or told["quarantined"] or told["unreadable"] or told["held"]:
        return Feature("degraded", "DEAD_LETTERS", "`rlm-memory outbox ls` shows what could not be sent")
    return Feature("on")
