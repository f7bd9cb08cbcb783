"""The port of a model that may answer a question of judgement in place of the rules.

Owns: the shape of the question and of the answer's text. Does not own: which question (`textmemory.judging`), what is
done with an answer. A model is never the gate: it says how two texts relate, not who may write.

Source: design page "The memory model", Relation judge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


class JudgeModel(Protocol):
    """A model that answers in strict JSON. Implementations: `HttpJudge`, `ScriptedJudge`."""

    def complete(self, instructions: str, question: str, *, timeout_seconds: float) -> str:
        """The answer's text. Raises anything on failure: the caller falls back to the rules."""
        ...


@dataclass(slots=True)
class ScriptedJudge:
    """The shipped fake: gives its answers in order, then repeats the last one; an exception in the list is raised.

    `asked` holds the questions, for tests of what a model gets to see.
    """

    answers: list[str | Exception]
    asked: list[str] = field(default_factory=list[str])

    def complete(self, instructions: str, question: str, *, timeout_seconds: float) -> str:
        """As the port says; does not wait."""
        del instructions, timeout_seconds
        self.asked.append(question)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer
