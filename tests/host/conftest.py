"""Fixtures that start hosts and kernels and end every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from host_harness import HostProcess, RawKernel


@pytest.fixture
def start_host(tmp_path: Path) -> Iterator[Callable[..., HostProcess]]:
    """Start a host; named roots let a test start it again."""
    hosts: list[HostProcess] = []

    def start(name: str = "state", *, listening: bool = True, **options: Any) -> HostProcess:
        host = HostProcess(tmp_path / name, **options)
        hosts.append(host)
        return host.wait_listening() if listening else host

    yield start
    for host in hosts:
        if host.process.poll() is None:
            host.process.kill()
        host.process.wait()


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[Callable[..., RawKernel]]:
    """Start a kernel in a folder of its own."""
    kernels: list[RawKernel] = []

    def start(name: str = "work", **options: Any) -> RawKernel:
        cwd = tmp_path / name
        cwd.mkdir(exist_ok=True)
        kernel = RawKernel(cwd, **options)
        kernels.append(kernel)
        return kernel

    yield start
    for kernel in kernels:
        kernel.close()
