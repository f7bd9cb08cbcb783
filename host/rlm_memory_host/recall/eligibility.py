"""Which hits may be shown, and if not, why: named reasons. Pure functions.

Owns: status, validity, conflict, suppression and sensitivity as they bear on reading; the mention gate. Does not own:
ranking, budgets.

Source: 001, Eligibility reasons and Mention gate; design page "Recall", Recall.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from rlm_memory_host.contracts.memory import Block, Consent, Evidence, Profile, Sensitivity, Status
from rlm_memory_host.recall.items import Mention
from rlm_memory_host.storage.tokens import normalise
from rlm_memory_host.textmemory.sentences import features
from rlm_memory_host.textmemory.validity import holds, moment_of

Mode = Literal["current", "at", "history"]

_EXPLICIT: Final = re.compile(
    r"\b(?:remember|recall|remind me|what did i (?:say|tell)|do you know (?:my|about my)|tell me (?:about|what)"
    r"|what do you know)\b"
    r"|还记得|记得|我说过|告诉我|回忆|你知道我"
)
_CUE_WORDS: Final = features("remember recall remind tell know what did say 记得 还记得 告诉 说过 知道 回忆")


@dataclass(frozen=True, slots=True)
class Reading:
    """Under which circumstances something is read. `asked` is the user's own captured message, "" for none."""

    now: datetime
    mode: Mode = "current"
    at: datetime | None = None
    contested: frozenset[str] = frozenset()
    profile: Profile = "default"
    asked: str = ""
    suppressed: frozenset[str] = frozenset()
    """Ids of turns that forgotten or hidden memories came from."""


def block_reason(block: Block, reading: Reading) -> str:
    """Why a block is not shown; "" when it is."""
    if block.status in (Status.ARCHIVED, Status.HIDDEN):
        return "suppressed-by-user"
    if reading.profile == "riko" and block.consent is Consent.PENDING:
        return "consent-required"
    if reading.mode == "current":
        if block.status is Status.SUPERSEDED:
            return "temporal-superseded" if block.valid_to else "superseded"
        if not holds(block, reading.now):
            return "temporal-invalid"
        if reading.profile == "riko" and block.id in reading.contested:
            return "conflict-contested"
    if reading.mode == "at" and not holds(block, reading.at or reading.now):
        return "temporal-invalid"
    return sensitivity_reason(block.sensitivity, f"{block.title}\n{block.body}\n{block.topic}", reading)


def evidence_reason(evidence: Evidence, reading: Reading) -> str:
    """Why a captured turn is not shown; "" when it is."""
    if evidence.origin == "host" or evidence.speaker in ("tool", "system"):
        return "source-page-not-recallable"
    if evidence.id in reading.suppressed:
        return "suppressed-by-user"
    seen = moment_of(evidence.ts)
    if reading.at is not None and seen is not None and seen > reading.at:
        return "temporal-after-cutoff"
    if reading.mode == "current" and seen is not None and seen > reading.now:
        return "temporal-future"
    return sensitivity_reason(evidence.sensitivity, evidence.text, reading)


def sensitivity_reason(sensitivity: Sensitivity, text: str, reading: Reading) -> str:
    """Protected texts need the user's own, explicit request about that very topic."""
    if sensitivity is Sensitivity.NORMAL:
        return ""
    wanted = features(reading.asked) - _CUE_WORDS
    if not wanted & features(text):
        return "sensitive-topic-mismatch"
    return "" if is_explicit(reading.asked) else "sensitive-no-explicit-request"


def mention_of(sensitivity: Sensitivity, *, observation: bool = False, asked: str = "") -> Mention:
    """Whether a shown item's words may be stated. A sensitive one's never; an inference only when it was asked for."""
    if sensitivity is Sensitivity.SENSITIVE:
        return "silent_use"
    if observation and not re.search(r"\bobserv|观察", normalise(asked)):
        return "silent_use"
    return "explicit"


def is_explicit(message: str) -> bool:
    """Whether the user asks to recall something."""
    return _EXPLICIT.search(normalise(message).replace("’", "'")) is not None
