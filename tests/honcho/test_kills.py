"""Real processes, killed at random, against a service that loses answers, commits late and drops lines."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lives import request
from rlm_memory_host.honcho.fake import FakeHoncho, Fault, Served, serving
from world import MESSAGES, check_exactly_once_in_order

LIVES = Path(__file__).with_name("lives.py")
ENOUGH = 1_000_000


def _faults() -> list[Fault]:
    always = {"route": MESSAGES, "times": None}
    return [
        Fault(**always, probability=0.08, drop=True),
        Fault(**always, probability=0.08, commit=True, drop=True),
        Fault(**always, probability=0.08, commit_after=1.0, drop=True),
        Fault(**always, probability=0.05, commit_after=1.6),
        Fault(**always, probability=0.08, commit=True, status=500, reset_after=True),
        Fault(**always, probability=0.05, status=429, headers={"Retry-After": "0"}),
        Fault(route="messages/list$", times=None, probability=0.1, status=503),
        Fault(route="sessions$", times=None, probability=0.1, drop=True),
    ]


def _live(
    root: Path, served: Served, first: int, count: int, *, after: float, how: int, within: float = 60.0
) -> list[str]:
    """One life, told to end `after` seconds from its first admission, gone `within` seconds; what it said."""
    process = _start(root, served, first, count)
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line.strip())
        if line.startswith("admitted"):
            break
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after)
    process.send_signal(how)
    process.wait(within)
    # Not `communicate`: with a time limit it reads past what the loop above left in its buffer.
    with process.stdout:
        return [*said, *process.stdout.read().splitlines()]


def _last_life(root: Path, served: Served) -> None:
    """A life that admits nothing and ends by itself when all has arrived."""
    process = _start(root, served, 0, 0)
    try:
        said, _ = process.communicate(timeout=150)
    finally:
        process.kill()
    assert "empty" in said


def _start(root: Path, served: Served, first: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(LIVES), str(root), served.url, str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _campaign(tmp_path: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    root = tmp_path / "state"
    root.mkdir(mode=0o700)
    handed = 0
    admitted: set[int] = set()
    ends = [signal.SIGKILL] * kills + [signal.SIGTERM] * (kills // 4)
    chance.shuffle(ends)
    with serving(FakeHoncho(workspaces=["space"])) as served:
        served.call(lambda: served.fake.plan.add(*_faults()))
        for how in ends:
            said = _live(root, served, handed, ENOUGH, after=chance.uniform(0, 1.5), how=how)
            for line in said:
                word, _, number = line.partition(" ")
                if word == "handed":
                    handed = max(handed, int(number) + 1)
                elif word == "admitted":
                    admitted.add(int(number))
        served.call(served.fake.plan.clear)
        # An admission that was cut off before its answer may or may not have happened: its caller repeats it.
        _last_life(root, served)
        arrived = {row["metadata"]["dsh_turn"] for row in served.fake.rows()}
        assert admitted <= arrived <= set(range(handed))
        assert len(arrived - admitted) <= len(ends)  # cut off between the commit and the answer
        check_exactly_once_in_order(served.fake, [request(number) for number in sorted(arrived)])
        assert not list((root / "outbox/dead-letter").iterdir())
    assert len(admitted) > kills


def test_a_few_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Every message that a caller was told about is there once, in order; nothing else is."""
    _campaign(tmp_path, kills=3, seed=11)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(12))
def test_many_kills_lose_nothing_and_double_nothing(tmp_path: Path, seed: int) -> None:
    """The same for longer: three hundred times SIGKILL over the seeds, and some SIGTERM between."""
    _campaign(tmp_path, kills=25, seed=seed)


def test_g4_09_a_slow_service_does_not_hold_a_sigterm_up(tmp_path: Path) -> None:
    """The service takes a minute; the process ends within ten seconds and everything it answered for arrives later."""
    root = tmp_path / "state"
    root.mkdir(mode=0o700)
    with serving(FakeHoncho(workspaces=["space"])) as served:
        served.call(lambda: served.fake.plan.add(Fault(route=MESSAGES, times=None, commit=True, wait=60)))
        said = _live(root, served, 0, ENOUGH, after=0.5, how=signal.SIGTERM, within=10.0)
        admitted = [int(line.split()[1]) for line in said if line.startswith("admitted")]
        assert admitted
        served.call(served.fake.plan.clear)
        _last_life(root, served)
        arrived = sorted({row["metadata"]["dsh_turn"] for row in served.fake.rows()})
        assert set(admitted) <= set(arrived)
        check_exactly_once_in_order(served.fake, [request(number) for number in arrived])
