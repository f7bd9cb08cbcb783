"""`rlm-memory memory …`: what an operator reads and does with the text memory.

Owns: which modules put their commands into the group. Exit codes: 0 fine, 1 findings or degraded, 2 failure or bad use.

Source: design page "Overview", On the command line; "Recall, resident text, guard, audit, health, tools", operator.
"""

from __future__ import annotations

from rlm_memory_host.cli import memory_aliases, memory_observations, memory_review, memory_texts, memory_upkeep
from rlm_memory_host.cli.memory_desk import commands

MODULES = (memory_texts, memory_review, memory_observations, memory_aliases, memory_upkeep)
"""Importing them registers their commands, in this order."""

__all__ = ["MODULES", "commands"]
