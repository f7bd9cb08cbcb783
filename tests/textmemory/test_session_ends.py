"""What a session leaves unread is read once when it ends, by whoever serves it then; and nobody waits for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rlm_memory_host.assembly.extracting import QUIET_SECONDS
from rlm_memory_host.assembly.redaction import Redaction
from rlm_memory_host.assembly.sessions import After, Sessions
from rlm_memory_host.contracts.memory import project_layer
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.guard.check import Guard
from rlm_memory_host.recall.service import Recall
from rlm_memory_host.textmemory import rows
from rlm_memory_host.textmemory.extraction import MAX_READ, MOST_CANDIDATES, cursor, unread
from rlm_memory_host.textmemory.guarding import guard_of
from rlm_memory_host.textmemory.opening import open_memory
from rlm_memory_host.textmemory.service import Parts, TextMemory
from scenes import ROOT


class Model:
    """Proposes one fact a question, or fails; remembers what it was shown, and waits where it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False
        self.facts = 1
        self.going = threading.Event()
        self.going.set()

    def complete(self, instructions: str, question: str, *, timeout_seconds: float) -> str:
        self.asked.append(question)
        assert self.going.wait(60)
        if self.fails:
            raise ConnectionError("no model answers")
        number = len(self.asked)
        facts = [{"text": f"The buoy number {number}-{at} is orange.", "kind": "fact"} for at in range(self.facts)]
        return json.dumps({"facts": facts})


class Served:
    """The captured sessions of one host over a state root."""

    def __init__(self, root: Path, model: Model) -> None:
        self.model = model
        self.seconds = 0.0
        self.pool = ThreadPoolExecutor(4)
        self.opened = open_memory(root)
        self.sessions = Sessions(
            self.opened.store, Redaction(Guard(), (root,)), self.opened.health, "user", lambda: self.seconds
        )
        self.memory = TextMemory(Parts(self.opened.store, guard_of(self.opened.guard), self.sessions.capture))
        self.sessions.serve(self.memory, Recall(self.memory), After(None, model, self.pool))
        self.seq = 0

    def turns(self, *texts: str, session: str = "s1", first: int = 0) -> None:
        """Completed turns in which the user says these."""
        lines = [{"session": session, "seq": 0, "type": "session", "agent": "root"}]
        for number, text in enumerate(texts, first + 1):
            lines.append(
                {"session": session, "seq": number * 2, "type": "user/message", "content": text, "turn": number}
            )
            lines.append({"session": session, "seq": number * 2 + 1, "type": "turn/end", "turn": number,
                          "reason": "completed"})  # fmt: skip
        self.sessions.replay(Scope("demo", session, None, "root"), [json.dumps(line) for line in lines])

    def settle(self) -> None:
        """Until nothing is read any more."""
        end = time.monotonic() + 60
        while self.sessions._extracting._is_reading:  # pyright: ignore
            assert time.monotonic() < end
            time.sleep(0.005)

    def candidates(self) -> int:
        return len(rows.candidates(self.opened.store))

    def silent(self) -> None:
        self.seconds += QUIET_SECONDS
        self.sessions.look()
        self.settle()


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def served(tmp_path: Path, model: Model) -> Iterator[Served]:
    made = Served(tmp_path, model)
    yield made
    model.going.set()
    made.pool.shutdown()


def test_the_rest_of_a_session_is_read_once_when_its_kernel_ends(served: Served, model: Model) -> None:
    """Three turns are too few by themselves. A second end, a silence and a look read nothing again."""
    served.turns("Paint buoy one orange.", "Paint buoy two orange.", "Paint buoy three orange.")
    served.sessions.look()
    assert model.asked == []
    served.sessions.over("s1")
    served.settle()
    assert len(model.asked) == 1
    assert "buoy three" in model.asked[0]
    assert (served.candidates(), cursor(served.memory, "s1")) == (1, 6)
    served.sessions.over("s1")
    served.sessions.ended(Scope("demo", "s1", None, "root"))
    served.silent()
    assert len(model.asked) == 1
    assert served.memory.current(ROOT) == []


def test_a_model_is_shown_no_sensitive_message(served: Served, model: Model) -> None:
    """The others of the session are read; one with nothing else asks nobody, and leaves nothing unread."""
    served.turns("Paint buoy one orange.", "I was diagnosed with diabetes last year.", "Paint buoy two orange.")
    served.turns("My HIV test was positive.", session="s2")
    for session in ("s1", "s2"):
        served.sessions.over(session)
        served.settle()
    (shown,) = model.asked
    assert "buoy one" in shown
    assert "buoy two" in shown
    assert "diabetes" not in shown
    assert unread(served.memory) == []


