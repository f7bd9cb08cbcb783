"""How fast the bridge is: a request from a kernel to the host and back, beside what it has to beat.

    ./dev run python benchmarks/bridge.py [--rounds N] [--requests N] [--idle SECONDS] [--out DIR]

Interleaved in one run, so that a loaded machine shifts both sides: an empty request kernel -> host -> kernel over the
direct channel and over the kernel's own channels, a bare ZeroMQ REQ/REP over loopback TCP between two processes, and
an `execute_request` of nothing by jupyter_client; requests 64 at once both ways; a kernel started by the provisioner
and a plain one; `%load_ext`; the host at rest. Prints a Markdown table, with `--out` also `bridge.csv`. Ratios are
medians of the rounds' ratios. Linux.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import zmq
from jupyter_client.manager import KernelManager
from rlm_memory_host.attach import kernelspec

HEAD = ["what", "p50", "p99", "unit", "ratio", "to", "target"]
ECHO = """
import zmq
with zmq.Context() as context, context.socket(zmq.REP) as peer:
    print(peer.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    while True:
        peer.send(peer.recv())
"""
IN_KERNEL = """
import asyncio, json, time
from rlm_memory import kernel as _k, wire as _w
_c = _k.connection().channel

def requests(count):
    times, cpu = [], time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        _c.wait(_c.submit(_w.PING))
        times.append((time.perf_counter() - began) * 1e3)
    return times, (time.process_time() - cpu) * 1e3 / count

def at_once(count):
    async def one():
        await _c.wait_async(_c.submit(_w.PING))
    async def every():
        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(count)))
        return count / (time.perf_counter() - began)
    return every()
"""


class Client:
    """A kernel, driven over its shell channel only."""

    def __init__(self, name: str, cwd: Path, **environment: str) -> None:
        self.manager = KernelManager(kernel_name=name)
        began = time.perf_counter()
        self.manager.start_kernel(
            cwd=str(cwd), env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        self.started = time.perf_counter() - began

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(int(self.manager.provisioner.pid))

    def run(self, code: str, expression: str = "None") -> Any:
        """Execute `code`, then give the value of `expression` (JSON types)."""
        wanted = {"r": f"__import__('json').dumps({expression})"}
        content = self._reply(self.client.execute(code, store_history=False, user_expressions=wanted))
        if content["status"] != "ok":
            raise RuntimeError(f"{content['ename']}: {content['evalue']}")
        answer = content["user_expressions"]["r"]
        if answer["status"] != "ok":
            raise RuntimeError(f"{answer['ename']}: {answer['evalue']}")
        return json.loads(eval(answer["data"]["text/plain"], {"__builtins__": {}}))  # noqa: S307 - our own kernel's repr

    def nothing(self) -> None:
        self._reply(self.client.execute("", silent=True))

    def _reply(self, request: str) -> dict[str, Any]:
        while True:
            message = self.client.get_shell_msg(timeout=300)
            if message["parent_header"].get("msg_id") == request:
                return message["content"]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@contextmanager
def kernel(name: str, cwd: Path, **environment: str) -> Iterator[Client]:
    client = Client(name, cwd, **environment)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def host(root: Path) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "rlm_memory_host", "host", "run", "--state-root", str(root)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextmanager
def echo() -> Iterator[Callable[[], None]]:
    """One exchange with another process over REQ/REP."""
    process = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        with zmq.Context() as context, context.socket(zmq.REQ) as peer:
            peer.linger = 0
            peer.connect(f"tcp://127.0.0.1:{port}")

            def exchange() -> None:
                peer.send(b"x" * 400)
                peer.recv()

            yield exchange
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def timed(call: Callable[[], None], count: int) -> list[float]:
    """Milliseconds of each call."""
    times: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    return times


def p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


def row(
    what: str, times: list[float], unit: str = "ms", ratio: float | None = None, to: str = "", target: str = ""
) -> list[str]:
    shown = "" if ratio is None else f"{ratio:.2f}"
    return [
        what,
        f"{statistics.median(times):.2f}",
        f"{p99(times):.2f}" if len(times) > 9 else "",
        unit,
        shown,
        to,
        target,
    ]


def flat(rounds: list[list[float]]) -> list[float]:
    return [value for each in rounds for value in each]


def ratio(ours: list[list[float]], others: list[list[float]]) -> float:
    """The median over the rounds of the ratios of the rounds' medians."""
    pairs = zip(ours, others, strict=True)
    return statistics.median(statistics.median(one) / statistics.median(other) for one, other in pairs)


