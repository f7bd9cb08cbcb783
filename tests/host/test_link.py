"""The sockets to a kernel, without a kernel: a publisher of the test's own stands for it."""

from __future__ import annotations

from pathlib import Path

import zmq
import zmq.asyncio
from jupyter_client.session import Session
from rlm_memory_host.attach.connection import parse
from rlm_memory_host.attach.link import Link

KEY = "k" * 36
MESSAGES = 5000


async def test_requests_wait_without_a_bound_while_the_host_is_busy() -> None:
    """20 MB of requests arrive before the first is read: none waits at the kernel, where its own bound drops them."""
    context = zmq.asyncio.Context()
    publisher = zmq.Context.shadow(context.underlying).socket(zmq.XPUB)
    control = zmq.Context.shadow(context.underlying).socket(zmq.ROUTER)
    try:
        publisher.setsockopt(zmq.SNDHWM, 10)
        publisher.setsockopt(zmq.XPUB_NODROP, 1)
        publisher.setsockopt(zmq.SNDTIMEO, 10_000)
        publisher.setsockopt(zmq.RCVTIMEO, 10_000)
        ports = {
            "iopub_port": publisher.bind_to_random_port("tcp://127.0.0.1"),
            "control_port": control.bind_to_random_port("tcp://127.0.0.1"),
        }
        link = Link(context, parse({"ip": "127.0.0.1", "key": KEY, **ports}, Path("/")))
        try:
            assert publisher.recv() == b"\x01comm-"
            kernel = Session(key=KEY.encode(), signature_scheme="hmac-sha256")
            for number in range(MESSAGES):
                content = {"comm_id": f"dsh-{number}", "target_name": "host.request", "data": {"pad": "x" * 4096}}
                kernel.send(publisher, "comm_open", content=content, ident=f"comm-dsh-{number}".encode())
            seen = 0
            async for message in link.messages():
                assert message.comm_id == f"dsh-{seen}"
                seen += 1
                if seen == MESSAGES:
                    break
        finally:
            link.close()
    finally:
        publisher.close(linger=0)
        control.close(linger=0)
        context.destroy(linger=0)
