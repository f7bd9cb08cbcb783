"""How much an agent is given: whole items within bounds, and nothing twice. Pure choice over a small ledger.

Owns: the five bounds, excerpts, seats for raw words, de-duplication by (id, version, epoch). Does not own: who counts
as an agent: notebooks, the command line and the web have no budget.

5 items; 1,200 characters each (a longer one is an excerpt cut at a sentence, marked with its full length); 4,000 a
call; 12,000 a session. Of five seats at most two are raw words, and those only when fewer than four others are
eligible.

Source: design page "Recall", Recall.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rlm_memory_host.recall.items import RAW, Found
from rlm_memory_host.textmemory.sentences import split

SEATS: Final = 5
RAW_SEATS: Final = 2
OTHERS_THAT_CLOSE_RAW: Final = 4
ITEM_CHARS: Final = 1_200
CALL_CHARS: Final = 4_000
SESSION_CHARS: Final = 12_000
KEPT_SESSIONS: Final = 512


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one call, in items and characters."""

    items: int = SEATS
    item_chars: int = ITEM_CHARS
    call_chars: int = CALL_CHARS
    session_chars: int = SESSION_CHARS


@dataclass(slots=True)
class _Spent:
    epoch: int = 0
    chars: int = 0
    shown: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


@dataclass(frozen=True, slots=True)
class Choice:
    """What is given, what was left out as already given, and why anything else was; `tier` is that of the context."""

    items: tuple[Found, ...]
    repeated: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    spent: int = 0
    session_spent: int = 0
    tier: str = "full"


class Ledger:
    """What each session was given in its current epoch. Thread-safe; forgets the sessions used longest ago."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, _Spent] = OrderedDict()
        self._lock = threading.Lock()

    def take(
        self,
        session: str,
        epoch: int,
        found: Sequence[Found],
        bounds: Bounds | None = None,
        *,
        force: bool = False,
        cost: Callable[[Found], int] = lambda item: len(item.text),
    ) -> Choice:
        """Choose whole items within the bounds, and remember them. A new epoch shows items again.

        `cost` is what an item takes of the bounds of a call and a session, in characters.
        """
        bounds = bounds or Bounds()
        with self._lock:
            spent = self._of(session, epoch)
            fresh = [item for item in found if force or (item.id, item.version) not in spent.shown]
            repeated = tuple(item.id for item in found if item not in fresh)
            seated = seats(fresh, bounds.items)
            chosen: list[Found] = []
            reasons: list[str] = []
            used = 0
            for item in seated:
                shown = excerpt(item, bounds.item_chars)
                size = cost(shown)
                if used + size > bounds.call_chars:
                    reasons.append("context-budget")
                    continue
                if spent.chars + used + size > bounds.session_chars:
                    reasons.append("session-budget")
                    continue
                chosen.append(shown)
                used += size
            spent.chars += used
            spent.shown.update((item.id, item.version) for item in chosen)
            return Choice(tuple(chosen), repeated, tuple(dict.fromkeys(reasons)), used, spent.chars)

    def given(self, session: str, epoch: int, found: Sequence[Found]) -> None:
        """These were given whole and uncounted, to a reader who named them."""
        with self._lock:
            self._of(session, epoch).shown.update((item.id, item.version) for item in found)

    def known(self, session: str, epoch: int, found: Sequence[Found]) -> tuple[str, ...]:
        """The ids of those that were given already, as they are now."""
        with self._lock:
            shown = self._of(session, epoch).shown
            return tuple(item.id for item in found if (item.id, item.version) in shown)

    def reserve(self, session: str, epoch: int, chars: int, most: int) -> int:
        """Take up to `chars` of a session's `most` characters for a text that is no item; how many were left for it."""
        with self._lock:
            spent = self._of(session, epoch)
            granted = max(0, min(chars, most - spent.chars))
            spent.chars += granted
            return granted

    def release(self, session: str, epoch: int, chars: int) -> None:
        """Give back what was reserved and not used."""
        with self._lock:
            self._of(session, epoch).chars -= chars

    def _of(self, session: str, epoch: int) -> _Spent:
        spent = self._sessions.get(session)
        if spent is None or spent.epoch != epoch:
            spent = self._sessions[session] = _Spent(epoch)
        self._sessions.move_to_end(session)
        while len(self._sessions) > KEPT_SESSIONS:
            self._sessions.popitem(last=False)
        return spent


def seats(found: Sequence[Found], most: int = SEATS) -> list[Found]:
    """The items that get a seat, in order."""
    others = sum(1 for item in found if item.kind not in RAW)
    raw_left = RAW_SEATS if others < OTHERS_THAT_CLOSE_RAW else 0
    seated: list[Found] = []
    for item in found:
        if len(seated) == most:
            break
        if item.kind in RAW:
            if not raw_left:
                continue
            raw_left -= 1
        seated.append(item)
    return seated


def excerpt(item: Found, most: int = ITEM_CHARS) -> Found:
    """The item whole, or its first sentences up to `most` characters with the full length told."""
    if len(item.text) <= most:
        return item
    end = max((sentence.end for sentence in split(item.text) if sentence.end <= most), default=0)
    cut = item.text[:end] if end else item.text[:most].rsplit(" ", 1)[0]
    return replace(item, text=cut, full_chars=len(item.text))
