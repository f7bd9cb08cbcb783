"""The settings of what may leave the host: memory service, outbox, judge model. Checked before anything is opened.

Owns: the tables `[honcho]`, `[outbox]` and `[memory.judge]` of `rlm-memory.toml`, ranges and defaults. Does not own:
reading the file (`settings`), a key (`honcho.credentials`; only where it is stands here).

Source: DeepSeek Honcho specification, section 16.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlm_memory_host.contracts.ids import REMOTE_ID_PATTERN

_Id = Annotated[str, Field(pattern=REMOTE_ID_PATTERN)]
_Seconds = Annotated[float, Field(ge=0.1, le=86_400, strict=False)]
_Url = Annotated[str, Field(min_length=8, max_length=2_048, pattern=r"^https?://[^\s@?#]+$")]
_KeyPlace = Annotated[
    str, Field(max_length=4_096, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+|fd:[0-9]+|keyring:.+/.+)$")
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class HonchoSettings(_Section):
    """The service. There is no default address: without this table nothing leaves the machine.

    `key` says where the key is (env:NAME, file:/path, fd:N, keyring:SERVICE/USER), never the key. `project` is the id
    that everything sent carries; a project of the host whose own id the service takes needs none. `capture` sends the
    completed exchanges of root sessions, `dialectic` lets `memory_recall` ask the service's own reasoning,
    `index_cards` sends redacted descriptions of recorded results and searches them there: all are off until somebody
    says so. `index_interval_seconds` and `index_batch` bound the reconciler (sections 13.2, 15, 29, 32).
    """

    url: _Url
    workspace: _Id
    user_peer: _Id
    assistant_peer: _Id | None = None
    project: _Id | None = None
    key: _KeyPlace | None = None
    call_seconds: _Seconds = 10.0
    create_workspace: bool = False
    create_peers: bool = True
    create_sessions: bool = True
    observe_assistant: bool = False
    capture: bool = False
    dialectic: bool = False
    index_cards: bool = False
    index_interval_seconds: Annotated[float, Field(ge=1, le=86_400, strict=False)] = 60.0
    index_batch: Annotated[int, Field(ge=1, le=10_000)] = 256

    @model_validator(mode="after")
    def _cards_need_a_sender(self) -> HonchoSettings:
        if self.index_cards and self.assistant_peer is None:
            raise ValueError("index_cards needs assistant_peer: a card is never sent in the person's name")
        return self


class OutboxSettings(_Section):
    """How deliveries are sent; times in seconds. `max_attempts` 0: a transient failure waits for ever."""

    concurrency: Annotated[int, Field(ge=1, le=32)] = 4
    drain_seconds: _Seconds = 5.0
    backoff_seconds: _Seconds = 1.0
    backoff_cap_seconds: _Seconds = 300.0
    settle_seconds: _Seconds = 20.0
    max_attempts: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    circuit_failures: Annotated[int, Field(ge=1, le=1_000)] = 5
    circuit_cooldown_seconds: _Seconds = 30.0


class JudgeSettings(_Section):
    """A model that may judge how texts relate, behind an OpenAI-compatible chat route. Without it none is asked.

    `url` is the whole address of the route: https, or http to this machine. `key` says where the key is, as for the
    memory service; none: none is sent. `relations` and `habits` name what it is asked about, `extract` lets it propose
    candidates from what the user said. `seconds` bounds a question; after a failure none is asked for `pause_seconds`.
    """

    url: _Url
    model: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
    key: _KeyPlace | None = None
    relations: bool = True
    habits: bool = True
    extract: bool = False
    seconds: Annotated[float, Field(ge=0.1, le=30, strict=False)] = 10.0
    pause_seconds: Annotated[float, Field(ge=0, le=86_400, strict=False)] = 30.0

    @model_validator(mode="after")
    def _is_sent_safely(self) -> JudgeSettings:
        parts = urlsplit(self.url)
        if parts.scheme != "https" and not is_this_machine(parts.hostname or ""):
            raise ValueError("url must be https, or http to 127.0.0.1, ::1 or localhost: notes and the key go there")
        return self


def is_this_machine(host: str) -> bool:
    """Whether a host's name or address is of the loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"
