"""The judge model from the settings.

Owns: the model that `[memory.judge]` describes, with its key. Does not own: what it is asked (`textmemory.judging`).

A key that is not where the settings say ends the start, as the memory service's does; a model that is away does not:
the rules answer, and the feature `judge` says why.

Source: design page "The memory model", Relation judge.
"""

from __future__ import annotations

from rlm_memory_host.contracts.egress import JudgeSettings
from rlm_memory_host.honcho.credentials import KeySource
from rlm_memory_host.settings import Settings
from rlm_memory_host.textmemory.judging import HttpJudge


def judge_of(settings: Settings) -> HttpJudge | None:
    """The model, None where none is configured or text memory is off. Raises SettingsError, CredentialError."""
    if settings.memory.judge is None or not settings.memory.enabled:
        return None
    return _judge(settings.memory.judge)


def _judge(asked: JudgeSettings) -> HttpJudge:
    if asked.key is None:
        return HttpJudge(asked.url, asked.model, pause_seconds=asked.pause_seconds)
    source = KeySource(asked.key, setting="memory.judge.key")
    source.read()
    return HttpJudge(asked.url, asked.model, lambda: source.read().reveal(), pause_seconds=asked.pause_seconds)
