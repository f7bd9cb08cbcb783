"""A process that admits and delivers until it is killed: `python lives.py ROOT URL FIRST COUNT`; says what it admitted.

Prints `handed N` before and `admitted N` after each admission, and `empty` when all has arrived and COUNT is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from rlm_memory_host.egress import Egress
from rlm_memory_host.settings import load
from world import exchange, keep

SETTINGS = """
[project]
id = "project"
[honcho]
url = "{url}"
workspace = "space"
user_peer = "person"
assistant_peer = "assistant"
call_seconds = 1.0
[outbox]
drain_seconds = 2.0
settle_seconds = 2.5
backoff_seconds = 0.2
circuit_cooldown_seconds = 0.3
backoff_cap_seconds = 1.0
"""


def request(number: int):
    """Delivery number `number`; five sessions take turns."""
    return exchange(f"s{number % 5}", number)


async def main(root: Path, url: str, first: int, count: int) -> None:
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    config = root.parent / f"{root.name}.toml"
    config.write_text(SETTINGS.format(url=url))
    config.chmod(0o600)
    async with Egress(load(config, root).settings, keep) as egress:
        for number in range(first, count):
            print(f"handed {number}", flush=True)
            await asyncio.to_thread(egress.admission.admit, request(number))
            print(f"admitted {number}", flush=True)
            await asyncio.sleep(0.01)
        while egress.outbox.waiting():
            await asyncio.sleep(0.02)
        print("empty", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