class Way:
    """One kernel's requests over one of its two ways, round by round."""

    def __init__(self, client: Client, server: psutil.Process, direct: bool) -> None:
        self._client, self._server = client, server
        self.times: list[list[float]] = []
        self.kernel_cpu: list[float] = []
        self.host_cpu: list[float] = []
        self.rates: list[float] = []
        client.run("%load_ext rlm_memory\nmemory.status()")
        client.run(IN_KERNEL)
        while client.run("memory.status()", "_c._route.is_direct()") is not direct:
            time.sleep(0.05)

    def round(self, count: int) -> None:
        before = sum(self._server.cpu_times()[:2])
        times, cpu = self._client.run(f"r = requests({count})", "r")
        after = sum(self._server.cpu_times()[:2])
        self.times.append(times)
        self.kernel_cpu.append(cpu)
        self.host_cpu.append((after - before) * 1e3 / count)
        self.rates.append(self._client.run(f"r = await at_once({10 * count})", "r"))

    def warmed_up(self) -> None:
        """Forget what was measured so far."""
        for each in (self.times, self.kernel_cpu, self.host_cpu, self.rates):
            each.clear()

    def rows(self, way: str, beside: list[list[float]], to: str, target: str) -> list[list[str]]:
        return [
            row(f"empty request, {way}", flat(self.times), ratio=ratio(self.times, beside), to=to, target=target),
            row(f"its CPU in the kernel, {way}", self.kernel_cpu),
            row(f"its CPU in the host, {way}", self.host_cpu),
            row(f"requests, 64 in flight, {way}", self.rates, "1/s"),
        ]


def latency(client: Client, by_comm: Client, server: psutil.Process, rounds: int, count: int) -> list[list[str]]:
    """Requests both ways beside the other two."""
    direct, comms = Way(client, server, direct=True), Way(by_comm, server, direct=False)
    executed: list[list[float]] = []
    bare: list[list[float]] = []
    with echo() as exchange:
        for number in range(rounds + 1):
            # The quick ones a few times as often, side by side: one of their rounds is over in hundredths of a second.
            direct.round(4 * count)
            bare.append(timed(exchange, 4 * count))
            comms.round(count)
            executed.append(timed(client.nothing, count))
            if not number:
                direct.warmed_up()
                comms.warmed_up()
                bare.clear()
                executed.clear()
    return [
        row("bare REQ/REP", flat(bare)),
        row("execute_request of nothing", flat(executed)),
        *direct.rows("direct", bare, "REQ/REP", "<= 3"),
        *comms.rows("over comms", executed, "execute_request", "<= 0.5"),
    ]


LOADING = """
import time as _t
_b = _t.perf_counter(), _t.process_time()
%load_ext rlm_memory
_l = [(_t.perf_counter() - _b[0]) * 1e3, (_t.process_time() - _b[1]) * 1e3]
"""


def starts(cwd: Path, rounds: int) -> list[list[str]]:
    """Kernels started both ways, and `%load_ext` in each plain one."""
    plain: list[list[float]] = []
    ours: list[list[float]] = []
    loads: list[list[float]] = []
    for number in range(rounds + 1):
        with kernel("python3", cwd) as client:
            one = client.started * 1e3
            load = client.run(LOADING, "_l")
        with kernel(kernelspec.NAME, cwd) as client:
            other = client.started * 1e3
        if number:
            plain.append([one])
            ours.append([other])
            loads.append(load)
    return [
        row("plain kernel start", flat(plain)),
        row("provisioner's kernel start", flat(ours), ratio=ratio(ours, plain), to="plain", target="<= 1.15"),
        row("%load_ext", [wall for wall, _ in loads], target="<= 100"),
        row("%load_ext: CPU", [cpu for _, cpu in loads]),
    ]


def rest(processes: dict[str, psutil.Process], seconds: float) -> list[list[str]]:
    """CPU in per cent and memory of processes that have nothing to do."""
    before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
    time.sleep(seconds)
    rows: list[list[str]] = []
    for name, process in processes.items():
        share = (sum(process.cpu_times()[:2]) - before[name]) / seconds * 100
        rows.append(row(f"{name} at rest: CPU", [share], "%", target="< 0.2" if name == "host" else ""))
        memory = process.memory_full_info().uss if name != "host" else process.memory_info().rss
        rows.append(row(f"{name} at rest: memory", [memory / 1e6], "MB", target="<= 80" if name == "host" else ""))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=100, help="requests of a kind in a round")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of rest that are measured")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlm-memory-bench-") as name:
        folder = Path(name)
        root, cwd = folder / "state", folder / "work"
        root.mkdir(mode=0o700)
        cwd.mkdir()
        kernelspec.install(kernelspec.folder(folder, user=False))
        # Installed packages have compiled files; the first, unmeasured round writes them.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= {"RLM_MEMORY_STATE_ROOT": str(root), "JUPYTER_PATH": str(folder / "share" / "jupyter")}
        with host(root) as server:
            with kernel("python3", cwd) as client:
                with kernel("python3", cwd, RLM_MEMORY_ROUTE="comm") as by_comm:
                    rows = latency(client, by_comm, server, given.rounds, given.requests)
                with kernel("python3", cwd) as untouched:
                    rows += rest(
                        {"host": server, "kernel": client.process, "plain kernel": untouched.process}, given.idle
                    )
            rows += starts(cwd, given.rounds)
    print("\n".join("| " + " | ".join(each) + " |" for each in [HEAD, ["---"] * len(HEAD), *rows]))
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        with (given.out / "bridge.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([HEAD, *rows])


if __name__ == "__main__":
    main()
