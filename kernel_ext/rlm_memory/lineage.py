"""`memory.experiments.lineage(ref)`: what a result was made from, and what that was made from.

Owns: the walk over `derived_from` beside the cards, its bounds, its looks. Only ancestors: nothing points from a
result to what was made of it later. Does not own: the notes, which the host keeps and which were written by whoever
recorded: an id among them is looked up like any other, and may lead nowhere.

Source: design page "Exact results", Identity and layout (sidecar).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from rlm_memory import display, errors, wire
from rlm_memory.finding import Host
from rlm_memory.kept import kept
from rlm_memory.operations import notes_of, search
from rlm_memory.references import experiment_id
from rlm_memory.results import SHORT_ID_CHARACTERS, Hit, SearchResults, source_text
from rlm_memory.steps import Meet, Steps

MAX_NODES: Final = 64
MAX_DEPTH: Final = 16
_ID: Final = re.compile(r"exp_[a-z2-7]{52}")


@kept
@dataclass(frozen=True, repr=False)
class Node:
    """One result of a lineage; `parents` are experiment ids, in the order in which they were told."""

    experiment_id: str
    short_id: str
    title: str
    source: str = ""
    parents: tuple[str, ...] = ()
    found: bool = True

    def _line(self) -> str:
        title = display.clean(self.title, 80) if self.found else "not in this project"
        return "  ".join(part for part in (self.short_id, title, display.clean(self.source)) if part)

    def __repr__(self) -> str:
        return self._line()


@kept
@dataclass(frozen=True, repr=False)
class Lineage:
    """A result and its ancestors, breadth first; `cut` tells that the bounds left some out."""

    nodes: tuple[Node, ...]
    cut: bool = False

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Pairs of experiment ids: a result, and one that it was made from."""
        return tuple((node.experiment_id, parent) for node in self.nodes for parent in node.parents)

    def __len__(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        lines = [f"{'  ' * depth}{'from ' if depth else ''}{text}" for depth, text in self._lines()]
        return "\n".join([*lines, *([CUT] if self.cut else [])])

    def _repr_html_(self) -> str:
        parts: list[str] = []
        level = -1
        for depth, text in self._lines():
            parts.append("</li>" * (depth <= level))
            parts.append("</ul></li>" * max(0, level - depth))
            parts.append("<ul>" * (depth > level))
            parts.append(f"<li>{display.html_text(text)}")
            level = depth
        parts.append("</li></ul>" * (level + 1))
        return "".join(parts) + (f"<p>{CUT}</p>" if self.cut else "")

    def _lines(self) -> list[tuple[int, str]]:
        """Depth and text, depth first; a result that was shown already is named without its ancestors."""
        known = {node.experiment_id: node for node in self.nodes}
        lines: list[tuple[int, str]] = []
        shown: set[str] = set()
        waiting = [(0, self.nodes[0].experiment_id)] if self.nodes else []
        while waiting:
            depth, identity = waiting.pop()
            node = known.get(identity)
            if node is None:
                continue  # beyond the bounds
            again = identity in shown
            lines.append((depth, f"{node!r} (as above)" if again else repr(node)))
            shown.add(identity)
            if not again:
                waiting.extend((depth + 1, parent) for parent in reversed(node.parents))
        return lines


CUT: Final = f"more was left out; a lineage shows at most {MAX_NODES} results and {MAX_DEPTH} steps"


def lineage(ref: Any) -> Steps[Lineage]:
    """What a result was made from (`derived_from=` and recorded inputs), step by step, at most 64 results.

    Raises NotFound, Invalid as `resolve` does; Unsupported where the host keeps no notes.
    """
    host: Host = yield Meet()
    first = yield from experiment_id(ref)
    if not host.ours:
        raise errors.Unsupported("this host keeps no notes on where results come from", wire.UNSUPPORTED_REQUEST)
    nodes: dict[str, Node] = {}
    waiting = [(0, first)]
    cut = False
    while waiting:
        depth, identity = waiting.pop(0)
        if identity in nodes:
            continue
        if len(nodes) == MAX_NODES or depth > MAX_DEPTH:
            cut = True
            continue
        node = yield from _node(identity)
        if not nodes and not node.found:
            raise errors.NotFound("no such experiment in this project; search for it, or record it again")
        nodes[identity] = node
        waiting.extend((depth + 1, parent) for parent in node.parents)
    return Lineage(tuple(nodes.values()), cut)


def _node(identity: str) -> Steps[Node]:
    page: SearchResults = yield from search(identity, limit=5)
    hit: Hit | None = next((hit for hit in page if hit.experiment_id == identity), None)
    if hit is None:
        return Node(identity, identity[:SHORT_ID_CHARACTERS], "", found=False)
    notes = yield from notes_of(identity)
    return Node(identity, hit.short_id, hit.title, source_text(hit), _parents(notes))


def _parents(notes: Mapping[str, Any]) -> tuple[str, ...]:
    told = notes.get("lineage")
    listed: object = cast("Mapping[str, object]", told).get("derived_from") if isinstance(told, Mapping) else None
    found = cast("list[object]", listed) if isinstance(listed, list) else []
    return tuple(dict.fromkeys(one for one in found if isinstance(one, str) and _ID.fullmatch(one)))
