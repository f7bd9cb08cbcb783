"""Capture: the user's and the assistant's committed words of root sessions, and nothing else."""

from rlm_memory_host.capture.eligibility import refusal
from rlm_memory_host.capture.feeders import parse_event, replay
from rlm_memory_host.capture.sessions import Capture, Counters

__all__ = ["Capture", "Counters", "parse_event", "refusal", "replay"]
