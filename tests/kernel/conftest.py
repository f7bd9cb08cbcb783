"""A fake host in this process, and a real kernel on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from counting import CountingHost
from real_kernels import Kernel
from rlm_memory.testing import FakeHost


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., FakeHost]]:
    """`make_host(**options)` starts a fake host on this test's folder; all of them end with the test."""
    hosts: list[FakeHost] = []

    def make(**options: Any) -> FakeHost:
        host = FakeHost(tmp_path / "fake", **options)
        hosts.append(host)
        return host.__enter__()

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def host(make_host: Callable[..., FakeHost], state_root: Path) -> FakeHost:
    """A fake host that kernels find through the local socket of this test's state root."""
    host = make_host()
    host.listen(state_root)
    return host


@pytest.fixture
def kernel(host: FakeHost, start_kernel: Callable[..., Any]) -> Any:
    """A real kernel with the extension loaded."""
    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory").ok()
    return kernel


@pytest.fixture
def counting(pair: tuple[CountingHost, Kernel]) -> CountingHost:
    """The host of a module's `pair`, with nothing on its count."""
    pair[0].clear()
    return pair[0]
