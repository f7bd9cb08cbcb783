"""The guard: what may not be written, and what may only be written with a flag. Pure functions; every sink calls it."""

from rlm_memory_host.guard.check import GUARD_INJECTION, Finding, Guard, Sink, Verdict

__all__ = ["GUARD_INJECTION", "Finding", "Guard", "Sink", "Verdict"]
