"""What calls return: small, picklable, the same to look at in every run.

Owns: the result classes and their looks. They hold names and numbers, never data, a path, a socket or a credential,
so a snapshot of the namespace stays small and loads in another kernel. What a class shows by default depends on the
content only (the short artifact id), not on project, folder, day or store. Does not own: asking the host
(`operations.py`).

Source: design page "Kernel <-> host", Kernel side and Snapshots; "Exact results", Search and Resolve; case G6-01.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, overload

from rlm_memory import display
from rlm_memory.kept import kept

SHORT_ID_CHARACTERS = 14
"""`art_` and ten characters: what is shown, and enough to load by."""


@kept
@dataclass(frozen=True, repr=False)
class Card:
    """What every result says about one recorded experiment. Text in it was written by whoever recorded it."""

    experiment_id: str
    artifact_id: str
    title: str = ""
    summary: str = ""
    source: str = "unspecified"
    source_version: str = "unknown"
    query_fingerprint: str = ""
    shape: tuple[int, ...] | None = None
    columns: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    media_type: str = "application/octet-stream"
    bytes: int = 0
    created_at: str = ""
    updated_at: str = ""
    session_id: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def short_id(self) -> str:
        """The start of the artifact id: the same wherever the same bytes are recorded."""
        return self.artifact_id[:SHORT_ID_CHARACTERS]

    def load(self, **options: Any) -> Any:
        """The exact object, as `memory.experiments.load(self, ...)`."""
        return _experiments().load(self, **options)

    def preview(self) -> Any:
        """The bounded head kept beside it, as `memory.experiments.preview(self)`."""
        return _experiments().preview(self)

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        facts = [repr(display.clean(self.title, 80)), *self._facts(), self.short_id]
        return f"{type(self).__name__}({', '.join(facts)})"

    def _facts(self) -> list[str]:
        return [shape_text(self.shape, self.bytes)]

    def _pairs(self) -> list[tuple[str, object]]:
        return [
            ("size", ", ".join(filter(None, (shape_text(self.shape, None), display.size(self.bytes))))),
            ("source", source_text(self)),
            ("tags", ", ".join(self.tags)),
            ("id", self.short_id),
            *(("note", warning) for warning in self.warnings),
        ]

    def _repr_html_(self) -> str:
        pairs = [(name, value) for name, value in self._pairs() if value]
        return display.html_pairs(pairs, display.clean(self.title, 200))


@kept
@dataclass(frozen=True, repr=False)
class Recorded(Card):
    """The answer of `record`: a reference that any other call accepts."""

    sha256: str = ""
    deduplicated: bool = False
    index_state: str = ""


@kept
@dataclass(frozen=True, repr=False)
class Hit(Card):
    """One result of a search: a hint, until `resolve` or `load` has verified it."""

    matched: tuple[str, ...] = ()
    score: float = 0.0
    index_state: str = ""
    local_available: bool = True
    freshness: str = "not_checked"
    trust: str = "untrusted"

    def resolve(self, current_source_version: str | None = None) -> Any:
        """Verify it, as `memory.experiments.resolve(self, ...)`."""
        return _experiments().resolve(self, current_source_version=current_source_version)

    def _facts(self) -> list[str]:
        return [*super()._facts(), *([] if self.local_available else ["bytes not here"])]


@kept
@dataclass(frozen=True, repr=False)
class Resolved(Card):
    """A verified reference. `freshness` is fresh, stale, unverifiable or not_checked."""

    sha256: str = ""
    freshness: str = "not_checked"
    current_source_version: str | None = None
    verified_at: str = ""

    def _facts(self) -> list[str]:
        return [*super()._facts(), freshness_text(self)]

    def _pairs(self) -> list[tuple[str, object]]:
        return [("freshness", freshness_text(self)), *super()._pairs()]


@kept
@dataclass(frozen=True, repr=False)
class SearchResults(Sequence[Hit]):
    """Hits, best first. `total` counts all that matched; `cursor` fetches the next page, None at the end."""

    hits: tuple[Hit, ...] = ()
    total: int = 0
    cursor: str | None = None
    warnings: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __repr__(self) -> str:
        if not self.hits:
            return "\n".join(["no results", *self._notes()])
        return "\n".join([display.text_table(_HEADER, self._rows()), *self._notes()])

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{display.html_text(note)}</p>" for note in self._notes())
        return (display.html_table(_HEADER, self._rows()) if self.hits else "<p>no results</p>") + notes

    def _rows(self) -> list[list[object]]:
        return [
            [
                number,
                hit.title,
                shape_text(hit.shape, hit.bytes),
                source_text(hit),
                ", ".join(hit.tags),
                ", ".join(hit.matched) or "newest",
                hit.short_id if hit.local_available else f"{hit.short_id} (bytes not here)",
            ]
            for number, hit in enumerate(self.hits)
        ]

    def _notes(self) -> list[str]:
        more = [f"{len(self.hits)} of {self.total} shown; search(..., cursor=results.cursor) goes on"]
        return [*(more if self.cursor else []), *(display.clean(warning, 200) for warning in self.warnings)]


_HEADER = ("#", "title", "size", "source", "tags", "why", "id")


@kept
@dataclass(frozen=True, repr=False)
class Preview:
    """A bounded head kept beside a result when it was recorded. It was not compared with the bytes: unverified."""

    title: str
    content: Mapping[str, Any] | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    codec: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __bool__(self) -> bool:
        return self.content is not None

    def __repr__(self) -> str:
        title = display.clean(self.title, 80)
        table = self._table()
        if self.content is None:
            return f"{title}: no preview was kept"
        body = display.text_table(*table) if table else _outline(self.content)
        return f"{title} (preview, unverified)\n{body}"

    def _repr_html_(self) -> str:
        title = display.clean(self.title, 80)
        table = self._table()
        if self.content is None or table is None:
            return f"<pre>{display.html_text(repr(self))}</pre>"
        return display.html_table(*table, caption=f"{title} (preview, unverified)")

    def _table(self) -> tuple[list[str], list[list[object]]] | None:
        """The content as a table, when it has the columns and rows of one."""
        content = self.content or {}
        columns, rows = content.get("columns"), content.get("rows") or content.get("data")
        if not isinstance(columns, list) or not isinstance(rows, list):
            return None
        names = [display.clean(name) for name in cast("list[object]", columns)]
        cells = cast("list[object]", rows)
        if not names or not all(isinstance(row, list) and len(cast("list[Any]", row)) == len(names) for row in cells):
            return None
        return names, cast("list[list[object]]", cells)


@kept
@dataclass(frozen=True, repr=False)
class Reuse:
    """Why a result was reused, or which component of the computation changed so that none was.

    `changed` names the components that differ from the earlier record `nearest` (a short id): "code", "params['n']",
    "inputs['x']", "source_version". `seconds_saved` is what the computation took when it was recorded, None where that
    was not kept.
    """

    reused: bool
    why: str
    candidates: int = 0
    changed: tuple[str, ...] = ()
    nearest: str = ""
    seconds_saved: float | None = None

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        # Without the seconds, which differ from run to run.
        return f"{'reused' if self.reused else 'not reused'}: {display.clean(self.why, 400)}"

    def _repr_html_(self) -> str:
        pairs: list[tuple[str, object]] = [("reused" if self.reused else "not reused", self.why)]
        if self.changed:
            pairs.append(("changed", ", ".join(self.changed)))
        return display.html_pairs([*pairs, *([("compared with", self.nearest)] if self.changed else [])])


@kept
@dataclass(frozen=True, repr=False)
class Saved:
    """What reuse has saved in this kernel: results that were not computed again, and the seconds they took before."""

    hits: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"{self.hits} result{'' if self.hits == 1 else 's'} reused, {self.seconds:.1f} s of computing saved"


@kept
@dataclass(frozen=True, repr=False)
class Status:
    """Whether a host answers, and its own content-free counts in `details`."""

    connected: bool
    host: str
    problem: str = ""
    artifacts: bool = False
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __repr__(self) -> str:
        return f"memory: {self.host}" if self.connected else f"memory: not connected: {self.problem}"

    def _repr_html_(self) -> str:
        pairs: list[tuple[str, object]] = [("memory", self.host if self.connected else "not connected")]
        return display.html_pairs([*pairs, *([("problem", self.problem)] if self.problem else [])])


def shape_text(shape: tuple[int, ...] | None, size: int | None) -> str:
    """`3 x 2` for a shape, `3 items` along one axis, else the byte count; empty when neither is known."""
    if shape and len(shape) == 1:
        return f"{shape[0]:,} item{'' if shape[0] == 1 else 's'}"
    if shape:
        return " x ".join(f"{length:,}" for length in shape)
    return "" if size is None else display.size(size)


def source_text(card: Card) -> str:
    """Source and version as one word; nothing for the defaults."""
    if card.source == "unspecified" and card.source_version == "unknown":
        return ""
    return card.source if card.source_version == "unknown" else f"{card.source} @ {card.source_version}"


def freshness_text(resolved: Resolved) -> str:
    """Freshness in words; a stale one names both versions."""
    if resolved.freshness == "stale":
        return f"stale: recorded from {resolved.source_version!r}, now {resolved.current_source_version!r}"
    return resolved.freshness.replace("_", " ")


def card_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Card` from a tool's answer; what is missing keeps its default. Unknown fields are ignored."""
    known: dict[str, Any] = {}
    texts = ("experiment_id", "artifact_id", "title", "summary", "source", "source_version", "query_fingerprint")
    for name in (*texts, "media_type", "created_at", "updated_at", "session_id"):
        if isinstance(row.get(name), str):
            known[name] = row[name]
    if isinstance(row.get("bytes"), int):
        known["bytes"] = row["bytes"]
    for name in ("shape", "columns", "tags", "warnings"):
        if isinstance(row.get(name), list):
            known[name] = tuple(cast("list[Any]", row[name]))
    return known


def _outline(content: Mapping[str, Any]) -> str:
    return "\n".join(f"{display.clean(name)}: {display.clean(value, 160)}" for name, value in content.items())


def _experiments() -> Any:
    from rlm_memory.facade import memory

    return memory.experiments
