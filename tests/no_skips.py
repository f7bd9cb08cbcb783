"""Pytest plugin: under `RLM_MEMORY_NO_SKIPS=1` a skipped test is a failure.

What a check run cannot execute it must not report as fine. Expected failures (`xfail`) are no skips. Loaded by
`tests/conftest.py` and `notebooks/conftest.py`.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest


def is_active() -> bool:
    return os.environ.get("RLM_MEMORY_NO_SKIPS") == "1"


def refuse_skip(report: Any) -> Any:
    """Turn a skipped report into a failed one that says why it was skipped."""
    if is_active() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and RLM_MEMORY_NO_SKIPS=1 allows none.\n{reason}"
    return report


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    return refuse_skip((yield))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    return refuse_skip((yield))
