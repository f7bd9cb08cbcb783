"""The settings of the text memory.

Owns: the tables `[memory]` and `[memory.ranking]` of `rlm-memory.toml`, ranges and defaults. Does not own: reading the
file (`settings`), the model's table (`contracts.egress`).

Source: design pages "The memory model" and "Recall, resident text, guard, audit, health, tools".
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlm_memory_host.contracts.egress import JudgeSettings

_Norm = Annotated[float, Field(ge=0, le=1, strict=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RankingSettings(_Section):
    """BM25 over texts. `k1`: how much a word counts that comes often; `b_topics` and `b_turns`: how much a long memory,
    or a long captured turn, loses for its length.
    """

    k1: Annotated[float, Field(ge=0, le=10, strict=False)] = 1.2
    b_topics: _Norm = 0.75
    b_turns: _Norm = 0.3


class MemorySettings(_Section):
    """The text memory. `repositories` are project ids whose memory lies in a folder of a repository.

    `profile` names whose tool table models see; the gates are the same in all of them. `hand_edits` "trust" makes what
    somebody writes into a topic file the operator's word, never for a file inside a repository. `observations` lets
    recall show what was inferred. `recall` lets an injection hold recalled items beside the resident text; unset, it
    does but in profile `riko`.
    """

    enabled: bool = True
    profile: Literal["default", "plugin", "riko", "runtime"] = "default"
    hand_edits: Literal["review", "trust"] = "review"
    observations: bool = False
    recall: bool | None = None
    repositories: dict[Annotated[str, Field(min_length=1, max_length=200)], Annotated[Path, Field(strict=False)]] = {}
    ranking: RankingSettings = RankingSettings()
    judge: JudgeSettings | None = None

    @model_validator(mode="after")
    def _absolute(self) -> MemorySettings:
        if any(not folder.is_absolute() for folder in self.repositories.values()):
            raise ValueError("repositories: every folder must be an absolute path")
        return self
