"""Looking after the files: validate, derived indexes, duplicates, export. Operator's work over a store.

Owns: what is checked and what is derived. Does not own: repair of a person's file; nothing is rewritten here but what
can be deleted and made again (`MEMORY.md`, `derived/`).

Source: design page "Recall, resident text, guard, audit, health, tools", operator only; "The memory model", Storage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from rlm_memory_host.contracts.memory import Block, Layer, Problem, Sensitivity, Status
from rlm_memory_host.errors import HostError, LayerUnavailable
from rlm_memory_host.storage import names, ndjson
from rlm_memory_host.storage.audit import Break
from rlm_memory_host.storage.tokens import document_terms
from rlm_memory_host.textmemory import activity
from rlm_memory_host.textmemory.store import MarkdownStore

INDEX_NAME: Final = "MEMORY.md"
_ALIKE: Final = 0.8
"""Jaccard index of terms from which on two memories are shown as alike."""
_COMMON: Final = 200
"""A term in more memories than this tells nothing apart."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a validation found. `is_clean` decides the exit code."""

    memories: int
    layers: int
    problems: tuple[Problem, ...]
    breaks: tuple[Break, ...]

    @property
    def is_clean(self) -> bool:
        """Nothing to look at."""
        return not self.problems and not self.breaks


@dataclass(frozen=True, slots=True)
class Pair:
    """Two memories of one layer that say the same (1.0) or nearly."""

    layer: str
    first: str
    second: str
    alike: float


def validate(store: MarkdownStore) -> Report:
    """Check every file, id and reference, and the audit chain. Changes nothing."""
    problems = list(store.problems())
    count = 0
    everywhere: dict[str, Layer] = {}
    layers = available(store)
    for layer in layers:
        blocks = store.snapshot(layer).blocks
        count += len(blocks)
        for block in blocks:
            if block.id in everywhere:
                problems.append(_problem(store, layer, block, "DUPLICATE_ID"))
            everywhere.setdefault(block.id, layer)
    for layer in layers:
        for block in store.snapshot(layer).blocks:
            named = (*block.supersedes, *((block.superseded_by,) if block.superseded_by else ()))
            if any(other not in everywhere for other in named):
                problems.append(_problem(store, layer, block, "MISSING_REFERENCE"))
    try:
        breaks = store.journal.verify_audit().breaks
    except (HostError, OSError) as error:
        problems.append(Problem("", "manifest.json", 0, getattr(error, "code", "UNREADABLE")))
        breaks = ()
    return Report(count, len(layers), tuple(problems), breaks)


def available(store: MarkdownStore) -> list[Layer]:
    """The layers that exist and can be opened."""
    return [layer for layer in store.roots.existing() if store.is_available(layer)]


def _problem(store: MarkdownStore, layer: Layer, block: Block, code: str) -> Problem:
    found = store.get(layer, block.id)
    return Problem(layer.name, found.file if found else "", found.line if found else 0, code)


def rebuild_index(store: MarkdownStore) -> int:
    """Write each layer's `MEMORY.md` again and drop what is made again; how many layers there are."""
    layers = available(store)
    with store.lock():
        for entry in store.files.scan(store.folder / "derived"):
            if entry.is_file(follow_symlinks=False) and entry.name != activity.FILE:
                ndjson.discard(store.files, Path(entry.path))
        for layer in layers:
            write_index(store, layer)
    return len(layers)


def write_index(store: MarkdownStore, layer: Layer) -> None:
    """Write the layer's `MEMORY.md`: a topic a line. For people; nothing reads it back."""
    topics: dict[str, list[str]] = {}
    for block in store.snapshot(layer).blocks:
        if block.status is Status.ACTIVE and block.sensitivity is Sensitivity.NORMAL:
            topics.setdefault(block.topic, []).append(block.title)
    lines = ["# Memory", "", "Derived from the topic files beside it; edits here are lost.", ""]
    for topic in sorted(topics, key=names.topic_key):
        lines.append(f"- {_shown(topic)}: {len(topics[topic])}")
        lines += [f"  - {_shown(title)}" for title in sorted(topics[topic])[:8]]
        if len(topics[topic]) > 8:
            lines.append(f"  - and {len(topics[topic]) - 8} more")
    ndjson.replace(
        store.files, store.roots.locate(layer.name, INDEX_NAME), ("\n".join(lines) + "\n").encode(), durable=False
    )


def _shown(text: str) -> str:
    """Text that cannot become markup in a list item."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|" else letter for letter in text)


def duplicates(store: MarkdownStore) -> list[Pair]:
    """Active memories of one layer that are equal after folding, or share four fifths of their terms."""
    found: list[Pair] = []
    for layer in available(store):
        active = [block for block in store.snapshot(layer).blocks if block.status is Status.ACTIVE]
        found.extend(_pairs(layer, active))
    return found


def _pairs(layer: Layer, blocks: list[Block]) -> Iterator[Pair]:
    terms = {block.id: frozenset(document_terms(f"{block.title} {block.body}")) for block in blocks}
    holders: dict[str, list[str]] = defaultdict(list)
    for block in blocks:
        others: dict[str, int] = defaultdict(int)
        for term in terms[block.id]:
            known = holders[term]
            if len(known) <= _COMMON:
                for other in known:
                    others[other] += 1
            known.append(block.id)
        for other in others:
            both = terms[block.id] | terms[other]
            alike = len(terms[block.id] & terms[other]) / len(both) if both else 1.0
            if alike >= _ALIKE:
                yield Pair(layer.name, other, block.id, round(alike, 3))


def exported(
    store: MarkdownStore, layers: Iterable[Layer], *, with_sensitive: bool = False
) -> Iterator[dict[str, Any]]:
    """The memories of layers as JSON objects, whatever their status; sensitive ones only when asked for."""
    for layer in layers:
        try:
            blocks = store.snapshot(layer).blocks
        except LayerUnavailable:
            continue
        for block in blocks:
            if block.sensitivity is Sensitivity.NORMAL or with_sensitive:
                yield {"layer": layer.name, **plain(block)}


def plain(block: Block) -> dict[str, Any]:
    """A block in JSON types, defaults left out but the id and texts."""
    default = Block(id="", topic="", title="", body="")
    kept: dict[str, Any] = {}
    for key, value in asdict(block).items():
        if key in ("id", "topic", "title", "body") or value != getattr(default, key):
            kept[key] = value.value if isinstance(value, Enum) else value
    return kept
