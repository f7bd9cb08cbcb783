"""One injection: the resident text and recalled items under one start, one end and one budget. Pure but for the ledger.

Owns: how the characters of an injection are shared, and what is said of what had no room. Does not own: what is found
(`service`), lines and order (`resident`, `envelope`), what a session has spent (`budget`).

The whole envelope counts, notice and headings too. The resident text comes first: it is the part that is the same from
turn to turn, and a session is sent it once. Recalled items share what is left; an item that does not fit is left out
whole, and a shorter one after it may still have room. Profile `riko` documents a resident text of up to 12,000
characters apart from recall: there it takes nothing of either budget.

Source: design page "Recall, resident text, guard, audit, health, tools", Recall and Resident text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rlm_memory_host.recall.budget import Bounds, Choice, Ledger
from rlm_memory_host.recall.envelope import HEADINGS_CHARS, line, render
from rlm_memory_host.recall.items import Found
from rlm_memory_host.recall.resident import Resident, Tier, shortened

RESIDENT_SHORTENED: Final = "resident-shortened"
RESIDENT_LEFT_OUT: Final = "resident-left-out"
LAST_VALID: Final = "resident-last-valid"
RECALL_UNAVAILABLE: Final = "recall-unavailable"
_RESIDENT_FRAME: Final = len(render((), "-")) - 1
"""What an envelope with a resident text takes beside the text."""


@dataclass(frozen=True, slots=True)
class Injection:
    """What the first step of a root's turn gets, and why it is not more; everything but `text` is content-free.

    `left_out` counts recalled items that had no room or no seat, `omitted` lines of the resident text that was sent.
    """

    text: str = ""
    tier: Tier = "full"
    chars: int = 0
    resident_chars: int = 0
    items: int = 0
    left_out: int = 0
    omitted: int = 0
    reasons: tuple[str, ...] = ()

    def diagnostics(self) -> dict[str, object]:
        """All but the text, as JSON has it."""
        return {
            "tier": self.tier,
            "chars": self.chars,
            "resident_chars": self.resident_chars,
            "items": self.items,
            "left_out": self.left_out,
            "omitted": self.omitted,
            "degradation_reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class Account:
    """Whose budget an injection is taken from, and its bounds. `is_apart`: the resident text takes nothing of it."""

    ledger: Ledger
    session: str
    epoch: int
    bounds: Bounds
    is_apart: bool = False


def compose(
    whole: Resident, known: frozenset[str] | None, items: Sequence[Found], account: Account, reasons: Sequence[str] = ()
) -> tuple[Injection, Resident | None, Choice]:
    """The injection, the resident text in it (None: none was due), and what was chosen of `items`.

    `known` are the memories that the context's resident text shows; None where it has to be sent one.
    """
    sent = _resident_within(whole, account) if known is None else None
    text = sent.text if sent is not None else ""
    shown = known if known is not None else frozenset(sent.included if sent is not None else ())
    others = [item for item in items if item.id not in shown]
    choice = _items_within(others, text, account)
    said = dict.fromkeys((*whole.reasons, *reasons, *_reasons_of(whole, sent), *choice.reasons))
    whole_text = render(choice.items, text) if text or choice.items else ""
    made = Injection(
        whole_text,
        whole.tier,
        len(whole_text),
        len(text),
        len(choice.items),
        len(others) - len(choice.items) - len(choice.repeated),
        sent.omitted if sent is not None else 0,
        tuple(said),
    )
    return made, sent, choice


def _resident_within(made: Resident, account: Account) -> Resident:
    """The resident text in whole lines, as far as the characters of call and session go; what it takes is spent."""
    if account.is_apart:
        return made
    room = max(0, account.bounds.call_chars - _RESIDENT_FRAME)
    ledger, session, epoch = account.ledger, account.session, account.epoch
    granted = ledger.reserve(session, epoch, min(room, len(made.text)), account.bounds.session_chars)
    fitting = shortened(made, granted)
    ledger.release(session, epoch, granted - len(fitting.text))
    return fitting


def _items_within(items: Sequence[Found], resident: str, account: Account) -> Choice:
    """The recalled items that share what the resident text leaves."""
    taken = len(render((), "" if account.is_apart else resident)) + HEADINGS_CHARS
    bounds = replace(account.bounds, call_chars=max(0, account.bounds.call_chars - taken))
    return account.ledger.take(account.session, account.epoch, items, bounds, cost=lambda item: len(line(item)) + 1)


def _reasons_of(whole: Resident, sent: Resident | None) -> tuple[str, ...]:
    if sent is None or sent.text == whole.text:
        return ()
    return (RESIDENT_SHORTENED if sent.text else RESIDENT_LEFT_OUT,)
