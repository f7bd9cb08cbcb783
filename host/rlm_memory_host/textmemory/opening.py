"""One owner's text memory opened the same way by the host and by the commands: guard, store, health, recovery.

Owns: the order of opening. Does not own: what each part does. A fault while opening is a state of health, never the end
of the host: what cannot be opened is unavailable and nothing takes its place.

Source: design page "The memory model", Layers and scope; "Recall, resident text, guard, audit, health, tools", Health.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlm_memory_host.contracts.memory import FLAG_INSTRUCTION_LIKE, Authority, Block, Layer
from rlm_memory_host.errors import FormatVersion, HostError, SettingsError
from rlm_memory_host.guard import Guard, Sink
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.textmemory import purging
from rlm_memory_host.textmemory.health import TextHealth
from rlm_memory_host.textmemory.layers import Roots
from rlm_memory_host.textmemory.store import MarkdownStore
from rlm_memory_host.textmemory.topicset import Judge


@dataclass(frozen=True, slots=True)
class Opened:
    """What belongs together."""

    store: MarkdownStore
    guard: Guard
    health: TextHealth


def judge_with(guard: Guard) -> Judge:
    """The guard on load: the code to quarantine a hand-edited block under, the flag to serve it with, or ""."""

    def judge(block: Block) -> str:
        fields = {"topic": block.topic, "title": block.title, "body": block.body, "evidence": block.evidence}
        verdict = guard(fields | {"tags": "\n".join(block.tags)}, Authority.UNREVIEWED, Sink.BLOCK)
        if verdict.code:
            return verdict.code
        return FLAG_INSTRUCTION_LIKE if FLAG_INSTRUCTION_LIKE in verdict.flags else ""

    return judge


def open_memory(
    state_root: Path,
    owner: str = "local",
    *,
    extra_deny_patterns: Sequence[str] = (),
    hand_edits: Literal["review", "trust"] = "review",
    repositories: Mapping[Layer, Path] | None = None,
    files: FileLayer | None = None,
) -> Opened:
    """Open an owner's memory and finish what a crash left. Raises SettingsError for a bad pattern; no other error."""
    layer = files or FileLayer()
    guard = Guard(extra_deny_patterns)
    health = TextHealth(layer, Roots(layer, state_root, owner).folder)
    store = MarkdownStore(
        state_root,
        owner,
        judge=judge_with(guard),
        files=layer,
        repositories=repositories,
        hand_edits=hand_edits,
        on_fault=health.fault,
    )
    for name in ("storage", "guard", "write", "audit", "recall", "index", "habit"):
        health.set(name, "on")
    try:
        purging.recover(store)
        _look(store, health)
    except SettingsError:
        raise
    except FormatVersion as error:
        health.set("write", "unavailable", error.code)
    except (HostError, OSError) as error:
        health.fault("storage", getattr(error, "code", "STORE_UNAVAILABLE"))
    return Opened(store, guard, health)


def _look(store: MarkdownStore, health: TextHealth) -> None:
    """What only a look at the files tells: refused roots, the end of the audit log."""
    if store.roots.refused:
        health.fault("storage", "LAYER_UNAVAILABLE")
    if reason := store.journal.audit_fault():
        health.fault("audit", reason)
