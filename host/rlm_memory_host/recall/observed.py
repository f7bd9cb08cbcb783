"""Observations as a channel of recall: those that stand, by their words, and never as what somebody said.

Owns: their scores and how one is put into words. Does not own: which stand (`textmemory.observations`).

An inference is for silent use, unless the user's own message asks for observations; it is labelled either way. The
channel is off until an operator opens it (`memory.observations`).

Source: design page "Recall", Recall; Riko, Observation candidates and anchors.
"""

from __future__ import annotations

from dataclasses import replace

from rlm_memory_host.contracts.memory import Authority, Caller, Layer, Sensitivity
from rlm_memory_host.recall import fusion
from rlm_memory_host.recall.eligibility import mention_of
from rlm_memory_host.recall.items import Found
from rlm_memory_host.storage.postings import Corpus
from rlm_memory_host.storage.tokens import document_terms, query_terms
from rlm_memory_host.textmemory.observations import Observation, standing
from rlm_memory_host.textmemory.service import TextMemory

LABEL = "inferred from several places; nobody said it"


def hits(memory: TextMemory, caller: Caller, query: str, limit: int) -> list[Found]:
    """The observations that a question finds, at most `limit`, with their share of the score."""
    found = {item.id: item for item in standing(memory, caller) if item.sensitivity is Sensitivity.NORMAL}
    if not found:
        return []
    corpus = Corpus(memory.parts.strengths.b_turns, memory.parts.strengths.k1)
    for item in found.values():
        corpus.add(item.id, document_terms(item.text))
    scores = corpus.scores(query_terms(query))
    best = sorted(scores, key=lambda key: (-scores[key], key))[:limit]
    share = fusion.scaled({key: scores[key] for key in best})
    message = memory.message(caller)
    asked = message.text if message is not None else ""
    weight = fusion.WEIGHTS["observation"]
    return [replace(_item(found[key], asked), score=weight * share[key]) for key in best]


def _item(observation: Observation, asked: str) -> Found:
    return Found(
        id=observation.id,
        kind="observation",
        title="",
        text=observation.text,
        layer=Layer.parse(observation.layer).kind.value,
        date=observation.ts,
        authority=Authority.BACKGROUND,
        matched=("observation",),
        labels=(LABEL,),
        sources=observation.anchors,
        mention=mention_of(observation.sensitivity, observation=True, asked=asked),
    )
