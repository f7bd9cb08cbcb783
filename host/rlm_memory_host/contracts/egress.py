"""The settings of the memory service and of the outbox, checked before anything is opened.

Owns: the two tables `[honcho]` and `[outbox]` of `rlm-memory.toml`, ranges and defaults. Does not own: reading the file
(`settings`), the key (`honcho.credentials`; only where it is stands here).

Source: DeepSeek Honcho specification, section 16.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlm_memory_host.contracts.ids import REMOTE_ID_PATTERN

_Id = Annotated[str, Field(pattern=REMOTE_ID_PATTERN)]
_Seconds = Annotated[float, Field(ge=0.1, le=86_400, strict=False)]


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

    url: Annotated[str, Field(min_length=8, max_length=2_048, pattern=r"^https?://[^\s@?#]+$")]
    workspace: _Id
    user_peer: _Id
    assistant_peer: _Id | None = None
    project: _Id | None = None
    key: (
        Annotated[
            str, Field(max_length=4_096, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+|fd:[0-9]+|keyring:.+/.+)$")
        ]
        | None
    ) = None
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
