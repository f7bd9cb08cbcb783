"""Which delivery is next. Order within a lane, earliest due across lanes. No I/O, no clock of its own.

Owns: the waiting deliveries in memory, a few fields each; their texts stay on disk. A lane is one session of the
service: its deliveries go one after the other in the order of admission, so one that waits holds back those behind it
and no other lane. Does not own: whether anything may be sent (`circuit`). Not thread-safe.

Source: DeepSeek Honcho specification, section 12.3.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Waiting:
    """One delivery that waits. Times are the caller's clock, seconds."""

    delivery_id: str
    lane: str
    created_at: str
    attempts: int = 0
    ambiguous: bool = False
    due: float = 0.0
    look_first: bool = True
    """Whether rows of it may exist already: every delivery that this process did not see from its first moment."""
    unknown: int = 0
    held: str | None = None
    """The code of what holds it until an operator or a new credential frees it."""
    gone: bool = field(default=False, repr=False)


class Lanes:
    """All deliveries that wait or are under way."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Waiting]] = {}
        self._by_id: dict[str, Waiting] = {}
        self._heap: list[tuple[float, int, Waiting]] = []
        self._busy: set[str] = set()
        self._counter = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, delivery_id: object) -> bool:
        return delivery_id in self._by_id

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._by_id.values())

    def get(self, delivery_id: str) -> Waiting | None:
        """The one with that id."""
        return self._by_id.get(delivery_id)

    @property
    def under_way(self) -> int:
        """How many lanes have a delivery under way."""
        return len(self._busy)

    def is_under_way(self, waiting: Waiting) -> bool:
        """Whether it is the one being sent."""
        return waiting.lane in self._busy and self._lanes[waiting.lane][0] is waiting

    def last_created_at(self, lane: str) -> str | None:
        """When the youngest of a lane was admitted."""
        line = self._lanes.get(lane)
        return line[-1].created_at if line else None

    def add(self, waiting: Waiting) -> None:
        """At the end of its lane."""
        line = self._lanes.setdefault(waiting.lane, deque())
        line.append(waiting)
        self._by_id[waiting.delivery_id] = waiting
        if len(line) == 1:
            self._offer(waiting)

    def insert(self, waiting: Waiting) -> None:
        """Into its lane by `created_at`, never before one that is under way."""
        line = self._lanes.setdefault(waiting.lane, deque())
        first = 1 if waiting.lane in self._busy else 0
        place = next((n for n in range(first, len(line)) if line[n].created_at > waiting.created_at), len(line))
        line.insert(place, waiting)
        self._by_id[waiting.delivery_id] = waiting
        if place == 0:
            self._offer(waiting)

    def take(self, now: float, avoid: Collection[str] = (), *, prefer_others: bool = False) -> Waiting | None:
        """The next due one, now under way; one of a lane of `avoid` only where `prefer_others` finds no other."""
        passed: list[tuple[float, int, Waiting]] = []
        found: Waiting | None = None
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if not self._is_current(entry):
                continue
            if entry[2].lane in avoid:
                passed.append(entry)
                continue
            found = entry[2]
            break
        if found is None and prefer_others and passed:
            found = passed.pop(0)[2]
        for entry in passed:
            heapq.heappush(self._heap, entry)
        if found is not None:
            self._busy.add(found.lane)
        return found

    def next_due(self) -> float | None:
        """When the earliest of the waiting ones is due."""
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def put_back(self, waiting: Waiting) -> None:
        """No longer under way; it stays the first of its lane."""
        self._busy.discard(waiting.lane)
        if not waiting.gone:
            self._offer(waiting)

    def remove(self, waiting: Waiting) -> None:
        """Done with, one way or the other; the next of its lane moves up."""
        line = self._lanes[waiting.lane]
        was_first = line[0] is waiting
        if was_first:
            line.popleft()
        else:
            line.remove(waiting)
        waiting.gone = True
        del self._by_id[waiting.delivery_id]
        if was_first:
            self._busy.discard(waiting.lane)
            if line:
                self._offer(line[0])
            else:
                del self._lanes[waiting.lane]

    def hold(self, lane: str, code: str) -> Waiting | None:
        """Hold the first of a lane, and so the lane; None where nothing waits there."""
        line = self._lanes.get(lane)
        if not line or lane in self._busy:
            return None
        line[0].held = code
        return line[0]

    def hurry(self, now: float) -> None:
        """Free what is held and let every first one be due now, except an unknown outcome: that has to settle."""
        for line in self._lanes.values():
            first = line[0]
            first.held = None
            if not first.ambiguous:
                first.due = min(first.due, now)
            if first.lane not in self._busy:
                self._offer(first)

    def _offer(self, waiting: Waiting) -> None:
        if waiting.held is None:
            self._counter += 1
            heapq.heappush(self._heap, (waiting.due, self._counter, waiting))

    def _is_current(self, entry: tuple[float, int, Waiting]) -> bool:
        due, _, waiting = entry
        return (
            not waiting.gone
            and waiting.held is None
            and waiting.due == due
            and waiting.lane not in self._busy
            and self._lanes[waiting.lane][0] is waiting
        )
