"""How fast the outbox takes in, starts and empties, beside the bare work on the same disk and service, in one run.

    ./dev run python benchmarks/delivery.py [--deliveries 10000] [--rounds 3]

The fake service is a process of its own. A delivery is an exchange of two messages in one of twenty sessions. The bare
work is what no outbox can do without: the same document published durably (temp file, fsync, rename, fsync of the
folder), and the same request posted by httpx, as many at a time as the worker does. Rates are per second; the rate of
the worker is that of deliveries it saw admitted, and that after a start, where each is looked up before it is sent.

Source: design page "Quality", Targets.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import httpx
from rlm_memory_host.contracts.delivery import DeliveryRequest, iso
from rlm_memory_host.delivery.compose import Labels, Part, compose, make_scope
from rlm_memory_host.delivery.outbox import Outbox
from rlm_memory_host.egress import Egress
from rlm_memory_host.settings import Settings, load
from rlm_memory_host.storage.files import FileLayer

SESSIONS = 20
EPOCH = 1_790_000_000.0


def same(text: str) -> str:
    """A redactor that finds nothing."""
    return text


def exchange(number: int) -> DeliveryRequest:
    """Delivery `number`: a question and its answer, about 600 characters."""
    where = make_scope(
        workspace_id="space",
        user_peer_id="person",
        assistant_peer_id="assistant",
        project_id="project",
        session_id=f"session-{number % SESSIONS}",
    )
    moment = iso(EPOCH + number)
    parts = [
        Part("user", f"question {number} " * 15, moment, sequence=number * 10),
        Part("assistant", f"answer {number} " * 25, moment, sequence=number * 10 + 1),
    ]
    return compose(where, parts, Labels(moment, "1.0", turn=number), same).request


@contextlib.contextmanager
def service() -> Generator[str]:
    """The base URL of a fake service in a process of its own."""
    command = [sys.executable, "-m", "rlm_memory_host", "fake-honcho", "--port", "0", "--workspace", "space"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def settings(folder: Path, url: str) -> Settings:
    config = folder / "config.toml"
    config.write_text(
        f'[project]\nid = "project"\n[honcho]\nurl = "{url}"\nworkspace = "space"\nuser_peer = "person"\n'
        'assistant_peer = "assistant"\n'
    )
    config.chmod(0o600)
    (folder / "state").mkdir(mode=0o700, exist_ok=True)
    return load(config, folder / "state").settings


async def emptied(egress: Egress, started: float, count: int) -> float:
    while egress.outbox.waiting():
        await asyncio.sleep(0.02)
    return count / (time.perf_counter() - started)


@contextlib.asynccontextmanager
async def running(told: Settings) -> AsyncGenerator[Egress]:
    async with Egress(told, same) as egress:
        yield egress


def admitted(told: Settings, count: int) -> float:
    """Deliveries taken in a second, one caller, none sent."""
    with Outbox(told.state_root, redact=same) as outbox:
        requests = [exchange(number) for number in range(count)]
        began = time.perf_counter()
        for request in requests:
            outbox.admit(request)
        return count / (time.perf_counter() - began)


def started(told: Settings) -> tuple[float, float]:
    """Seconds to open an outbox of what waits, and the growth of memory, MiB."""
    before, began = memory(), time.perf_counter()
    with Outbox(told.state_root, redact=same):
        return time.perf_counter() - began, memory() - before


async def after_start(told: Settings, count: int) -> float:
    began = time.perf_counter()
    async with running(told) as egress:
        return await emptied(egress, began, count)


async def seen_admitted(told: Settings, count: int) -> float:
    """Admitted for the first time while the worker runs: nothing is looked up."""
    async with running(told) as egress:
        requests = [exchange(10_000_000 + number) for number in range(count)]
        began = time.perf_counter()

        def admit() -> None:
            for request in requests:
                egress.outbox.admit(request, first_time=True)

        await asyncio.to_thread(admit)
        return await emptied(egress, began, count)


def published(folder: Path, count: int) -> float:
    """The same documents published by temp file, fsync, rename, fsync of the folder, and nothing else."""
    files, body = FileLayer(), exchange(0).model_dump_json().encode()
    began = time.perf_counter()
    for number in range(count):
        temp = folder / f"{number}.tmp"
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, body)
        os.fsync(descriptor)
        os.close(descriptor)
        temp.rename(folder / f"{number}.json")
        files.fsync_folder(folder)
    return count / (time.perf_counter() - began)


async def posted(url: str, count: int, at_once: int) -> float:
    """The same requests by httpx alone."""
    gate = asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(base_url=url) as client:
        for number in range(SESSIONS):
            await client.post("/v3/workspaces/space/sessions", json={"id": f"bare-{number}"})

        async def one(number: int) -> None:
            texts = [message.content for message in exchange(number).messages]
            body: dict[str, Any] = {
                "messages": [{"content": text, "peer_id": "person", "metadata": {}} for text in texts]
            }
            async with gate:
                answer = await client.post(
                    f"/v3/workspaces/space/sessions/bare-{number % SESSIONS}/messages", json=body
                )
            answer.raise_for_status()

        began = time.perf_counter()
        await asyncio.gather(*map(one, range(count)))
        return count / (time.perf_counter() - began)


def memory() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def one_round(count: int) -> dict[str, float]:
    sent = max(count // 10, 1)
    with tempfile.TemporaryDirectory() as name, service() as url:
        folder = Path(name)
        told = settings(folder, url)
        bare = folder / "bare"
        bare.mkdir()
        found: dict[str, float] = {
            "bare: published a second": published(bare, sent),
            "admitted a second": admitted(told, count),
        }
        found["start, s"], found["growth of a start, MiB"] = started(told)
        at_once = told.outbox.concurrency
        found["bare: posted a second"] = asyncio.run(posted(url, sent, at_once))
        found["delivered a second, after a start"] = asyncio.run(after_start(told, count))
        found["delivered a second, seen admitted"] = asyncio.run(seen_admitted(told, sent))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--deliveries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    rounds = [one_round(options.deliveries) for _ in range(options.rounds)]
    print(f"{options.deliveries} deliveries; load before and after: {before:.1f}, {os.getloadavg()[0]:.1f}\n")
    print("| what | median of the rounds |\n| --- | --- |")
    for key in rounds[0]:
        print(f"| {key} | {statistics.median(one[key] for one in rounds):.3g} |")


if __name__ == "__main__":
    main()
