"""Artifact tools over a plain folder, enough for a kernel to record, search, resolve and load against.

Owns: right ids, verified bytes, freshness, the shape of answers. Does not own: durability, quotas, ranking, safety
against a hostile kernel; the real store has those.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from rlm_memory import wire

PROJECT = "fake-project"
WHEN = "2026-01-01T00:00:00Z"


class ToolFault(Exception):
    """What a tool's `run` raises to answer with a failure envelope."""

    def __init__(self, code: str | None, message: str) -> None:
        super().__init__(message)
        self.code = code


class FakeStore:
    """Cards as JSON files, objects by artifact id; both survive the host's process."""

    def __init__(self, folder: Path) -> None:
        self._objects, self._cards = folder / "objects", folder / "cards"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._cards.mkdir(exist_ok=True)
        self.annotations: dict[str, dict[str, Any]] = {}

    def tools(self, exports: Path) -> dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]:
        """The tools by name, for a session whose export folder is `exports`."""
        return {
            "memory_artifact_record": lambda arguments: self.record(arguments, exports),
            "memory_search": self.search,
            "memory_artifact_resolve": self.resolve,
            "memory_status": lambda _arguments: {"cards": len(self.cards()), "health": "ok"},
        }

    def cards(self) -> list[dict[str, Any]]:
        """All cards, newest first."""
        cards = [cast("dict[str, Any]", json.loads(path.read_bytes())) for path in self._cards.iterdir()]
        return sorted(cards, key=lambda card: -card["number"])

    def object_path(self, artifact_id: str) -> Path:
        """Where an object lies, for tests that damage it."""
        return self._objects / artifact_id

    def record(self, arguments: Mapping[str, Any], exports: Path) -> dict[str, Any]:
        """Copy a file of the exports folder and write its card."""
        path = Path(str(arguments["source_path"]))
        if exports.resolve() not in path.resolve().parents:
            raise ToolFault(wire.INVALID_PATH, "source_path is not below this session's exports folder")
        data = path.read_bytes()
        artifact = "art_" + _base32(data)
        identity = {
            "artifactId": artifact,
            "projectId": PROJECT,
            "queryFingerprint": arguments["query_fingerprint"],
            "schemaVersion": 1,
            "sourceVersion": arguments["source_version"],
        }
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        experiment = "exp_" + _base32(canonical.encode())
        self.object_path(artifact).write_bytes(data)
        target = self._cards / experiment
        known = target.exists()
        number = json.loads(target.read_bytes())["number"] if known else len(list(self._cards.iterdir()))
        card = {
            **{name: value for name, value in arguments.items() if name != "source_path"},
            "number": number,
            "experiment_id": experiment,
            "artifact_id": artifact,
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "created_at": WHEN,
            "updated_at": WHEN,
            "session_id": "fake-session",
            "index_state": "disabled",
        }
        made = self.annotations.get(experiment, {}).get("lineage", {}).get("made_summary")
        if known and card["summary"] == made:
            card["summary"] = json.loads(target.read_bytes())["summary"]
        target.write_text(json.dumps(card))
        own = ("experiment_id", "artifact_id", "sha256", "bytes", "index_state")
        state: dict[str, Any] = {"local_saved": True, "deduplicated": known, "honcho_queued": False, "warnings": []}
        return {name: card[name] for name in own} | state

    def search(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Every word of the query must occur; ids, fingerprints and tags match exactly."""
        words = str(arguments.get("query") or "").lower().split()
        rows: list[dict[str, Any]] = []
        for card in self.cards():
            text = json.dumps(card, ensure_ascii=False).lower()
            tags = cast("list[str]", card.get("tags") or [])
            if all(word in text for word in words) and _passes(card, tags, arguments):
                row = {name: value for name, value in card.items() if name not in ("number", "sha256")}
                extra = {"kind": "experiment-card", "local_available": True, "matched": ["words"] if words else []}
                rows.append(row | extra | {"score": 1.0, "trust": "untrusted"})
        first, limit = int(arguments.get("cursor") or 0), int(arguments.get("limit") or 10)
        following = str(first + limit) if first + limit < len(rows) else None
        return {"results": rows[first : first + limit], "total": len(rows), "cursor": following, "warnings": []}

    def resolve(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Verify one object and tell its freshness."""
        found = [card for card in self.cards() if card["experiment_id"] == arguments.get("experiment_id")]
        if not found:
            raise ToolFault(wire.CARD_NOT_FOUND, "no experiment with that id in this project")
        card = found[0]
        path = self.object_path(card["artifact_id"])
        if not path.exists():
            raise ToolFault(wire.ARTIFACT_MISSING, f"the bytes of {card['experiment_id']} are missing")
        if "art_" + _base32(path.read_bytes()) != card["artifact_id"]:
            raise ToolFault(wire.ARTIFACT_CORRUPT, f"the bytes of {card['experiment_id']} are not what was recorded")
        artifact = {
            "artifact_id": card["artifact_id"],
            "sha256": card["sha256"],
            "bytes": card["bytes"],
            "media_type": card.get("media_type", "application/octet-stream"),
            "created_at": WHEN,
        }
        shown = {name: value for name, value in card.items() if name not in ("number", "sha256", "media_type", "bytes")}
        current = arguments.get("current_source_version")
        freshness = _freshness(str(card["source_version"]), current)
        return shown | {
            "path": str(path),
            "artifact": artifact,
            "freshness": freshness,
            "verified_at": WHEN,
            "warnings": [f"recorded from {card['source_version']}"] if freshness == "stale" else [],
        }

    def annotate(self, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        """Keep what is told; with only an id, just read."""
        identity = str(payload.get("experiment_id"))
        told = {name: value for name, value in payload.items() if name != "experiment_id"}
        if told:
            self.annotations.setdefault(identity, {}).update(told)
        return self.annotations.get(identity)


def _passes(card: Mapping[str, Any], tags: list[str], arguments: Mapping[str, Any]) -> bool:
    return arguments.get("tag") in (None, *tags) and arguments.get("source") in (None, card.get("source"))


def _freshness(recorded: str, current: object) -> str:
    if current is None:
        return "not_checked"
    if "unknown" in (recorded, current):
        return "unverifiable"
    return "fresh" if recorded == current else "stale"


def _base32(data: bytes) -> str:
    return base64.b32encode(hashlib.sha256(data).digest()).decode().lower().rstrip("=")