def test_a_session_that_goes_on_after_its_end_is_read_from_where_it_was(served: Served, model: Model) -> None:
    """The cursor is the session's, whoever said that it ended."""
    served.turns("Paint buoy one orange.")
    served.sessions.ended(Scope("demo", "s1", None, "root"))
    served.settle()
    served.turns("Paint buoy two orange.", first=1)
    served.silent()
    assert [("buoy one" in text, "buoy two" in text) for text in model.asked] == [(True, False), (False, True)]


def test_a_feeder_that_falls_silent_ends_its_session(served: Served, model: Model) -> None:
    """After ten minutes without a completed turn, each session by itself."""
    served.turns("Paint buoy one orange.", session="a")
    served.seconds += QUIET_SECONDS - 1
    served.turns("Paint buoy two orange.", session="b")
    served.sessions.look()
    served.settle()
    assert model.asked == []
    served.seconds += 1
    served.sessions.look()
    served.settle()
    assert [("buoy one" in text) for text in model.asked] == [True]
    served.silent()
    assert len(model.asked) == 2


def test_the_end_of_a_kernel_that_said_nothing_asks_nobody(served: Served, model: Model) -> None:
    """Every notebook's end would else cost a look at the log."""
    for number in range(100):
        served.sessions.over(f"notebook-{number}")
    served.silent()
    assert model.asked == []


def test_what_a_host_left_unread_the_next_one_reads_once(tmp_path: Path, model: Model) -> None:
    """Of a host that was killed the next one reads the rest, in its project, unless the session goes on."""
    first = Served(tmp_path, model)
    first.turns("Paint buoy one orange.", session="a")
    first.turns("Paint buoy two orange.", session="b")
    first.pool.shutdown()
    second = Served(tmp_path, model)
    second.sessions.look()
    second.seconds += QUIET_SECONDS - 1
    second.turns("Paint buoy three orange.", session="b", first=1)
    second.seconds += 1
    second.sessions.look()
    second.settle()
    assert ["buoy one" in text for text in model.asked] == [True]
    second.silent()
    assert ["buoy two" in text and "buoy three" in text for text in model.asked] == [False, True]
    layers = {item.layer for item in rows.candidates(second.opened.store)}
    assert layers == {project_layer("demo").name}
    second.pool.shutdown()
    third = Served(tmp_path, model)
    third.sessions.look()
    third.silent()
    third.pool.shutdown()
    assert len(model.asked) == 2


def test_a_model_that_fails_ends_nothing_and_loses_nothing(tmp_path: Path, model: Model) -> None:
    """The cursor stays, the health says so, and the next host asks again."""
    model.fails = True
    first = Served(tmp_path, model)
    first.turns("Paint buoy one orange.")
    first.sessions.over("s1")
    first.settle()
    first.silent()
    assert (len(model.asked), first.candidates(), cursor(first.memory, "s1")) == (1, 0, 0)
    first.pool.shutdown()
    model.fails = False
    second = Served(tmp_path, model)
    second.sessions.look()
    second.silent()
    second.pool.shutdown()
    assert (len(model.asked), second.candidates(), cursor(second.memory, "s1")) == (2, 1, 2)


def test_nobody_waits_for_what_a_session_left(served: Served, model: Model) -> None:
    """A model that does not answer holds up neither the end of a session nor any other thread of the pool."""
    model.going.clear()
    for number in range(20):
        served.turns("Paint a buoy orange.", session=f"s{number}")
        served.sessions.over(f"s{number}")
    assert served.pool.submit(lambda: "free").result(60) == "free"
    assert len(model.asked) <= 1
    model.going.set()
    served.settle()
    assert len(model.asked) == 20


def test_a_long_rest_is_read_in_bounded_parts(served: Served, model: Model) -> None:
    """40,000 characters and 8 candidates a question."""
    model.facts = 20
    served.turns(*(f"Buoy {number}: " + "It is painted orange. " * 640 for number in range(6)))
    served.sessions.over("s1")
    served.settle()
    assert len(model.asked) == 3
    assert all(len(text) < MAX_READ + 2_000 for text in model.asked)
    assert served.candidates() == 3 * MOST_CANDIDATES
    assert cursor(served.memory, "s1") == 12
