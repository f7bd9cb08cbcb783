"""What the tests with a memory service share."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from model_server import ModelServer


@pytest.fixture
def unused_port() -> int:
    """A port of the loopback on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A model's route on the loopback, which answers what the test says."""
    with ModelServer() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()
