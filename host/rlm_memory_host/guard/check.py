"""One `guard` before every sink: what is refused, redacted or flagged, without ever repeating what was found.

Owns: the verdict per field, writer and sink. Does not own: views, patterns and cues (beside this), what a caller does
with a verdict. Fails closed: a text that cannot be scanned is refused.

Source: design page "Recall, resident text, guard, audit, health, tools", Guard.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rlm_memory.wire import GUARD_SECRET

from rlm_memory_host.contracts.memory import FLAG_HIGH_ENTROPY, FLAG_INSTRUCTION_LIKE, Authority
from rlm_memory_host.errors import GuardRejected, SettingsError
from rlm_memory_host.guard import injection
from rlm_memory_host.guard.patterns import HIGH_ENTROPY, SECRETS, Pattern, matches
from rlm_memory_host.guard.views import plain, views

GUARD_INJECTION: Final = "GUARD_INJECTION"
MAX_SCAN_CHARS: Final = 1 << 20
"""Characters of all fields together; more than any sink takes."""
REDACTED: Final = "[redacted:{}]"


class Sink(StrEnum):
    """Where the text would go. Secrets are redacted on the way to CAPTURE, OUTBOX and CARD, refused elsewhere."""

    BLOCK = "block"
    QUEUE = "queue"
    HABIT = "habit"
    HISTORY = "history"
    EVIDENCE = "evidence"
    OUTBOX = "outbox"
    CARD = "card"
    EXPORT = "export"


_REDACTING: Final = frozenset({Sink.EVIDENCE, Sink.OUTBOX, Sink.CARD})
_KEEPS_INSTRUCTIONS: Final = frozenset({Sink.EVIDENCE, Sink.OUTBOX, Sink.CARD, Sink.HISTORY, Sink.EXPORT})
_TRUSTED: Final = frozenset({Authority.OPERATOR, Authority.USER, Authority.UNREVIEWED})


@dataclass(frozen=True, slots=True)
class Finding:
    """Where and what: the field, its line from 1, the pattern's name. Never the text."""

    field: str
    line: int
    pattern: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`code` is "" when the text may be written. `fields` are the texts to write, redacted where the sink redacts."""

    code: str
    findings: tuple[Finding, ...]
    flags: tuple[str, ...]
    fields: Mapping[str, str]

    def check(self) -> None:
        """Raises GuardRejected with the places; nothing for a text that may be written."""
        if self.code:
            raise rejection(self)


def rejection(verdict: Verdict) -> GuardRejected:
    """The refusal of a verdict, in words without the text."""
    places = ", ".join(f"{found.field} line {found.line} ({found.pattern})" for found in verdict.findings[:5])
    what = "an instruction to a model" if verdict.code == GUARD_INJECTION else "a secret"
    found = tuple((each.field, each.line, each.pattern) for each in verdict.findings)
    return GuardRejected(
        f"the text looks like {what}: {places}; take it out and try again", verdict.code, findings=found
    )


class Guard:
    """The guard with an operator's further patterns. Immutable; thread-safe."""

    def __init__(self, extra_deny_patterns: Sequence[str] = ()) -> None:
        """Raises SettingsError for a pattern that does not compile."""
        extra: list[Pattern] = []
        for number, text in enumerate(extra_deny_patterns, 1):
            try:
                extra.append(Pattern(f"extra_{number}", re.compile(text)))
            except re.error:
                raise SettingsError(f"guard.extra_deny_patterns: pattern {number} is no regular expression") from None
        self._patterns = (*SECRETS, *extra)

    def __call__(
        self,
        fields: Mapping[str, str | Sequence[str]],
        writer: Authority,
        sink: Sink,
        *,
        identity: frozenset[str] = frozenset(),
    ) -> Verdict:
        """Judge what would be written. `identity` are fields of a card that may not be redacted, so are refused."""
        texts = {name: value if isinstance(value, str) else "\n".join(value) for name, value in fields.items()}
        if sum(map(len, texts.values())) > MAX_SCAN_CHARS:
            return Verdict(GUARD_SECRET, (Finding("*", 0, "too_long_to_scan"),), (), {})
        findings: list[Finding] = []
        flags: dict[str, None] = {}
        instructions: list[Finding] = []
        written: dict[str, str] = {}
        refused = False
        for name, text in texts.items():
            found = list(self._secrets(name, text))
            findings += found
            clean = text
            if found and sink in _REDACTING and name not in identity:
                clean = self.redacted(text)
            elif found:
                refused = True
            written[name] = clean
            readable = plain(text)
            if line := injection.line_of_cue(readable) or injection.line_of_cue(text):
                instructions.append(Finding(name, line, "instruction"))
                flags[FLAG_INSTRUCTION_LIKE] = None
            if any(True for _ in matches(text, (HIGH_ENTROPY,))):
                flags[FLAG_HIGH_ENTROPY] = None
        if refused:
            return Verdict(GUARD_SECRET, tuple(findings), tuple(flags), {})
        if instructions and writer not in _TRUSTED and sink not in _KEEPS_INSTRUCTIONS:
            return Verdict(GUARD_INJECTION, tuple(instructions), tuple(flags), {})
        return Verdict("", tuple(findings), tuple(flags), written)

    def secrets(self, texts: Mapping[str, str]) -> list[Finding]:
        """Where texts look like they hold secrets; they are asked nothing else."""
        if sum(map(len, texts.values())) > MAX_SCAN_CHARS:
            return [Finding("*", 0, "too_long_to_scan")]
        return [found for name, text in texts.items() for found in self._secrets(name, text)]

    def redacted(self, text: str) -> str:
        """The text with every secret replaced by the pattern's name; the whole text where only a view shows one."""
        spans = sorted((start, end, name) for name, start, end in matches(text, self._patterns))
        out: list[str] = []
        at = 0
        for start, end, name in spans:
            if start >= at:
                out += [text[at:start], REDACTED.format(name)]
            at = max(at, end)
        clean = "".join((*out, text[at:]))
        left = next(self._secrets("", clean), None)
        return REDACTED.format(left.pattern) if left else clean

    def _secrets(self, field: str, text: str) -> Iterator[Finding]:
        seen: set[int] = set()
        for view in views(text):
            for name, start, _ in matches(view.text, self._patterns):
                line = view.line_of(start)
                if line not in seen:
                    seen.add(line)
                    yield Finding(field, line, name)
