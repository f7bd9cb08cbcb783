"""Whether a question opens memory at all: profile `riko` only; all others always search. Pure.

Owns: the intents of 001 and the channels they open. Needs no model.

Source: 001, Planner gating; design page "Recall", Recall.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rlm_memory_host.contracts.memory import Profile
from rlm_memory_host.storage.tokens import normalise

_PERSONAL: Final = re.compile(r"\b(?:i|my|me|we|our|us|remember|recall)\b|我|咱|记得|上次|之前")
_INTENTS: Final = (
    ("correction_check", re.compile(r"\b(?:correct|actually|update)\b|更正|纠正|其实")),
    ("multi_hop", re.compile(r"\bwhat happened to\b|\bwho\b.*\bthen\b|后来|然后呢")),
    ("episodic", re.compile(r"\b(?:remember|recall|last time|when did|yesterday|experience)\b|记得|上次|经历|那次")),
    ("stable_profile", re.compile(r"\b(?:prefer|favou?rite|habit|like|boundary|call me)\b|喜欢|偏好|习惯|称呼")),
    ("entity", re.compile(r"\b(?:name|address|number|who is)\b|\d{2,}|[a-z]+\d+|名字|地址|号码")),
)
_UTILITY: Final = re.compile(
    r"^(?:explain|translate|define|calculate|compute|what is \d|how (?:do|to)|write (?:a|an|some) (?:function|code))\b"
    r"|^\d+\s*[-+*/]|翻译|解释一下|计算|定义"
)


@dataclass(frozen=True, slots=True)
class Channels:
    """What a query may open."""

    intent: str
    topic: bool
    evidence: bool
    observation: bool
    graph: bool


def plan(query: str, profile: Profile) -> Channels:
    """The channels of a query."""
    if profile != "riko":
        return Channels("search", True, True, True, True)
    text = normalise(query)
    intent = next((name for name, pattern in _INTENTS if pattern.search(text)), "none")
    if _UTILITY.search(text) and not _PERSONAL.search(text):
        return Channels("none", False, False, False, False)
    is_open = intent != "none"
    raw = intent in ("episodic", "entity", "correction_check")
    return Channels(intent, is_open, raw, False, intent in ("multi_hop", "entity"))
