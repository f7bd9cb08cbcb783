"""What an export holds and how its files are called: one place for the writer and the reader (`importers.archive`).

Owns: names, the manifest's form, bounds on what is read back. The layout is that of a project's folder in a store, so
that a person who knows one knows the other; `verify.py` has its own copy of the rules, since it must stand alone.
"""

from __future__ import annotations

import re
from typing import Final

FORMAT: Final = "rlm-memory-export"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
README: Final = "README.md"
SCRIPT: Final = "verify.py"
CRATE: Final = "ro-crate-metadata.json"
MAX_MANIFEST_BYTES: Final = 64 << 20
"""Some 150 bytes a file: over a hundred thousand experiments in one export."""

_CARD = re.compile(r"cards/(exp_[a-z2-7]{52})\.json")
_SIDECAR = re.compile(r"cards/(exp_[a-z2-7]{52})\.ext\.json")
_OBJECT = re.compile(r"objects/([a-z2-7]{2})/(art_[a-z2-7]{52})")


def object_name(artifact: str) -> str:
    """Where an artifact's bytes lie in an export."""
    return f"objects/{artifact[4:6]}/{artifact}"


def card_name(experiment: str) -> str:
    """Where a card lies in an export."""
    return f"cards/{experiment}.json"


def sidecar_name(experiment: str) -> str:
    """Where a sidecar lies in an export."""
    return f"cards/{experiment}.ext.json"


def is_expected(name: str) -> bool:
    """Whether an export may hold a file of that name; whatever else it holds, nothing is read from it."""
    found = _OBJECT.fullmatch(name)
    if found is not None:
        return found[2][4:6] == found[1]
    return name in (MANIFEST, README, SCRIPT, CRATE) or bool(_CARD.fullmatch(name) or _SIDECAR.fullmatch(name))
