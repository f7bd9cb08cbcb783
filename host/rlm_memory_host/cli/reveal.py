"""Sensitive texts on the command line: a word in their place, and the texts themselves on a person's word.

Owns: what of a sensitive memory a command prints, the option that shows it, its entry in the audit log. Does not own:
what is sensitive (`textmemory.gates`), how a person agrees (`consent`), recall, which leaves sensitive ones out.

Hidden are title, text, evidence, topic, tags, unknown keys and the file, whose name is the topic. A memory that is
sensitive hides its whole history, and a state that was sensitive stays hidden.

Source: design page "The memory model", Lifecycle and gates (reveal); "Recall, resident text, guard, audit, health,
tools", operator only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Final

import typer

from rlm_memory_host.cli.memory_desk import Desk, plain
from rlm_memory_host.contracts.memory import AuditNote, Block, Candidate, Sensitivity, Transaction
from rlm_memory_host.textmemory import upkeep
from rlm_memory_host.textmemory.observations import Observation

HIDDEN: Final = "[sensitive: hidden, --show-sensitive shows it]"
ShowOption = Annotated[
    bool, typer.Option("--show-sensitive", help="Print sensitive texts too; asks, or takes --token.")
]


@dataclass(frozen=True, slots=True)
class View:
    """What a command may print."""

    shows: bool = False

    def block(self, block: Block, *, beside: Sensitivity = Sensitivity.NORMAL) -> Block:
        """A memory as it may be printed; `beside` is the sensitivity of what it is a state of."""
        if self.shows or max(block.sensitivity, beside, key=lambda item: item.rank) is Sensitivity.NORMAL:
            return block
        evidence = HIDDEN if block.evidence else ""
        return replace(block, topic=HIDDEN, title=HIDDEN, body=HIDDEN, evidence=evidence, tags=(), extra=())

    def candidate(self, candidate: Candidate) -> Candidate:
        """A candidate as it may be printed."""
        if self.shows or candidate.sensitivity is Sensitivity.NORMAL:
            return candidate
        return replace(candidate, topic=HIDDEN, title=HIDDEN, body=HIDDEN, tags=())

    def observation(self, item: Observation) -> Observation:
        """An observation as it may be printed."""
        return item if self.shows or item.sensitivity is Sensitivity.NORMAL else replace(item, text=HIDDEN)

    def value(self, block: Block, **more: Any) -> dict[str, Any]:
        """A memory for programs; `hidden` says whether its texts are in their places."""
        return {**more, **upkeep.plain(block), "hidden": block.body == HIDDEN}

    def candidate_value(self, candidate: Candidate) -> dict[str, Any]:
        """A candidate for programs."""
        return {**plain(asdict(candidate)), "hidden": candidate.body == HIDDEN}


HIDING: Final = View()


def agreed(desk: Desk, action: str, shows: bool, token: str | None, print_token: bool) -> View:
    """The view that a person agreed to. Raises ToolDenied where nobody did."""
    if shows:
        desk.agree(f"{action} --show-sensitive", token, print_token)
    return View(shows)


def note(desk: Desk, view: View, layer: str, shown: Sequence[Block | Candidate | Observation]) -> None:
    """Keep in the audit log that sensitive texts were printed: which, not what they say."""
    ids = [item.id for item in shown if view.shows and item.sensitivity is not Sensitivity.NORMAL]
    notes = tuple(AuditNote("reveal", "operator", layer, target, tool="cli") for target in ids)
    if notes:
        desk.opened.store.commit(Transaction(notes=notes))
