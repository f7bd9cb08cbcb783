"""The guard as the text memory calls it: flags, or a refusal; and the redaction of captured turns.

Owns: that adapter. Does not own: patterns and verdicts (`guard.check`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlm_memory_host.contracts.memory import Authority
from rlm_memory_host.guard.check import Guard, Sink


def guard_of(guard: Guard) -> Callable[[Mapping[str, str], Authority, str], tuple[str, ...]]:
    """The `Guard` port of the text memory: flags of what may be written; raises GuardRejected."""

    def check(fields: Mapping[str, str], writer: Authority, sink: str) -> tuple[str, ...]:
        verdict = guard(fields, writer, Sink(sink))
        verdict.check()
        return verdict.flags

    return check


def redaction_of(guard: Guard) -> Callable[[str], tuple[str, tuple[str, ...]]]:
    """The redaction of captured text: the text without secrets, and the names of what was found."""

    def redact(text: str) -> tuple[str, tuple[str, ...]]:
        verdict = guard({"text": text}, Authority.USER, Sink.EVIDENCE)
        if verdict.code:
            return "", tuple(dict.fromkeys(found.pattern for found in verdict.findings))
        return verdict.fields["text"], tuple(dict.fromkeys(found.pattern for found in verdict.findings))

    return redact
