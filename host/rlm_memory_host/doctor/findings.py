"""What a check found. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report. `fix` says what to do and is empty where nothing is wrong.

    `note` is worth knowing and no fault; `warning` weakens something; `problem` keeps something from working.
    """

    check: str
    state: State
    text: str
    fix: str = ""


def exit_code(findings: Iterable[Finding]) -> int:
    """0 where nothing is wrong, 1 with a warning, 2 with a problem."""
    states = {finding.state for finding in findings}
    return 2 if "problem" in states else 1 if "warning" in states else 0
