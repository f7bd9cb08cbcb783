"""Pytest plugin: says why a test that was run once more had failed at first.

A rerun that passes must not hide what it saw; loaded by `tests/conftest.py`.
"""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the traceback of every first failure below the run."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed at first: {report.nodeid}", sep="-")
        terminalreporter.line(report.longreprtext)
